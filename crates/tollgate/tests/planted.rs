//! Planted effects: known delays measured by the program and recovered from its journal.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod harness;

use std::time::{Duration, Instant};

use harness::Bench;
use lab::journal::Run;
use lab::point::Point;
use lab::sample::{FailureKind, Sample};
use lab::summary::{Samples, Unit, paired, summarise};

/// Planted effects in per cent, as in `experiments.toml`.
const EFFECTS: [f64; 6] = [0.5, 1.0, 2.0, 5.0, 10.0, 20.0];

const ROUNDS: u32 = 20;

/// Returns whether a point is void in a round, or in every round.
fn is_void(run: &Run, experiment: &str, point: &Point, round: u32) -> bool {
    let is_point = |sample: &&Sample| {
        sample.experiment == experiment && sample.point == *point && !sample.twin
    };
    let samples = || run.samples.iter().filter(is_point);
    let is_void_error = |sample: &Sample| {
        sample.error.as_ref().is_some_and(|error| error.kind == FailureKind::Void)
    };
    let last = samples().rfind(|sample| sample.round == round);
    samples().any(is_void_error) || last.is_some_and(|sample| sample.void.is_some())
}

/// Returns each planted effect with the measured ratio and its interval, without effects for which no
/// round has both a valid sample and a valid baseline.
fn recovered(experiment: &str, disturbance: &str, seeds: u64) -> Vec<(f64, f64, f64, f64)> {
    let bench = Bench::new();
    let mut found = Vec::new();
    for seed in 0..seeds {
        let seed = seed.to_string();
        bench.ok(&[
            "run",
            experiment,
            "--rounds",
            &ROUNDS.to_string(),
            "--fresh",
            "--quiet",
            "--seed",
            &seed,
        ]);
        let run = bench.journal();
        let samples = Samples::newest(&run, experiment).unwrap();
        let mut observed = samples.observed("time", Unit::Own);
        let point = |effect: &str| Point::from([("effect", effect), ("disturbance", disturbance)]);
        let mut at = |point: &Point| observed.points.remove(point).unwrap_or_default();
        let none = point("0%");
        let without = at(&none);
        for effect in EFFECTS {
            let point = point(&format!("{effect}%"));
            let is_void_in =
                |round| [&none, &point].iter().any(|point| is_void(&run, experiment, point, round));
            match paired(&at(&point), &without) {
                Ok(ratio) => {
                    found.push((effect, ratio.ratio, ratio.interval.low, ratio.interval.high));
                }
                Err(why) => assert!((0..ROUNDS).all(is_void_in), "seed {seed}: {point}: {why}"),
            }
        }
    }
    found
}

/// Checks that every ratio is near the planted one and that most intervals contain it. The limits are
/// wide because rounds are few and the machine is shared: 7 of 9 of the 95% intervals must contain it.
/// The six ratios of a seed share a baseline, so their errors are correlated; coverage is tested by
/// simulation in the lab.
fn check(found: &[(f64, f64, f64, f64)]) {
    if found.len() < 18 {
        machine::untested::note("planted effects", &"too many samples are void");
        return;
    }
    let mut contained = 0;
    for (effect, ratio, low, high) in found {
        let planted = 1.0 + effect / 100.0;
        println!("planted {planted:.3}: {ratio:.4} [{low:.4}, {high:.4}]");
        // Pairing removes the drift of the core clock to within 0.25%.
        contained += usize::from(low - 0.0025 <= planted && planted <= high + 0.0025);
        assert!((ratio / planted - 1.0).abs() < 0.05, "planted {planted}: {ratio}");
    }
    assert!(
        contained * 36 >= found.len() * 28,
        "{contained} of {} intervals contain the planted effect",
        found.len()
    );
}

#[test]
fn planted_effects_are_recovered() {
    check(&recovered("planted/delay", "calm", 6));
}

#[test]
fn planted_effects_are_recovered_despite_drift_and_stalls() {
    check(&recovered("planted/disturbed", "drift-and-stalls", 6));
}

/// The modelled machines whose effect of 12% the method must find, as in `experiments.toml`.
const MODELLED: [&str; 6] =
    ["independent", "correlated-rounds", "regimes", "carry-over", "sessions", "quantised"];

/// The samples are drawn from the seed, so only void samples of the real machine vary.
#[test]
fn effects_of_modelled_machines_are_found() {
    let bench = Bench::new();
    let seed = ["--seed", "7", "--quiet"];
    // A first session measures one point, and the second pairs none of its samples.
    let first = ["run", "planted/sessions", "--where", "effect=12%", "--rounds", "10"];
    bench.ok(&[&first[..], &seed].concat());
    let names = MODELLED.map(|name| format!("planted/{name}"));
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let second = ["run", "planted/linked-voids", "--rounds", "40"];
    bench.ok(&[&second[..], &names, &seed].concat());
    let run = bench.journal();
    for (experiment, behaviour) in names.iter().zip(MODELLED) {
        let observed = Samples::newest(&run, experiment).unwrap().observed("time", Unit::Own);
        let at = |effect: &str| {
            let point = Point::from([("effect", effect), ("behaviour", behaviour)]);
            observed.points.get(&point).cloned().unwrap_or_default()
        };
        let ratio = paired(&at("12%"), &at("0%")).ok().filter(|ratio| ratio.rounds >= 20);
        let Some(ratio) = ratio else {
            machine::untested::note("modelled machines", &"too many samples are void");
            continue;
        };
        println!("{behaviour}: {:.3}, {} rounds", ratio.ratio, ratio.rounds);
        assert!((1.09..=1.15).contains(&ratio.ratio), "{behaviour}: {ratio:?}");
        // On a busy machine half of the rounds are lost, and the interval is wider.
        if ratio.rounds >= 30 {
            let interval = ratio.interval;
            assert!(interval.low > 1.04 && interval.high < 1.2, "{behaviour}: {ratio:?}");
        }
    }
    let linked = summarise(&run, "planted/linked-voids", "time", Unit::Own).unwrap();
    let difference = linked.void_difference.unwrap();
    assert_eq!((difference.factor.as_str(), difference.level.as_str()), ("effect", "20%"));
    let heavy = linked.rows.iter().find(|row| row.point.text("effect") == "20%").unwrap();
    assert!(heavy.with_voids.unwrap().median > heavy.estimate.unwrap().median, "{heavy:?}");
}

/// The samples are drawn from the seed, so that the claim is decided after some rounds.
#[test]
fn a_run_until_claims_are_decided_ends_when_they_are() {
    let bench = Bench::new();
    let start = Instant::now();
    let words = "run --claim planted-correlated-rounds --until-decided 3m --resolve 10% --seed 7";
    let run: Vec<_> = words.split(' ').collect();
    let screen = bench.ok(&run);
    if start.elapsed() >= Duration::from_secs(180) {
        machine::untested::note("runs until claims are decided", &"too many samples are void");
        return;
    }
    assert!(screen.contains("reproduced    planted-correlated-rounds: "), "{screen}");
    let rounds = |run: &Run| run.samples.iter().map(|sample| sample.round).max().unwrap() + 1;
    let first = rounds(&bench.journal());
    // A decided verdict needs no more rounds than the first check takes.
    bench.ok(&run);
    assert!(rounds(&bench.journal()) <= 2 * first, "{first}");
}
