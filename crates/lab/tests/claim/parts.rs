//! Claims of which a run measures a part of the points.

use lab::claim::VerdictKind::{self, Contradicted, Inconclusive, NotMeasured, Reproduced};
use lab::experiment::Profile;
use lab::journal::Run;
use lab::point::Point;

use crate::made_up::{EXPERIMENT, MadeUp, product};
use crate::{assert_kind, reasons};

const LENGTHS: [&str; 3] = ["16 B", "4 KiB", "256 MiB"];

/// Returns a run of two functions at three lengths: `apex` is 1.5 times as fast except at 256 MiB.
fn whole() -> Run {
    let mut made_up = MadeUp::new(product(&["glibc", "apex"], &LENGTHS, &["0"]));
    made_up.profile = Profile::Quick;
    made_up.twins = made_up.points.clone();
    made_up.run(|point| match (point.text("function"), point.text("length")) {
        ("apex", "16 B" | "4 KiB") => 15e9,
        _ => 10e9,
    })
}

/// Leaves out the other lengths, as `--where` does.
fn only(length: &str) -> Run {
    let mut run = whole();
    let is_kept = |point: &Point| point.text("length") == length;
    run.samples.retain(|sample| is_kept(&sample.point));
    let experiment = run.record.experiments.get_mut(EXPERIMENT).unwrap();
    experiment.keep(is_kept);
    run
}

#[test]
fn one_length_of_three_is_not_every_length() {
    let part = only("4 KiB");
    let ratio = |bounds: &str| {
        format!(
            "expect = {{ ratio_of = {{ function = 'apex' }}, to = {{ function = 'glibc' }}, \
             each = ['length'], {bounds} }}"
        )
    };
    let is_open = |keys: &str| {
        let verdict = assert_kind(keys, &part, Inconclusive);
        let counted = r#""what":"levels of length","measured":1,"of":3"#;
        assert!(reasons(&verdict).contains(counted), "{verdict:#?}");
        // The measured length, and the count of the others.
        assert_eq!(verdict.judgements.len(), 2, "{verdict:#?}");
    };
    is_open(&ratio("at_least = 1.3"));
    is_open("where = { function = 'apex' }\nexpect = { at_least = 1e9 }");
    is_open("where = { function = 'apex' }\nexpect = { at_least = 1e9, hold = '50%' }");
    is_open(&ratio("at_least = 1.7, hold = 'some'"));
    let never = "where = { function = 'apex' }\nexpect = { never = { below = 1e9 } }";
    assert_kind(never, &part, Inconclusive);
    let trend = "where = { function = 'apex' }\nexpect = { shape = 'falls', along = 'length' }";
    // One level says nothing about a trend.
    assert_kind(trend, &part, NotMeasured);
    // A verdict that the other lengths cannot change is decided.
    assert_kind(&ratio("at_least = 1.7"), &part, Contradicted);
    assert_kind(&ratio("at_least = 1.3, hold = 'some'"), &part, Reproduced);
    // Nor does a claim about this length depend on them.
    assert_kind(
        &format!("where = {{ length = '4 KiB' }}\n{}", ratio("at_least = 1.3")),
        &part,
        Reproduced,
    );
}

#[test]
fn a_function_that_the_claim_does_not_compare_may_be_missing() {
    let mut run = whole();
    let is_kept = |point: &Point| point.text("function") != "apex";
    run.samples.retain(|sample| is_kept(&sample.point));
    run.record.experiments.get_mut(EXPERIMENT).unwrap().keep(is_kept);
    let keys = "expect = { ratio_of = { length = '4 KiB', function = 'glibc' }, \
                to = { length = '16 B', function = 'glibc' }, at_most = 1.1 }";
    assert_kind(keys, &run, Reproduced);
}

#[test]
fn numbers_that_the_profile_does_not_contain_leave_the_claim_open() {
    let mut run = whole();
    let is_short = |point: &Point| point.text("length") != "256 MiB";
    run.samples.retain(|sample| is_short(&sample.point));
    run.record.experiments.get_mut(EXPERIMENT).unwrap().points.retain(is_short);
    let keys = |function: &str, bound: f64, hold: &str| {
        format!(
            "where = {{ function = {function}, length = ['16 B', '4 KiB', '256 MiB'] }}\n\
             expect = {{ at_least = {bound:?}, hold = '{hold}' }}"
        )
    };
    let verdict = |bound, hold, kind: VerdictKind| {
        let verdict = assert_kind(&keys("'apex'", bound, hold), &run, kind);
        let counted =
            r#""what":"levels of length","measured":2,"of":3,"command":"tollgate run --claim it""#;
        assert!(reasons(&verdict).contains(counted), "{verdict:#?}");
    };
    verdict(1e9, "all", Inconclusive);
    verdict(1e9, "50%", Inconclusive);
    verdict(99e9, "some", Inconclusive);
    verdict(1e9, "some", Reproduced);
    verdict(99e9, "all", Contradicted);
    // Names may be alternatives.
    assert_kind(
        "where = { function = ['apex', 'sgx'] }\nexpect = { at_least = 1e9 }",
        &run,
        Reproduced,
    );
}
