//! The ratio of the best points of two sides.

use lab::claim::VerdictKind::{Contradicted, Inconclusive, Reproduced};
use lab::claim::{Claim, judge};
use lab::journal::Run;
use lab::measure::CAPPED;
use lab::point::Point;
use lab::sample::{Failure, FailureKind};

use crate::made_up::{EXPERIMENT, MadeUp, fail, product};
use crate::{assert_kind, claim, fail_rounds, reasons};

const CANDIDATES: [&str; 6] = ["glibc", "a", "b", "c", "d", "e"];
const BEST: &str =
    "ratio_of = { function = [\"a\", \"b\", \"c\", \"d\", \"e\"] }, to = { function = \"glibc\" }";

fn made_up(seed: u64) -> MadeUp {
    let mut made_up = MadeUp::new(product(&CANDIDATES, &["4 KiB"], &["0"]));
    // The tests let no sample of this point fail.
    made_up.twins = made_up.points[5..].to_vec();
    made_up.seed = seed;
    made_up.noise = 0.05;
    made_up
}

#[test]
fn the_best_is_found_and_named() {
    let run = made_up(1).run(|point| if point.text("function") == "c" { 15e9 } else { 10e9 });
    let keys = format!("expect = {{ {BEST}, at_least = 1.3 }}");
    let verdict = assert_kind(&keys, &run, Reproduced);
    assert_eq!(verdict.values().next().unwrap().rounds, 20);
    assert!(
        verdict.values().next().unwrap().label.starts_with("function=c"),
        "{}",
        verdict.values().next().unwrap().label
    );
    assert!(reasons(&verdict).contains(r#""ratio":{"of_best":true,"#), "{verdict:?}");
    assert_kind(&format!("expect = {{ {BEST}, at_least = 1.7 }}"), &run, Contradicted);
    // The best time is the smallest.
    let mut times = made_up(1);
    times.metric = "latency";
    let run = times.run(|point| if point.text("function") == "c" { 5.0 } else { 10.0 });
    assert_kind(&format!("expect = {{ {BEST}, at_most = 0.6 }}"), &run, Reproduced);
}

#[test]
fn no_candidate_is_best_without_a_direction() {
    let mut counts = made_up(1);
    counts.metric = "calls";
    let verdict = assert_kind(
        &format!("expect = {{ {BEST}, at_most = 0.6 }}"),
        &counts.run(|_| 10.0),
        Inconclusive,
    );
    assert!(reasons(&verdict).contains(r#""reason":"no-direction""#), "{verdict:?}");
}

#[test]
fn the_choice_takes_more_rounds_than_a_single_point() {
    let mut few = made_up(1);
    let keys = format!("expect = {{ {BEST}, at_least = 1.2 }}");
    let mut of = |rounds| {
        few.rounds = rounds;
        few.run(|point| if point.text("function") == "c" { 15e9 } else { 10e9 })
    };
    assert_kind(&keys, &of(7), Reproduced);
    for (rounds, needed) in [(6, 7), (5, 6)] {
        let verdict = assert_kind(&keys, &of(rounds), Inconclusive);
        let why = format!(r#""reason":"too-few-rounds","rounds":{rounds},"needed":{needed}"#);
        assert!(reasons(&verdict).contains(&why), "{}", reasons(&verdict));
    }
}

#[test]
fn a_candidate_with_few_rounds_leaves_an_end_open() {
    let mut run = made_up(1).run(|point| if is("c")(point) { 15e9 } else { 10e9 });
    run.samples.retain(|sample| !is("b")(&sample.point) || sample.round < 5);
    let keys = |bounds: &str| format!("expect = {{ {BEST}, {bounds} }}");
    // The best may be this one, so nothing is too high, but another one is good enough.
    let verdict = assert_kind(&keys("at_least = 1.3"), &run, Reproduced);
    let interval = verdict.values().next().unwrap().interval.unwrap();
    assert!(interval.low > 1.3 && interval.high == f64::INFINITY, "{interval:?}");
    assert_kind(&keys("at_least = 1.7"), &run, Inconclusive);
    assert_kind(&keys("at_most = 1.7"), &run, Inconclusive);
    // Of the rivals, the others are at least as bad.
    let rivals = |bounds| between("'glibc'", "'b', 'c'", bounds);
    assert_kind(&rivals("at_most = 0.8"), &run, Reproduced);
    assert_kind(&rivals("at_least = 0.5"), &run, Inconclusive);
}

#[test]
fn the_failures_of_every_candidate_count() {
    let mut run = made_up(1).run(|point| if is("c")(point) { 15e9 } else { 10e9 });
    let keys = format!("expect = {{ {BEST}, at_least = 1.2 }}");
    fail_rounds(&mut run, 4, is("b"));
    let verdict = assert_kind(&keys, &run, Inconclusive);
    assert!(reasons(&verdict).contains("too-many-failed"), "{}", reasons(&verdict));
}

#[test]
fn the_capped_rounds_of_every_candidate_count() {
    let mut run = made_up(1).run(|point| if is("c")(point) { 15e9 } else { 10e9 });
    let keys = format!("expect = {{ {BEST}, at_most = 1.7 }}");
    assert_kind(&keys, &run, Reproduced);
    // The true rate of another candidate may be higher than that of the one that looks best.
    for sample in run.samples.iter_mut().filter(|sample| is("b")(&sample.point)) {
        sample.covariates.insert(CAPPED.into(), "throughput".into());
    }
    let verdict = assert_kind(&keys, &run, Inconclusive);
    let why = r#""reason":"limited","limit":"search","above":20,"below":0"#;
    assert!(reasons(&verdict).contains(why), "{}", reasons(&verdict));
    assert_kind(&format!("expect = {{ {BEST}, at_least = 1.3 }}"), &run, Reproduced);
}

#[test]
fn the_lost_rounds_of_every_candidate_count() {
    let mut run = made_up(1).run(|point| if is("c")(point) { 15e9 } else { 10e9 });
    // In the rounds that another session measured, another candidate is the best.
    for sample in run.samples.iter_mut().filter(|sample| is("b")(&sample.point)) {
        if sample.round < 10 {
            sample.session = 2;
            sample.values.values_mut().for_each(|value| *value *= 4.0);
        }
    }
    let verdict = assert_kind(&format!("expect = {{ {BEST}, at_most = 1.7 }}"), &run, Inconclusive);
    let why = r#""reason":"many-lost","lost":10,"rounds":20,"value":"#;
    assert!(reasons(&verdict).contains(why), "{}", reasons(&verdict));
    assert!(reasons(&verdict).contains(r#""agrees":false"#), "{}", reasons(&verdict));
    let verdict = assert_kind(&format!("expect = {{ {BEST}, at_least = 1.3 }}"), &run, Reproduced);
    assert!(reasons(&verdict).contains(r#""agrees":true"#), "{}", reasons(&verdict));
}

/// Returns the keys of the ratio of the functions `of` to the functions `to`.
fn between(of: &str, to: &str, bounds: &str) -> String {
    format!(
        "expect = {{ ratio_of = {{ function = [{of}] }}, to = {{ function = [{to}] }}, {bounds} }}"
    )
}

fn is(function: &str) -> impl Fn(&Point) -> bool {
    move |point| point.text("function") == function
}

#[test]
fn an_unmeasured_point_may_be_better() {
    let whole = made_up(1).run(|point| if point.text("function") == "c" { 15e9 } else { 10e9 });
    let keys = between("'b', 'c'", "'glibc', 'a'", "at_least = 1.3");
    assert_kind(&keys, &whole, Reproduced);
    let says = |run: &Run, words: &[&str]| {
        let verdict = assert_kind(&keys, run, Inconclusive);
        assert!(words.iter().all(|word| reasons(&verdict).contains(word)), "{verdict:?}");
    };
    for kind in [FailureKind::Crashed, FailureKind::Void, FailureKind::Timeout] {
        let mut run = whole.clone();
        fail(&mut run, &Failure::new(kind, "no luck"), is("glibc"));
        says(
            &run,
            &[r#""label":"function=glibc""#, kind.name(), "no luck", "tollgate run --claim it"],
        );
    }
    // Void in every round, planned but not measured, and not planned.
    let mut run = whole.clone();
    for sample in run.samples.iter_mut().filter(|sample| is("glibc")(&sample.point)) {
        sample.void = Some("the core clock moved".into());
    }
    says(&run, &[r#""label":"function=glibc""#, "the core clock moved"]);
    let mut run = whole.clone();
    run.samples.retain(|sample| !is("glibc")(&sample.point));
    says(&run, &[r#""label":"function=glibc","why":{"reason":"not-measured""#]);
    run.record.experiments.get_mut(EXPERIMENT).unwrap().points.retain(|p| !is("glibc")(p));
    says(&run, &[r#""label":"function=glibc","why":{"reason":"not-measured""#]);
    // Unavailable candidates are excluded and reported.
    let mut run = whole.clone();
    fail(&mut run, &Failure::unsupported("no such libc", "use another machine"), is("glibc"));
    let verdict = assert_kind(&keys, &run, Reproduced);
    let left_out = r#""left_out":[{"why":{"reason":"failed","failure":{"kind":"unsupported","why":"no such libc","remedy":"use another machine"},"command":null},"names":["function=glibc"]}]"#;
    assert!(reasons(&verdict).contains(left_out), "{verdict:?}");
}

#[test]
fn an_unmeasured_numerator_never_contradicts() {
    let truth = |point: &Point| if point.text("function") == "c" { 15e9 } else { 10e9 };
    let mut run = made_up(1).run(truth);
    let crashed = Failure::new(FailureKind::Crashed, "signal 11");
    let with = |of: &str, bounds: &str| between(of, "'glibc', 'a'", bounds);
    assert_kind(&with("'b', 'c'", "at_least = 1.7"), &run, Contradicted);
    assert_kind(&with("'b', 'd'", "at_most = 1.3"), &run, Reproduced);
    fail(&mut run, &crashed, is("b"));
    let verdict = assert_kind(&with("'b', 'c'", "at_least = 1.7"), &run, Inconclusive);
    assert!(reasons(&verdict).contains(r#""label":"function=b","why":{"reason":"failed","failure":{"kind":"crashed","why":"signal 11"}"#), "{verdict:?}");
    // The best is at least as good as this candidate.
    assert_kind(&with("'b', 'c'", "at_least = 1.3"), &run, Reproduced);
    assert_kind(&with("'b', 'd'", "at_most = 1.3"), &run, Inconclusive);
    let ranking = |first: &str, second: &str| {
        format!(
            "expect = {{ ranking = [{{ function = [{first}] }}, {{ function = [{second}] }}] }}"
        )
    };
    assert_kind(&ranking("'b', 'c'", "'glibc', 'a'"), &run, Reproduced);
    assert_kind(&ranking("'b', 'a'", "'c', 'd'"), &run, Inconclusive);
    assert_kind(&ranking("'c', 'd'", "'b', 'a'"), &run, Inconclusive);
    let absent = Failure::unsupported("no AVX-512", "use another machine");
    fail(&mut run, &absent, is("b"));
    let verdict = assert_kind(&with("'b', 'c'", "at_least = 1.7"), &run, Contradicted);
    assert!(reasons(&verdict).contains(r#""names":["function=b"]"#), "{verdict:?}");
    let verdict = assert_kind(&ranking("'b', 'a'", "'c', 'd'"), &run, Contradicted);
    assert!(reasons(&verdict).contains(r#""names":["function=b"]"#), "{verdict:?}");
}

/// Counts the runs that reproduce or contradict a claim, and those whose interval is above or below 1.
fn rates(claim: &Claim, runs: impl Iterator<Item = Run>) -> [u64; 4] {
    let (mut above, mut below, mut over, mut under) = (0, 0, 0, 0);
    for run in runs {
        let verdict = judge(claim, Some(&run), 4);
        let interval = verdict.values().next().unwrap().interval.unwrap();
        above += u64::from(verdict.kind == Reproduced);
        below += u64::from(verdict.kind == Contradicted);
        over += u64::from(interval.low > 1.0);
        under += u64::from(interval.high < 1.0);
    }
    [above, below, over, under]
}

/// Number of runs of a simulation, and the number of errors that is four standard errors above 3% of them; nominal are
/// 2.5% on either side.
const REPLICATIONS: u64 = 1000;
const ERRORS: u64 = 52;

#[test]
fn the_best_of_five_identical_is_no_better_than_a_sixth() {
    let claim = claim(&format!("expect = {{ {BEST}, at_least = 1.0 }}"));
    for rounds in [7, 10, 20] {
        let runs = (0..REPLICATIONS).map(|seed| MadeUp { rounds, ..made_up(seed) }.run(|_| 10e9));
        let [above, below, over, under] = rates(&claim, runs);
        println!(
            "{rounds} rounds: reproduced {above}, contradicted {below}, interval above 1 {over}, below {under} of \
             {REPLICATIONS}"
        );
        assert!(over <= ERRORS && under <= ERRORS, "{over} above, {under} below");
        assert!(above <= over && below <= under, "the noise floor only makes it harder");
    }
}

/// A choice on a part of the rounds would often miss the best candidate, and so favour the other side.
#[test]
fn close_candidates_do_not_bias_the_ratio() {
    // The best of the candidates equals glibc; the others are a standard error of a half's median behind it.
    let behind = |rounds: u32| 1.0 - 0.05 * 1.25 / f64::from(rounds / 2).sqrt();
    for rounds in [10, 20] {
        let run = |seed| {
            let of = |point: &Point| match point.text("function") {
                "glibc" | "a" => 10e9,
                _ => 10e9 * behind(rounds),
            };
            MadeUp { rounds, ..made_up(seed) }.run(of)
        };
        for keys in [
            between("'glibc'", "'a', 'b', 'c', 'd', 'e'", "at_least = 1.0"),
            between("'a', 'b', 'c', 'd', 'e'", "'glibc'", "at_least = 1.0"),
        ] {
            let [.., over, under] = rates(&claim(&keys), (0..REPLICATIONS).map(run));
            println!("{rounds} rounds: interval above 1 {over}, below {under} of {REPLICATIONS}");
            assert!(over <= ERRORS && under <= ERRORS, "{keys}: {over} above, {under} below");
        }
    }
}
