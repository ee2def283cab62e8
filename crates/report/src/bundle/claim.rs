//! Claims of a bundle: what each claims, its verdict, and what measuring it again takes.

use std::collections::BTreeMap;

use lab::claim::{self, Bounds, Claim, Condition, Expect, SpreadUnit, Trend, Verdict};
use lab::journal::Run;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::table::judged_claims;

/// Version of the format of `claims.json`.
const SCHEMA_VERSION: u64 = 1;

/// What measuring the points of a claim took in a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Needs {
    /// Number of samples, twins and repeated attempts included.
    pub samples: usize,
    /// Time of these samples, s.
    pub seconds: f64,
    /// Size of their lines in the journal, in bytes.
    pub disk_bytes: usize,
}

impl Needs {
    /// Returns what a claim took in a run. `lines` are the lengths of the lines of the samples, in their order.
    fn of(claim: &Claim, run: &Run, lines: &[usize]) -> Self {
        let Some(experiment) = run.record.experiments.get(&claim.experiment) else {
            return Self::default();
        };
        let points = claim::needs(claim, experiment);
        let mut needs = Self::default();
        let samples = run.samples.iter().zip(lines);
        for (sample, bytes) in samples.filter(|(one, _)| one.experiment == claim.experiment) {
            if points.contains(&sample.point) {
                needs.samples += 1;
                needs.seconds += sample.seconds;
                needs.disk_bytes += bytes;
            }
        }
        needs
    }
}

/// Returns claims with their verdicts, what each claims in full, and the command, the time and the disk space that measuring
/// it takes. `lines` are the lengths of the lines of the run's samples, in their order.
pub fn claims_json(run: &Run, judged: &[(Claim, Verdict)], cores: usize, lines: &[usize]) -> Value {
    let claims = judged_claims(judged).into_iter().zip(judged).map(|(verdict, (claim, _))| {
        let mut value = json!(verdict);
        if let Value::Object(members) = &mut value {
            members.insert("declared".into(), declared(claim));
            members.insert("command".into(), json!(claim.command()));
            members.insert("needs".into(), json!(Needs::of(claim, run, lines)));
        }
        value
    });
    let claims: Vec<Value> = claims.collect();
    json!({ "schema_version": SCHEMA_VERSION, "cores": cores, "claims": claims })
}

/// Returns the declaration of a claim, resolved: every level in its canonical spelling.
fn declared(claim: &Claim) -> Value {
    json!({
        "experiment": claim.experiment,
        "where": claim.filter,
        "prefer": claim.prefer,
        "metric": claim.metric,
        "published": claim.published,
        "carries_over": claim.carries_over,
        "requires": claim.requires,
        "emulated": claim.emulated,
        "cores": claim.cores,
        "profile": claim.profile,
        "class": claim.class.map(|class| class.name()),
        "rounds": claim.rounds_needed(),
        "unmeasurable": claim.unmeasurable,
        "one_sided": claim.one_sided,
        "expect": claim.expect.as_ref().map(expect),
    })
}

fn expect(expect: &Expect) -> Value {
    let mut members = condition(&expect.kind);
    members.insert("each".into(), json!(expect.each));
    members.insert("hold".into(), json!(expect.hold));
    Value::Object(members)
}

/// Returns the members of a condition; `kind` names it.
fn condition(condition: &Condition) -> Map<String, Value> {
    let mut members = BTreeMap::new();
    let mut bounded = |kind, bounds: &Bounds| {
        members.insert("at_least", json!(bounds.at_least));
        members.insert("at_most", json!(bounds.at_most));
        kind
    };
    let kind = match condition {
        Condition::Value(bounds) => bounded("value", bounds),
        Condition::EverySample(bounds) => bounded("every-sample", bounds),
        Condition::SomeSample(bounds) => bounded("some-sample", bounds),
        Condition::Ratio { of, to, bounds, limit, baselines } => {
            let kind = bounded("ratio", bounds);
            members.extend([("of", json!(of)), ("to", json!(to))]);
            members.extend([("limit", json!(limit)), ("baselines", json!(baselines))]);
            kind
        }
        Condition::Ranking(ranking) => {
            members.insert("ranking", json!(ranking));
            "ranking"
        }
        Condition::WinnerChanges { factor, along } => {
            members.extend([("factor", json!(factor)), ("along", json!(along))]);
            "winner-changes"
        }
        Condition::Shape { form, along, beyond, within } => {
            members.extend([("form", json!(trend(*form))), ("along", json!(along))]);
            members.extend([("beyond", json!(beyond)), ("within", json!(within))]);
            "shape"
        }
        Condition::TwinsDifferAtMost(max) => {
            members.insert("max", json!(max));
            "twins-differ-at-most"
        }
        Condition::RoundsDifferAtMost(max, unit) => {
            members.extend([("max", json!(max)), ("unit", json!(spread_unit(*unit)))]);
            "rounds-differ-at-most"
        }
    };
    members.insert("kind", json!(kind));
    members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn trend(form: Trend) -> &'static str {
    match form {
        Trend::Rises => "rises",
        Trend::Falls => "falls",
        Trend::Flat => "flat",
        Trend::Saturates => "saturates",
    }
}

fn spread_unit(unit: SpreadUnit) -> &'static str {
    match unit {
        SpreadUnit::Steps => "steps",
        SpreadUnit::Share => "share",
    }
}
