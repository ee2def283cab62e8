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

use lab::method::{AnyMethod, Untyped};
use lab::point::Point;
use lab::run::Lab;
use lab::sample::Failure;
use lab::suite::{Capability, Data, Suite};

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

/// Cores of the application that the source's claims need: one of them, and all.
const CORES: [usize; 2] = [1, 8];

/// What a sample takes besides what it measures: threads, rings and their memory, how near the cores are.
const BESIDES: Duration = Duration::from_millis(20);
/// What each MiB of rings adds: all of it is made and touched first.
const A_MEBIBYTE: Duration = Duration::from_millis(3);

/// What a trial of a search takes besides its duration: it waits first, and for what is lost at its end.
const A_TRIAL: Duration = Duration::from_millis(3);

/// What all methods share.
const SUITE_WIDE: Untyped = Untyped {
    factors: || factors::FACTORS,
    metrics: || metrics::METRICS,
    available,
    ..Untyped::PLAIN
};

static CLOSED: Untyped = Untyped {
    name: "interfaces",
    expected: |point, budget| expected(Kind::Closed, point, budget),
    probe: || Ok(Box::new(StreamProbe(Kind::Closed))),
    ..SUITE_WIDE
};

static LOAD: Untyped = Untyped {
    name: "line-rate",
    expected: |point, budget| expected(Kind::Load, point, budget),
    probe: || Ok(Box::new(StreamProbe(Kind::Load))),
    ..SUITE_WIDE
};

static ROUND_TRIPS: Untyped = Untyped {
    name: "rtt-vs-load",
    expected: |point, budget| expected(Kind::RoundTrips, point, budget),
    probe: || Ok(Box::new(StreamProbe(Kind::RoundTrips))),
    ..SUITE_WIDE
};

static SEARCH: Untyped = Untyped {
    name: "throughput",
    expected: |point, budget| expected(Kind::Search, point, budget),
    probe: || Ok(Box::new(StreamProbe(Kind::Search))),
    ..SUITE_WIDE
};

static METHODS: &[&dyn AnyMethod] = &[&CLOSED, &LOAD, &ROUND_TRIPS, &SEARCH];

impl Suite for StreamSuite {
    fn name(&self) -> &'static str {
        "stream"
    }

    fn about(&self) -> &'static str {
        "from the NIC to the application: a stream of packets against a descriptor a packet"
    }

    fn methods(&self) -> &'static [&'static dyn AnyMethod] {
        METHODS
    }

    fn data(&self) -> Data {
        Data {
            experiments: include_str!("../../experiments.toml"),
            claims: include_str!("../../claims.toml"),
            promises: include_str!("../../promises.toml"),
            figures: include_str!("../../figures.toml"),
        }
    }

    fn capabilities(&self) -> Vec<Capability> {
        CORES.iter().map(|cores| setting::capability(*cores)).collect()
    }

    fn by_hand(
        &self,
        arguments: &[String],
        lab: &Lab,
    ) -> Result<i32, Box<dyn std::error::Error + Send + Sync>> {
        hand::main(arguments, lab)
    }
}

/// Checks whether the machine has the cores that a point needs.
fn available(point: &Point) -> Result<(), Failure> {
    let allowed = machine::topology::allowed_cpus();
    Setting::of(point)?.cpus(&allowed).map(|_| ())
}

fn expected(kind: Kind, point: &Point, budget: Duration) -> Duration {
    match available(point) {
        Ok(()) => takes(kind, point, budget),
        Err(_) => Duration::from_millis(1),
    }
}

/// How long a sample takes on a machine that has what its point needs.
fn takes(kind: Kind, point: &Point, budget: Duration) -> Duration {
    let Ok(setting) = Setting::of(point) else { return Duration::from_millis(1) };
    let mebibytes = u32::try_from(setting.interface.memory(&setting) >> 20);
    let besides = A_MEBIBYTE.saturating_mul(mebibytes.unwrap_or(u32::MAX)).saturating_add(BESIDES);
    besides.saturating_add(match kind {
        Kind::Search => budget.saturating_add(A_TRIAL).saturating_mul(search::TRIALS),
        Kind::Closed | Kind::Load | Kind::RoundTrips => budget.saturating_mul(5) / 4,
    })
}

#[cfg(test)]
mod tests {
    use lab::experiment::{Experiment, Profile};
    use lab::plan::{self, Item};
    use lab::soundness;

    use super::*;

    #[test]
    fn experiments_claims_and_figures_go_together() {
        assert_eq!(soundness::faults(&crate::SUITE).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn quick_is_quick_and_standard_takes_two_hours_at_most() {
        let suite: &dyn Suite = &crate::SUITE;
        // On a machine that has what all points need.
        let of_point = |kind, experiment: &Experiment, item: &Item| {
            takes(kind, &item.point, experiment.effort.budget).as_secs_f64()
        };
        let of_experiment = |experiment: &Experiment| {
            let kind = match experiment.method.as_str() {
                "interfaces" => Kind::Closed,
                "line-rate" => Kind::Load,
                "rtt-vs-load" => Kind::RoundTrips,
                "throughput" => Kind::Search,
                other => panic!("unknown method '{other}'"),
            };
            let items = plan::items(experiment);
            let round: f64 = items.iter().map(|item| of_point(kind, experiment, item)).sum();
            round * f64::from(experiment.effort.rounds)
        };
        let seconds = |profile| -> f64 {
            soundness::experiments(suite, profile).unwrap().iter().map(of_experiment).sum()
        };
        let (quick, standard) = (seconds(Profile::Quick), seconds(Profile::Standard));
        println!("quick {quick:.0} s, standard {standard:.0} s");
        assert!(quick < 20.0 && standard < 7200.0, "quick {quick:.0} s, standard {standard:.0} s");
    }
}
