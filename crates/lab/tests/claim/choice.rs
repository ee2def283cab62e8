//! Choosing the best on one half of the rounds and judging it on the other, for several splits.

use lab::claim::VerdictKind::{Contradicted, Inconclusive, Reproduced};
use lab::claim::judge;
use lab::journal::Run;
use lab::point::Point;
use lab::sample::{Failure, FailureKind};
use lab::statistics::median;

use crate::made_up::{EXPERIMENT, MadeUp, fail, product};
use crate::{assert_kind, claim, reasons};

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
    assert_eq!(verdict.values().next().unwrap().rounds, 20, "every round judges");
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
    assert!(reasons(&verdict).contains(r#""error":"no-direction""#), "{verdict:?}");
}

#[test]
fn the_verdict_does_not_depend_on_the_id() {
    let run = made_up(1).run(|_| 10e9);
    let mut claim = claim(&format!("expect = {{ {BEST}, at_least = 0.99 }}"));
    let values = (0..20).map(|id| {
        claim.id = format!("claim-{id}");
        judge(&claim, Some(&run), 4).values().next().unwrap().value
    });
    let values: Vec<_> = values.collect();
    assert!(values.iter().all(|value| *value == values[0] && value.is_some()), "{values:?}");
}

#[test]
fn six_rounds_are_enough_to_judge() {
    let mut few = made_up(1);
    few.rounds = 6;
    let run = few.run(|point| if point.text("function") == "c" { 15e9 } else { 10e9 });
    assert_kind(&format!("expect = {{ {BEST}, at_least = 1.2 }}"), &run, Reproduced);
    few.rounds = 5;
    let run = few.run(|_| 10e9);
    let verdict =
        assert_kind(&format!("expect = {{ {BEST}, at_least = 0.5 }}"), &run, Inconclusive);
    assert!(reasons(&verdict).contains(r#""reason":"too-few-rounds","rounds":5,"needed":6"#));
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
    // A single value cannot be in both halves.
    let mut lone = 0;
    for round in 0..20 {
        let mut run = whole.clone();
        run.samples.retain(|sample| !is("glibc")(&sample.point) || sample.round == round);
        let verdict = crate::verdict(&keys, &run);
        lone += u32::from(verdict.kind == Inconclusive);
    }
    assert_eq!(lone, 20);
    // Unavailable candidates are excluded and reported.
    let mut run = whole.clone();
    fail(&mut run, &Failure::unsupported("no such libc"), is("glibc"));
    let verdict = assert_kind(&keys, &run, Reproduced);
    let left_out = r#""left_out":[{"why":{"reason":"failed","failure":{"kind":"unsupported","why":"no such libc"},"command":null},"names":["function=glibc"]}]"#;
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
    let absent = Failure::unsupported("no AVX-512");
    fail(&mut run, &absent, is("b"));
    let verdict = assert_kind(&with("'b', 'c'", "at_least = 1.7"), &run, Contradicted);
    assert!(reasons(&verdict).contains(r#""names":["function=b"]"#), "{verdict:?}");
    let verdict = assert_kind(&ranking("'b', 'a'", "'c', 'd'"), &run, Contradicted);
    assert!(reasons(&verdict).contains(r#""names":["function=b"]"#), "{verdict:?}");
}

/// Returns the ratio of the best of five to the sixth, chosen and judged on the same rounds.
fn naive(run: &Run) -> f64 {
    let values = |name: &str| -> Vec<f64> {
        let samples = run.samples.iter().filter(|sample| sample.point.text("function") == name);
        samples.map(|sample| sample.values["throughput"]).collect()
    };
    let base = values("glibc");
    let ratios = CANDIDATES[1..].iter().map(|name| {
        let logs: Vec<_> = values(name).iter().zip(&base).map(|(a, b)| (a / b).ln()).collect();
        median(&logs).unwrap()
    });
    ratios.fold(f64::NEG_INFINITY, f64::max).exp()
}

#[test]
fn the_best_of_five_identical_is_no_better_than_a_sixth() {
    const REPLICATIONS: u64 = 1000;
    let claim = claim(&format!("expect = {{ {BEST}, at_least = 1.0 }}"));
    for rounds in [6, 10, 20] {
        let (mut above, mut below, mut judged, mut cursed) = (0, 0, Vec::new(), Vec::new());
        let (mut over, mut under) = (0, 0);
        for seed in 0..REPLICATIONS {
            let mut made_up = made_up(seed);
            made_up.rounds = rounds;
            let run = made_up.run(|_| 10e9);
            let verdict = judge(&claim, Some(&run), 4);
            above += u64::from(verdict.kind == Reproduced);
            below += u64::from(verdict.kind == Contradicted);
            let value = verdict.values().next().unwrap();
            judged.push(value.value.unwrap().ln());
            over += u64::from(value.interval.unwrap().low > 1.0);
            under += u64::from(value.interval.unwrap().high < 1.0);
            cursed.push(naive(&run).ln());
        }
        let mean = |logs: &[f64]| logs.iter().sum::<f64>() / logs.len() as f64;
        let (judged_mean, cursed_mean) = (mean(&judged), mean(&cursed));
        let spread = judged.iter().map(|v| (v - judged_mean).powi(2)).sum::<f64>();
        let error = spread.sqrt() / REPLICATIONS as f64;
        println!(
            "{rounds} rounds: reproduced {above}, contradicted {below}, interval above 1 {over}, below {under} of \
             {REPLICATIONS}; mean log-ratio {judged_mean:.5} (error {error:.5}), on the same rounds {cursed_mean:.5}"
        );
        // Nominal: 2.5% on either side; the bound is four standard errors above 3%.
        assert!(over <= 52 && under <= 52, "{over} above, {under} below");
        assert!(above <= over && below <= under, "the noise floor only makes it harder");
        assert!(judged_mean.abs() < 4.0 * error, "{judged_mean} with error {error}");
        assert!(cursed_mean > 10.0 * error, "the test would detect the winner's curse");
    }
}
