//! `throughput`: the highest load without loss, or with little loss.
//!
//! Two searches run on the same testbed: the binary search of RFC 2544 as in the Ensō evaluation, and one after
//! MLRsearch that finds the loads without loss (NDR) and with 0.5% loss (PDR) together and confirms both. Every
//! trial of both is recorded.

use std::collections::BTreeMap;
use std::time::Duration;

use lab::measure::Measurement;
use lab::sample::{Failure, Trial};
use lab::search::{self, Goal, LoadInterval, LossRatios, Rfc2544, TrialOutcome};
use machine::tsc::Tsc;

use super::params::SearchParams;
use super::single_trial::with_testbed;
use super::testbed::{Testbed, TrialReport};
use super::testbed_config::{Cpus, TestbedConfig};
use super::utilisation::Bottleneck;
use super::{metrics, stall};

/// Precision of the RFC 2544 search, in bit/s: 0.1 Gbps, as in the Ensō evaluation.
const PRECISION: f64 = 0.1 * 1e9;
/// Loss ratio of the PDR.
const PARTIAL_LOSS: f64 = 0.005;
/// Width of the NDR and PDR intervals, as a share of their upper bound.
const WIDTH: f64 = 0.005;
/// Lowest load tried, as a share of the highest.
const MIN_LOAD: f64 = 0.001;
/// Additional full trials that must succeed at the NDR and PDR.
const CONFIRMATIONS: u32 = 2;
/// Phases of shorter trials before the full ones.
const SHORTER_PHASES: u32 = 2;
/// Divisor of the budget for the shortest trials.
const SHORTENING: u32 = 4;
/// Metric by which searches are judged: the bottleneck of a sample is its.
const JUDGED: &str = "ndr_strict";
/// Value of a trial that identifies its search: 0 is RFC 2544, 1 is MLRsearch.
const SEARCH: &str = "search";

/// Value of a trial that states which side was the [bottleneck](Bottleneck::code).
const BOTTLENECK: &str = "bottleneck";

/// Typical number of trials of both searches, for the estimate of a sample's duration.
pub(super) const TRIALS: u32 = 35;

/// Measures one point. `budget` is the duration of a full trial.
///
/// # Errors
/// Returns the failure to record in place of a sample.
pub(super) fn measure(
    params: &SearchParams,
    config: &TestbedConfig,
    cpus: &Cpus,
    budget: Duration,
    tsc: &Tsc,
) -> Result<Measurement, Failure> {
    let mut testbed = Testbed::new(config, cpus, tsc.rate())?;
    // The warm-up; the Ensō evaluation offers the maximum for 5 s first.
    let maximum = params.maximum.0;
    testbed.warm_up(|testbed| testbed.offer(maximum, budget, false))?;
    let mut trial = |load: f64, duration: Duration| {
        let trial = testbed.offer(load, duration, false)?;
        Ok(outcome(&trial, tsc))
    };
    let search = Rfc2544 { maximum, precision: PRECISION.min(maximum / 10.0), duration: budget };
    let rfc2544 = search::rfc2544(&search, &mut trial)?;
    let goal = |ratio| Goal { ratio, width: WIDTH };
    let search = LossRatios {
        goals: vec![goal(0.0), goal(PARTIAL_LOSS)],
        min_load: maximum * MIN_LOAD,
        max_load: maximum,
        duration: budget,
        confirmations: CONFIRMATIONS,
        min_duration: budget / SHORTENING,
        shorter_phases: SHORTER_PHASES,
    };
    let mlrsearch = search::loss_ratios(&search, &mut trial)?;
    let (ndr, pdr) = (mlrsearch.goals[0], mlrsearch.goals[1]);
    let found = [
        Found::new(&["rfc2544", "rfc2544_wire"], rfc2544.bounds, &rfc2544.trials, true, 0.0),
        Found::new(&["ndr"], ndr.valid, &mlrsearch.trials, false, 0.0),
        Found::new(&["ndr_strict", "ndr_strict_wire"], ndr.strict, &mlrsearch.trials, true, 0.0),
        Found::new(&["pdr"], pdr.valid, &mlrsearch.trials, false, PARTIAL_LOSS),
    ];
    let measurement = found.iter().fold(Measurement::default(), |all, one| {
        with_bounds(all, one.metrics[0], one.bounds, config.wire_bits())
    });
    let metrics_if = |is: &dyn Fn(&Found) -> bool| -> Vec<&str> {
        found.iter().filter(|one| is(one)).flat_map(|one| one.metrics).copied().collect()
    };
    let capped = metrics_if(&|one| one.bounds.lower == Some(maximum));
    let limited = metrics_if(&|one| one.bottleneck.is_instrument());
    let of_judged = found.iter().find(|one| one.metrics[0] == JUDGED);
    let bottleneck = of_judged.map_or(Bottleneck::Neither, |one| one.bottleneck);
    let trials = || rfc2544.trials.iter().chain(&mlrsearch.trials);
    let mut measurement = measurement
        .value("rfc2544_wire", rfc2544.bounds.lower.unwrap_or(0.0))
        .value("ndr_strict_wire", ndr.strict.lower.unwrap_or(0.0))
        .value("trials", trials().count() as f64)
        .value("void_trials", trials().filter(|trial| trial.void.is_some()).count() as f64)
        .capped(&capped)
        .bottleneck(bottleneck.name(), &limited);
    let tag = |search: f64| {
        move |mut trial: Trial| {
            trial.values.insert(SEARCH.into(), search);
            trial
        }
    };
    let trials = rfc2544.trials.into_iter().map(tag(0.0));
    measurement.trials = trials.chain(mlrsearch.trials.into_iter().map(tag(1.0))).collect();
    Ok(with_testbed(measurement, &testbed))
}

/// A result of a search.
struct Found {
    /// The metrics of its lower bound.
    metrics: &'static [&'static str],
    bounds: LoadInterval,
    /// The bottleneck of the lowest load that failed.
    bottleneck: Bottleneck,
}

impl Found {
    /// Takes the result of `trials` of which `allowed` may be lost; void trials count if it is `strict`.
    fn new(
        metrics: &'static [&'static str],
        bounds: LoadInterval,
        trials: &[Trial],
        strict: bool,
        allowed: f64,
    ) -> Self {
        let value = |trial: &Trial, name: &str| trial.values.get(name).copied().unwrap_or(0.0);
        let failed = |trial: &&Trial| {
            let counts = strict || trial.void.is_none() || trial.holds.is_some();
            counts && value(trial, "lost") > allowed * value(trial, "sent")
        };
        let at_upper = trials.iter().filter(|trial| Some(trial.level) == bounds.upper);
        let codes = at_upper.filter(failed).map(|trial| value(trial, BOTTLENECK));
        let bottleneck = codes.map(Bottleneck::of_code).fold(Bottleneck::Neither, Bottleneck::and);
        Self { metrics, bounds, bottleneck }
    }
}

/// Adds the bounds of a search in packets/s: the lower one, 0 if no load succeeded, and the upper one if a load failed.
fn with_bounds(
    measurement: Measurement,
    metric: &str,
    bounds: LoadInterval,
    wire_bits: f64,
) -> Measurement {
    let measurement = measurement.value(metric, bounds.lower.unwrap_or(0.0) / wire_bits);
    match bounds.upper {
        Some(upper) => measurement.value(&format!("{metric}_upper"), upper / wire_bits),
        None => measurement,
    }
}

/// Converts a trial's report to the outcome that a search uses.
pub(super) fn outcome(trial: &TrialReport, tsc: &Tsc) -> TrialOutcome {
    let mut values: BTreeMap<String, f64> = metrics::interruptions(trial, tsc)
        .into_iter()
        .map(|(name, ns)| (name.into(), ns))
        .collect();
    values.insert("offered".into(), trial.report.offered() * tsc.hertz);
    values.insert("dropped".into(), trial.report.dropped as f64);
    let utilisation = metrics::utilisation(trial, tsc);
    values.extend(utilisation.into_iter().map(|(name, value)| (name.to_string(), value)));
    values.insert(BOTTLENECK.into(), trial.bottleneck().code());
    TrialOutcome { sent: trial.asked, lost: trial.lost(), void: stall::void(trial, tsc), values }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core_use::CoreStats;
    use crate::generator::Report;
    use crate::iterations::LoopTimes;

    fn trial(asked: u64, iterations: LoopTimes) -> TrialReport {
        let (sent, received) = (90, 90);
        let report =
            Report { sent, received, ended_sending: 1000, iterations, ..Report::default() };
        let application = vec![CoreStats::default()];
        TrialReport { report, asked, application, ..TrialReport::default() }
    }

    #[test]
    fn packets_not_sent_in_time_are_lost() {
        let Some(tsc) = machine::untested::tsc("stream: packets not sent in time") else { return };
        let late = outcome(&trial(100, LoopTimes::default()), tsc);
        assert_eq!((late.sent, late.lost, late.void), (100, 10, None));
        assert_eq!((late.values["lost_not_sent"], late.values[BOTTLENECK]), (10.0, 2.0));
        let stall = LoopTimes {
            longest_stall: tsc.ticks(Duration::from_millis(1)),
            ..LoopTimes::default()
        };
        for (asked, lost) in [(100, 10), (90, 0)] {
            let stalled = outcome(&trial(asked, stall), tsc);
            assert!(stalled.lost == lost && stalled.void.is_some(), "{stalled:?}");
        }
    }

    #[test]
    fn the_bottleneck_is_that_of_the_lowest_load_that_failed() {
        let trial = |level: f64, lost: f64, bottleneck: Bottleneck, void: bool| Trial {
            level,
            holds: (!void).then_some(lost == 0.0),
            void: void.then(|| "a stall".into()),
            values: [("sent", 100.0), ("lost", lost), (BOTTLENECK, bottleneck.code())]
                .map(|(name, value)| (name.to_string(), value))
                .into(),
        };
        let trials = [
            trial(9.0, 50.0, Bottleneck::Both, false),
            trial(5.0, 0.0, Bottleneck::Neither, false),
            trial(5.0, 3.0, Bottleneck::Application, false),
            trial(5.0, 3.0, Bottleneck::Nic, true),
        ];
        let of = |upper, strict, allowed| {
            let bounds = LoadInterval { lower: None, upper };
            Found::new(&["ndr"], bounds, &trials, strict, allowed).bottleneck
        };
        assert_eq!(of(Some(5.0), false, 0.0), Bottleneck::Application);
        assert_eq!(of(Some(5.0), true, 0.0), Bottleneck::Both);
        assert_eq!(of(Some(5.0), true, 0.05), Bottleneck::Neither);
        assert_eq!(of(Some(9.0), false, 0.05), Bottleneck::Both);
        assert_eq!(of(None, true, 0.0), Bottleneck::Neither);
    }
}
