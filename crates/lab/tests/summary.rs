//! Summaries of synthetic journals.

#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, also in the functions it shares"
)]

#[path = "claim/made_up.rs"]
mod made_up;

use lab::journal::Run;
use lab::proximity::ROUND_TRIP;
use lab::sample::{Failure, FailureKind, Sample};
use lab::statistics::{LostRounds, StatisticsError};
use lab::summary::{RoundCounts, Samples, Summary, SummaryError, Unit, paired, summarise};
use machine::proximity::Class;
use made_up::{EXPERIMENT, MadeUp, fail, product};

fn two_lengths() -> MadeUp {
    MadeUp::new(product(&["glibc"], &["64 KiB", "4 KiB"], &["0"]))
}

fn summary(run: &Run) -> Summary {
    summarise(run, EXPERIMENT, "throughput", Unit::Own).unwrap()
}

#[test]
fn rows_are_in_the_order_of_the_declared_points() {
    let run = two_lengths().run(|point| if point.text("length") == "4 KiB" { 10e9 } else { 20e9 });
    let summary = summary(&run);
    let lengths: Vec<_> = summary.rows.iter().map(|row| row.point.text("length")).collect();
    assert_eq!(lengths, ["64 KiB", "4 KiB"]);
    let row = &summary.rows[1];
    let estimate = row.estimate.unwrap();
    assert!((estimate.median / 11e9 - 1.0).abs() < 0.1 && estimate.rounds == 20);
    assert_eq!((row.core_hertz, row.tsc_hertz, row.seconds), (Some(4e9), Some(2e9), 5.0));
    assert_eq!((summary.environment.as_str(), summary.other_environments.len()), ("e1", 0));
    let floor = summary.floors.span().unwrap().1.floor;
    assert!(floor > 0.0 && floor < 0.02, "drift is not in the floor: {floor}");
    assert_eq!(summary.twins.len(), 1);
}

#[test]
fn only_the_newest_environment_counts() {
    let mut run = two_lengths().run(|_| 10e9);
    let after_reboot: Vec<_> = run.samples.iter().take(6).cloned().collect();
    for mut sample in after_reboot {
        sample.environment = "e2".into();
        run.samples.push(sample);
    }
    let summary = summary(&run);
    assert_eq!((summary.environment.as_str(), summary.other_environments.len()), ("e2", 1));
    assert!(summary.rows.iter().all(|row| row.rounds == 2));
}

/// One session measures one point, and a later one the other while the machine is slower.
#[test]
fn points_of_different_sessions_are_not_compared() {
    let made_up = two_lengths();
    let mut run = made_up.run(|_| 10e9);
    let [one, other] = [0, 1].map(|at| made_up.points[at].clone());
    for sample in run.samples.iter_mut().filter(|sample| sample.point == other) {
        sample.session = 2;
        sample.values.insert("throughput".into(), 7e9);
    }
    let ratio_of = |run: &Run| {
        let points = summary(run).observed.points;
        paired(&points[&one], &points[&other])
    };
    assert_eq!(ratio_of(&run), Err(StatisticsError::Empty));
    // A few rounds that one session measured whole are compared, and the others are lost.
    for sample in run.samples.iter_mut().filter(|sample| sample.round < 8) {
        sample.session = 2;
        sample.values.insert("throughput".into(), 7e9 + f64::from(sample.round));
    }
    let ratio = ratio_of(&run).unwrap();
    assert_eq!((ratio.rounds, ratio.ratio), (8, 1.0));
    assert_eq!(ratio.lost, LostRounds { other_session: 12, ..LostRounds::default() });
}

#[test]
fn factors_chosen_at_boot_combine_boots() {
    let made_up = two_lengths();
    let mut run = made_up.run(|_| 10e9);
    let first = machine::environment::Environment::capture();
    let rebooted = || {
        let mut other = first.clone();
        other.boot_id.push('x');
        other
    };
    run.record.environments.insert("e1".into(), first.clone());
    run.record.environments.insert("e2".into(), rebooted());
    run.record.experiments.get_mut(EXPERIMENT).unwrap().blocking = vec!["length".into()];
    // The first boot measures one length, the second the other; neither can measure the other's.
    for sample in &mut run.samples {
        if sample.point.text("length") == "4 KiB" {
            sample.environment = "e2".into();
        }
    }
    let mut last = made_up.sample(&made_up.points[0], false, 0, 0.0);
    last.environment = "e2".into();
    last.values.clear();
    last.error = Some(Failure::unavailable("another boot's", "boot with the other"));
    run.samples.push(last);
    let both = summary(&run);
    assert_eq!((both.environment.as_str(), both.other_environments.len()), ("e2", 0));
    assert!(both.rows.iter().all(|row| row.rounds == 20 && row.errors.is_empty()));
    // Samples of another program version are never merged with these.
    run.record.environments.get_mut("e1").unwrap().program_hash = None;
    let one = summary(&run);
    assert_eq!((one.rows[0].rounds, one.other_environments.len()), (0, 1));
    let other = &one.other_environments[0];
    assert_eq!((other.environment.as_str(), other.rounds), ("e1", 20));
    assert_eq!(other.differences, ["boot", "program hash"]);
}

#[test]
fn the_last_sample_of_a_round_counts() {
    let made_up = two_lengths();
    let mut run = made_up.run(|_| 10e9);
    let point = made_up.points[0].clone();
    let again = |value: f64, void: Option<&str>| {
        let mut sample = made_up.sample(&point, false, 3, value);
        sample.void = void.map(String::from);
        sample
    };
    // Void, then valid: the valid one counts.
    run.samples.push(again(1.0, Some("the core clock moved")));
    run.samples.push(again(77e9, None));
    let observed =
        Samples::in_environment(&run, EXPERIMENT, "e1").observed("throughput", Unit::Own);
    assert_eq!(observed.points[&point][&3].value, 77e9);
    let row = summary(&run).rows[0].clone();
    assert_eq!((row.rounds, row.voids, row.void_rounds), (20, 1, 0));
    assert_eq!(row.void_causes["the core clock moved"], 1);
    // The outlier is flagged and kept.
    assert_eq!(row.outliers.iter().map(|o| (o.round, o.value)).collect::<Vec<_>>(), [(3, 77e9)]);
    // Valid, then void: the round is void, and the earlier value is not restored.
    run.samples.push(again(1.0, Some("steal time of 9 ms")));
    let row = summary(&run).rows[0].clone();
    assert_eq!((row.rounds, row.voids, row.void_rounds), (19, 2, 1));
}

#[test]
fn failures_are_counted_with_the_remedy() {
    let mut run = two_lengths().run(|_| 10e9);
    let absent = Failure::unavailable("no huge pages", "reserve some");
    fail(&mut run, &absent, |point| point.text("length") == "4 KiB");
    let row = &summary(&run).rows[1];
    assert_eq!((row.estimate, row.rounds), (None, 0));
    let fault = &row.errors[&FailureKind::Unavailable];
    assert_eq!((fault.count, fault.why.as_str()), (1, "no huge pages"));
    assert_eq!(fault.remedy.as_deref(), Some("reserve some"));
}

/// Otherwise runs could be repeated until no round fails.
#[test]
fn a_round_that_failed_counts_although_a_later_session_repeats_it() {
    let made_up = two_lengths();
    let mut run = made_up.run(|_| 10e9);
    let point = made_up.points[0].clone();
    let is_failed = |sample: &Sample| sample.point == point && !sample.twin && sample.round < 3;
    let repeated: Vec<_> = run.samples.iter().filter(|it| is_failed(it)).cloned().collect();
    for sample in run.samples.iter_mut().filter(|sample| is_failed(sample)) {
        sample.error = Some(Failure::check("byte 3 is 7"));
        sample.values.clear();
    }
    let counts = RoundCounts { measured: 17, failed: 3, void: 0 };
    assert_eq!(summary(&run).rows[0].counts, counts);
    run.samples.extend(repeated.into_iter().map(|sample| Sample { session: 2, ..sample }));
    let row = summary(&run).rows[0].clone();
    assert_eq!((row.rounds, row.counts), (20, counts));
    assert_eq!(row.errors[&FailureKind::Check].count, 3);
}

#[test]
fn near_and_far_are_shown_separately_and_not_paired() {
    let made_up = two_lengths();
    let mut run = made_up.run(|_| 10e9);
    for sample in &mut run.samples {
        let far = sample.round < 5 && sample.point == made_up.points[0];
        sample.covariates.insert(ROUND_TRIP.into(), if far { "400" } else { "100" }.into());
    }
    let row = summary(&run).rows[0].clone();
    assert_eq!(row.covariates["proximity"], [("far".into(), 5), ("near".into(), 15)]);
    assert_eq!((row.by_class[&Class::Far].rounds, row.by_class[&Class::Near].rounds), (5, 15));
    let observed =
        Samples::in_environment(&run, EXPERIMENT, "e1").observed("throughput", Unit::Own);
    let [one, other] = [0, 1].map(|at| &observed.points[&made_up.points[at]]);
    let ratio = paired(one, other).unwrap();
    let lost = LostRounds { other_class: 5, ..LostRounds::default() };
    assert_eq!((ratio.rounds, ratio.lost), (15, lost));
}

#[test]
fn times_in_ticks_and_cycles() {
    let mut made_up = two_lengths();
    made_up.metric = "latency";
    let run = made_up.run(|_| 100.0);
    let of = |unit| summarise(&run, EXPERIMENT, "latency", unit).unwrap();
    let median = |summary: &Summary| summary.rows[0].estimate.unwrap().median;
    let nanoseconds = of(Unit::Own);
    assert_eq!(nanoseconds.record.unit, "ns");
    let (ticks, cycles) = (of(Unit::Ticks), of(Unit::Cycles));
    assert_eq!((ticks.record.unit.as_str(), cycles.record.unit.as_str()), ("ticks", "cycles"));
    assert!((median(&ticks) / median(&nanoseconds) - 2.0).abs() < 1e-9, "a counter of 2 GHz");
    assert!((median(&cycles) / median(&nanoseconds) - 4.0).abs() < 1e-9, "a core of 4 GHz");
}

#[test]
fn intervals_of_times_and_rates_include_the_drift_of_the_clock() {
    let drift = |metric, unit| {
        let run = MadeUp::drifting(MadeUp { metric, ..two_lengths() }.run(|_| 100.0));
        summarise(&run, EXPERIMENT, metric, unit).unwrap().rows[0].estimate.unwrap().interval.drift
    };
    let expected = (1.01f64 / 0.99).ln();
    for metric in ["latency", "throughput", "ticks", "pause", "clock"] {
        let drift = drift(metric, Unit::Own);
        assert!((drift / expected - 1.0).abs() < 0.01, "{metric}: {drift}");
    }
    assert!((drift("latency", Unit::Ticks) / expected - 1.0).abs() < 0.01);
    assert_eq!(drift("latency", Unit::Cycles), 0.0);
    for metric in ["calls", "own_cycles"] {
        assert_eq!(drift(metric, Unit::Own), 0.0, "{metric}");
    }
}

#[test]
fn a_summary_without_samples_or_metric_is_an_error() {
    let run = two_lengths().run(|_| 10e9);
    let why = |experiment: &str, metric: &str, unit| {
        summarise(&run, experiment, metric, unit).unwrap_err()
    };
    let none = why("copy/frames", "throughput", Unit::Own);
    assert!(none.to_string().contains("tollgate run copy/frames"), "{none}");
    let unknown = why(EXPERIMENT, "speed", Unit::Own).to_string();
    assert!(unknown.contains("calls, clock, latency"), "{unknown}");
    assert!(matches!(why(EXPERIMENT, "throughput", Unit::Cycles), SummaryError::NoTime { .. }));
}

/// The slow attempts at one level are void, e.g. because a rule depends on the result.
#[test]
fn voids_that_depend_on_the_level_are_shown() {
    let made_up = two_lengths();
    let mut run = made_up.run(|_| 10e9);
    assert_eq!(summary(&run).void_difference, None);
    assert!(summary(&run).rows.iter().all(|row| row.with_voids.is_none()));
    let at = made_up.points[0].clone();
    let mut all = Vec::new();
    for sample in run.samples {
        let is_slow = sample.point == at && !sample.twin && sample.round % 2 == 0;
        if is_slow {
            let mut first = sample.clone();
            first.void = Some("a stall".into());
            first.values.insert("throughput".into(), 1e9 + f64::from(sample.round));
            all.push(first);
        }
        all.push(lab::sample::Sample { attempt: 1 + u32::from(is_slow), ..sample });
    }
    run.samples = all;
    let summary = summary(&run);
    let difference = summary.void_difference.unwrap();
    assert_eq!((difference.factor.as_str(), difference.here.of), ("length", 20));
    assert_eq!(difference.here.void + difference.elsewhere.void, 10);
    assert!(difference.p < 0.01 && difference.to_string().contains("10 of 20"), "{difference}");
    let row = summary.rows.iter().find(|row| row.point == at).unwrap();
    let (valid, with_voids) = (row.estimate.unwrap(), row.with_voids.unwrap());
    assert_eq!((valid.rounds, with_voids.rounds, row.voids), (20, 20, 10));
    assert!(valid.median > 10e9 && with_voids.median < 8e9, "{with_voids:?}");
}
