//! Changes of the winner, and the shape of values along a factor.

use lab::claim::VerdictKind::{Contradicted, Inconclusive, Reproduced, Unmeasurable};
use lab::journal::Run;
use lab::point::Point;
use lab::sample::{Failure, FailureKind};

use crate::made_up::{MadeUp, fail, product};
use crate::{assert_kind, fail_rounds, reasons};

const WINNER: &str = "expect = { winner_changes = \"function\", along = \"length\" }";

fn functions(truth: impl Fn(&str, &str) -> f64) -> Run {
    let lengths = ["16 B", "4 KiB", "64 KiB"];
    let made_up = MadeUp::new(product(&["glibc", "apex", "naive"], &lengths, &["0"]));
    made_up.run(|point| truth(point.text("function"), point.text("length")))
}

#[test]
fn the_winner_changes() {
    let changing = functions(|function, length| match (function, length) {
        ("glibc", "16 B") | ("apex", "64 KiB") => 15e9,
        _ => 10e9,
    });
    let verdict = assert_kind(WINNER, &changing, Reproduced);
    assert_eq!(verdict.values().count(), 3);
    for best in [r#""at":"16 B","candidates":["glibc"]"#, r#""at":"64 KiB","candidates":["apex"]"#]
    {
        assert!(reasons(&verdict).contains(best), "{verdict:?}");
    }
    let one = functions(|function, _| if function == "apex" { 15e9 } else { 10e9 });
    assert_kind(WINNER, &one, Contradicted);
    let none = functions(|_, _| 10e9);
    assert_kind(WINNER, &none, Inconclusive);
    // Two are equal and better than the third: either may be the best at all levels.
    let two = functions(|function, _| if function == "naive" { 5e9 } else { 10e9 });
    assert_kind(WINNER, &two, Inconclusive);
}

#[test]
fn the_values_of_a_contest_include_the_drift_of_the_clock() {
    let run = MadeUp::drifting(functions(|_, _| 10e9));
    let verdict = assert_kind(WINNER, &run, Inconclusive);
    let drifts: Vec<f64> = verdict.values().map(|it| it.interval.unwrap().drift).collect();
    assert!(drifts.len() == 3 && drifts.iter().all(|drift| *drift > 0.015), "{drifts:?}");
}

#[test]
fn a_level_not_measured_everywhere_does_not_compete_and_may_be_the_best() {
    let mut run = functions(|function, _| if function == "glibc" { 10e9 } else { 15e9 });
    fail(&mut run, &Failure::unsupported("no AVX-512", "use another machine"), |point| {
        point.text("function") == "apex" && point.text("length") == "16 B"
    });
    let verdict = assert_kind(WINNER, &run, Inconclusive);
    assert!(verdict.values().all(|ours| ours.label.ends_with("naive")), "{verdict:?}");
    let left_out =
        r#"{"why":{"reason":"not-at-every-level","along":"length"},"names":["function=apex"]}"#;
    assert!(reasons(&verdict).contains(left_out), "{verdict:?}");
    fail(&mut run, &Failure::unsupported("no AVX-512", "use another machine"), |point| {
        point.text("function") != "glibc"
    });
    assert_kind(WINNER, &run, Unmeasurable);
}

#[test]
fn a_candidate_that_crashed_may_have_won() {
    let whole = functions(|function, _| if function == "apex" { 15e9 } else { 10e9 });
    let at = |function: &'static str, length: &'static str| {
        move |point: &Point| {
            point.text("function") == function && point.text("length").contains(length)
        }
    };
    let crashed = Failure::new(FailureKind::Crashed, "signal 11");
    let mut run = whole.clone();
    fail(&mut run, &crashed, at("naive", "16 B"));
    let verdict = assert_kind(WINNER, &run, Inconclusive);
    assert!(reasons(&verdict).contains(r#""label":"function=naive length=16 B","why":{"reason":"failed","failure":{"kind":"crashed""#), "{verdict:?}");
    let mut run = whole.clone();
    run.samples.retain(|sample| !at("naive", "16 B")(&sample.point));
    let verdict = assert_kind(WINNER, &run, Inconclusive);
    assert!(
        reasons(&verdict)
            .contains(r#""reason":"not-measured","command":"tollgate run --claim it""#),
        "{verdict:?}"
    );
    // No values at one level.
    let of_64_kib = |point: &Point| point.text("length") == "64 KiB";
    let mut run = whole.clone();
    fail(&mut run, &crashed, of_64_kib);
    assert_kind(WINNER, &run, Inconclusive);
    let mut run = whole.clone();
    fail(&mut run, &Failure::unavailable("no memory", "add some"), of_64_kib);
    // The best function may be another one there.
    let verdict = assert_kind(WINNER, &run, Inconclusive);
    assert!(reasons(&verdict).contains(r#""function=naive length=64 KiB"]"#), "{verdict:?}");
}

#[test]
fn a_level_that_crashed_may_differ() {
    let whole = threads(|threads| 10e9 + threads.min(8.0) * 1e9);
    let of = |count: &'static str| move |point: &Point| point.text("threads") == count;
    let flat = shape("flat", ", within = \"99%\"");
    let kinds = [flat, shape("rises", ""), shape("saturates", ", beyond = 8, within = \"10%\"")];
    for keys in &kinds {
        assert_kind(keys, &whole, Reproduced);
        let mut run = whole.clone();
        fail(&mut run, &Failure::new(FailureKind::Crashed, "signal 11"), of("2"));
        let verdict = assert_kind(keys, &run, Inconclusive);
        assert!(reasons(&verdict).contains(r#""label":"threads=2","why":{"reason":"failed","failure":{"kind":"crashed","why":"signal 11"}"#), "{verdict:?}");
        run.samples.retain(|sample| !of("2")(&sample.point));
        let verdict = assert_kind(keys, &run, Inconclusive);
        let missing = r#""label":"threads=2","why":{"reason":"not-measured""#;
        assert!(reasons(&verdict).contains(missing), "{verdict:?}");
        let mut run = whole.clone();
        fail(&mut run, &Failure::unavailable("two CPUs only", "add some"), of("2"));
        let verdict = assert_kind(keys, &run, Reproduced);
        let left_out =
            r#""why":"two CPUs only","remedy":"add some"},"command":null},"names":["threads=2"]"#;
        assert!(reasons(&verdict).contains(left_out), "{verdict:?}");
    }
}

/// Every level counts, also one between those whose ratio is stated.
#[test]
fn a_level_that_often_fails_leaves_the_trend_open() {
    let whole = threads(|threads| 10e9 + threads.min(8.0) * 1e9);
    let is_2 = |point: &Point| point.text("threads") == "2";
    let flat = shape("flat", ", within = \"99%\"");
    for keys in [flat, shape("rises", ""), shape("saturates", ", beyond = 8, within = \"10%\"")] {
        let mut run = whole.clone();
        fail_rounds(&mut run, 2, is_2);
        assert_kind(&keys, &run, Reproduced);
        fail_rounds(&mut run, 12, is_2);
        let verdict = assert_kind(&keys, &run, Inconclusive);
        let why = r#""reason":"too-many-failed","failed":12,"rounds":20"#;
        assert!(reasons(&verdict).contains(why), "{}", reasons(&verdict));
    }
}

#[test]
fn a_twin_that_often_fails_gives_no_floor() {
    let mut run = threads(|threads| 10e9 + threads * 1e9);
    let keys = shape("rises", "");
    for sample in run.samples.iter_mut().filter(|sample| sample.twin && sample.round < 12) {
        sample.values.clear();
        sample.error = Some(Failure::check("byte 3 is 7, not 8"));
    }
    let verdict = assert_kind(&keys, &run, Inconclusive);
    let why = r#""why":{"reason":"too-many-failed","failed":12,"rounds":20"#;
    assert!(reasons(&verdict).contains(why), "{}", reasons(&verdict));
    assert!(reasons(&verdict).contains("the twin of threads=16"), "{}", reasons(&verdict));
}

#[test]
fn a_factor_left_open_is_named() {
    let points = product(&["glibc", "apex"], &["16 B", "4 KiB"], &["0", "2"]);
    let run = MadeUp::new(points).run(|_| 10e9);
    let verdict = assert_kind(WINNER, &run, Inconclusive);
    assert!(reasons(&verdict).contains(r#""factors":["threads"]"#), "{verdict:?}");
    let each =
        "expect = { winner_changes = \"function\", along = \"length\", each = [\"threads\"] }";
    let verdict = assert_kind(each, &run, Inconclusive);
    assert_eq!(verdict.judgements.len(), 2, "{verdict:?}");
}

fn threads(truth: impl Fn(f64) -> f64) -> Run {
    let made_up = MadeUp::new(product(&["glibc"], &["64 KiB"], &["16", "2", "8", "0"]));
    made_up.run(|point: &Point| truth(point.get("threads").unwrap().number().unwrap()))
}

fn shape(name: &str, more: &str) -> String {
    format!("expect = {{ shape = \"{name}\", along = \"threads\"{more} }}")
}

#[test]
fn values_rise_or_fall() {
    let rising = threads(|threads| 10e9 + threads * 1e9);
    let verdict = assert_kind(&shape("rises", ""), &rising, Reproduced);
    assert!(
        verdict.values().next().unwrap().label.contains("threads=16 over threads=0"),
        "sorted as numbers"
    );
    assert_kind(&shape("falls", ""), &rising, Contradicted);
    let falling = threads(|threads| 10e9 - threads * 0.2e9);
    assert_kind(&shape("falls", ""), &falling, Reproduced);
    assert_kind(&shape("rises", ""), &falling, Contradicted);
    let level = threads(|_| 10e9);
    assert_kind(&shape("rises", ""), &level, Inconclusive);
    // It ends higher, but collapses on the way.
    let peak = threads(|threads| if threads == 8.0 { 40e9 } else { 10e9 + threads * 1e9 });
    let verdict = assert_kind(&shape("rises", ""), &peak, Contradicted);
    let against: Vec<_> = verdict.values().filter(|one| one.kind == Contradicted).collect();
    assert_eq!(against.len(), 1);
    assert!(against[0].label.contains("threads=16 over threads=8"), "{against:?}");
    // Neighbours that do not differ are no step.
    let stairs = threads(|threads| if threads < 8.0 { 10e9 } else { 20e9 });
    assert_kind(&shape("rises", ""), &stairs, Reproduced);
    // With few rounds chance may explain one of several steps.
    let mut few = peak;
    few.samples.retain(|sample| (2..8).contains(&sample.round));
    let verdict = assert_kind(&shape("rises", ""), &few, Inconclusive);
    assert!(reasons(&verdict).contains(r#""reason":"one-of-pairs","pairs":5"#), "{verdict:?}");
}

#[test]
fn a_decline_in_steps_below_the_noise_floor_is_no_rise() {
    let counts: Vec<String> = (0..10).map(|threads| threads.to_string()).collect();
    let counts: Vec<&str> = counts.iter().map(String::as_str).collect();
    let made_up = MadeUp::new(product(&["glibc"], &["64 KiB"], &counts));
    let truth = [10.0, 100.0, 90.0, 81.0, 73.0, 66.0, 59.0, 53.0, 48.0, 43.0];
    let threads = |point: &Point| point.get("threads").unwrap().number().unwrap();
    let mut run = made_up.run(|point| truth[threads(point) as usize] * 1e9);
    // Twins that differ by up to 15% hide each step of the decline, but not the decline.
    for sample in run.samples.iter_mut().filter(|sample| sample.twin) {
        sample.values.values_mut().for_each(|value| *value *= 1.15);
    }
    let verdict = assert_kind(&shape("rises", ""), &run, Contradicted);
    let worst = verdict.values().nth(1).unwrap();
    assert!(worst.label.contains("threads=9 over threads=1"), "{worst:?}");
    let steps = |label: &str| label.contains("threads=3 over threads=2");
    assert!(!verdict.values().any(|one| steps(&one.label)), "{verdict:?}");
}

#[test]
fn values_are_flat() {
    let within = ", within = \"5%\"";
    let level = threads(|_| 10e9);
    let verdict = assert_kind(&shape("flat", within), &level, Reproduced);
    assert_eq!(verdict.values().count(), 3, "each level against the first");
    let bump = threads(|threads| if threads == 8.0 { 12e9 } else { 10e9 });
    assert_kind(&shape("flat", within), &bump, Contradicted);
    assert_kind(&shape("flat", ", within = \"20%\""), &bump, Inconclusive);
}

#[test]
fn values_saturate() {
    let knee = ", beyond = 8, within = \"10%\"";
    let saturating = threads(|threads| 10e9 + threads.min(8.0) * 1e9);
    assert_kind(&shape("saturates", knee), &saturating, Reproduced);
    let rising = threads(|threads| 10e9 + threads * 1e9);
    assert_kind(&shape("saturates", knee), &rising, Contradicted);
    let falling = threads(|threads| 10e9 - threads * 0.2e9);
    assert_kind(&shape("saturates", knee), &falling, Contradicted);
    // Worse beyond the knee is not better.
    let peaking = threads(|threads| if threads == 16.0 { 12e9 } else { 10e9 + threads * 1e9 });
    assert_kind(&shape("saturates", knee), &peaking, Reproduced);
    // It collapses on the way to the knee.
    let dip = threads(|threads| if threads == 2.0 { 5e9 } else { 10e9 + threads.min(8.0) * 1e9 });
    let verdict = assert_kind(&shape("saturates", knee), &dip, Contradicted);
    let against: Vec<_> = verdict.values().filter(|one| one.kind == Contradicted).collect();
    assert_eq!(against.len(), 1);
    assert!(against[0].label.contains("threads=2 over threads=0"), "{against:?}");
    let no_level_beyond = ", beyond = 16, within = \"10%\"";
    assert_kind(&shape("saturates", no_level_beyond), &saturating, Inconclusive);
}

#[test]
fn times_saturate_downwards() {
    let mut made_up = MadeUp::new(product(&["glibc"], &["64 KiB"], &["16", "2", "8", "0"]));
    made_up.metric = "latency";
    let threads = |point: &Point| point.get("threads").unwrap().number().unwrap();
    let run = made_up.run(|point| 100.0 - 5.0 * threads(point).min(8.0));
    let keys = shape("saturates", ", beyond = 8, within = \"10%\"");
    assert_kind(&keys, &run, Reproduced);
    let run = made_up.run(|point| 100.0 - 5.0 * threads(point));
    assert_kind(&keys, &run, Contradicted);
}

#[test]
fn one_level_has_no_shape() {
    let mut run = threads(|_| 10e9);
    let absent = Failure::unavailable("two CPUs only", "use a larger machine");
    fail(&mut run, &absent, |point| point.text("threads") != "0");
    let verdict = assert_kind(&shape("rises", ""), &run, Unmeasurable);
    assert!(reasons(&verdict).contains("use a larger machine"), "{verdict:?}");
}
