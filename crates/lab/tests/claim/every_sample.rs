//! Conditions on every sample: void samples, retries, twins and failures.

use lab::claim::VerdictKind::{Contradicted, Inconclusive, Reproduced};
use lab::claim::{Statistic, Verdict, Violations};
use lab::journal::Run;
use lab::sample::{Failure, Sample};

use crate::made_up::{MadeUp, product};
use crate::{assert_kind, fail_rounds, place, reasons};

const NEVER: &str = "expect = { never = { above = 0 } }";

/// Returns 20 rounds of two points, one of them with a twin, whose values are 0.
fn without_loss() -> Run {
    let lengths = MadeUp::new(product(&["glibc"], &["4 KiB", "64 KiB"], &["0"]));
    MadeUp { metric: "calls", ..lengths }.run(|_| 0.0)
}

/// Sets the value of the first sample of a round.
fn set(run: &mut Run, round: u32, value: f64) -> &mut Sample {
    let sample = run.samples.iter_mut().find(|sample| sample.round == round).unwrap();
    sample.values.insert("calls".into(), value);
    sample
}

fn counts(verdict: &Verdict) -> (Violations, Violations, Option<f64>) {
    match verdict.values().next().unwrap().statistic {
        Some(Statistic::Violations { valid, void, upper_limit, .. }) => (valid, void, upper_limit),
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn one_violation_contradicts() {
    let keys = |expect: &str| format!("metric = \"calls\"\n{expect}");
    let mut run = without_loss();
    let verdict = assert_kind(&keys(NEVER), &run, Reproduced);
    let (valid, void, upper_limit) = counts(&verdict);
    assert_eq!(
        (valid, void),
        (Violations { count: 0, of: 60, worst: None }, Violations::default())
    );
    // Of 20 rounds of each point.
    assert!((upper_limit.unwrap() - 0.1391).abs() < 1e-4, "{upper_limit:?}");
    set(&mut run, 3, 7.0);
    let verdict = assert_kind(&keys(NEVER), &run, Contradicted);
    assert_eq!(counts(&verdict).0, Violations { count: 1, of: 60, worst: Some(7.0) });
    assert!(reasons(&verdict).contains("length=4 KiB"), "{verdict:?}");
    // The median is 0 all the same, as a bound of the value shows.
    assert_kind(&keys("expect = { at_most = 0 }"), &run, Reproduced);
    assert_kind(&keys("expect = { never = { above = 7 } }"), &run, Reproduced);
    assert_kind(&keys("expect = { never = { below = 0 } }"), &run, Reproduced);
    assert_kind(&keys("expect = { always = { at_least = 0, at_most = 7 } }"), &run, Reproduced);
    assert_kind(&keys("expect = { always = { at_least = 1 } }"), &run, Contradicted);
    // Rounds of twins count too.
    let mut run = without_loss();
    let twin = run.samples.iter_mut().find(|sample| sample.twin).unwrap();
    twin.values.insert("calls".into(), 1.0);
    assert_kind(&keys(NEVER), &run, Contradicted);
}

#[test]
fn violations_in_void_samples_are_listed_and_do_not_contradict() {
    let keys = &format!("metric = \"calls\"\n{NEVER}");
    let mut run = without_loss();
    let lost = set(&mut run, 3, 7.0);
    lost.void = Some("a stall".into());
    // The second attempt lost nothing.
    let again = Sample { attempt: 2, void: None, ..lost.clone() };
    run.samples.push(again);
    set(&mut run, 3, 7.0);
    run.samples.last_mut().unwrap().values.insert("calls".into(), 0.0);
    let verdict = assert_kind(keys, &run, Reproduced);
    let (valid, void, _) = counts(&verdict);
    assert_eq!((valid.count, valid.of), (0, 60));
    assert_eq!(void, Violations { count: 1, of: 1, worst: Some(7.0) });
    // An attempt that is valid and lost counts, even if a later one replaced it.
    run.samples.iter_mut().for_each(|sample| sample.void = None);
    assert_kind(keys, &run, Contradicted);
}

#[test]
fn without_every_round_it_is_open() {
    let keys = &format!("metric = \"calls\"\n{NEVER}");
    let mut run = without_loss();
    fail_rounds(&mut run, 1, |point| point.text("length") == "4 KiB");
    let verdict = assert_kind(keys, &run, Inconclusive);
    assert!(reasons(&verdict).contains(r#""reason":"failures-may-decide","failed":1"#));
    // A later session that repeats the round does not undo the failure.
    let again = without_loss().samples.into_iter().filter(|sample| sample.round == 0);
    run.samples.extend(again.map(|sample| Sample { session: 2, ..sample }));
    assert_kind(keys, &run, Inconclusive);
    // Nor does a failed twin count as none.
    let mut run = without_loss();
    let twin = run.samples.iter_mut().find(|sample| sample.twin).unwrap();
    twin.error = Some(Failure::failed("broke"));
    assert_kind(keys, &run, Inconclusive);
    let mut run = without_loss();
    run.samples.retain(|sample| sample.round < 10);
    assert_kind(keys, &run, Reproduced);
    assert_kind(&format!("rounds = 59\n{keys}"), &run, Inconclusive);
    // One point with fewer rounds limits what is known of all.
    run.samples.retain(|sample| sample.round < 9 || sample.point.text("length") == "4 KiB");
    let verdict = assert_kind(keys, &run, Inconclusive);
    let few = r#""reason":"too-few-rounds","rounds":9,"needed":10"#;
    assert!(reasons(&verdict).contains(few), "{verdict:?}");
    let limit = counts(&verdict).2.unwrap();
    assert!((limit - 0.2831).abs() < 1e-4, "{limit}");
    // A promise of fewer rounds than an interval takes is about its samples alone.
    let verdict = assert_kind(&format!("rounds = 1\n{keys}"), &run, Reproduced);
    assert_eq!(counts(&verdict).2, None);
    set(&mut run, 3, 7.0);
    assert_kind(keys, &run, Contradicted);
    let mut run = without_loss();
    crate::made_up::fail(&mut run, &Failure::failed("broke"), |_| true);
    assert_kind(keys, &run, Inconclusive);
}

#[test]
fn only_rounds_of_the_class_count() {
    let keys = &format!("class = \"near\"\nmetric = \"calls\"\n{NEVER}");
    let mut run = without_loss();
    for sample in &mut run.samples {
        place(sample, sample.round >= 10);
    }
    set(&mut run, 15, 7.0);
    let verdict = assert_kind(keys, &run, Reproduced);
    assert_eq!(counts(&verdict).0.of, 30);
    // Without a class the claim is about both.
    assert_kind(&format!("metric = \"calls\"\n{NEVER}"), &run, Contradicted);
    // A void sample of unknown class is listed.
    let unknown = set(&mut run, 16, 7.0);
    unknown.covariates.clear();
    unknown.void = Some("proximity unknown".into());
    assert_eq!(counts(&assert_kind(keys, &run, Reproduced)).1.count, 1);
    set(&mut run, 5, 7.0);
    assert_kind(keys, &run, Contradicted);
}

#[test]
fn one_occurrence_reproduces_and_none_leaves_it_open() {
    let keys = "metric = \"calls\"\nexpect = { sometimes = { above = 0 } }";
    let mut run = without_loss();
    let verdict = assert_kind(keys, &run, Inconclusive);
    let Some(Statistic::Occurrences { valid, upper_limit }) =
        verdict.values().next().unwrap().statistic
    else {
        panic!("{verdict:?}")
    };
    assert_eq!((valid.count, valid.of), (0, 60));
    assert!((upper_limit - 0.0487).abs() < 1e-4, "{upper_limit}");
    // The host may have caused the value of a void sample.
    set(&mut run, 3, 7.0).void = Some("the host stalled".into());
    assert_kind(keys, &run, Inconclusive);
    set(&mut run, 3, 7.0).void = None;
    let verdict = assert_kind(keys, &run, Reproduced);
    let label = &verdict.values().next().unwrap().label;
    assert!(label.contains("length=4 KiB") && !label.contains("64 KiB"), "{label}");
    assert_kind("metric = \"calls\"\nexpect = { sometimes = { below = 0 } }", &run, Inconclusive);
}
