//! What the lab asks of the suite.

use std::sync::LazyLock;
use std::time::Duration;

use lab::factor::Factor;
use lab::guest::Guest;
use lab::journal::Run;
use lab::metric::Metric;
use lab::option::{OptionValue, SuiteOption};
use lab::point::Point;
use lab::run::Lab;
use lab::sample::Failure;
use lab::suite::{Capability, Data, Probe, Suite};

use crate::{
    clock, consistency, factors, guest, hand, metrics, one_way, patched, stamping, trace, trips, vm,
};

/// From user to kernel and back.
pub struct CrossingSuite;

static FACTORS: LazyLock<Vec<Factor>> =
    LazyLock::new(|| [factors::FACTORS, trips::FACTORS, trace::FACTORS, clock::FACTORS].concat());

static METRICS: LazyLock<Vec<Metric>> = LazyLock::new(|| {
    [metrics::METRICS, stamping::METRICS, trips::METRICS, trace::METRICS, clock::METRICS].concat()
});

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

    fn data(&self) -> Data {
        Data {
            experiments: include_str!("../experiments.toml"),
            claims: include_str!("../claims.toml"),
            promises: include_str!("../promises.toml"),
            figures: include_str!("../figures.toml"),
        }
    }

    fn factors(&self) -> &'static [Factor] {
        &FACTORS
    }

    fn metrics(&self) -> &'static [Metric] {
        &METRICS
    }

    fn capabilities(&self) -> Vec<Capability> {
        vec![
            guest::capability(),
            patched::capability(),
            vm::QEMU.capability(),
            trips::perf::PROGRAM.capability(),
        ]
    }

    fn guest(&self, _: &str, point: &Point) -> Option<Guest> {
        vm::guest(point)
    }

    fn inconsistencies(&self, run: &Run) -> Vec<String> {
        consistency::breaks(run)
    }

    fn options(&self) -> &'static [SuiteOption] {
        OPTIONS
    }

    fn by_hand(
        &self,
        arguments: &[String],
        lab: &Lab,
    ) -> Result<i32, Box<dyn std::error::Error + Send + Sync>> {
        hand::main(arguments, lab)
    }

    fn available(&self, experiment: &str, point: &Point) -> Result<(), Failure> {
        match experiment {
            "one-way" => one_way::available(point),
            "clock" => clock::available(point),
            "stamping" => stamping::available(point),
            "tracepoint" => trace::available(point),
            _ => trips::available(point),
        }
    }

    fn expected(&self, experiment: &str, point: &Point, budget: Duration) -> Duration {
        match experiment {
            "one-way" => one_way::expected(point, budget),
            "clock" => clock::expected(point, budget),
            "stamping" => stamping::expected(point, budget),
            "tracepoint" => trace::expected(point, budget),
            _ => trips::expected(point, budget),
        }
    }

    fn probe(&self, experiment: &str) -> Result<Box<dyn Probe>, Failure> {
        Ok(match experiment {
            "one-way" => one_way::probe(),
            "clock" => clock::probe(),
            "stamping" => stamping::probe(),
            "tracepoint" => trace::probe(),
            "round-trips" => trips::probe(),
            other => {
                let ways = "one-way, stamping, tracepoint, round-trips, clock";
                return Err(Failure::failed(format!(
                    "nothing is measured as '{other}'; set measured_as to one of {ways}"
                )));
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use lab::experiment::Profile;
    use lab::soundness;

    #[test]
    fn experiments_claims_and_figures_go_together() {
        assert_eq!(soundness::faults(&crate::SUITE).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn quick_is_quick_and_standard_takes_a_coffee() {
        let seconds = |profile| soundness::seconds(&crate::SUITE, profile).unwrap();
        let (quick, standard) = (seconds(Profile::Quick), seconds(Profile::Standard));
        println!("quick {quick:.0} s, standard {standard:.0} s");
        assert!(quick < 60.0 && standard < 1200.0, "quick {quick:.0} s, standard {standard:.0} s");
    }
}
