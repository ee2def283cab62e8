//! Copies into memory shared with another process, host or device.
//!
//! The suite measures how fast bytes pass into and out of each kind of memory ([`throughput`]),
//! how frames pass between two processes ([`frames`]), what a mediated pool costs and whether it
//! stops forbidden accesses ([`mediation`]), and why mapped memory stops scaling ([`faults`]).
//! [`delivery`] tests without a clock whether bytes arrive, and [`two_hosts`] whether they pass between two hosts.

// A new level of a factor must not compile until every match defines it.
#![deny(clippy::wildcard_enum_match_arm)]

pub mod cli;
pub mod delivery;
pub mod faults;
pub mod frames;
pub mod functions;
pub mod lengths;
pub mod levels;
pub mod mbw;
pub mod mediation;
pub mod memory;
pub mod metrics;
pub mod pattern;
pub mod pool;
pub mod throughput;
mod two_hosts;

use lab::option::{FILE_FOLDER, OptionValue, SuiteOption};
use lab::suite::{Suite, SuiteCommand};

use memory::physical;
use throughput::SOURCE_OFFSET;

const fn text(name: &'static str, enables: &'static str) -> SuiteOption {
    option(name, OptionValue::Text, enables)
}

const fn option(name: &'static str, value: OptionValue, enables: &'static str) -> SuiteOption {
    SuiteOption { name, enables, value }
}

/// Options that a user may allow or set by name.
const OPTIONS: &[SuiteOption] = &[
    text(physical::ALLOW, "maps the named physical memory read-only"),
    text(physical::ALLOW_WRITE, "maps the named physical memory writable and overwrites it"),
    option(
        SOURCE_OFFSET,
        OptionValue::Number,
        "number added to the index of each source byte, e.g. 7",
    ),
    option(
        physical::HOST_ADDRESS,
        OptionValue::Address,
        "physical address of memory = host-physical, as in /proc/iomem",
    ),
    option(
        physical::DEVICE_ADDRESS,
        OptionValue::Address,
        "physical address of memory = device, as in /proc/iomem",
    ),
    text(
        physical::PCI_RESOURCE,
        "file of memory = pci-bar, e.g. /sys/bus/pci/devices/.../resource0",
    ),
    text(physical::DAX_DEVICE, "device of memory = dax, e.g. /dev/dax0.0"),
    text(functions::APEX, "copy function apex, as PATH.so:SYMBOL; requires --allow code"),
    option(
        throughput::PAUSE,
        OptionValue::Number,
        "seconds to sleep before every 4 bytes of a copy, to watch data arrive at another host",
    ),
    option(
        vm::rules::OPTION,
        OptionValue::Content,
        "file of rules for the pool of two-host-mediation [default: ESCAPE's, scaled to 16 MiB]",
    ),
    FILE_FOLDER,
];

/// The suite.
pub static SUITE: Suite = Suite::new(
    "copy",
    "copies into memory shared with another process, host or device",
    lab::suite_data!(),
    &[
        &throughput::Throughput,
        &frames::Frames,
        &mediation::Mediation,
        &faults::PageEvents,
        &delivery::Delivery,
        &two_hosts::delivery::TwoHostDelivery,
        &two_hosts::frames::TwoHostFrames,
        &two_hosts::mediation::TwoHostMediation,
    ],
)
.with_options(OPTIONS)
.with_capabilities(|| vec![mbw::PROGRAM.capability(), memory::gpu_capability()])
.with_command(SuiteCommand { command: cli::command, run: cli::main });

#[cfg(test)]
mod tests {
    use lab::soundness;

    #[test]
    fn experiments_claims_and_figures_name_only_what_exists() {
        assert_eq!(soundness::faults(&crate::SUITE).unwrap(), Vec::<String>::new());
    }
}
