//! `throughput`: the highest load without loss, or with little loss.
//!
//! Two searches run on the same testbed: the binary search of RFC 2544 as in the Ensō evaluation, and one after
//! MLRsearch that finds the loads without loss (NDR) and with 0.5% loss (PDR) together and confirms both. Every
//! trial of both is recorded.

use std::collections::BTreeMap;
use std::time::Duration;

use lab::measure::Measurement;
use lab::sample::{Failure, Trial};
use lab::search::{self, Goal, LossRatios, Rfc2544, TrialOutcome};
use machine::tsc::Tsc;

use super::params::SearchParams;
use super::stall;
use super::testbed::{Testbed, TrialReport};
use super::testbed_config::{Cpus, TestbedConfig};

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
    let capped = [
        (&["rfc2544", "rfc2544_wire"][..], rfc2544.bounds.lower),
        (&["ndr", "ndr_wire"], ndr.lower),
        (&["ndr_strict"], ndr.strict),
        (&["pdr"], pdr.lower),
    ];
    let is_capped = |(_, load): &(&[&str], Option<f64>)| *load == Some(maximum);
    let capped: Vec<&str> =
        capped.into_iter().filter(is_capped).flat_map(|(metrics, _)| metrics).copied().collect();
    // 0 if no load succeeded.
    let packets = |load: Option<f64>| load.unwrap_or(0.0) / config.wire_bits();
    let mut measurement = Measurement::default()
        .value("rfc2544", packets(rfc2544.bounds.lower))
        .value("rfc2544_wire", rfc2544.bounds.lower.unwrap_or(0.0))
        .value("ndr", packets(ndr.lower))
        .value("ndr_wire", ndr.lower.unwrap_or(0.0))
        .value("ndr_strict", packets(ndr.strict))
        .value("pdr", packets(pdr.lower))
        .value("trials", (rfc2544.trials.len() + mlrsearch.trials.len()) as f64)
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

/// Converts a trial's report to the outcome that a search uses.
fn outcome(trial: &TrialReport, tsc: &Tsc) -> TrialOutcome {
    let TrialReport { report, application, asked, rate } = trial;
    let lost = trial.lost();
    let values = BTreeMap::from([
        ("offered".to_string(), report.offered() * tsc.hertz),
        ("dropped".to_string(), report.dropped as f64),
        ("gap_nic".to_string(), tsc.nanoseconds(report.gap as f64)),
        ("gap_application".to_string(), tsc.nanoseconds(application.gap as f64)),
        ("stalled_nic".to_string(), tsc.nanoseconds(report.stalled as f64)),
        ("stalled_application".to_string(), tsc.nanoseconds(application.stalled as f64)),
    ]);
    let void = stall::void(lost, *rate, report, application.stalled);
    TrialOutcome { sent: *asked, lost, void, values }
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
        let trial = |asked, stalled| TrialReport {
            report: Report { stalled, ..report.clone() },
            asked,
            rate: 0.1,
            application: LoopStats::default(),
        };
        let late = outcome(&trial(100, 0), tsc);
        assert_eq!((late.sent, late.lost, late.void), (100, 10, None));
        // A stall of the NIC for a tenth of the time would explain the loss.
        assert!(outcome(&trial(100, 120), tsc).void.is_some());
        assert_eq!(outcome(&trial(90, 120), tsc).lost, 0);
    }
}
