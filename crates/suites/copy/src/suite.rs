//! The suite as the lab sees it: methods, data, options.

use lab::adhoc::SuiteCommand;
use lab::option::{OptionValue, SuiteOption};
use lab::suite::Suite;

use crate::mbw;
use crate::memory::{FILE_FOLDER, physical};
use crate::throughput::SOURCE_OFFSET;
use crate::{cli, delivery, faults, frames, mediation, throughput};

const fn text(name: &'static str, enables: &'static str) -> SuiteOption {
    option(name, OptionValue::Text, enables)
}

const fn option(name: &'static str, value: OptionValue, enables: &'static str) -> SuiteOption {
    SuiteOption { name, enables, value }
}

/// Options that a user may allow or set by name.
const OPTIONS: &[SuiteOption] = &[
    text(physical::ALLOW, "maps the named physical memory read-only"),
    text(physical::ALLOW_WRITE, "also writes it, which destroys its contents"),
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
    text(FILE_FOLDER, "folder of the measured files [default: the temporary folder]"),
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
    ],
)
.with_options(OPTIONS)
.with_capabilities(|| vec![mbw::PROGRAM.capability()]);

/// The command of the suite.
pub static COMMAND: SuiteCommand =
    SuiteCommand { suite: &SUITE, command: cli::command, run: cli::main };

#[cfg(test)]
mod tests {
    use lab::experiment::Profile;
    use lab::soundness;

    #[test]
    fn experiments_claims_and_figures_name_only_what_exists() {
        assert_eq!(soundness::faults(&crate::SUITE).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn quick_takes_minutes_and_standard_under_an_hour() {
        let seconds = |profile| soundness::seconds(&crate::SUITE, profile).unwrap();
        let (quick, standard) = (seconds(Profile::Quick), seconds(Profile::Standard));
        println!("quick {quick:.0} s, standard {standard:.0} s");
        assert!(quick < 150.0 && standard < 2700.0, "quick {quick:.0} s, standard {standard:.0} s");
    }
}
