//! Rounds that claims lack, by counts alone, and the wide intervals of correlated rounds.

use lab::claim::VerdictKind::{Contradicted, Inconclusive, Reproduced};
use lab::claim::{Judge, LackingRounds};
use lab::journal::Run;
use lab::point::Point;
use lab::statistics::IntervalKind;

use crate::bounds::two_lengths;
use crate::made_up::MadeUp;
use crate::{assert_kind, claim, place, reasons};

fn run_of(rounds: u32) -> Run {
    MadeUp { rounds, ..two_lengths() }.run(|_| 10e9)
}

fn lacking(keys: &str, run: &Run) -> Option<LackingRounds> {
    Judge::new(Some(run), 4).lacking_rounds(&claim(keys))
}

fn rounds_of(keys: &str, run: &Run) -> Option<u32> {
    lacking(keys, run).map(|lacking| lacking.rounds)
}

/// Sets each value to that of its round: a line, so that the rounds are correlated.
fn correlate(run: &mut Run) {
    for sample in &mut run.samples {
        sample.values.insert("throughput".into(), 10e9 + 0.1e9 * f64::from(sample.round));
    }
}

#[test]
fn a_claim_lacks_the_rounds_that_it_requires_whatever_the_values() {
    // True, false and undecided.
    for bound in ["1e9", "90e9", "10e9"] {
        let value = |rounds: &str| format!("{rounds}\nexpect = {{ at_least = {bound} }}");
        assert_eq!(rounds_of(&value(""), &run_of(4)), Some(2), "{bound}");
        assert_eq!(rounds_of(&value("rounds = 20"), &run_of(8)), Some(12), "{bound}");
        assert_eq!(rounds_of(&value("rounds = 20"), &run_of(20)), None, "{bound}");
        let never = format!("expect = {{ never = {{ below = {bound} }} }}");
        assert_eq!(rounds_of(&never, &run_of(9)), Some(1), "{bound}");
        assert_eq!(rounds_of(&never, &run_of(10)), None, "{bound}");
    }
    assert_eq!(
        rounds_of("where = { length = \"1 KiB\" }\nexpect = { at_least = 1 }", &run_of(4)),
        None
    );
    assert_eq!(rounds_of("profile = \"full\"\nexpect = { at_least = 1 }", &run_of(4)), None);
}

#[test]
fn a_claim_lacks_rounds_in_the_class_that_has_the_most() {
    let keys = "expect = { at_least = 9e9 }";
    let mut run = run_of(7);
    run.samples.iter_mut().for_each(|sample| place(sample, sample.round >= 4));
    // Of 7 rounds 4 count, and 2 more are required.
    assert_eq!(rounds_of(keys, &run), Some(4));
    assert_eq!(rounds_of(&format!("class = \"far\"\n{keys}"), &run), Some(7));
    let mut run = run_of(8);
    run.samples.iter_mut().for_each(|sample| place(sample, sample.round >= 6));
    assert_eq!(rounds_of(keys, &run), None);
    assert_eq!(rounds_of(&format!("class = \"far\"\n{keys}"), &run), Some(16));
    run.samples.iter_mut().for_each(|sample| place(sample, false));
    assert_eq!(rounds_of(&format!("class = \"far\"\n{keys}"), &run), None, "no round counted");
}

#[test]
fn the_nearest_twins_are_measured_with_the_points() {
    let long = |point: &Point| point.text("length") == "64 KiB";
    let lacking =
        lacking("where = { length = \"64 KiB\" }\nexpect = { at_least = 9e9 }", &run_of(4))
            .unwrap();
    assert_eq!(lacking.experiment, "copy/throughput");
    // The twin of the other length is the only one.
    assert_eq!((lacking.points.len(), lacking.points.iter().filter(|it| long(it)).count()), (2, 1));
}

#[test]
fn correlated_rounds_decide_what_is_far_from_the_bound() {
    let mut run = run_of(6);
    correlate(&mut run);
    let at_least = |bound: &str| format!("expect = {{ at_least = {bound} }}");
    // The values are 10 to 10.5, so the interval is 8 to 12.5.
    for (bound, kind) in [
        ("7.9e9", Reproduced),
        ("8.1e9", Inconclusive),
        ("12.4e9", Inconclusive),
        ("12.6e9", Contradicted),
    ] {
        let verdict = assert_kind(&at_least(bound), &run, kind);
        assert!(reasons(&verdict).contains(r#""reason":"correlated""#), "{verdict:?}");
        let interval = verdict.values().next().unwrap().interval.unwrap();
        assert_eq!(interval.kind, IntervalKind::Confidence);
        assert!((interval.low - 8e9).abs() < 1.0 && (interval.high - 12.5e9).abs() < 1.0);
        assert_eq!(rounds_of(&at_least(bound), &run), Some(2), "{bound}");
    }
    let mut many = run_of(40);
    correlate(&mut many);
    assert_eq!(rounds_of(&at_least("7.9e9"), &many), None);
}

#[test]
fn ratios_of_correlated_rounds_decide_what_is_far_from_the_bound() {
    let mut run = run_of(6);
    let ratio = |round: u32| 1.2 * (0.01 * f64::from(round)).exp();
    for sample in &mut run.samples {
        let is_long = sample.point.text("length") == "64 KiB";
        let value = if is_long { 10e9 * ratio(sample.round) } else { 10e9 };
        sample.values.insert("throughput".into(), value);
    }
    let keys = |bound: f64| {
        format!(
            "expect = {{ ratio_of = {{ length = \"64 KiB\" }}, to = {{ length = \"4 KiB\" }}, at_least = {bound} }}"
        )
    };
    // Four ranges of 5% beyond the extremes, 1.2 and 1.26.
    for (bound, kind) in [(0.97, Reproduced), (1.0, Inconclusive), (1.6, Contradicted)] {
        assert_kind(&keys(bound), &run, kind);
    }
    let order = "expect = { ranking = [{ length = \"64 KiB\" }, { length = \"4 KiB\" }] }";
    assert_kind(order, &run, Inconclusive);
    for sample in run.samples.iter_mut().filter(|one| one.point.text("length") == "64 KiB") {
        *sample.values.get_mut("throughput").unwrap() *= 1.1;
    }
    assert_kind(order, &run, Reproduced);
}
