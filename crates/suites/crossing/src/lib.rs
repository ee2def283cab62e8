//! Cost of crossing from user mode to the kernel and back.
//!
//! One-way times without the kernel's entry code come from a micro-guest ([`guest`]) and from a patched
//! Linux ([`patched`]). On any Linux the suite measures the time to the first tracepoint ([`trace`]) and
//! round trips ([`trips`]).

// A new level of a factor must not compile until every match defines it.
#![deny(clippy::wildcard_enum_match_arm)]

pub mod cli;
pub mod clock;
pub mod consistency;
pub mod guest;
pub mod one_way;
pub mod patched;
pub mod stamping;
pub mod ticks;
pub mod trace;
pub mod trips;

use lab::capability::Capability;
use lab::option::{FILE_FOLDER, OptionValue, SuiteOption};
use lab::suite::{Suite, SuiteCommand};

const fn feature(name: &'static str, enables: &'static str) -> SuiteOption {
    SuiteOption { name, enables, value: OptionValue::Text }
}

/// Options of the suite.
const OPTIONS: &[SuiteOption] = &[
    feature("allow-tracefs", "creates and removes a trace instance in tracefs"),
    feature("allow-bpf", "loads and unloads a BPF program"),
    feature("allow-cpufreq", "lowers the maximum core clock of a CPU and restores it"),
    FILE_FOLDER,
];

/// The suite.
pub static SUITE: Suite = Suite::new(
    "crossing",
    "crossings between user and kernel, one way and as round trips",
    lab::suite_data!(),
    &[
        &one_way::OneWay,
        &stamping::Stamping,
        &trace::Tracepoint,
        &trips::RoundTrips,
        &clock::Clock,
        &clock::OneWayClock,
    ],
)
.with_options(OPTIONS)
.with_capabilities(capabilities)
.with_inconsistencies(consistency::contradictions)
.with_command(SuiteCommand { command: cli::command, run: cli::main })
.with_outputs(cli::SCHEMAS);

fn capabilities() -> Vec<Capability> {
    vec![
        guest::capability(),
        patched::capability(),
        vm::QEMU.capability(),
        trips::perf::PROGRAM.capability(),
    ]
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use lab::soundness;

    #[test]
    fn experiments_claims_and_figures_name_only_what_exists() {
        assert_eq!(soundness::faults(&crate::SUITE).unwrap(), Vec::<String>::new());
    }

    #[test]
    #[should_panic(expected = "overflow")]
    fn integer_overflow_panics() {
        black_box(black_box(u64::MAX) + black_box(1));
    }
}
