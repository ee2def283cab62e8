//! Comparisons of two sides within one run, on a simulated machine. Run with `--nocapture` for the values, which
//! docs/method.md states.

#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, also in the functions it shares"
)]

#[allow(dead_code, reason = "other tests use the rest")]
mod drift;
#[path = "claim/made_up.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod made_up;

use drift::Machine;
use lab::compare::{ComparedSides, compare_sides};
use lab::journal::Run;
use lab::measure::LIMITED;
use lab::plan::{self, RoundOrder};
use lab::point::Point;
use lab::proximity::ROUND_TRIP;
use lab::sample::{Failure, Sample};
use lab::side::{self, FACTOR, LEVELS, Side, SideRecord};
use lab::statistics::Resolution;
use lab::summary::{Samples, Unit, summarise};
use machine::environment::Environment;
use machine::proximity::Class;
use made_up::{EXPERIMENT, MadeUp, product};

/// The point whose new side differs.
const CHANGED: &str = "4 KiB";

/// Returns the environment of a side: the same machine runs another build.
fn environment(level: &str) -> Environment {
    Environment { program_hash: Some(level.into()), ..Environment::default() }
}

/// Returns a run of both sides on a machine that drifts and stalls. The new side takes longer by a share at one point.
fn run(effect: f64, rounds: u32, seed: u64) -> Run {
    let lengths = ["64 B", CHANGED, "64 KiB", "1 MiB"];
    let mut made_up = MadeUp::new(product(&["glibc"], &lengths, &["0"]));
    (made_up.rounds, made_up.seed, made_up.metric) = (0, seed, "latency");
    let mut run = made_up.run(|_| 0.0);
    let experiment = run.record.experiments.get_mut(EXPERIMENT).unwrap();
    side::cross(experiment);
    let (items, order) = (plan::items(experiment), RoundOrder::new(experiment));
    let mut machine = Machine::new(seed);
    for round in 0..rounds {
        for index in order.of_round(round, seed) {
            let (point, twin) = (&items[index].point, items[index].twin);
            let is_changed = point.text("length") == CHANGED && point.text(FACTOR) == LEVELS[1];
            let value = machine.measure(if is_changed { 100.0 * (1.0 + effect) } else { 100.0 });
            let environment = environment(point.text(FACTOR)).id();
            let sample = made_up.sample(point, twin, round, value);
            run.samples.push(Sample { environment, ..sample });
        }
    }
    for level in LEVELS {
        let environment = environment(level);
        let (version, digest) = ("0".into(), environment.program_hash.clone());
        run.record.sides.push(SideRecord { side: Side::default(), version, digest });
        run.record.environments.insert(environment.id(), environment);
    }
    run
}

fn rows(run: &Run) -> Vec<ComparedSides> {
    compare_sides(run, EXPERIMENT, None).unwrap().rows
}

fn changed(rows: &[ComparedSides]) -> &ComparedSides {
    rows.iter().find(|row| row.point.text("length") == CHANGED).unwrap()
}

#[test]
fn equal_sides_differ_in_at_most_one_case_in_twenty_and_effects_are_found() {
    const REPLICATIONS: u64 = 400;
    for rounds in [10, 20] {
        let (mut judged, mut wrong, mut found, mut covered) = (0, 0, 0, 0);
        for seed in 0..REPLICATIONS {
            let equal = rows(&run(0.0, rounds, seed));
            let is_resolved = |row: &&ComparedSides| {
                matches!(row.resolution, Some(Resolution::Higher | Resolution::Lower))
            };
            judged += equal.len();
            wrong += equal.iter().filter(is_resolved).count();
            let unequal = rows(&run(0.1, rounds, seed));
            let row = changed(&unequal);
            found += usize::from(row.resolution == Some(Resolution::Higher));
            covered += usize::from(row.ratio.unwrap().interval.includes(1.1));
        }
        let wrong = wrong as f64 / judged as f64;
        let [found, covered] = [found, covered].map(|count| count as f64 / REPLICATIONS as f64);
        println!(
            "{rounds} rounds: {:.1}% of equal points differ; an effect of 10% is found in {:.0}%, covered in {:.1}%",
            wrong * 100.0,
            found * 100.0,
            covered * 100.0
        );
        assert!(wrong <= 0.05, "{rounds}: {wrong}");
        assert!((0.92..=0.99).contains(&covered), "{rounds}: covered {covered}");
        // A stall is often an end of the noise floor of 10 rounds.
        let least = if rounds == 10 { 0.4 } else { 0.9 };
        assert!(found > least, "{rounds}: found {found}");
    }
}

#[test]
fn a_limited_side_is_not_the_worse_one() {
    let limited = |levels: &[&str]| {
        let mut run = run(0.5, 20, 1);
        let is_limited = |one: &&mut Sample| levels.contains(&one.point.text(FACTOR));
        for sample in run.samples.iter_mut().filter(is_limited) {
            sample.covariates.insert(LIMITED.into(), "latency".into());
        }
        changed(&rows(&run)).clone()
    };
    // The new side takes longer: the old one may be faster still, the new one may be as fast.
    assert_eq!(limited(&LEVELS[..1]).resolution, Some(Resolution::Higher));
    // Both are builds of the instrument.
    assert_eq!(limited(&LEVELS).resolution, Some(Resolution::Higher));
    let new = limited(&LEVELS[1..]);
    assert!(matches!(new.resolution, Some(Resolution::Unresolved { .. })), "{new:?}");
    assert_eq!(new.ratio.unwrap().interval.low, f64::NEG_INFINITY);
}

#[test]
fn both_environments_of_a_boot_count_together() {
    let mut run = run(0.1, 10, 1);
    let row = changed(&rows(&run)).clone();
    assert_eq!(row.values.map(|value| value.unwrap().rounds), [10, 10]);
    assert_eq!(row.ratio.unwrap().rounds, 10);
    assert!(row.floor.is_some() && row.lacks.is_none(), "{row:?}");
    // The values of another boot do not count.
    let newer = Environment { boot_id: "another".into(), ..environment(LEVELS[1]) };
    let first = run.samples.iter().find(|one| !one.twin).unwrap();
    let last = Sample { environment: newer.id(), session: 2, ..first.clone() };
    run.samples.push(last);
    run.record.environments.insert(newer.id(), newer);
    let summary = summarise(&run, EXPERIMENT, "latency", Unit::Own).unwrap();
    assert_eq!((summary.rows.len(), summary.other_environments.len()), (1, 2));
}

#[test]
fn rounds_of_different_sessions_are_not_paired() {
    let mut run = run(0.0, 10, 1);
    for sample in run.samples.iter_mut().filter(|one| one.round >= 7) {
        sample.session += u32::from(sample.point.text(FACTOR) == LEVELS[1]);
    }
    let ratio = changed(&rows(&run)).ratio.unwrap();
    assert_eq!((ratio.rounds, ratio.lost.other_session), (7, 3));
}

#[test]
fn a_point_that_one_side_cannot_measure_has_the_reason() {
    let fails = |run: &mut Run, failure: &Failure, rounds: u32| {
        let is_new =
            |point: &Point| point.text("length") == CHANGED && point.text(FACTOR) == LEVELS[1];
        let samples = run.samples.iter_mut().filter(|one| one.round < rounds && is_new(&one.point));
        for sample in samples {
            sample.values.clear();
            sample.error = Some(failure.clone());
        }
    };
    let mut absent = run(0.5, 10, 1);
    fails(&mut absent, &Failure::unavailable("it has no such level", "build it again"), 10);
    let row = changed(&rows(&absent)).clone();
    assert_eq!(row.lacks.as_deref(), Some("new: unavailable: it has no such level"));
    assert!(row.ratio.is_none() && row.resolution.is_none(), "{row:?}");
    // One failure in twenty is reported; more could hide slow rounds.
    let mut once = run(0.5, 20, 1);
    fails(&mut once, &Failure::failed("it broke"), 1);
    let row = changed(&rows(&once)).clone();
    assert_eq!(row.lacks.as_deref(), Some("new: failed in 1 round: it broke"));
    assert_eq!(row.resolution, Some(Resolution::Higher));
    let good = once.samples.clone();
    fails(&mut once, &Failure::failed("it broke"), 3);
    let row = changed(&rows(&once)).clone();
    assert!(row.ratio.is_some() && row.resolution.is_none(), "{row:?}");
    // A later session that repeats all rounds does not erase the failures.
    once.samples.extend(good.into_iter().map(|sample| Sample { session: 2, ..sample }));
    let row = changed(&rows(&once)).clone();
    assert_eq!(row.lacks.as_deref(), Some("new: failed in 3 rounds: it broke"));
    assert!(row.ratio.is_some() && row.resolution.is_none(), "{row:?}");
}

#[test]
fn near_and_far_cores_are_compared_separately() {
    let mut run = run(0.5, 20, 1);
    for sample in &mut run.samples {
        let round_trip = if sample.round < 8 { "90.0" } else { "400.0" };
        sample.covariates.insert(ROUND_TRIP.into(), round_trip.into());
    }
    let rows = rows(&run);
    let of = rows.iter().filter(|row| row.point.text("length") == CHANGED);
    let of: Vec<_> = of.map(|row| (row.class.unwrap(), row.ratio.unwrap().rounds)).collect();
    assert_eq!(of, [(Class::Near, 8), (Class::Far, 12)]);
}

#[test]
fn medians_are_of_the_state_of_the_core_that_gives_the_ratio() {
    let mut run = run(0.5, 20, 1);
    for sample in &mut run.samples {
        let is_shared = sample.round >= 6;
        let clock = sample.clock.as_mut().unwrap();
        let rate = Some(if is_shared { 4.0 } else { 5.1 });
        (clock.issue_before, clock.issue_after) = (rate, rate);
        let factor = if is_shared { 10.0 } else { 1.0 };
        sample.values.values_mut().for_each(|value| *value *= factor);
    }
    let rows = rows(&run);
    let row = changed(&rows);
    assert_eq!(row.ratio.unwrap().rounds, 6);
    let values = row.values.map(|value| value.unwrap());
    assert!(values.iter().all(|one| one.rounds == 6 && one.median < 500.0), "{values:?}");
}

#[test]
fn the_values_of_sides_include_the_drift_of_the_clock() {
    let values = |run: &Run| changed(&rows(run)).values.map(|value| value.unwrap().interval.drift);
    let run = run(0.5, 20, 1);
    assert_eq!(values(&run), [0.0; 2]);
    assert!(values(&MadeUp::drifting(run)).iter().all(|drift| *drift > 0.015));
}

#[test]
fn the_summary_of_a_run_with_sides_has_a_row_per_side() {
    let run = run(0.0, 6, 1);
    let samples = Samples::newest(&run, EXPERIMENT).unwrap();
    assert_eq!((samples.points().count(), samples.other_environments(|_| true).len()), (8, 0));
}
