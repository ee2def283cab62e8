//! Claims: published and measured values with their verdicts.

use std::collections::BTreeSet;

use lab::claim::{
    CarriesOver, Claim, Judgement, MeasuredValue, OtherVerdict, Published, Quantifier, Reason,
    Verdict, VerdictKind,
};
use lab::point::Filter;
use schemars::JsonSchema;
use serde::Serialize;

use super::argument::{stated, why};
use super::causes::{cause_of, causes};
use super::condition::condition;
use super::notes::others_left_out;
use super::statistic::with_cores;
use lab::format;
use lab::summary::TwinAlarm;
use lab::table::{ColumnHeader, Emphasis, Page, TableCell};

/// Maximum number of measured values shown per claim; JSON has all.
const MAX_VALUES: usize = 4;
/// All verdicts in the order of the summary line.
pub(crate) const KINDS: [VerdictKind; 6] = [
    VerdictKind::Reproduced,
    VerdictKind::Contradicted,
    VerdictKind::Inconclusive,
    VerdictKind::Incomparable,
    VerdictKind::Unmeasurable,
    VerdictKind::NotMeasured,
];
/// All verdicts in the order of the list.
pub(crate) const ORDER: [VerdictKind; 6] = [
    VerdictKind::Contradicted,
    VerdictKind::Reproduced,
    VerdictKind::Inconclusive,
    VerdictKind::NotMeasured,
    VerdictKind::Incomparable,
    VerdictKind::Unmeasurable,
];

/// Renders claims with their verdicts, decided ones first: judged claims, absolute values of other
/// hardware next to the measured ones, and the number of verdicts of each kind. Published claims precede the promises of
/// tollgate. Claims that cannot be measured or are not measured yet are grouped by cause, or shown like the others if
/// `whole`.
pub fn verdicts(judged: &[(Claim, Verdict)], whole: bool, page: Page) -> String {
    let parts = [("published claim", false), ("promise of tollgate", true)];
    let parts = parts.map(|(thing, is_promise)| {
        let of_part = |it: &&(Claim, Verdict)| it.0.is_promise() == is_promise;
        (thing, judged.iter().filter(of_part).collect::<Vec<_>>())
    });
    let mut text = String::new();
    for (thing, judged) in parts.iter().filter(|(_, judged)| !judged.is_empty()) {
        text += &part_text(thing, judged, whole, page);
    }
    if judged.is_empty() { "no claims\n".into() } else { text + &alarms(judged, page) }
}

/// Renders the published claims, or the promises: `thing` is the word for one of them.
fn part_text(thing: &str, judged: &[&(Claim, Verdict)], whole: bool, page: Page) -> String {
    let grouped = if whole { Vec::new() } else { causes(judged) };
    let is_grouped =
        |claim: &Claim| grouped.iter().any(|one| one.claims.iter().any(|it| it.id == claim.id));
    let (mut rows, mut values) = (Vec::new(), Vec::new());
    for kind in ORDER {
        let of_kind = judged.iter().filter(|(claim, it)| it.kind == kind && !is_grouped(claim));
        for (claim, verdict) in of_kind {
            match is_single_value(verdict) {
                true => values.push(value_row(claim, verdict)),
                false => rows.push(verdict_row(claim, verdict)),
            }
        }
    }
    let title = match judged.len() {
        1 => thing.to_owned(),
        _ => thing.replacen("claim", "claims", 1).replacen("promise", "promises", 1),
    };
    page.paragraph(&format!("{} {title}: {}", judged.len(), counts(judged)), 2, Emphasis::Strong)
        + &table(page, &["verdict", "claim"], rows)
        + &table(page, &["not comparable", "published", "measured"], values)
        + &super::causes::table(&grouped, page)
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

/// A claim with its verdict, as JSON.
#[derive(Debug, Serialize, JsonSchema)]
pub struct JudgedClaim<'a> {
    id: &'a str,
    /// The claim in one sentence.
    says: &'a str,
    /// Publication; `tollgate` for its promises.
    source: &'a str,
    /// Where its number comes from, if the source only plots or rounds it.
    origin: Option<&'a str>,
    /// ID of the experiment.
    experiment: &'a str,
    /// Points that it is about.
    #[serde(rename = "where")]
    filter: &'a Filter,
    /// Where an absolute value is expected.
    carries_over: Option<&'a CarriesOver>,
    /// Physical cores that it needs.
    cores: Option<usize>,
    verdict: VerdictKind,
    /// Reason in words.
    why: String,
    /// Requirement that the machine or the run lacks, if there is no verdict because of it.
    cause: Option<String>,
    /// How the judgements combine.
    quantifier: Quantifier,
    /// Judgements on the points or combinations of levels.
    judgements: &'a [Judgement],
    /// Value as published.
    published: Option<&'a Published>,
    /// Twins of the experiment that differ.
    alarms: &'a [TwinAlarm],
    /// Verdicts from the other environments of the run.
    elsewhere: &'a [OtherVerdict],
    /// Why it is inconclusive although its judgements decide.
    doubt: Option<&'a Reason>,
}

/// Returns claims with their verdicts for JSON.
pub fn judged_claims(judged: &[(Claim, Verdict)]) -> Vec<JudgedClaim<'_>> {
    judged
        .iter()
        .map(|(claim, verdict)| JudgedClaim {
            id: &claim.id,
            says: &claim.says,
            source: &claim.source,
            origin: claim.origin.as_deref(),
            experiment: &claim.experiment,
            filter: &claim.filter,
            carries_over: claim.carries_over.as_ref(),
            cores: claim.cores,
            verdict: verdict.kind,
            why: why(verdict),
            cause: cause_of(verdict),
            quantifier: verdict.quantifier,
            judgements: &verdict.judgements,
            published: verdict.published.as_ref(),
            alarms: &verdict.alarms,
            elsewhere: &verdict.elsewhere,
            doubt: verdict.doubt.as_ref(),
        })
        .collect()
}

/// Counts the verdicts, e.g. `12 reproduced, 1 contradicted`.
pub(super) fn counts(judged: &[&(Claim, Verdict)]) -> String {
    let count = |kind| judged.iter().filter(|(_, verdict)| verdict.kind == kind).count();
    let counts = KINDS.into_iter().map(|kind| (kind.name(), count(kind)));
    let counts = counts.filter(|(_, count)| *count > 0);
    counts.map(|(name, count)| format!("{count} {name}")).collect::<Vec<_>>().join(", ")
}

/// Renders one claim: its statement, source, the origin of its number, and its verdict with the reason.
pub fn claim(claim: &Claim, verdict: &Verdict, page: Page) -> String {
    let mut text = page.paragraph(&claim.says, 2, Emphasis::Plain);
    text += &page.paragraph(&attribution(claim, verdict), 2, Emphasis::Plain);
    if let Some(origin) = &claim.origin {
        text += &page.paragraph(&format!("origin of the number: {origin}"), 2, Emphasis::Plain);
    }
    text + &self::verdict(verdict, page)
}

/// Renders a verdict with its reason.
pub fn verdict(verdict: &Verdict, page: Page) -> String {
    let mut reasons = reasons(verdict).into_iter();
    let kind = verdict.kind.name();
    let reason = reasons.next().unwrap_or_default();
    let text = page.item(kind, emphasis(verdict.kind), kind.len() + 2, &reason);
    text + &reasons.map(|line| page.paragraph(&line, 2, Emphasis::Plain)).collect::<String>()
}

/// Returns the row of a judged claim: its verdict, statement, values and reason.
fn verdict_row(claim: &Claim, verdict: &Verdict) -> Vec<TableCell> {
    let mut lines = vec![format!("{}: {}", claim.id, claim.says), attribution(claim, verdict)];
    lines.extend(reasons(verdict));
    vec![TableCell::new(verdict.kind.name(), emphasis(verdict.kind)), TableCell::from_lines(&lines)]
}

pub(super) fn emphasis(kind: VerdictKind) -> Emphasis {
    match kind {
        VerdictKind::Reproduced => Emphasis::Good,
        VerdictKind::Contradicted => Emphasis::Bad,
        VerdictKind::Inconclusive => Emphasis::Doubtful,
        VerdictKind::NotMeasured | VerdictKind::Incomparable | VerdictKind::Unmeasurable => {
            Emphasis::Faint
        }
    }
}

/// Returns the reason of a verdict, the measured values that it does not state, and the verdicts from other environments.
fn reasons(verdict: &Verdict) -> Vec<String> {
    let stated = stated(verdict);
    let is_other = |value: &&MeasuredValue| !stated.iter().any(|one| std::ptr::eq(*one, *value));
    let others: Vec<_> =
        verdict.values().filter(is_other).filter_map(|it| part(it, false)).collect();
    let others = (!others.is_empty()).then(|| format!("other values: {}", limited(&others)));
    [why(verdict)].into_iter().chain(others).chain(elsewhere(verdict)).collect()
}

/// States the verdicts from other environments of the run; `None` without any.
pub(crate) fn elsewhere(verdict: &Verdict) -> Option<String> {
    let elsewhere: Vec<_> = verdict.elsewhere.iter().map(|it| it.environment.clone()).collect();
    let kinds: BTreeSet<_> = verdict.elsewhere.iter().map(|it| it.verdict.kind.name()).collect();
    let kinds = kinds.into_iter().collect::<Vec<_>>().join(" or ");
    others_left_out(&elsewhere).map(|others| format!("{others} judged separately: {kinds}"))
}

/// Returns the source of a claim with the published value or, if it states none, the condition.
pub(crate) fn attribution(claim: &Claim, verdict: &Verdict) -> String {
    match verdict.published.as_ref().or(claim.published.as_ref()) {
        Some(stated) => format!("{}: {}", source(claim), published(stated)),
        None => match &claim.expect {
            Some(expect) => {
                let unit = claim.unit.as_deref().unwrap_or_default();
                format!("{}: {}", source(claim), condition(expect, unit))
            }
            None => source(claim).into(),
        },
    }
}

/// Returns who published the claim.
fn source(claim: &Claim) -> &str {
    if claim.is_promise() { "a promise of tollgate" } else { &claim.source }
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
    let values: Vec<String> = verdict.values().filter_map(|ours| part(ours, is_single)).collect();
    if values.is_empty() { "—".into() } else { limited(&values) }
}

/// Joins the first values and states how many more there are.
fn limited(values: &[String]) -> String {
    let more = values.len().saturating_sub(MAX_VALUES);
    let more = (more > 0).then(|| format!("{more} more"));
    values.iter().take(MAX_VALUES).cloned().chain(more).collect::<Vec<_>>().join("; ")
}

/// Formats a value with its half-width after its point, unless it is the only one. Of a value that the instrument limited,
/// only the ends of its interval are known.
fn part(ours: &MeasuredValue, is_single: bool) -> Option<String> {
    let value = ours.value?;
    let text = match ours.interval.filter(|interval| interval.open_end().is_some()) {
        Some(open) => format::ends(&open, |end| format::value(end, None, &ours.unit)),
        None => {
            let half = ours.interval.map(|interval| interval.relative_half_width(value));
            let half = half.filter(|half| half.is_finite());
            let width =
                half.map(|half| format!(" {}", format::half_width(half))).unwrap_or_default();
            format::value(value, half.map(|half| half * value.abs()), &ours.unit) + &width
        }
    };
    let text = text + with_cores(ours);
    Some(if is_single || ours.label.is_empty() { text } else { format!("{}: {text}", ours.label) })
}
