//! Claims: what was published beside what this machine does, and the verdict.

use lab::claim::{Claim, MeasuredValue, Published, Verdict, VerdictKind};
use serde_json::{Value, json};

use crate::format;
use lab::table::{ColumnHeader, Emphasis, Page, TableCell};

/// Parts of one claim that are shown; JSON has all.
const MOST_PARTS: usize = 4;
/// All verdicts, in the order in which they are counted.
const KINDS: [VerdictKind; 5] = [
    VerdictKind::Reproduced,
    VerdictKind::Contradicted,
    VerdictKind::Inconclusive,
    VerdictKind::Incomparable,
    VerdictKind::Unmeasurable,
];

/// Claims with their verdicts, by source: what is judged, then the absolute values of other hardware
/// beside ours, then how many there are of each kind.
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
            lab::claim::PROMISE => "What tollgate promises",
            source => source,
        };
        text += &page.paragraph(title, 2, Emphasis::Strong);
        let own = || judged.iter().filter(|(claim, _)| claim.source == source);
        let is_shown = |(_, verdict): &&(Claim, Verdict)| is_shown_only(verdict);
        let rows = own().filter(|one| !is_shown(one)).map(|(c, v)| argued(c, v)).collect();
        text += &table(page, &["verdict", "claim"], rows);
        let rows = own().filter(is_shown).map(|(c, v)| beside(c, v)).collect();
        text += &table(page, &["not comparable", "published", "ours"], rows);
    }
    text + &page.paragraph(&counted(judged), 2, Emphasis::Strong)
}

/// An absolute value of other hardware with ours: there is nothing to argue.
fn is_shown_only(verdict: &Verdict) -> bool {
    verdict.kind == VerdictKind::Incomparable && verdict.ours.len() == 1
}

fn table(page: Page, heads: &[&str], rows: Vec<Vec<TableCell>>) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let heads: Vec<_> = heads.iter().map(|head| ColumnHeader::left(*head)).collect();
    page.table(&heads, rows) + "\n"
}

/// The same as data.
pub fn verdicts_json(judged: &[(Claim, Verdict)]) -> Value {
    let one = |(claim, verdict): &(Claim, Verdict)| {
        json!({
            "id": claim.id,
            "says": claim.says,
            "source": claim.source,
            "experiment": claim.experiment,
            "where": claim.filter,
            "carries_over": claim.carries_over,
            "cores": claim.cores,
            "verdict": verdict.kind,
            "why": verdict.why,
            "ours": verdict.ours,
            "published": verdict.published,
        })
    };
    judged.iter().map(one).collect()
}

/// `12 reproduced, 1 contradicted`; kinds of which there are none are left out.
fn counted(judged: &[(Claim, Verdict)]) -> String {
    let count = |kind| judged.iter().filter(|(_, verdict)| verdict.kind == kind).count();
    let counts = KINDS.into_iter().map(|kind| (kind, count(kind))).filter(|(_, n)| *n > 0);
    let counts: Vec<_> = counts.map(|(kind, n)| format!("{n} {}", kind.name())).collect();
    if counts.is_empty() { "no claims".into() } else { counts.join(", ") }
}

/// The verdict, and what it is on: the claim, both values, and why.
fn argued(claim: &Claim, verdict: &Verdict) -> Vec<TableCell> {
    let emphasis = match verdict.kind {
        VerdictKind::Reproduced => Emphasis::Good,
        VerdictKind::Contradicted => Emphasis::Bad,
        VerdictKind::Inconclusive => Emphasis::Doubtful,
        VerdictKind::Incomparable | VerdictKind::Unmeasurable => Emphasis::Faint,
    };
    let stated = verdict.published.as_ref().or(claim.published.as_ref());
    let mut lines = vec![format!("{}: {}", claim.id, claim.says)];
    lines.extend(stated.map(|stated| format!("published: {}", published(stated))));
    let several = verdict.ours.iter().filter(|part| part.value.is_some()).count() > 1;
    lines.extend(several.then(|| format!("ours: {}", ours(&verdict.ours))));
    lines.push(verdict.why.clone());
    vec![TableCell::new(verdict.kind.name(), emphasis), TableCell::from_lines(&lines)]
}

fn beside(claim: &Claim, verdict: &Verdict) -> Vec<TableCell> {
    let stated = verdict.published.as_ref().or(claim.published.as_ref());
    vec![
        claim.id.clone().into(),
        stated.map(published).unwrap_or_default().into(),
        ours(&verdict.ours).into(),
    ]
}

fn published(published: &Published) -> String {
    let value = format::published(published.value, &published.unit);
    match &published.on {
        Some(on) => format!("{value} on {on}"),
        None => value,
    }
}

fn ours(parts: &[MeasuredValue]) -> String {
    let one = parts.len() == 1;
    let valued: Vec<String> = parts.iter().filter_map(|ours| part(ours, one)).collect();
    let mut lines: Vec<String> = valued.iter().take(MOST_PARTS).cloned().collect();
    match (valued.len(), valued.len().saturating_sub(MOST_PARTS)) {
        (0, _) => return "—".into(),
        (_, 0) => {}
        (_, more) => lines.push(format!("and {more} more")),
    }
    lines.join("; ")
}

/// A value with its half-width; the verdict names the point where it is the only one.
fn part(ours: &MeasuredValue, one: bool) -> Option<String> {
    let value = ours.value?;
    let half = ours.interval.map(|interval| interval.relative_half_width(value));
    let half = half.filter(|half| half.is_finite());
    let width = half.map(|half| format!(" {}", format::half_width(half))).unwrap_or_default();
    let text = format::value(value, half.map(|half| half * value.abs()), &ours.unit) + &width;
    Some(if one || ours.label.is_empty() { text } else { format!("{text} {}", ours.label) })
}
