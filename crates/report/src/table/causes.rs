//! Causes that several claims share: what this machine lacks, and what is not measured yet.

use std::collections::{BTreeMap, BTreeSet};

use lab::claim::{Claim, MeasuredValue, Reason, Verdict, VerdictKind};
use lab::format::count;
use lab::journal::Run;
use lab::point::Point;
use lab::table::{ColumnHeader, Page, TableCell};

use super::reasons::reason;

/// Maximum number of claims of a cause that are named.
const MAX_NAMED: usize = 3;

/// Why a claim has no verdict, in words that other claims may share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SharedCause {
    pub(crate) kind: VerdictKind,
    /// The cause, e.g. `this CPU has no MPX`.
    pub(crate) text: String,
}

/// Returns why a claim cannot be measured or is not measured yet, with the remedy; `None` if the samples decide its verdict.
pub(crate) fn shared_cause(
    claim: &Claim,
    verdict: &Verdict,
) -> Option<(SharedCause, Option<String>)> {
    let why = deciding(verdict)?;
    let text = cause(verdict.kind, why)?;
    Some((SharedCause { kind: verdict.kind, text }, remedy(why, claim)))
}

/// Returns what a machine lacks for claims in one line of at most `columns`; `None` if it lacks nothing.
pub(crate) fn lacking_line(judged: &[(Claim, Verdict)], columns: usize) -> Option<String> {
    lacks(&causes(&judged.iter().collect::<Vec<_>>()), columns)
}

/// Claims without a verdict for one cause.
pub(crate) struct Cause<'a> {
    /// The cause, e.g. `this CPU has no MPX`.
    pub(crate) text: String,
    /// The remedy, if there is one.
    pub(crate) remedy: Option<String>,
    pub(crate) kind: VerdictKind,
    pub(crate) claims: Vec<&'a Claim>,
}

/// Groups the claims that cannot be measured or are not measured yet by cause, the cause of most
/// claims first. Other claims are in no group.
pub(crate) fn causes<'a>(judged: &[&'a (Claim, Verdict)]) -> Vec<Cause<'a>> {
    let mut causes: Vec<Cause> = Vec::new();
    for (claim, verdict) in judged {
        let Some((SharedCause { kind, text }, remedy)) = shared_cause(claim, verdict) else {
            continue;
        };
        match causes.iter_mut().find(|one| one.text == text && one.kind == kind) {
            Some(known) => known.claims.push(claim),
            None => causes.push(Cause { text, remedy, kind, claims: vec![claim] }),
        }
    }
    causes.sort_by_key(|cause| std::cmp::Reverse(cause.claims.len()));
    causes
}

/// Returns the cause of a verdict that other claims may share, e.g. `this CPU has no MPX`; `None`
/// if the samples decide the verdict.
pub(super) fn cause_of(verdict: &Verdict) -> Option<String> {
    cause(verdict.kind, deciding(verdict)?)
}

/// Points and claims that a machine cannot measure for one cause.
#[derive(Debug, Default)]
pub(crate) struct LackOfRun<'a> {
    pub(crate) remedy: Option<String>,
    /// Points, each with the ID of its experiment.
    pub(crate) points: BTreeSet<(&'a str, &'a Point)>,
    /// Number of claims.
    pub(crate) claims: usize,
}

/// Returns what the machine of a run lacks by cause, the cause of most claims first.
pub(crate) fn lacks_of_run<'a>(
    run: &'a Run,
    judged: &[(Claim, Verdict)],
) -> Vec<(String, LackOfRun<'a>)> {
    let mut lacks: BTreeMap<String, LackOfRun> = BTreeMap::new();
    for sample in &run.samples {
        let Some(failure) = sample.error.as_ref().filter(|failure| !failure.kind.is_fault()) else {
            continue;
        };
        let lack = lacks.entry(failure.cause().into()).or_default();
        lack.points.insert((&sample.experiment, &sample.point));
        lack.remedy = lack.remedy.take().or_else(|| failure.remedy.clone());
    }
    let judged: Vec<&(Claim, Verdict)> = judged.iter().collect();
    for cause in causes(&judged).into_iter().filter(|cause| cause.kind == VerdictKind::Unmeasurable)
    {
        let lack = lacks.entry(cause.text).or_default();
        lack.claims += cause.claims.len();
        lack.remedy = lack.remedy.take().or(cause.remedy);
    }
    let mut lacks: Vec<_> = lacks.into_iter().collect();
    lacks.sort_by_key(|(_, lack)| std::cmp::Reverse((lack.claims, lack.points.len())));
    lacks
}

/// Renders the causes as a table.
pub(super) fn table(causes: &[Cause], page: Page) -> String {
    if causes.is_empty() {
        return String::new();
    }
    let row = |cause: &Cause| {
        let names: Vec<_> = cause.claims.iter().map(|claim| claim.id.as_str()).collect();
        let mut lines = vec![match &cause.remedy {
            Some(remedy) => format!("{}; {remedy}", cause.text),
            None => cause.text.clone(),
        }];
        lines.extend((names.len() <= MAX_NAMED).then(|| names.join(", ")));
        vec![
            TableCell::from(cause.kind.name()),
            names.len().to_string().into(),
            TableCell::from_lines(&lines),
        ]
    };
    let headers = [
        ColumnHeader::left("no verdict"),
        ColumnHeader::right("claims"),
        ColumnHeader::left("cause"),
    ];
    page.table(&headers, causes.iter().map(row).collect()) + "\n"
}

/// Returns what this machine lacks in one line of at most `columns`, e.g. `this CPU has no MPX (39
/// claims), only 2 physical cores (13)`; `None` if it lacks nothing.
pub(super) fn lacks(causes: &[Cause], columns: usize) -> Option<String> {
    let lacking: Vec<_> =
        causes.iter().filter(|cause| cause.kind == VerdictKind::Unmeasurable).collect();
    let mut text = String::new();
    for (index, cause) in lacking.iter().enumerate() {
        let claims = cause.claims.len();
        let part = match index {
            0 => format!("{} ({})", cause.text, count(claims, "claim")),
            _ => format!(", {} ({claims})", cause.text),
        };
        let rest: usize = lacking[index..].iter().map(|cause| cause.claims.len()).sum();
        let rest = format!(", other causes ({rest})");
        // The last part is followed by nothing.
        let is_last = index + 1 == lacking.len();
        let max = columns.saturating_sub(if is_last { 0 } else { rest.len() });
        if index > 0 && text.chars().count() + part.chars().count() > max {
            text += &rest;
            break;
        }
        text += &part;
    }
    (!lacking.is_empty()).then_some(text)
}

/// Returns the first reason of the judgement that decides a verdict.
fn deciding(verdict: &Verdict) -> Option<&Reason> {
    let judgement = verdict.judgements.iter().find(|one| one.kind == verdict.kind)?;
    let is_deciding = |value: &&MeasuredValue| value.kind == judgement.kind;
    let of_values = judgement.values.iter().filter(is_deciding).flat_map(|value| &value.reasons);
    let mut reasons = of_values.chain(&judgement.reasons);
    match verdict.kind {
        // A value that the machine limits states the claimed bounds first.
        VerdictKind::Unmeasurable => reasons.clone().find(is_absence).or_else(|| reasons.next()),
        _ => reasons.next(),
    }
}

fn is_absence(reason: &&Reason) -> bool {
    matches!(
        reason,
        Reason::Failed { .. }
            | Reason::TooFewCores { .. }
            | Reason::OtherMachine { .. }
            | Reason::MachineLimit { .. }
            | Reason::OtherClass { .. }
    )
}

fn cause(kind: VerdictKind, why: &Reason) -> Option<String> {
    match (kind, why) {
        (_, Reason::NotMeasured { .. }) => Some("not measured yet".into()),
        (_, Reason::OtherProfile { needed, .. }) => {
            Some(format!("requires a run with --profile {}", needed.name()))
        }
        (VerdictKind::Unmeasurable, Reason::At { why, .. }) => cause(kind, why),
        (VerdictKind::Unmeasurable, Reason::Failed { failure, .. }) => Some(failure.cause().into()),
        (VerdictKind::Unmeasurable, Reason::TooFewCores { cores, .. }) => {
            Some(format!("only {}", count(*cores, "physical core")))
        }
        (VerdictKind::Unmeasurable, Reason::MachineLimit { .. }) => {
            Some("this machine's limit is below the claimed ratio".into())
        }
        (VerdictKind::Unmeasurable, Reason::OtherMachine { unmet }) => {
            let needed: Vec<_> = unmet.iter().map(|one| one.needed.as_str()).collect();
            Some(format!("requires {}", needed.join(", ")))
        }
        (VerdictKind::Unmeasurable, Reason::OtherClass { class, .. }) => {
            Some(format!("the cores were {} in no round", class.name()))
        }
        (VerdictKind::Unmeasurable, other) => Some(reason(other)),
        _ => None,
    }
}

fn remedy(why: &Reason, claim: &Claim) -> Option<String> {
    match why {
        Reason::Failed { failure, .. } => failure.remedy.clone(),
        Reason::NotMeasured { .. } => {
            Some(format!("'tollgate run --claim ID{}' measures one", claim.arguments))
        }
        Reason::At { why, .. } => remedy(why, claim),
        Reason::TooFewCores { .. } => Some("measure on a larger machine".into()),
        Reason::OtherMachine { .. } => Some("measure on such a machine".into()),
        Reason::MachineLimit { .. } => Some("measure on a machine with a higher limit".into()),
        Reason::OtherClass { class, .. } => {
            Some(format!("run again, or choose CPUs whose cores are {}", class.name()))
        }
        Reason::OtherProfile { needed, .. } => {
            Some(format!("tollgate run --profile {}", needed.name()))
        }
        _ => None,
    }
}
