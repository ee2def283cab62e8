//! The role `generator`: it sends, verifies what returns, and measures.

use std::collections::BTreeMap;

use lab::measure::{Context, Measurement};
use lab::sample::Failure;
use machine::tsc::Tsc;

use super::interface::LinkWatch;
use super::metrics::{LIMITED, METRICS};
use super::{Load, PACKETS, Side};
use crate::link::Link;
use crate::suite::metrics;
use crate::suite::single_trial::{WARM_UP, with_times};
use crate::suite::testbed::{Testbed, TrialReport};

/// Measures one sample.
///
/// # Errors
/// Returns the failure to record in place of a sample.
pub(super) fn measure(
    context: &mut Context,
    side: &Side,
    link: Box<dyn Link>,
    mut watch: LinkWatch,
) -> Result<Measurement, Failure> {
    let Side { config, load, cpu, tsc } = *side;
    let budget = context.budget;
    let mut testbed =
        Testbed::with_link(config, cpu, tsc.rate(), (link, watch.status(), watch.mode()))?;
    context.ready()?;
    testbed.warm_up(|testbed| load.run(testbed, budget / WARM_UP))?;
    let (before, dropped) = (processed_by_dut(context)?, watch.dropped());
    let trial = load.run(&testbed, budget)?;
    let processed = processed_by_dut(context)?.saturating_sub(before);
    context.stop()?;
    watch.check()?;
    let received = trial.report.received;
    if processed < received {
        return Err(Failure::check(format!(
            "{received} packets returned, and the device under test processed {processed}; connect the interfaces to each \
             other only"
        )));
    }
    let mut measurement = metrics::from_trial(&trial, tsc);
    // The other metrics are about an application on this host.
    measurement.values.retain(|name, _| METRICS.iter().any(|metric| metric.name == name));
    measurement.covariates.clear();
    let measurement = measurement
        .value("lost_before_dut", trial.report.sent.saturating_sub(processed) as f64)
        .value("lost_after_dut", (processed.min(trial.report.sent) - received) as f64)
        .value("dropped_by_kernel", watch.dropped().saturating_sub(dropped) as f64);
    let (name, limited) = bottleneck(&trial);
    let measurement = watch.describe(with_offered(measurement, load, &trial, tsc)?, "");
    Ok(Measurement { void: load.void(&trial, tsc), ..measurement.bottleneck(name, limited) })
}

/// Returns the number of packets that the device under test has processed by now.
fn processed_by_dut(context: &mut Context) -> Result<u64, Failure> {
    context.send(BTreeMap::new())?;
    let answer = context.message();
    let packets = answer.and_then(|answer| answer.values.get(PACKETS).copied());
    packets.map(|packets| packets as u64).ok_or_else(|| Failure::failed("the dut ended early"))
}

/// Adds what is known of an offered load only.
fn with_offered(
    measurement: Measurement,
    load: Load,
    trial: &TrialReport,
    tsc: &Tsc,
) -> Result<Measurement, Failure> {
    let Load::Rate(_) = load else { return Ok(measurement) };
    let measurement = measurement
        .value("offered", trial.report.offered() * tsc.hertz)
        .value("delivered", 1.0 - trial.lost() as f64 / trial.asked as f64);
    match &trial.report.times {
        Some(times) if !times.is_empty() => with_times(measurement, times, tsc),
        _ => Ok(measurement),
    }
}

/// Returns which side limited a trial, and the metrics that a faster generator could improve. Of the other side it is unknown.
fn bottleneck(trial: &TrialReport) -> (&'static str, &'static [&'static str]) {
    let lost = trial.lost();
    let is_late = 2 * trial.losses().not_sent > lost;
    match trial.report.core_use().is_saturated() || is_late {
        true => ("generator", LIMITED),
        false if trial.is_closed => ("unknown", LIMITED),
        false if lost == 0 => ("none", &[]),
        false => ("unknown", &[]),
    }
}
