//! Rounds with near and with far cores: judged separately, never paired or mixed.

use lab::claim::VerdictKind::{Contradicted, Incomparable, Inconclusive, Reproduced, Unmeasurable};
use lab::claim::{ClassResult, MeasuredValue, Reason};
use lab::journal::Run;
use lab::point::Point;
use lab::sample::Sample;
use machine::proximity::Class::{self, Far, Near};

use crate::made_up::{MadeUp, product};
use crate::{assert_kind, place, reasons};

const RATIO: &str = "ratio_of = { function = \"apex\" }, to = { function = \"glibc\" }";

fn is_apex(point: &Point) -> bool {
    point.text("function") == "apex"
}

/// Returns a run in which apex is faster by one factor in near rounds and by another in far ones, which are five times
/// as slow.
fn run(is_far: impl Fn(&Sample) -> bool, factors: [f64; 2]) -> Run {
    run_of(20, is_far, factors)
}

fn run_of(rounds: u32, is_far: impl Fn(&Sample) -> bool, [near, far]: [f64; 2]) -> Run {
    let points = product(&["glibc", "apex"], &["4 KiB", "64 KiB"], &["0"]);
    let mut run = MadeUp { rounds, ..MadeUp::new(points) }.run(|_| 10e9);
    for sample in &mut run.samples {
        let is_far = is_far(sample);
        place(sample, is_far);
        let factor = match (is_apex(&sample.point), is_far) {
            (true, true) => far / 5.0,
            (false, true) => 0.2,
            (true, false) => near,
            (false, false) => 1.0,
        };
        sample.values.values_mut().for_each(|value| *value *= factor);
    }
    run
}

fn odd(sample: &Sample) -> bool {
    sample.round % 2 == 1
}

fn ratio(bounds: &str) -> String {
    format!("expect = {{ {RATIO}, each = [\"length\"], {bounds} }}")
}

fn of(values: &[MeasuredValue]) -> Vec<(Option<Class>, usize)> {
    values.iter().map(|value| (value.class, value.rounds)).collect()
}

#[test]
fn classes_that_agree_are_both_shown() {
    let run = run(odd, [1.5, 1.2]);
    let verdict = assert_kind(&ratio("at_least = 1.1"), &run, Reproduced);
    for judgement in &verdict.judgements {
        assert_eq!(of(&judgement.values), [(Some(Near), 10), (Some(Far), 10)]);
        let [near, far] = [0, 1].map(|at| judgement.values[at].value.unwrap());
        assert!((near / 1.5 - 1.0).abs() < 0.02 && (far / 1.2 - 1.0).abs() < 0.02, "{near} {far}");
        assert!(judgement.reasons.is_empty(), "{judgement:?}");
    }
    assert_kind(&ratio("at_least = 1.7"), &run, Contradicted);
    // Of 10 GB/s and of 2 GB/s, no estimate is between them.
    let value = assert_kind("expect = { at_least = 1e9 }", &run, Reproduced);
    let medians = value.values().map(|value| value.value.unwrap());
    assert!(medians.into_iter().all(|value| !(3.5e9..9e9).contains(&value)), "{value:?}");
}

#[test]
fn classes_that_differ_are_inconclusive() {
    let run = run(odd, [1.5, 1.2]);
    let verdict = assert_kind(&ratio("at_least = 1.35"), &run, Inconclusive);
    let kinds = [(Near, Reproduced), (Far, Contradicted)];
    let results = kinds.map(|(class, kind)| ClassResult { class, kind }).to_vec();
    for judgement in &verdict.judgements {
        assert_eq!(judgement.reasons, [Reason::ClassesDiffer { results: results.clone() }]);
        let shown = judgement.values.iter().map(|value| (value.class.unwrap(), value.kind));
        assert_eq!(shown.collect::<Vec<_>>(), kinds);
    }
    let json = r#"{"reason":"classes-differ","results":[{"class":"near","kind":"reproduced"},{"class":"far","kind":"contradicted"}]}"#;
    assert!(reasons(&verdict).contains(json), "{}", reasons(&verdict));
    for keys in [
        "expect = { at_least = 5e9 }".into(),
        "published = { value = 11e9, unit = \"B/s\", tolerance = \"30%\" }\ncarries_over = \"anywhere\"\n\
         where = { function = \"glibc\" }"
            .into(),
        ratio("at_most = 1.35"),
    ] {
        let verdict = assert_kind(&keys, &run, Inconclusive);
        assert!(reasons(&verdict).contains("classes-differ"), "{keys}: {}", reasons(&verdict));
    }
    // The best point is chosen by class too.
    let best = format!("expect = {{ {RATIO}, at_least = 1.35 }}");
    let verdict = assert_kind(&best, &run_of(40, odd, [1.5, 1.2]), Inconclusive);
    assert_eq!(of(&verdict.judgements[0].values), [(Some(Near), 20), (Some(Far), 20)]);
    assert!(reasons(&verdict).contains("classes-differ"), "{}", reasons(&verdict));
}

#[test]
fn every_condition_is_judged_by_class() {
    // The order of the functions, and so the best one, is the opposite with far cores.
    let run = run(odd, [1.5, 0.7]);
    let ranking = "expect = { ranking = [{ function = \"apex\" }, { function = \"glibc\" }], each = [\"length\"] }";
    let shape =
        "expect = { shape = \"falls\", along = \"length\" }\nwhere = { function = \"apex\" }";
    let json = reasons(&assert_kind(ranking, &run, Inconclusive));
    assert!(json.contains("classes-differ"), "{json}");
    let winner = "expect = { winner_changes = \"function\", along = \"length\" }";
    let verdict = assert_kind(winner, &run, Contradicted);
    let values: Vec<_> = verdict.values().collect();
    assert_eq!(values.len(), 4, "two lengths in each class");
    for value in values {
        let best = if value.class == Some(Near) { "apex" } else { "glibc" };
        assert!(value.label.ends_with(best) && value.rounds == 10, "{value:?}");
    }
    let verdict = crate::verdict(shape, &run);
    assert!(verdict.values().all(|value| value.rounds == 10), "{verdict:?}");
    let twins = crate::verdict("expect = { twins_differ_at_most = 1e7 }", &run);
    assert!(twins.values().all(|value| value.rounds == 10), "{twins:?}");
    assert_eq!(twins.values().count(), 2);
}

#[test]
fn a_class_with_too_few_rounds_does_not_count() {
    let few = run(|sample| sample.round % 4 == 1, [1.5, 1.2]);
    let verdict = assert_kind(&ratio("at_least = 1.35"), &few, Reproduced);
    for judgement in &verdict.judgements {
        assert_eq!(of(&judgement.values), [(Some(Near), 15)]);
        assert_eq!(judgement.reasons, [Reason::ClassNotJudged { class: Far, rounds: 5 }]);
    }
    let all_far = run(|_| true, [1.5, 1.2]);
    let verdict = assert_kind(&ratio("at_least = 1.35"), &all_far, Contradicted);
    assert_eq!(of(&verdict.judgements[0].values), [(Some(Far), 20)]);
    assert!(verdict.judgements[0].reasons.is_empty(), "{verdict:?}");
    // Neither class has enough, although both together have.
    let keys = "rounds = 15\n".to_owned() + &ratio("at_least = 1.1");
    let verdict = assert_kind(&keys, &run(|it| it.round % 5 < 2, [1.5, 1.2]), Inconclusive);
    assert_eq!(of(&verdict.judgements[0].values), [(Some(Near), 12)]);
    assert!(reasons(&verdict).contains("too-few-rounds"), "{verdict:?}");
}

#[test]
fn values_of_other_hardware_are_shown_by_class() {
    let keys = "published = { value = 3.0, unit = \"B/s\" }\ncarries_over = \"nowhere\"\n\
                where = { function = \"glibc\", length = \"4 KiB\" }";
    let verdict = assert_kind(keys, &run(odd, [1.0, 1.0]), Incomparable);
    assert_eq!(of(&verdict.judgements[0].values), [(Some(Near), 10), (Some(Far), 10)]);
    let verdict = assert_kind(keys, &run(|it| it.round < 2, [1.0, 1.0]), Incomparable);
    assert_eq!(of(&verdict.judgements[0].values), [(Some(Near), 18)]);
}

#[test]
fn a_value_of_one_core_has_no_class() {
    let mut run = run(odd, [1.5, 1.2]);
    let is_one_core = |point: &Point| point.text("length") == "4 KiB";
    for sample in run.samples.iter_mut().filter(|it| is_one_core(&it.point)) {
        sample.covariates.clear();
    }
    let verdict = crate::verdict("expect = { at_least = 1e9 }", &run);
    let of_one: Vec<_> = verdict.values().filter(|it| it.label.contains("length=4 KiB")).collect();
    assert_eq!(of_one.len(), 2, "one value for each function");
    assert!(of_one.iter().all(|one| (one.class, one.rounds) == (None, 20)), "{verdict:?}");
    // Compared with values of two cores, it belongs to both classes.
    let keys = "expect = { ratio_of = { length = \"64 KiB\" }, to = { length = \"4 KiB\" }, \
                each = [\"function\"], at_least = 0.9 }";
    for judgement in assert_kind(keys, &run, Reproduced).judgements {
        assert_eq!(of(&judgement.values), [(Some(Near), 10), (Some(Far), 10)]);
    }
}

#[test]
fn near_and_far_rounds_are_not_paired() {
    let run = run(|sample| odd(sample) && is_apex(&sample.point), [1.2, 1.2]);
    let verdict = assert_kind(&ratio("at_least = 1.1"), &run, Reproduced);
    assert!(verdict.values().all(|ours| ours.rounds == 10 && ours.lost == 10));
    let lost = r#""lost":{"missing":0,"other_class":10,"other_sharing":0,"other_session":0}"#;
    assert!(reasons(&verdict).contains(lost), "{verdict:?}");
    // Without the proximity the same values are inconclusive.
    let mut unknown = run;
    unknown.samples.iter_mut().for_each(|sample| sample.covariates.clear());
    assert_kind(&ratio("at_least = 1.1"), &unknown, Inconclusive);
}

#[test]
fn rounds_without_a_common_class_are_inconclusive() {
    let run = run(|sample| is_apex(&sample.point), [1.0, 1.0]);
    let verdict = assert_kind(&ratio("at_least = 0.1"), &run, Inconclusive);
    assert!(reasons(&verdict).contains(r#""reason":"other-class","class":"near","last":"far""#));
    assert!(verdict.values().all(|value| value.value.is_none()), "{verdict:?}");
}

#[test]
fn a_claim_on_near_cores_uses_only_near_rounds() {
    let run = run(odd, [1.2, 1.0]);
    let of_class = |class: &str, expect: &str| format!("class = \"{class}\"\n{expect}");
    let verdict = assert_kind(&of_class("near", &ratio("at_least = 1.1")), &run, Reproduced);
    assert!(verdict.values().all(|ours| ours.rounds == 10 && ours.lost == 0), "{verdict:?}");
    assert_kind(&of_class("far", &ratio("at_least = 1.1")), &run, Contradicted);
    let value = |bound: &str| format!("expect = {{ {bound} }}");
    assert_kind(&of_class("near", &value("at_least = 5e9")), &run, Reproduced);
    assert_kind(&of_class("far", &value("at_most = 5e9")), &run, Reproduced);
    let verdict = assert_kind(&of_class("same", &ratio("at_least = 1.1")), &run, Unmeasurable);
    assert!(reasons(&verdict).contains(r#""reason":"other-class","class":"same""#), "{verdict:?}");
    let verdict = assert_kind(&of_class("same", &value("at_least = 5e9")), &run, Unmeasurable);
    assert!(reasons(&verdict).contains(r#""last":"far""#), "{verdict:?}");
}
