//! Comparisons of repeated runs.

#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, also in the functions it shares"
)]

#[path = "claim/made_up.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod made_up;

#[path = "drift/mod.rs"]
mod drift;

use std::time::Duration;

use drift::Machine;

use lab::compare::{Compared, Comparison, Difference, compare, experiments};
use lab::guest::GuestsRecord;
use lab::journal::{Run, SessionRecord, Written};
use lab::metric::{Better, MetricRecord};
use lab::point::Point;
use lab::proximity::ROUND_TRIP;
use lab::sample::{Failure, FailureKind, Sample};
use lab::sharing::Sharing;
use lab::summary::Unit;
use machine::cpu::CpuClock;
use machine::proximity::Class;
use made_up::{EXPERIMENT, MadeUp, product};

fn two_lengths() -> MadeUp {
    MadeUp::new(product(&["glibc"], &["64 KiB", "4 KiB"], &["0"]))
}

/// Returns runs in which copies of 4 KiB are faster by a factor.
fn runs(seeds: std::ops::Range<u64>, factor: f64) -> Vec<Run> {
    let run = |seed| {
        let mut made_up = two_lengths();
        made_up.seed = seed;
        made_up.run(|point| if point.text("length") == "4 KiB" { 10e9 * factor } else { 20e9 })
    };
    seeds.map(run).collect()
}

fn compared(a: &[Run], b: &[Run]) -> Comparison {
    compare(a, b, &[EXPERIMENT], None, Unit::Own).unwrap().remove(0)
}

fn difference(comparison: &Comparison, length: &str) -> Difference {
    let mut rows = comparison.rows.iter();
    rows.find(|row| row.point.text("length") == length).unwrap().difference
}

#[test]
fn repeated_runs_are_compared_point_by_point() {
    let (a, b) = (runs(0..4, 1.0), runs(4..8, 1.5));
    assert_eq!(experiments(&a, &b), [EXPERIMENT]);
    let comparison = compared(&a, &b);
    assert_eq!((comparison.a.len(), comparison.rows[0].a.len()), (4, 4));
    assert_eq!(difference(&comparison, "4 KiB"), Difference::Higher);
    assert_eq!(difference(&comparison, "64 KiB"), Difference::Unresolved);
    assert_eq!(difference(&compared(&b, &a), "4 KiB"), Difference::Lower);
}

#[test]
fn single_runs_are_not_judged_however_far_apart() {
    let comparison = compared(&runs(0..1, 1.0), &runs(1..2, 4.0));
    let judged = comparison.rows.iter().filter(|row| row.difference != Difference::TooFewRuns(1));
    assert_eq!(judged.count(), 0);
    assert!(comparison.rows.iter().all(|row| row.ratio.is_some() && row.interval.is_none()));
}

/// Runs minutes apart on the machine that drifts and stalls: nothing changed between them.
#[test]
fn an_unchanged_machine_that_drifts_differs_in_at_most_one_case_in_twenty() {
    const REPLICATIONS: u64 = 3000;
    /// Measurements between two runs, in which little of the drift remains.
    const BETWEEN: usize = 300;
    for each in [3, 5] {
        let mut wrong = 0;
        for seed in 0..REPLICATIONS {
            let mut machine = Machine::new(seed);
            let mut runs = runs(seed * 10..seed * 10 + 2 * each, 1.0);
            for run in &mut runs {
                machine.pass(BETWEEN);
                for sample in &mut run.samples {
                    sample
                        .values
                        .values_mut()
                        .for_each(|value| *value = 10e9 / machine.measure(1.0));
                }
            }
            let (a, b) = runs.split_at(each as usize);
            let first = &compared(a, b).rows[0];
            wrong += u32::from(first.difference != Difference::Unresolved);
        }
        let share = f64::from(wrong) / REPLICATIONS as f64;
        println!("{each} runs per side: {:.1}% of {REPLICATIONS} differ", share * 100.0);
        // Two standard errors are 0.8%.
        assert!(share < 0.058, "{each}: {share}");
        assert!(share > 0.02, "{each}: {share}: the interval is too wide");
    }
}

#[test]
fn copies_of_one_run_are_refused() {
    let (a, b) = (runs(0..3, 1.0), runs(3..6, 1.5));
    let refused = |a: &[Run], b: &[Run]| {
        compare(a, b, &[EXPERIMENT], None, Unit::Own).unwrap_err().to_string()
    };
    let mut copied = a[1].clone();
    copied.folder = "results/copied".into();
    let line = refused(&[&a[..], std::slice::from_ref(&copied)].concat(), &b);
    assert!(
        line.starts_with("results/here-standard-1 and results/copied: copies of one run"),
        "{line}"
    );
    assert_eq!(refused(&a, &[&b[..], std::slice::from_ref(&copied)].concat()), line);
    // Neither is one with another seed and start.
    let written = Written { lines: 1, digest: "digest of the samples".into() };
    let mut original = a[1].clone();
    original.record.sessions[0].written = Some(written.clone());
    let mut renamed = copied.clone();
    renamed.record.seed += 100;
    renamed.record.sessions = vec![SessionRecord::starting("another".into())];
    assert!(
        compare(&[original.clone()], &[renamed.clone()], &[EXPERIMENT], None, Unit::Own).is_ok()
    );
    renamed.record.sessions[0].written = Some(written);
    assert_eq!(refused(&[original], &[renamed]), line);
    // A copy that was resumed is no other run.
    copied.record.sessions.push(SessionRecord::starting("later".into()));
    assert_eq!(refused(&a, &[copied]), line);
}

#[test]
fn points_of_only_one_side_are_counted() {
    let (a, mut b) = (runs(1..2, 1.0), runs(2..3, 1.0));
    b[0].samples.retain(|sample| sample.point.text("length") == "4 KiB");
    let extra = Point::from([("function", "apex"), ("length", "16 B"), ("threads", "0")]);
    b[0].samples.push(two_lengths().sample(&extra, false, 0, 1e9));
    let comparison = compared(&a, &b);
    assert_eq!((comparison.rows.len(), comparison.only_a, comparison.only_b), (1, 1, 1));
}

#[test]
fn runs_of_different_definitions_are_not_compared() {
    let a = runs(1..3, 1.0);
    let refused = |change: &dyn Fn(&mut Run)| {
        let mut b = runs(3..5, 1.0);
        change(&mut b[1]);
        compare(&a, &b, &[EXPERIMENT], None, Unit::Own).unwrap_err().to_string()
    };
    let metric = |run: &'_ mut Run, change: fn(&mut MetricRecord)| {
        change(run.record.metrics.get_mut("copy").unwrap().get_mut("throughput").unwrap());
    };
    for (line, what) in [
        (
            refused(&|b| b.record.experiments.get_mut(EXPERIMENT).unwrap().method = "other".into()),
            "the method is '",
        ),
        (
            refused(&|b| metric(b, |metric| metric.unit = "GB/s".into())),
            "the unit of 'throughput' is 'B/s' in here-standard-1 and 'GB/s' in here-standard-1",
        ),
        (
            refused(&|b| metric(b, |metric| metric.better = Better::Lower)),
            "the better direction of 'throughput' is 'higher' in here-standard-1 and 'lower' in here-standard-1",
        ),
    ] {
        assert!(line.contains(what) && line.ends_with("with the same definitions"), "{line}");
    }
}

#[test]
fn differences_between_compared_runs_are_noted() {
    let notes = |change: &dyn Fn(&mut Run)| {
        let (a, mut b) = (runs(1..2, 1.0), runs(2..3, 1.0));
        change(&mut b[0]);
        compared(&a, &b).notes
    };
    assert_eq!(notes(&|_| {}), [""; 0]);
    let budget = |b: &mut Run| {
        b.record.experiments.get_mut(EXPERIMENT).unwrap().effort.budget = Duration::from_secs(7);
    };
    let set = |b: &mut Run| {
        b.record.options.insert("file-folder".into(), "/mnt".into());
    };
    for (noted, what) in [
        (notes(&budget), "the budget of a sample is "),
        (notes(&|b| b.record.nice += 3), "the nice value is "),
        (notes(&set), "--set file-folder is not set in A and /mnt in B"),
    ] {
        assert!(noted.len() == 1 && noted[0].contains(what), "{noted:?}");
    }
}

/// Returns two sides of three runs. A sample of 4 KiB in one of the first rounds is as in `first`, as many as `rounds`
/// states for each side; the others are as in `rest`, and half as fast.
fn divided(
    rounds: [u32; 2],
    first: impl Fn(&mut Sample),
    rest: impl Fn(&mut Sample),
) -> [Vec<Run>; 2] {
    [0, 1].map(|side: usize| {
        let start = 3 * side as u64;
        let mut runs = runs(start..start + 3, 1.0);
        for sample in runs.iter_mut().flat_map(|run| &mut run.samples) {
            if sample.point.text("length") != "4 KiB" {
                continue;
            }
            if sample.round < rounds[side] {
                first(sample);
            } else {
                rest(sample);
                sample.values.values_mut().for_each(|value| *value *= 0.5);
            }
        }
        runs
    })
}

/// How many rounds a run has with near cores is chance.
#[test]
fn near_and_far_cores_are_compared_separately() {
    let place = |round_trip: &'static str| {
        move |sample: &mut Sample| {
            sample.covariates.insert(ROUND_TRIP.into(), round_trip.into());
        }
    };
    let rows = |rounds: [u32; 2]| {
        let [a, b] = divided(rounds, place("100"), place("400"));
        let comparison = compared(&a, &b);
        let of_4_kib = |row: &&Compared| row.point.text("length") == "4 KiB";
        comparison.rows.iter().filter(of_4_kib).cloned().collect::<Vec<_>>()
    };
    let mixed = rows([14, 6]);
    let classes: Vec<_> = mixed.iter().map(|row| row.class).collect();
    assert_eq!(classes, [Some(Class::Near), Some(Class::Far)]);
    for row in &mixed {
        assert_eq!(row.difference, Difference::Unresolved, "{row:?}");
    }
    // All near against all far.
    let [row] = &rows([20, 0])[..] else { panic!() };
    assert_eq!((row.difference, row.ratio), (Difference::OtherClass, None));
}

/// A busier neighbour during the runs of one side is no regression.
#[test]
fn medians_of_different_states_of_the_core_are_not_compared() {
    let rates = |rate: f64| {
        move |sample: &mut Sample| {
            let clock = sample.clock.as_mut().unwrap();
            (clock.issue_before, clock.issue_after) = (Some(rate), Some(rate));
        }
    };
    let row = |rounds: [u32; 2]| {
        let [a, b] = divided(rounds, rates(5.1), rates(4.0));
        let comparison = compared(&a, &b);
        comparison.rows.into_iter().find(|row| row.point.text("length") == "4 KiB").unwrap()
    };
    for (rounds, state) in [([14, 6], Sharing::Alone), ([14, 5], Sharing::Shared)] {
        let row = row(rounds);
        assert_eq!((row.difference, row.state), (Difference::Unresolved, Some(state)), "{row:?}");
    }
    let row = row([16, 4]);
    assert_eq!((row.difference, row.ratio), (Difference::OtherState, None), "{row:?}");
}

/// Returns two sides of three runs, each sample changed by its side.
fn sides_with(change: impl Fn(usize, &mut Sample)) -> [Vec<Run>; 2] {
    [0, 1].map(|side: usize| {
        let mut runs = runs(3 * side as u64..3 * side as u64 + 3, 1.0);
        for sample in runs.iter_mut().flat_map(|run| &mut run.samples) {
            change(side, sample);
        }
        runs
    })
}

#[test]
fn runs_of_one_machine_have_common_limits_of_near_and_far_cores() {
    let trips = ["200", "260"];
    let [a, mut b] = sides_with(|side, sample| {
        sample.covariates.insert(ROUND_TRIP.into(), trips[side].into());
    });
    let comparison = compared(&a, &b);
    let rows = comparison.rows.iter();
    let rows: Vec<_> = rows.map(|row| (row.class, row.difference)).collect();
    assert_eq!(rows, [(None, Difference::Unresolved); 2]);
    // Runs of another machine have separate limits.
    b.iter_mut().for_each(|run| run.record.host = "there".into());
    let differences: Vec<_> = compared(&a, &b).rows.iter().map(|row| row.difference).collect();
    assert_eq!(differences, [Difference::OtherClass; 2]);
}

#[test]
fn runs_of_one_machine_have_a_common_rate_of_a_core_alone() {
    let rates = [5.1, 4.0];
    let [a, mut b] = sides_with(|side, sample| {
        let clock = sample.clock.as_mut().unwrap();
        (clock.issue_before, clock.issue_after) = (Some(rates[side]), Some(rates[side]));
        let factor = if side == 0 { 1.0 } else { 0.5 };
        sample.values.values_mut().for_each(|value| *value *= factor);
    });
    let differences = |a: &[Run], b: &[Run]| {
        compared(a, b).rows.iter().map(|row| row.difference).collect::<Vec<_>>()
    };
    assert_eq!(differences(&a, &b), [Difference::OtherState; 2]);
    b.iter_mut().for_each(|run| run.record.host = "there".into());
    assert_eq!(differences(&a, &b), [Difference::Lower; 2]);
}

#[test]
fn a_side_that_often_failed_is_not_compared() {
    let failing = |rounds: u32| {
        sides_with(|side, sample| {
            let is_failed = side == 1 && sample.point.text("length") == "4 KiB";
            if is_failed && sample.round < rounds && !sample.twin {
                sample.values.clear();
                sample.error = Some(Failure::new(FailureKind::Timeout, "no answer"));
            }
        })
    };
    let [a, b] = failing(2);
    assert_eq!(difference(&compared(&a, &b), "4 KiB"), Difference::Unresolved);
    let [a, b] = failing(3);
    let comparison = compared(&a, &b);
    let expected = Difference::TooManyFailed { failed: [0, 9], rounds: [60, 60] };
    assert_eq!(difference(&comparison, "4 KiB"), expected);
    assert_eq!(difference(&comparison, "64 KiB"), Difference::Unresolved);
    assert!(comparison.rows.iter().all(|row| row.ratio.is_some() == row.p_value.is_some()));
    let [a, b] = failing(20);
    let comparison = compared(&a, &b);
    assert_eq!((comparison.rows.len(), comparison.only_a), (1, 1));
    assert_eq!(comparison.notes, ["note: 1 point failed in all rounds of B"]);
}

/// Returns runs as if they were measured in guests.
fn in_guests(seeds: std::ops::Range<u64>, name: &str, accelerator: &str) -> Vec<Run> {
    let mut runs = runs(seeds, 1.0);
    for run in &mut runs {
        run.record.guests = Some(GuestsRecord {
            name: name.into(),
            declaration: "cpus = 2".into(),
            accelerator: accelerator.into(),
            clock: if accelerator == "tcg" { CpuClock::Untimed } else { CpuClock::Real },
        });
    }
    runs
}

#[test]
fn runs_of_hosts_and_of_guests_do_not_compare() {
    let compared = |a: &[Run], b: &[Run]| compare(a, b, &[EXPERIMENT], None, Unit::Own);
    let (here, emulated) = (runs(0..3, 1.0), in_guests(3..6, "plain", "tcg"));
    for (a, b) in [(&here, &emulated), (&emulated, &in_guests(6..9, "plain", "kvm"))] {
        let line = compared(a, b).unwrap_err().to_string();
        assert!(line.contains("guest plain, emulated by TCG"), "{line}");
    }
    let notes = |b: &[Run]| compared(&emulated, b).unwrap().remove(0).notes;
    let other = notes(&in_guests(6..9, "numa", "tcg"));
    assert!(other[0].contains("guest plain, emulated by TCG in A and guest numa"), "{other:?}");
    let same = notes(&in_guests(6..9, "plain", "tcg"));
    assert_eq!(same, ["note: both sides are of guest plain, emulated by TCG"]);
}
