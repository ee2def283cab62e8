//! Headlines filled from synthetic journals.

#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, also in the functions it shares"
)]

#[path = "claim/made_up.rs"]
#[allow(dead_code, reason = "the tests of claims use the other parts")]
mod made_up;

use lab::headline::{Headline, SlotKind, fill, rounds};
use lab::journal::Run;
use lab::measure::LIMITED;
use lab::point::Point;
use lab::proximity::ROUND_TRIP;
use lab::sample::{Failure, Sample};
use made_up::{EXPERIMENT, MadeUp, product};

const HEADLINE: &str = r#"
id = "copies"
experiment = "copy/throughput"
says = [
  "ours copies at {ours}, {times} times as fast as glibc",
  "ours copies at {ours} in {rounds}",
  "ours reaches {share} of glibc, and too little in {few}",
  "ours reaches {share} of glibc",
]
[slots]
ours = { value = { function = "ours" }, metric = "throughput" }
times = { ratio_of = { function = "ours" }, to = { function = "glibc" }, metric = "throughput" }
share = { share_of = { function = "ours" }, to = { function = "glibc" }, metric = "throughput" }
rounds = { every = { function = "ours" }, at_least = 1e9, metric = "throughput" }
few = { outside = { function = "ours" }, at_least = 1e9, metric = "throughput" }
"#;

fn made_up() -> MadeUp {
    MadeUp::new(product(&["glibc", "ours"], &["64 KiB"], &["0"]))
}

/// Returns a run in which `ours` is `ratio` times as fast as glibc.
fn run(made_up: &MadeUp, ratio: f64) -> Run {
    made_up.run(|point| if is_ours(point) { ratio * 10e9 } else { 10e9 })
}

fn is_ours(point: &Point) -> bool {
    point.text("function") == "ours"
}

fn sentence(run: &Run) -> Option<String> {
    let headline: Headline = toml::from_str(HEADLINE).unwrap();
    let stated = fill(&headline, run)?;
    assert_eq!((stated.id.as_str(), stated.suite.as_str()), ("copies", "copy"));
    Some(stated.sentence)
}

#[test]
fn the_first_sentence_with_all_values_is_stated() {
    let text = sentence(&run(&made_up(), 2.0)).unwrap();
    assert!(text.starts_with("ours copies at 2") && text.contains(" GB/s ±"), "{text}");
    assert!(text.ends_with(", 2.00 times as fast as glibc"), "{text}");
    // Neither equal nor slower: the ratio is not resolved above 1.
    for ratio in [1.0, 0.5] {
        let text = sentence(&run(&made_up(), ratio)).unwrap();
        assert!(text.ends_with(" in 20 rounds"), "{text}");
    }
}

#[test]
fn a_limited_value_is_a_bound() {
    let limited = |which: &dyn Fn(&Point) -> bool| {
        let mut run = run(&made_up(), 2.0);
        for sample in run.samples.iter_mut().filter(|sample| which(&sample.point)) {
            sample.covariates.insert(LIMITED.into(), "throughput".into());
        }
        sentence(&run).unwrap()
    };
    let text = limited(&is_ours);
    // The bounds are the lower ends of the intervals.
    assert!(text.starts_with("ours copies at at least 2") && text.contains(" GB/s, "), "{text}");
    assert!(text.contains(", at least 1.99 times") && !text.contains('±'), "{text}");
    // The true values may be high enough: nothing is known to be too low.
    let mut slow = run(&made_up(), 0.05);
    assert!(sentence(&slow).unwrap().contains("too little in 20 of 20 samples"));
    for sample in slow.samples.iter_mut().filter(|sample| is_ours(&sample.point)) {
        sample.covariates.insert(LIMITED.into(), "throughput".into());
    }
    let text = sentence(&slow).unwrap();
    assert!(text.ends_with(" of glibc") && !text.contains("too little"), "{text}");
    // Glibc may be as fast.
    let text = limited(&|point| !is_ours(point));
    assert!(text.starts_with("ours copies at 2") && text.ends_with(" in 20 rounds"), "{text}");
}

#[test]
fn every_sample_counts_also_void_ones() {
    let mut run = run(&made_up(), 0.5);
    let sample = run.samples.iter_mut().find(|sample| is_ours(&sample.point)).unwrap();
    sample.void = Some("host stall".into());
    assert!(sentence(&run).unwrap().ends_with(" in 19 rounds"));
    let sample = run.samples.iter_mut().find(|sample| is_ours(&sample.point)).unwrap();
    *sample.values.get_mut("throughput").unwrap() = 0.5e9;
    let text = sentence(&run).unwrap();
    assert!(text.starts_with("ours reaches 50% ("), "{text}");
    assert!(text.ends_with(" of glibc, and too little in 1 of 20 samples"), "{text}");
}

#[test]
fn few_or_wide_rounds_state_nothing() {
    assert_eq!(sentence(&run(&MadeUp { rounds: 5, ..made_up() }, 2.0)), None);
    assert_eq!(sentence(&run(&MadeUp { noise: 0.99, ..made_up() }, 2.0)), None);
    let rounds = |run: &Run| rounds(&toml::from_str(HEADLINE).unwrap(), run);
    assert_eq!(rounds(&run(&MadeUp { rounds: 5, ..made_up() }, 2.0)), 5);
    let mut other = run(&made_up(), 2.0);
    other.samples.retain(|sample| !is_ours(&sample.point));
    assert_eq!((sentence(&other), rounds(&other)), (None, 0));
    other.samples.iter_mut().for_each(|sample| sample.experiment = "copy/other".into());
    assert_eq!(sentence(&other), None, "there are no samples of {EXPERIMENT}");
}

/// Rounds that drift together have no interval: a value has their range, and a ratio is not stated.
#[test]
fn correlated_rounds_have_a_range() {
    let mut drifting = run(&MadeUp { rounds: 8, ..made_up() }, 2.0);
    for sample in &mut drifting.samples {
        let drift = if is_ours(&sample.point) { 0.02 * f64::from(sample.round) } else { 0.0 };
        sample.values.values_mut().for_each(|value| *value = 20e9 * (1.0 + drift));
    }
    let text = sentence(&drifting).unwrap();
    assert!(text.ends_with(") in 8 rounds") && text.contains(" GB/s to 2"), "{text}");
    assert!(!text.contains('±'), "{text}");
}

#[test]
fn near_and_far_cores_are_not_mixed() {
    let mut mixed = run(&made_up(), 2.0);
    for sample in &mut mixed.samples {
        let is_far = sample.round % 3 == 0;
        sample.covariates.insert(ROUND_TRIP.into(), if is_far { "400" } else { "100" }.into());
        if is_far {
            sample.values.values_mut().for_each(|value| *value /= 10.0);
        }
    }
    let text = sentence(&mixed).unwrap();
    assert!(text.starts_with("ours copies at 2") && text.ends_with(" (near cores)"), "{text}");
}

/// All rounds of `ours` are far, most of glibc near: a sentence about one class has no value of the other.
#[test]
fn values_of_another_class_are_not_stated() {
    let mut mixed = run(&made_up(), 0.5);
    for sample in &mut mixed.samples {
        let is_far = is_ours(&sample.point) || sample.round < 2;
        sample.covariates.insert(ROUND_TRIP.into(), if is_far { "400" } else { "100" }.into());
    }
    let mut headline: Headline = toml::from_str(HEADLINE).unwrap();
    let of_glibc = headline.slots["ours"].clone();
    headline.slots.insert("glibc".into(), of_glibc);
    if let SlotKind::Value(filter) = &mut headline.slots.get_mut("glibc").unwrap().kind {
        *filter = toml::from_str("function = \"glibc\"").unwrap();
    }
    headline.says = vec!["ours copies at {ours}, glibc at {glibc}".into()];
    assert_eq!(fill(&headline, &mixed), None);
    headline.says = vec!["glibc copies at {glibc}".into()];
    let text = fill(&headline, &mixed).unwrap().sentence;
    assert!(text.ends_with(" (near cores)"), "{text}");
}

#[test]
fn a_point_that_fails_too_often_has_no_headline() {
    let fails = |rounds: u32| {
        let mut run = run(&made_up(), 2.0);
        let is_failed = |sample: &&mut Sample| is_ours(&sample.point) && sample.round < rounds;
        let repeated: Vec<_> = run
            .samples
            .iter_mut()
            .filter(is_failed)
            .map(|sample| {
                let repeated = Sample { session: 2, ..sample.clone() };
                sample.error = Some(Failure::check("byte 3 is 7"));
                sample.values.clear();
                repeated
            })
            .collect();
        (run.clone(), {
            run.samples.extend(repeated);
            run
        })
    };
    let (twice, repeated) = fails(2);
    assert!(sentence(&twice).is_some() && sentence(&repeated).is_some());
    // A later session that repeats the rounds does not erase their failures.
    let (three, repeated) = fails(3);
    assert_eq!((sentence(&three), sentence(&repeated)), (None, None));
}
