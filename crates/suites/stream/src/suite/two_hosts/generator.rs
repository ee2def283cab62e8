//! The role `generator`: it sends, verifies what returns, and measures.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

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

/// Pause in which no packet of the warm-up arrives any more, and the maximum time until then.
const DRAIN_INTERVAL: Duration = Duration::from_millis(20);
const MAX_DRAIN: Duration = Duration::from_secs(5);

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
    let (before, dropped) = (drained_by_dut(context)?, watch.dropped());
    let carrier_changes = watch.carrier_changes();
    let trial = load.run(&testbed, budget)?;
    let processed = processed_by_dut(context)?.saturating_sub(before);
    context.stop()?;
    watch.check()?;
    watch.check_carrier(watch.carrier_changes() != carrier_changes)?;
    check_counts(trial.report.sent, processed, trial.report.received)?;
    let dropped = watch.dropped().saturating_sub(dropped);
    let mut measurement = metrics::from_trial(&trial, tsc);
    // The other metrics are about an application on this host.
    measurement.values.retain(|name, _| METRICS.iter().any(|metric| metric.name == name));
    measurement.covariates.clear();
    let measurement = measurement
        .value("lost_before_dut", trial.report.sent.saturating_sub(processed) as f64)
        .value("lost_after_dut", (processed - trial.report.received) as f64)
        .value("dropped_by_kernel", dropped as f64);
    let (name, limited) = bottleneck(&trial, dropped);
    let measurement = watch.describe(with_offered(measurement, load, &trial, tsc)?, "");
    Ok(Measurement { void: load.void(&trial, tsc), ..measurement.bottleneck(name, limited) })
}

/// Checks that each side counts at most what the side before it does.
///
/// # Errors
/// Returns that there are packets of another sender, or that one was counted twice.
fn check_counts(sent: u64, processed: u64, received: u64) -> Result<(), Failure> {
    let fix = "connect the interfaces to each other only";
    if processed < received {
        return Err(Failure::check(format!(
            "{received} packets returned, and the device under test processed {processed}; {fix}"
        )));
    }
    if processed > sent {
        return Err(Failure::check(format!(
            "the device under test processed {processed} packets, and the generator sent {sent}; {fix}"
        )));
    }
    Ok(())
}

/// Returns the number of packets that the device under test has processed when no more of the warm-up arrive: otherwise they
/// would count as those of the trial.
fn drained_by_dut(context: &mut Context) -> Result<u64, Failure> {
    let (start, mut processed) = (Instant::now(), processed_by_dut(context)?);
    loop {
        std::thread::sleep(DRAIN_INTERVAL);
        let now = processed_by_dut(context)?;
        if now == processed {
            return Ok(now);
        }
        if start.elapsed() > MAX_DRAIN {
            let why = "the device under test receives packets without an end; connect the interfaces to each other only";
            return Err(Failure::check(why));
        }
        processed = now;
    }
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
/// Packets that the kernel dropped at the generator's interface had returned.
fn bottleneck(
    trial: &TrialReport,
    dropped_by_kernel: u64,
) -> (&'static str, &'static [&'static str]) {
    let lost = trial.lost();
    let is_late = 2 * trial.losses().not_sent > lost;
    match trial.report.core_use().is_saturated() || is_late || dropped_by_kernel > 0 {
        true => ("generator", LIMITED),
        false if trial.is_closed => ("unknown", LIMITED),
        false if lost == 0 => ("none", &[]),
        false => ("unknown", &[]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_at_the_generator_are_its_limit() {
        let idle = TrialReport::default();
        assert_ne!(bottleneck(&idle, 0).0, "generator");
        assert_eq!(bottleneck(&idle, 1), ("generator", LIMITED));
    }

    #[test]
    fn each_side_counts_at_most_what_the_one_before_it_does() {
        assert_eq!(check_counts(10, 9, 8), Ok(()));
        assert_eq!(check_counts(10, 10, 10), Ok(()));
        for (sent, processed, received) in [(10, 8, 9), (10, 11, 9)] {
            let failure = check_counts(sent, processed, received).unwrap_err();
            assert_eq!(failure.kind, lab::sample::FailureKind::Check, "{failure}");
        }
    }
}
