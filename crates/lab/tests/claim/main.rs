//! Claims: parsing, and verdicts of every kind on synthetic journals.

#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, also in the functions it shares"
)]

mod boots;
mod bounds;
mod choice;
mod classes;
mod comparisons;
mod environments;
mod every_sample;
mod lacking;
mod limited;
mod made_up;
#[path = "../mutation/mod.rs"]
mod mutation;
mod never_panics;
mod parts;
mod ratios;
mod reading;
mod setup;
mod shapes;
mod sharing;
mod spreads;

use lab::catalogue::DataFile;
use lab::claim::{Claim, MeasuredValue, Verdict, VerdictKind, judge};
use lab::journal::Run;
use lab::point::Point;
use lab::proximity::ROUND_TRIP;
use lab::sample::{Failure, FailureKind, Sample};

/// Returns a claim on the synthetic experiment, with these keys added.
pub(crate) fn claim(keys: &str) -> Claim {
    let text = format!(
        "[[claim]]\nid = \"it\"\nsays = \"it does\"\nsource = \"a paper\"\n\
         experiment = \"copy/throughput\"\n{keys}\n"
    );
    DataFile::read("claims.toml", &text, None).unwrap().claims()[0].clone()
}

/// Returns the verdict on a claim.
pub(crate) fn verdict(keys: &str, run: &Run) -> Verdict {
    let verdict = judge(&claim(keys), Some(run), 4);
    assert_reasons(&verdict);
    verdict
}

/// Asserts that every value has a reason.
pub(crate) fn assert_reasons(verdict: &Verdict) {
    for judgement in &verdict.judgements {
        let has_reason = |value: &MeasuredValue| !value.reasons.is_empty();
        let is_argued = !judgement.reasons.is_empty() || judgement.values.iter().all(has_reason);
        assert!(is_argued, "{verdict:?}");
    }
}

/// Returns the judgements as JSON.
pub(crate) fn reasons(verdict: &Verdict) -> String {
    serde_json::to_string(&verdict.judgements).unwrap()
}

pub(crate) fn assert_kind(keys: &str, run: &Run, kind: VerdictKind) -> Verdict {
    let verdict = verdict(keys, run);
    assert_eq!(verdict.kind, kind, "{keys}: {verdict:#?}");
    verdict
}

/// Sets the proximity of the cores of a sample: far or near.
pub(crate) fn place(sample: &mut Sample, is_far: bool) {
    let round_trip = if is_far { "400" } else { "100" };
    sample.covariates.insert(ROUND_TRIP.into(), round_trip.into());
}

/// Replaces the first rounds of the selected points by timeouts.
pub(crate) fn fail_rounds(run: &mut Run, rounds: u32, which: impl Fn(&Point) -> bool) {
    let failed = |sample: &&mut Sample| !sample.twin && sample.round < rounds;
    for sample in run.samples.iter_mut().filter(failed).filter(|sample| which(&sample.point)) {
        sample.values.clear();
        sample.error = Some(Failure::new(FailureKind::Timeout, "no answer"));
    }
}
