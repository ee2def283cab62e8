//! Claims of a bundle: what each claims, its verdict, and what measuring it again takes.

use std::collections::BTreeMap;

use lab::claim::{self, Bounds, Claim, Condition, Expect, SpreadUnit, Trend, Verdict};
use lab::journal::Run;
use lab::schema::JsonOutput;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::table::{JudgedClaim, judged_claims};

/// Claims of a bundle: each in full, with its verdict, and what it took.
#[derive(Debug, Serialize, JsonSchema)]
pub struct BundleClaims<'a> {
    /// Physical cores of the machine.
    cores: usize,
    claims: Vec<BundleClaim<'a>>,
}

impl JsonOutput for BundleClaims<'_> {
    const NAME: &'static str = "bundle-claims";
    const WRITTEN_BY: &'static str = "claims.json of a bundle";
    const VERSION: u64 = 3;
}

#[derive(Debug, Serialize, JsonSchema)]
struct BundleClaim<'a> {
    #[serde(flatten)]
    verdict: JudgedClaim<'a>,
    /// Its declaration, resolved: every level in its canonical spelling.
    declared: Value,
    /// Command that measures it again.
    command: String,
    /// Number, duration and size of its samples in this run; `null` if there are none.
    took: Option<Took>,
}

/// Number, duration and size of the samples of a claim in a run, those of all sessions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, JsonSchema)]
struct Took {
    /// Number of samples, twins and repeated attempts included.
    samples: usize,
    /// Time of these samples, s.
    seconds: f64,
    /// Size of their lines in the journal, in bytes.
    disk_bytes: usize,
}

impl Took {
    /// Returns what the samples of a claim took. `lines` are the lengths of the lines of the samples, in their order.
    fn of(claim: &Claim, run: &Run, lines: &[usize]) -> Option<Self> {
        let experiment = run.record.experiments.get(&claim.experiment)?;
        let points = claim::needs(claim, experiment);
        let mut took = Self::default();
        let samples = run.samples.iter().zip(lines);
        for (sample, bytes) in samples.filter(|(one, _)| one.experiment == claim.experiment) {
            if points.contains(&sample.point) {
                took.samples += 1;
                took.seconds += sample.seconds;
                took.disk_bytes += bytes;
            }
        }
        (took.samples > 0).then_some(took)
    }
}

impl<'a> BundleClaims<'a> {
    /// Collects claims of a run on a machine with these physical cores. `lines` are the lengths of the lines of the run's samples,
    /// in their order.
    pub fn new(run: &Run, judged: &'a [(Claim, Verdict)], cores: usize, lines: &[usize]) -> Self {
        let claims = judged_claims(judged).into_iter().zip(judged);
        let claims = claims.map(|(verdict, (claim, _))| BundleClaim {
            verdict,
            declared: declared(claim),
            command: claim.command(),
            took: Took::of(claim, run, lines),
        });
        Self { cores, claims: claims.collect() }
    }
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
