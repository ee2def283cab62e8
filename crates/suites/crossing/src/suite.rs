//! What the lab asks of the suite.

use lab::adhoc::SuiteCommand;
use lab::option::{OptionValue, SuiteOption};
use lab::suite::{Capability, Suite};

use crate::{clock, consistency, guest, hand, one_way, patched, stamping, trace, trips, vm};

const fn option(name: &'static str, enables: &'static str) -> SuiteOption {
    SuiteOption { name, enables, value: OptionValue::Text }
}

/// What a user may allow or set by name.
const OPTIONS: &[SuiteOption] = &[
    option("allow-tracefs", "makes a trace instance of its own in tracefs and removes it"),
    option("allow-bpf", "loads a BPF program into the kernel and unloads it"),
    option("allow-cpufreq", "lowers the highest core clock of a CPU and restores it"),
    option("file-folder", "the folder for files that are measured [default: the temporary folder]"),
];

/// The suite.
pub static SUITE: Suite = Suite::new(
    "crossing",
    "from user to kernel and back, one way each and as round trips",
    lab::suite_data!(),
    &[&one_way::OneWay, &stamping::Stamping, &trace::Tracepoint, &trips::RoundTrips, &clock::Clock],
)
.with_options(OPTIONS)
.with_capabilities(capabilities)
.with_inconsistencies(consistency::breaks);

fn capabilities() -> Vec<Capability> {
    vec![
        guest::capability(),
        patched::capability(),
        vm::QEMU.capability(),
        trips::perf::PROGRAM.capability(),
    ]
}

/// The command of the suite.
pub static COMMAND: SuiteCommand =
    SuiteCommand { suite: &SUITE, command: hand::command, run: hand::main };
