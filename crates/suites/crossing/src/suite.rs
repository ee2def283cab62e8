//! What the lab asks of the suite.

use lab::adhoc::SuiteCommand;
use lab::journal::Run;
use lab::method::AnyMethod;
use lab::option::{OptionValue, SuiteOption};
use lab::run::Lab;
use lab::suite::{Capability, Data, Suite};

use crate::{clock, consistency, guest, hand, one_way, patched, stamping, trace, trips, vm};

/// From user to kernel and back.
pub struct CrossingSuite;

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

impl Suite for CrossingSuite {
    fn name(&self) -> &'static str {
        "crossing"
    }

    fn about(&self) -> &'static str {
        "from user to kernel and back, one way each and as round trips"
    }

    fn methods(&self) -> &'static [&'static dyn AnyMethod] {
        &[
            &one_way::OneWay,
            &stamping::Stamping,
            &trace::Tracepoint,
            &trips::RoundTrips,
            &clock::Clock,
        ]
    }

    fn data(&self) -> Data {
        Data {
            experiments: include_str!("../experiments.toml"),
            claims: include_str!("../claims.toml"),
            promises: include_str!("../promises.toml"),
            figures: include_str!("../figures.toml"),
        }
    }

    fn capabilities(&self) -> Vec<Capability> {
        vec![
            guest::capability(),
            patched::capability(),
            vm::QEMU.capability(),
            trips::perf::PROGRAM.capability(),
        ]
    }

    fn inconsistencies(&self, run: &Run) -> Vec<String> {
        consistency::breaks(run)
    }

    fn options(&self) -> &'static [SuiteOption] {
        OPTIONS
    }
}

impl SuiteCommand for CrossingSuite {
    fn command(&self) -> Option<clap::Command> {
        Some(hand::command())
    }

    fn run_command(
        &self,
        matches: &clap::ArgMatches,
        lab: &Lab,
    ) -> Result<i32, Box<dyn std::error::Error + Send + Sync>> {
        hand::main(matches, lab)
    }
}
