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
use super::testbed::{Testbed, TrialReport};
use super::testbed_config::{Cpus, TestbedConfig};
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
/// Value of a trial that identifies its search: 0 is RFC 2544, 1 is MLRsearch.
const SEARCH: &str = "search";

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
    let testbed = Testbed::new(config, cpus, tsc)?;
    // The warm-up; the Ensō evaluation offers the maximum for 5 s first.
    let maximum = params.maximum.0;
    testbed.offer(maximum, budget, false)?;
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
    let measurement = [
        ("rfc2544", rfc2544.bounds),
        ("ndr", ndr.valid),
        ("ndr_strict", ndr.strict),
        ("pdr", pdr.valid),
    ]
    .into_iter()
    .fold(Measurement::default(), |all, (metric, bounds)| {
        with_bounds(all, metric, bounds, config.wire_bits())
    });
    let capped: Vec<&str> = [
        (&["rfc2544", "rfc2544_wire"][..], rfc2544.bounds),
        (&["ndr"], ndr.valid),
        (&["ndr_strict", "ndr_strict_wire"], ndr.strict),
        (&["pdr"], pdr.valid),
    ]
    .into_iter()
    .filter(|(_, bounds)| bounds.lower == Some(maximum))
    .flat_map(|(metrics, _)| metrics)
    .copied()
    .collect();
    let trials = || rfc2544.trials.iter().chain(&mlrsearch.trials);
    let mut measurement = measurement
        .value("rfc2544_wire", rfc2544.bounds.lower.unwrap_or(0.0))
        .value("ndr_strict_wire", ndr.strict.lower.unwrap_or(0.0))
        .value("trials", trials().count() as f64)
        .value("void_trials", trials().filter(|trial| trial.void.is_some()).count() as f64)
        .capped(&capped);
    let tag = |search: f64| {
        move |mut trial: Trial| {
            trial.values.insert(SEARCH.into(), search);
            trial
        }
    };
    let trials = rfc2544.trials.into_iter().map(tag(0.0));
    measurement.trials = trials.chain(mlrsearch.trials.into_iter().map(tag(1.0))).collect();
    Ok(measurement)
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
fn outcome(trial: &TrialReport, tsc: &Tsc) -> TrialOutcome {
    let mut values: BTreeMap<String, f64> = metrics::interruptions(trial, tsc)
        .into_iter()
        .map(|(name, ns)| (name.into(), ns))
        .collect();
    values.insert("offered".into(), trial.report.offered() * tsc.hertz);
    values.insert("dropped".into(), trial.report.dropped as f64);
    TrialOutcome { sent: trial.asked, lost: trial.lost(), void: stall::void(trial, tsc), values }
}

#[cfg(test)]
mod tests {
    use super::super::application::LoopStats;
    use super::*;
    use crate::generator::Report;

    #[test]
    fn packets_not_sent_in_time_are_lost() {
        let Some(tsc) = machine::untested::tsc("stream: packets not sent in time") else { return };
        let report = Report { sent: 90, received: 90, ended_sending: 1000, ..Report::default() };
        let trial = |asked, longest_stall| TrialReport {
            report: Report { longest_stall, ..report.clone() },
            asked,
            application: LoopStats::default(),
            testpmd: None,
        };
        let late = outcome(&trial(100, 0), tsc);
        assert_eq!((late.sent, late.lost, late.void), (100, 10, None));
        let stall = tsc.ticks(Duration::from_millis(1));
        for (asked, lost) in [(100, 10), (90, 0)] {
            let stalled = outcome(&trial(asked, stall), tsc);
            assert!(stalled.lost == lost && stalled.void.is_some(), "{stalled:?}");
        }
    }
}
