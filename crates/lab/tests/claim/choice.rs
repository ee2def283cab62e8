//! Choosing the best on half of the rounds and judging it on the other half.

use lab::claim::VerdictKind::{Contradicted, Inconclusive, Reproduced};
use lab::claim::judge;
use lab::journal::Run;
use lab::statistics::median;

use crate::made_up::{MadeUp, product};
use crate::{assert_kind, claim};

const CANDIDATES: [&str; 6] = ["glibc", "a", "b", "c", "d", "e"];
const BEST: &str =
    "ratio_of = { function = [\"a\", \"b\", \"c\", \"d\", \"e\"] }, to = { function = \"glibc\" }";

fn made_up(seed: u64) -> MadeUp {
    let mut made_up = MadeUp::new(product(&CANDIDATES, &["4 KiB"], &["0"]));
    made_up.twins.clear();
    made_up.seed = seed;
    made_up.noise = 0.05;
    made_up
}

#[test]
fn the_best_is_found_and_named() {
    let run = made_up(1).run(|point| if point.text("function") == "c" { 15e9 } else { 10e9 });
    let keys = format!("expect = {{ {BEST}, at_least = 1.3 }}");
    let verdict = assert_kind(&keys, &run, Reproduced);
    assert_eq!(verdict.ours[0].rounds, 10, "half of 20 rounds");
    assert!(verdict.ours[0].label.starts_with("function=c"), "{}", verdict.ours[0].label);
    assert!(verdict.why.contains("chosen on the other rounds"), "{}", verdict.why);
    assert_kind(&format!("expect = {{ {BEST}, at_least = 1.7 }}"), &run, Contradicted);
    // The best of times is the smallest.
    let mut times = made_up(1);
    times.metric = "latency";
    let run = times.run(|point| if point.text("function") == "c" { 5.0 } else { 10.0 });
    assert_kind(&format!("expect = {{ {BEST}, at_most = 0.6 }}"), &run, Reproduced);
}

#[test]
fn nothing_is_best_without_a_direction() {
    let mut counts = made_up(1);
    counts.metric = "calls";
    let verdict = assert_kind(
        &format!("expect = {{ {BEST}, at_most = 0.6 }}"),
        &counts.run(|_| 10.0),
        Inconclusive,
    );
    assert!(verdict.why.contains("direction"), "{}", verdict.why);
}

#[test]
fn ten_rounds_leave_too_few_to_judge() {
    let mut few = made_up(1);
    few.rounds = 10;
    let run = few.run(|point| if point.text("function") == "c" { 15e9 } else { 10e9 });
    let verdict =
        assert_kind(&format!("expect = {{ {BEST}, at_least = 1.3 }}"), &run, Inconclusive);
    assert!(verdict.why.contains("5 judged rounds of the 6"), "{}", verdict.why);
}

/// The ratio of the best of five to the sixth, chosen and judged on the same rounds.
fn naive(run: &Run) -> f64 {
    let values = |name: &str| -> Vec<f64> {
        let own = run.samples.iter().filter(|sample| sample.point.text("function") == name);
        own.map(|sample| sample.values["throughput"]).collect()
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
    let (mut above, mut below, mut judged, mut cursed) = (0, 0, Vec::new(), Vec::new());
    for seed in 0..REPLICATIONS {
        let run = made_up(seed).run(|_| 10e9);
        let verdict = judge(&claim, Some(&run), 4);
        above += u64::from(verdict.kind == Reproduced);
        below += u64::from(verdict.kind == Contradicted);
        judged.push(verdict.ours[0].value.unwrap().ln());
        cursed.push(naive(&run).ln());
    }
    let mean = |logs: &[f64]| logs.iter().sum::<f64>() / logs.len() as f64;
    let (judged_mean, cursed_mean) = (mean(&judged), mean(&cursed));
    let spread = judged.iter().map(|v| (v - judged_mean).powi(2)).sum::<f64>();
    let error = spread.sqrt() / REPLICATIONS as f64;
    println!(
        "above {above}, below {below} of {REPLICATIONS}; mean log-ratio {judged_mean:.5} (error {error:.5}), on the same rounds {cursed_mean:.5}"
    );
    // Nominal: 2.5% on either side. Medians of 10 rounds come to 94% (see statistics), so 3%; the
    // bound is four standard errors above.
    assert!(above <= 52 && below <= 52, "{above} above, {below} below");
    assert!(judged_mean.abs() < 4.0 * error, "{judged_mean} with error {error}");
    assert!(cursed_mean > 10.0 * error, "the test would see the winner's curse");
}
