//! Environments of a run that speak against each other: a change of a setting must not hide earlier rounds.

use lab::claim::{Reason, VerdictKind};
use lab::journal::Run;
use lab::sample::{Failure, Sample};
use machine::environment::Environment;

use crate::made_up::{MadeUp, product};
use crate::{assert_kind, verdict};
use VerdictKind::{Contradicted, Inconclusive, Reproduced};

const RATIO: &str = "expect = { ratio_of = { function = \"ours\" }, to = { function = \"glibc\" }, at_least = 1.5 }";
const VALUE: &str = "where = { function = \"ours\" }\nexpect = { at_least = 15e9 }";
const NEVER: &str = "where = { function = \"ours\" }\nexpect = { never = { below = 15e9 } }";

/// Returns a run of 20 rounds in which ours is twice as fast as glibc, after `rounds` rounds with another governor,
/// changed by `change`.
fn after(rounds: u32, change: impl Fn(&mut Sample)) -> Run {
    let mut made_up = MadeUp::new(product(&["glibc", "ours"], &["64 KiB"], &["0"]));
    let truth = |point: &lab::point::Point| {
        if point.text("function") == "ours" { 20e9 } else { 10e9 }
    };
    let mut run = made_up.run(truth);
    (made_up.rounds, made_up.seed) = (rounds, 2);
    let now = Environment::default();
    let before = Environment { governor: Some("powersave".into()), ..now.clone() };
    for sample in &mut run.samples {
        (sample.session, sample.environment) = (2, now.id());
    }
    let mut earlier = made_up.run(truth).samples;
    for sample in &mut earlier {
        sample.environment = before.id();
        change(sample);
    }
    run.samples.splice(..0, earlier);
    run.record.environments = [now, before].map(|one| (one.id(), one)).into();
    run
}

fn fail(sample: &mut Sample) {
    sample.values.clear();
    sample.error = Some(Failure::check("byte 3 is 7, not 8"));
}

fn is_ours(sample: &Sample) -> bool {
    sample.point.text("function") == "ours"
}

#[test]
fn an_environment_that_decides_otherwise_leaves_the_claim_open() {
    let agreeing = after(20, |_| {});
    let slower = after(20, |sample| {
        if is_ours(sample) {
            sample.values.values_mut().for_each(|value| *value *= 0.5);
        }
    });
    for keys in [RATIO, VALUE, NEVER] {
        let elsewhere = assert_kind(keys, &agreeing, Reproduced).elsewhere;
        assert_eq!(elsewhere.len(), 1);
        assert_eq!(elsewhere[0].environment.differences, ["governor"]);
        let verdict = assert_kind(keys, &slower, Inconclusive);
        let Some(Reason::EnvironmentsDiffer { here, there, environment }) = &verdict.doubt else {
            panic!("{keys}: {:?}", verdict.doubt)
        };
        assert_eq!((*here, *there, environment.rounds), (Reproduced, Contradicted, 20));
        assert_eq!(verdict.elsewhere[0].verdict.kind, Contradicted);
    }
    // Too few rounds there to decide.
    let few = after(5, |sample| sample.values.values_mut().for_each(|value| *value *= 0.5));
    assert_eq!(assert_kind(RATIO, &few, Reproduced).doubt, None);
}

#[test]
fn failures_in_an_earlier_environment_count() {
    let all = after(20, fail);
    let some = after(20, |sample| {
        if is_ours(sample) && sample.round < 3 {
            fail(sample)
        }
    });
    for run in [&all, &some] {
        for keys in [RATIO, VALUE, NEVER] {
            let verdict = assert_kind(keys, run, Inconclusive);
            let Some(Reason::FailedElsewhere { environment }) = &verdict.doubt else {
                panic!("{keys}: {:?}", verdict.doubt)
            };
            assert_eq!(environment.rounds, 20);
            assert!(environment.failed == 20 || environment.failed == 3, "{environment:?}");
        }
    }
    // As within an environment, few failures leave only claims on every sample open.
    let one = after(20, |sample| {
        if is_ours(sample) && sample.round < 1 {
            fail(sample)
        }
    });
    assert_eq!(assert_kind(RATIO, &one, Reproduced).elsewhere[0].environment.failed, 1);
    assert_kind(NEVER, &one, Inconclusive);
    // One sample with the claimed value is enough.
    assert_kind(&NEVER.replace("never = { below", "sometimes = { above"), &all, Reproduced);
    // A point that the earlier environment could not measure is not a failure.
    let absent = after(20, |sample| {
        fail(sample);
        sample.error = Some(Failure::unavailable("no unit", "buy one"));
    });
    let verdict = verdict(RATIO, &absent);
    assert_eq!((verdict.kind, verdict.elsewhere), (Reproduced, Vec::new()));
}

#[test]
fn an_environment_with_enough_rounds_was_a_look() {
    let coverage = |rounds| {
        let verdict = verdict(VALUE, &after(rounds, |_| ()));
        verdict.values().next().unwrap().interval.unwrap().coverage
    };
    assert_eq!(coverage(5), 0.95);
    assert!((coverage(6) - 0.975).abs() < 1e-9);
}
