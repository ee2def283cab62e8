//! Values that the search or the instrument limited: bounds, which decide in one direction.

use lab::claim::VerdictKind::{Contradicted, Inconclusive, Reproduced};
use lab::journal::Run;
use lab::measure::LIMITED;
use lab::point::Point;

use crate::made_up::{MadeUp, product};
use crate::{assert_kind, reasons};

const RATIO: &str = "ratio_of = { function = \"apex\" }, to = { function = \"glibc\" }";

fn functions(names: &[&str]) -> MadeUp {
    MadeUp::new(product(names, &["4 KiB", "64 KiB"], &["0"]))
}

/// Lets the instrument limit a metric of the selected points in the first rounds.
fn limit(run: &mut Run, metric: &str, rounds: u32, which: impl Fn(&Point) -> bool) {
    for sample in run.samples.iter_mut().filter(|one| one.round < rounds && which(&one.point)) {
        sample.covariates.insert(LIMITED.into(), format!("other {metric}").into());
    }
}

fn is(function: &'static str) -> impl Fn(&Point) -> bool {
    move |point| point.text("function") == function
}

#[test]
fn a_value_at_the_limit_of_its_search_decides_in_one_direction() {
    let made_up = functions(&["glibc", "apex"]);
    let run = |apex: f64, capped: &[&str]| {
        let truth =
            |point: &lab::point::Point| if point.text("function") == "apex" { apex } else { 10e9 };
        let mut run = made_up.run(truth);
        for sample in &mut run.samples {
            if capped.contains(&sample.point.text("function")) {
                sample.covariates.insert("capped".into(), "ndr throughput".into());
            }
        }
        run
    };
    let keys = |bounds: &str| format!("expect = {{ {RATIO}, each = [\"length\"], {bounds} }}");
    let (both, faster, slower) = (["apex", "glibc"], keys("at_least = 0.9"), keys("at_most = 1.1"));
    // Equal values say nothing if both are at the limit.
    for keys in [&faster, &slower, &keys("at_least = 1.1"), &keys("at_most = 0.9")] {
        let verdict = assert_kind(keys, &run(10e9, &both), Inconclusive);
        assert!(reasons(&verdict).contains(r#""limit":"search""#), "{verdict:?}");
    }
    let ranking = "expect = { ranking = [{ function = \"apex\", length = \"4 KiB\" }, { function = \"glibc\", length = \"4 KiB\" }] }";
    assert_kind(ranking, &run(12e9, &["apex"]), Reproduced);
    assert_kind(ranking, &run(12e9, &["glibc"]), Inconclusive);
    // The numerator may be higher.
    assert_kind(&faster, &run(10e9, &["apex"]), Reproduced);
    assert_kind(&slower, &run(10e9, &["apex"]), Inconclusive);
    assert_kind(&keys("at_least = 1.1"), &run(10e9, &["apex"]), Inconclusive);
    assert_kind(&keys("at_most = 0.9"), &run(10e9, &["apex"]), Contradicted);
    // The denominator may be higher, so the ratio may be lower.
    assert_kind(&slower, &run(10e9, &["glibc"]), Reproduced);
    assert_kind(&faster, &run(10e9, &["glibc"]), Inconclusive);
    assert_kind(&keys("at_most = 0.9"), &run(10e9, &["glibc"]), Inconclusive);
    assert_kind(&keys("at_least = 1.1"), &run(10e9, &["glibc"]), Contradicted);
    // A single value: drift of up to 20% is above 10e9.
    let value =
        |bounds: &str| format!("where = {{ function = \"apex\" }}\nexpect = {{ {bounds} }}");
    assert_kind(&value("at_least = 9e9"), &run(10e9, &["apex"]), Reproduced);
    assert_kind(&value("at_least = 15e9"), &run(10e9, &["apex"]), Inconclusive);
    assert_kind(&value("at_most = 15e9"), &run(10e9, &["apex"]), Inconclusive);
    assert_kind(&value("at_most = 9e9"), &run(10e9, &["apex"]), Contradicted);
    // Another metric at its limit does not count.
    let mut other = run(10e9, &both);
    let samples = other.samples.iter_mut();
    samples.for_each(|sample| drop(sample.covariates.insert("capped".into(), "ndr".into())));
    assert_kind(&faster, &other, Reproduced);
}

#[test]
fn a_ratio_is_decided_only_where_the_instrument_did_not_limit_it() {
    let whole = functions(&["glibc", "apex"]).run(|it| if is("apex")(it) { 15e9 } else { 10e9 });
    let limited = |functions: &[&'static str], rounds: u32| {
        let mut run = whole.clone();
        functions.iter().for_each(|one| limit(&mut run, "throughput", rounds, is(one)));
        run
    };
    let keys = |bounds: &str| format!("expect = {{ {RATIO}, each = [\"length\"], {bounds} }}");
    let (faster, slower) = (keys("at_least = 1.2"), keys("at_most = 2"));
    // The faster side may be faster still.
    let verdict = assert_kind(&faster, &limited(&["apex"], 20), Reproduced);
    let why = r#""reason":"limited","limit":"instrument","above":20,"below":0"#;
    assert!(reasons(&verdict).contains(why), "it is stated all the same: {}", reasons(&verdict));
    let interval = verdict.values().next().unwrap().interval.unwrap();
    assert!(interval.low > 1.4 && interval.high == f64::INFINITY, "{interval:?}");
    assert_kind(&slower, &limited(&["apex"], 20), Inconclusive);
    // The slower side may be as fast.
    assert_kind(&faster, &limited(&["glibc"], 20), Inconclusive);
    assert_kind(&slower, &limited(&["glibc"], 20), Reproduced);
    for keys in [&faster, &slower] {
        assert_kind(keys, &limited(&["apex", "glibc"], 20), Inconclusive);
        // A few rounds do not decide the end of an interval.
        assert_kind(keys, &limited(&["apex", "glibc"], 2), Reproduced);
    }
    // Another metric is limited.
    let mut other = whole.clone();
    limit(&mut other, "throughput_wire", 20, |_| true);
    assert!(!reasons(&assert_kind(&faster, &other, Reproduced)).contains("limited"));
}

#[test]
fn a_limited_time_may_be_shorter() {
    let mut made_up = functions(&["glibc", "apex"]);
    made_up.metric = "latency";
    let run = |function: &'static str| {
        let mut run = made_up.run(|it| if is("apex")(it) { 150.0 } else { 100.0 });
        limit(&mut run, "latency", 20, is(function));
        run
    };
    let keys = |bounds: &str| {
        format!("metric = \"latency\"\nexpect = {{ {RATIO}, each = [\"length\"], {bounds} }}")
    };
    assert_kind(&keys("at_most = 2"), &run("apex"), Reproduced);
    assert_kind(&keys("at_least = 1.2"), &run("apex"), Inconclusive);
    assert_kind(&keys("at_least = 1.2"), &run("glibc"), Reproduced);
    let value = |bounds: &str| {
        format!("metric = \"latency\"\nwhere = {{ function = \"apex\" }}\nexpect = {{ {bounds} }}")
    };
    assert_kind(&value("at_most = 200"), &run("apex"), Reproduced);
    assert_kind(&value("at_most = 120"), &run("apex"), Inconclusive);
    assert_kind(&value("at_least = 200"), &run("apex"), Contradicted);
}

#[test]
fn limits_on_both_sides_leave_the_noise_floor_alone() {
    let mut run = functions(&["glibc", "apex"]).run(|it| if is("apex")(it) { 15e9 } else { 10e9 });
    let ranking = "expect = { ranking = [{ function = \"apex\", length = \"4 KiB\" }, { function = \"glibc\", length = \"4 KiB\" }] }";
    limit(&mut run, "throughput", 20, |point| is("apex")(point));
    // The twins are of glibc.
    assert_kind(ranking, &run, Reproduced);
    limit(&mut run, "throughput", 20, |_| true);
    assert_kind(ranking, &run, Inconclusive);
}

#[test]
fn a_limited_sample_in_violation_does_not_contradict() {
    let lengths = MadeUp::new(product(&["glibc"], &["4 KiB", "64 KiB"], &["0"]));
    let made_up = MadeUp { metric: "latency", ..lengths };
    let never = "metric = \"latency\"\nexpect = { never = { above = 0 } }";
    let lossy = |round: u32| {
        let mut run = made_up.run(|_| 0.0);
        let sample = run.samples.iter_mut().find(|sample| sample.round == round).unwrap();
        sample.values.insert("latency".into(), 7.0);
        run
    };
    assert_kind(never, &lossy(3), Contradicted);
    let mut limited = lossy(3);
    limit(&mut limited, "latency", 10, |_| true);
    let verdict = assert_kind(never, &limited, Inconclusive);
    assert!(reasons(&verdict).contains(r#""limit":"instrument","above":1"#), "{verdict:?}");
    // Another sample, which is not limited, does; so does one whose true value can only be worse for the claim.
    let mut other = lossy(15);
    limit(&mut other, "latency", 10, |_| true);
    assert_kind(never, &other, Contradicted);
    let below = "metric = \"latency\"\nexpect = { never = { below = 8 } }";
    assert_kind(below, &limited, Contradicted);
}
