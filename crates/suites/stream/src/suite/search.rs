//! `search`: the largest load that loses nothing, or little.
//!
//! Two searches on the same stand: the binary search of RFC 2544 as the source runs it, and one after
//! MLRsearch for the loads without loss (NDR) and with half a percent (PDR) together, whose results are
//! confirmed. Every trial of both is kept.

use std::collections::BTreeMap;
use std::time::Duration;

use lab::measure::Measurement;
use lab::sample::{Failure, Trial};
use lab::search::{self, Goal, LossRatios, Rfc2544, TrialOutcome};
use machine::tsc::Tsc;

use super::params::SearchParams;
use super::setting::{Cpus, Setting};
use super::stall;
use super::stand::{Stand, Tried};

/// How close RFC 2544's bounds come, bits a second: 0.1 Gbps, as the source's do.
const PRECISION: f64 = 0.1 * 1e9;
/// What the load with little loss may lose, as a share.
const LITTLE: f64 = 0.005;
/// How close the bounds of NDR and PDR come, as a share of the upper one.
const WIDTH: f64 = 0.005;
/// The smallest load that is tried, as a share of the largest.
const LEAST: f64 = 0.001;
/// Further full trials that must hold at NDR and PDR.
const CONFIRMATIONS: u32 = 2;
/// Phases of shorter trials before the full ones.
const SHORTER_PHASES: u32 = 2;
/// How much shorter the shortest are.
const SHORTEST: u32 = 4;
/// By which name trials say which search tried them: 0 is RFC 2544, 1 MLRsearch.
const SEARCH: &str = "search";

/// Trials that both searches take together as a rule, for what a sample is expected to take.
pub(super) const TRIALS: u32 = 35;

/// Measures one point. `budget` is how long a full trial lasts.
///
/// # Errors
/// What stands in the sample's place.
pub(super) fn measure(
    params: &SearchParams,
    setting: &Setting,
    cpus: &Cpus,
    budget: Duration,
    tsc: &Tsc,
) -> Result<Measurement, Failure> {
    let stand = Stand::new(setting, cpus, tsc)?;
    // The source offers the maximum for 5 s first.
    let maximum = params.maximum.0;
    stand.offer(maximum, budget, false)?;
    let mut trial = |load: f64, duration: Duration| {
        let tried = stand.offer(load, duration, false)?;
        Ok(outcome(&tried, tsc))
    };
    let search = Rfc2544 { maximum, precision: PRECISION.min(maximum / 10.0), duration: budget };
    let edge = search::rfc2544(&search, &mut trial)?;
    let goal = |ratio| Goal { ratio, width: WIDTH };
    let search = LossRatios {
        goals: vec![goal(0.0), goal(LITTLE)],
        least: maximum * LEAST,
        largest: maximum,
        duration: budget,
        confirmations: CONFIRMATIONS,
        shortest: budget / SHORTEST,
        shorter_phases: SHORTER_PHASES,
    };
    let edges = search::loss_ratios(&search, &mut trial)?;
    let (ndr, pdr) = (edges.goals[0], edges.goals[1]);
    // Where no load held, what can be carried without loss is nothing.
    let packets = |load: Option<f64>| load.unwrap_or(0.0) / setting.wire_bits();
    let mut measurement = Measurement::default()
        .value("rfc2544", packets(edge.bounds.lower))
        .value("rfc2544_wire", edge.bounds.lower.unwrap_or(0.0))
        .value("ndr", packets(ndr.lower))
        .value("ndr_wire", ndr.lower.unwrap_or(0.0))
        .value("ndr_strict", packets(ndr.strict))
        .value("pdr", packets(pdr.lower))
        .value("trials", (edge.trials.len() + edges.trials.len()) as f64);
    let by = |search: f64| {
        move |mut trial: Trial| {
            trial.values.insert(SEARCH.into(), search);
            trial
        }
    };
    let all = edge.trials.into_iter().map(by(0.0)).chain(edges.trials.into_iter().map(by(1.0)));
    measurement.trials = all.collect();
    Ok(measurement)
}

/// What a trial says to a search.
fn outcome(tried: &Tried, tsc: &Tsc) -> TrialOutcome {
    let Tried { report, application, asked, rate } = tried;
    let lost = tried.lost();
    let values = BTreeMap::from([
        ("offered".to_string(), report.offered() * tsc.hertz),
        ("dropped".to_string(), report.dropped as f64),
        ("gap_nic".to_string(), tsc.nanoseconds(report.gap as f64)),
        ("gap_application".to_string(), tsc.nanoseconds(application.gap as f64)),
        ("stood_nic".to_string(), tsc.nanoseconds(report.stood as f64)),
        ("stood_application".to_string(), tsc.nanoseconds(application.stood as f64)),
    ]);
    let void = stall::void(lost, *rate, report, application.stood);
    TrialOutcome { sent: *asked, lost, void, values }
}

#[cfg(test)]
mod tests {
    use super::super::application::Figures;
    use super::*;
    use crate::generator::Report;

    #[test]
    fn what_was_not_sent_in_time_is_lost() {
        let Some(tsc) = machine::untested::tsc("what was not sent in time") else { return };
        let report = Report { sent: 90, received: 90, ended_sending: 1000, ..Report::default() };
        let tried = |asked, stood| Tried {
            report: Report { stood, ..report.clone() },
            asked,
            rate: 0.1,
            application: Figures::default(),
        };
        let late = outcome(&tried(100, 0), tsc);
        assert_eq!((late.sent, late.lost, late.void), (100, 10, None));
        // Had the NIC stood still for a tenth of the time, that would be why.
        assert!(outcome(&tried(100, 120), tsc).void.is_some());
        assert_eq!(outcome(&tried(90, 120), tsc).lost, 0);
    }
}
