//! Claims: published and measured values with their verdicts.

use std::collections::BTreeSet;

use lab::claim::{Claim, MeasuredValue, Published, Verdict, VerdictKind};
use serde_json::{Value, json};

use super::reasons::why;
use lab::format;
use lab::summary::TwinAlarm;
use lab::table::{ColumnHeader, Emphasis, Page, TableCell};

/// Maximum number of measured values shown per claim; JSON has all.
const MAX_VALUES: usize = 4;
/// All verdicts in the order of the summary line.
const KINDS: [VerdictKind; 5] = [
    VerdictKind::Reproduced,
    VerdictKind::Contradicted,
    VerdictKind::Inconclusive,
    VerdictKind::Incomparable,
    VerdictKind::Unmeasurable,
];

/// Renders claims with their verdicts by source: judged claims, then absolute values of other hardware
/// next to the measured ones; at the end the number of verdicts of each kind.
pub fn verdicts(judged: &[(Claim, Verdict)], page: Page) -> String {
    let mut sources: Vec<&str> = Vec::new();
    for (claim, _) in judged {
        if !sources.contains(&claim.source.as_str()) {
            sources.push(&claim.source);
        }
    }
    let mut text = String::new();
    for source in sources {
        let title = match source {
            lab::claim::PROMISE => "Promises of tollgate",
            source => source,
        };
        text += &page.paragraph(title, 2, Emphasis::Strong);
        let of_source = || judged.iter().filter(|(claim, _)| claim.source == source);
        let is_value = |(_, verdict): &&(Claim, Verdict)| is_single_value(verdict);
        let rows =
            of_source().filter(|one| !is_value(one)).map(|(c, v)| verdict_row(c, v)).collect();
        text += &table(page, &["verdict", "claim"], rows);
        let rows = of_source().filter(is_value).map(|(c, v)| value_row(c, v)).collect();
        text += &table(page, &["not comparable", "published", "measured"], rows);
    }
    text + &alarms(judged, page) + &page.paragraph(&counts(judged), 2, Emphasis::Strong)
}

/// Renders each alarm once: twins that differ make the claims on their experiment doubtful.
fn alarms(judged: &[(Claim, Verdict)], page: Page) -> String {
    let all = judged.iter().flat_map(|(_, verdict)| &verdict.alarms);
    let lines: BTreeSet<String> = all.map(TwinAlarm::to_string).collect();
    lines.iter().map(|line| page.paragraph(line, 2, Emphasis::Doubtful)).collect()
}

/// Returns whether a verdict is a single absolute value of other hardware, which needs no explanation.
fn is_single_value(verdict: &Verdict) -> bool {
    verdict.kind == VerdictKind::Incomparable && verdict.values().count() == 1
}

fn table(page: Page, titles: &[&str], rows: Vec<Vec<TableCell>>) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let headers: Vec<_> = titles.iter().map(|title| ColumnHeader::left(*title)).collect();
    page.table(&headers, rows) + "\n"
}

/// Returns claims with their verdicts as JSON.
pub fn verdicts_json(judged: &[(Claim, Verdict)]) -> Value {
    let object = |(claim, verdict): &(Claim, Verdict)| {
        json!({
            "id": claim.id,
            "says": claim.says,
            "source": claim.source,
            "experiment": claim.experiment,
            "where": claim.filter,
            "carries_over": claim.carries_over,
            "cores": claim.cores,
            "verdict": verdict.kind,
            "why": why(verdict),
            "quantifier": verdict.quantifier,
            "judgements": verdict.judgements,
            "published": verdict.published,
            "alarms": verdict.alarms,
        })
    };
    judged.iter().map(object).collect()
}

/// Counts the verdicts, e.g. `12 reproduced, 1 contradicted`.
fn counts(judged: &[(Claim, Verdict)]) -> String {
    let count = |kind| judged.iter().filter(|(_, verdict)| verdict.kind == kind).count();
    let counts = KINDS.into_iter().map(|kind| (kind, count(kind))).filter(|(_, n)| *n > 0);
    let counts: Vec<_> = counts.map(|(kind, n)| format!("{n} {}", kind.name())).collect();
    if counts.is_empty() { "no claims".into() } else { counts.join(", ") }
}

/// Returns the row of a judged claim: its verdict, statement, values and reason.
fn verdict_row(claim: &Claim, verdict: &Verdict) -> Vec<TableCell> {
    let emphasis = match verdict.kind {
        VerdictKind::Reproduced => Emphasis::Good,
        VerdictKind::Contradicted => Emphasis::Bad,
        VerdictKind::Inconclusive => Emphasis::Doubtful,
        VerdictKind::Incomparable | VerdictKind::Unmeasurable => Emphasis::Faint,
    };
    let stated = verdict.published.as_ref().or(claim.published.as_ref());
    let mut lines = vec![format!("{}: {}", claim.id, claim.says)];
    lines.extend(stated.map(|stated| format!("published: {}", published(stated))));
    let several = verdict.values().filter(|part| part.value.is_some()).count() > 1;
    lines.extend(several.then(|| format!("measured: {}", measured(verdict))));
    lines.push(why(verdict));
    vec![TableCell::new(verdict.kind.name(), emphasis), TableCell::from_lines(&lines)]
}

fn value_row(claim: &Claim, verdict: &Verdict) -> Vec<TableCell> {
    let stated = verdict.published.as_ref().or(claim.published.as_ref());
    vec![
        claim.id.clone().into(),
        stated.map(published).unwrap_or_default().into(),
        measured(verdict).into(),
    ]
}

fn published(published: &Published) -> String {
    let value = format::published(published.value, &published.unit);
    match &published.on {
        Some(on) => format!("{value} on {on}"),
        None => value,
    }
}

fn measured(verdict: &Verdict) -> String {
    let is_single = verdict.values().count() == 1;
    let valued: Vec<String> = verdict.values().filter_map(|ours| part(ours, is_single)).collect();
    let mut lines: Vec<String> = valued.iter().take(MAX_VALUES).cloned().collect();
    match (valued.len(), valued.len().saturating_sub(MAX_VALUES)) {
        (0, _) => return "—".into(),
        (_, 0) => {}
        (_, more) => lines.push(format!("{more} more")),
    }
    lines.join("; ")
}

/// Formats a value with its half-width and, unless it is the only one, its point.
fn part(ours: &MeasuredValue, is_single: bool) -> Option<String> {
    let value = ours.value?;
    let half = ours.interval.map(|interval| interval.relative_half_width(value));
    let half = half.filter(|half| half.is_finite());
    let width = half.map(|half| format!(" {}", format::half_width(half))).unwrap_or_default();
    let text = format::value(value, half.map(|half| half * value.abs()), &ours.unit) + &width;
    Some(if is_single || ours.label.is_empty() { text } else { format!("{text} {}", ours.label) })
}
