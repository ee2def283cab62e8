//! What the lab asks of the suite.

mod application;
pub mod ceiling;
mod closed;
pub mod factors;
mod interface;
mod load;
mod measured;
pub mod metrics;
mod probe;
mod search;
pub mod setting;
pub mod stall;
mod stand;

use std::time::Duration;

use lab::factor::Factor;
use lab::metric::Metric;
use lab::point::Point;
use lab::run::Lab;
use lab::sample::Failure;
use lab::suite::{Capability, Data, Probe, Suite};

use crate::hand;
use probe::StreamProbe;
use setting::Setting;

/// From the NIC to the application.
pub struct StreamSuite;

/// A way to measure: what an experiment is measured as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The next packet is sent as soon as one comes back.
    Closed,
    /// Packets are sent at a rate.
    Load,
    /// The same, with round-trip times.
    RoundTrips,
    /// The largest load without loss is sought.
    Search,
}

impl Kind {
    const ALL: [(&'static str, Self); 4] = [
        ("interfaces", Self::Closed),
        ("line-rate", Self::Load),
        ("rtt-vs-load", Self::RoundTrips),
        ("throughput", Self::Search),
    ];

    fn of(experiment: &str) -> Result<Self, Failure> {
        let found = Self::ALL.iter().find(|(name, _)| *name == experiment);
        found.map(|(_, kind)| *kind).ok_or_else(|| {
            let ways: Vec<&str> = Self::ALL.iter().map(|(name, _)| *name).collect();
            let ways = ways.join(", ");
            Failure::failed(format!(
                "nothing is measured as '{experiment}'; set measured_as to one of {ways}"
            ))
        })
    }
}

/// Cores of the application that the source's claims need: one of them, and all.
const CORES: [usize; 2] = [1, 8];

/// What a sample takes besides what it measures: threads, rings and their memory, how near the cores are.
const BESIDES: Duration = Duration::from_millis(20);
/// What each MiB of rings adds: all of it is made and touched first.
const A_MEBIBYTE: Duration = Duration::from_millis(3);

/// What a trial of a search takes besides its duration: it waits first, and for what is lost at its end.
const A_TRIAL: Duration = Duration::from_millis(3);

impl Suite for StreamSuite {
    fn name(&self) -> &'static str {
        "stream"
    }

    fn about(&self) -> &'static str {
        "from the NIC to the application: a stream of packets against a descriptor a packet"
    }

    fn data(&self) -> Data {
        Data {
            experiments: include_str!("../../experiments.toml"),
            claims: include_str!("../../claims.toml"),
            promises: include_str!("../../promises.toml"),
            figures: include_str!("../../figures.toml"),
        }
    }

    fn factors(&self) -> &'static [Factor] {
        factors::FACTORS
    }

    fn metrics(&self) -> &'static [Metric] {
        metrics::METRICS
    }

    fn capabilities(&self) -> Vec<Capability> {
        CORES.iter().map(|cores| setting::capability(*cores)).collect()
    }

    fn available(&self, _: &str, point: &Point) -> Result<(), Failure> {
        let allowed = machine::topology::allowed_cpus();
        Setting::of(point)?.cpus(&allowed).map(|_| ())
    }

    fn expected(&self, experiment: &str, point: &Point, budget: Duration) -> Duration {
        if self.available(experiment, point).is_err() {
            return Duration::from_millis(1);
        }
        Self::takes(experiment, point, budget)
    }

    fn probe(&self, experiment: &str) -> Result<Box<dyn Probe>, Failure> {
        Ok(Box::new(StreamProbe(Kind::of(experiment)?)))
    }

    fn by_hand(
        &self,
        arguments: &[String],
        lab: &Lab,
    ) -> Result<i32, Box<dyn std::error::Error + Send + Sync>> {
        hand::main(arguments, lab)
    }
}

impl StreamSuite {
    /// How long a sample takes on a machine that has what its point needs.
    fn takes(experiment: &str, point: &Point, budget: Duration) -> Duration {
        let Ok(setting) = Setting::of(point) else { return Duration::from_millis(1) };
        let mebibytes = u32::try_from(setting.interface.memory(&setting) >> 20);
        let besides =
            A_MEBIBYTE.saturating_mul(mebibytes.unwrap_or(u32::MAX)).saturating_add(BESIDES);
        besides.saturating_add(match Kind::of(experiment) {
            Ok(Kind::Search) => budget.saturating_add(A_TRIAL).saturating_mul(search::TRIALS),
            _ => budget.saturating_mul(5) / 4,
        })
    }
}

#[cfg(test)]
mod tests {
    use lab::experiment::Profile;
    use lab::soundness;

    use super::*;

    /// The suite on a machine that has what all points need, whatever this one has.
    struct Everywhere;

    impl Suite for Everywhere {
        fn name(&self) -> &'static str {
            StreamSuite.name()
        }

        fn about(&self) -> &'static str {
            StreamSuite.about()
        }

        fn data(&self) -> Data {
            StreamSuite.data()
        }

        fn factors(&self) -> &'static [Factor] {
            StreamSuite.factors()
        }

        fn metrics(&self) -> &'static [Metric] {
            StreamSuite.metrics()
        }

        fn capabilities(&self) -> Vec<Capability> {
            StreamSuite.capabilities()
        }

        fn available(&self, _: &str, _: &Point) -> Result<(), Failure> {
            Ok(())
        }

        fn expected(&self, experiment: &str, point: &Point, budget: Duration) -> Duration {
            StreamSuite::takes(experiment, point, budget)
        }

        fn probe(&self, experiment: &str) -> Result<Box<dyn Probe>, Failure> {
            StreamSuite.probe(experiment)
        }

        fn by_hand(
            &self,
            arguments: &[String],
            lab: &Lab,
        ) -> Result<i32, Box<dyn std::error::Error + Send + Sync>> {
            StreamSuite.by_hand(arguments, lab)
        }
    }

    #[test]
    fn experiments_claims_and_figures_go_together() {
        assert_eq!(soundness::faults(&crate::SUITE).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn quick_is_quick_and_standard_takes_two_hours_at_most() {
        let seconds = |profile| soundness::seconds(&Everywhere, profile).unwrap();
        let (quick, standard) = (seconds(Profile::Quick), seconds(Profile::Standard));
        println!("quick {quick:.0} s, standard {standard:.0} s");
        assert!(quick < 20.0 && standard < 7200.0, "quick {quick:.0} s, standard {standard:.0} s");
    }
}
