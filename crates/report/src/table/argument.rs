//! The argument of a verdict in one line: the values that decide it, and the reasons.

use lab::claim::{
    ClassResult, Judgement, MeasuredValue, Quantifier, Reason, Statistic, Verdict, VerdictKind,
};
use lab::format::{count, precise};

use super::reasons::{is_clause, reason};
use super::statistic::{contest, statistic, value_with_interval, with_cores};

const NOTHING: &str = "there is nothing to judge";
/// Maximum number of fitting values that the reason of a judgement lists.
const MAX_FITTING: usize = 3;
/// Maximum number of points of one cause that are named as left out.
const MAX_LEFT_OUT: usize = 3;

/// Returns the reason for a verdict in one line.
pub(crate) fn why(verdict: &Verdict) -> String {
    if verdict.kind == VerdictKind::Incomparable && verdict.published.is_some() {
        return not_judged(verdict);
    }
    let judgements = &verdict.judgements;
    let is_only = verdict.values().count() == 1;
    let mut text =
        deciding(verdict).map_or_else(|| NOTHING.to_string(), |one| judgement(one, is_only));
    if judgements.len() > 1 {
        text = format!("{}; {text}", counted(judgements));
    }
    if let Some(doubt) = &verdict.doubt {
        text = format!("{}; here {text}", reason(doubt));
    }
    let against = judgements.iter().filter(|one| one.kind == VerdictKind::Contradicted);
    let labels: Vec<_> =
        against.flat_map(|one| &one.values).map(|value| value.label.as_str()).collect();
    if let (Quantifier::Share(share), false) = (verdict.quantifier, labels.is_empty()) {
        let labels = labels.join("; ");
        text += &format!(" (claimed for {}); not true for: {labels}", precise(share, "share"));
    }
    let mut left_out: Vec<(&Reason, Vec<&str>)> = Vec::new();
    for one in judgements.iter().flat_map(|one| &one.left_out) {
        let names = one.names.iter().map(String::as_str);
        match left_out.iter_mut().find(|(why, _)| *why == &one.why) {
            Some((_, known)) => known.extend(names),
            None => left_out.push((&one.why, names.collect())),
        }
    }
    for (why, mut names) in left_out {
        names.sort_unstable();
        names.dedup();
        let more = names.len().saturating_sub(MAX_LEFT_OUT);
        let more = (more > 0).then(|| format!("{more} more"));
        names.truncate(MAX_LEFT_OUT);
        names.extend(more.as_deref());
        text += &format!("; left out: {}: {}", names.join(", "), reason(why));
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the values that the reason for a verdict states.
pub(super) fn stated(verdict: &Verdict) -> Vec<&MeasuredValue> {
    match deciding(verdict) {
        _ if verdict.kind == VerdictKind::Incomparable => {
            verdict.values().find(|value| value.value.is_some()).into_iter().collect()
        }
        Some(judgement) => match judgement.reasons.first() {
            Some(Reason::BestEverywhere { .. } | Reason::ClassesDiffer { .. }) => {
                judgement.values.iter().collect()
            }
            _ => stated_of(judgement),
        },
        None => Vec::new(),
    }
}

/// Returns the judgement that decides a verdict, or the first.
fn deciding(verdict: &Verdict) -> Option<&Judgement> {
    let is_deciding = |one: &&Judgement| one.kind == verdict.kind;
    verdict.judgements.iter().find(is_deciding).or(verdict.judgements.first())
}

/// Returns the values that decide a judgement, at most as many as its reason states.
fn stated_of(judgement: &Judgement) -> Vec<&MeasuredValue> {
    let max = if judgement.kind == VerdictKind::Reproduced { MAX_FITTING } else { 1 };
    judgement.values.iter().filter(|value| value.kind == judgement.kind).take(max).collect()
}

/// The published value next to the measured one.
fn not_judged(verdict: &Verdict) -> String {
    let published = verdict.published.as_ref();
    let value = published.map(|it| precise(it.value, &it.unit)).unwrap_or_default();
    let on = published.and_then(|it| it.on.as_deref()).unwrap_or("other hardware");
    let measured = verdict.values().find(|value| value.value.is_some());
    let shown = measured.or(verdict.values().next());
    let measured = measured.map(|it| value_with_interval(it) + with_cores(it));
    let measured = measured.unwrap_or_else(|| "not measured".into());
    let why = shown.into_iter().flat_map(|value| &value.reasons);
    let why = why.filter(|one| matches!(one, Reason::NotComparable { .. })).map(reason);
    format!("{value} on {on}, here {measured}; {}", why.collect::<Vec<_>>().join("; "))
}

/// `3 of 5 reproduced, 1 contradicted, 1 not measurable here`
fn counted(judgements: &[Judgement]) -> String {
    let count = |kind| judgements.iter().filter(|one| one.kind == kind).count();
    let mut text = format!("{} of {} reproduced", count(VerdictKind::Reproduced), judgements.len());
    for (kind, word) in [
        (VerdictKind::Contradicted, "contradicted"),
        (VerdictKind::Incomparable, "incomparable"),
        (VerdictKind::Inconclusive, "inconclusive"),
        (VerdictKind::NotMeasured, "not measured"),
        (VerdictKind::Unmeasurable, "not measurable here"),
    ] {
        if count(kind) > 0 {
            text += &format!(", {} {word}", count(kind));
        }
    }
    text
}

/// Returns the argument of a judgement. `is_only` states whether the verdict has a single value.
fn judgement(judgement: &Judgement, is_only: bool) -> String {
    if let [differ @ Reason::ClassesDiffer { results }, ..] = judgement.reasons.as_slice() {
        let deciding = |one: &ClassResult| {
            let of_class = || judgement.values.iter().filter(|it| it.class == Some(one.class));
            let value = of_class().find(|it| it.kind == one.kind).or_else(|| of_class().next());
            value.map(|value| labelled(value, is_only))
        };
        let values: Vec<_> = results.iter().filter_map(deciding).collect();
        return format!("{}: {}", reason(differ), values.join("; "));
    }
    if let [Reason::BestEverywhere { level, resolved, rounds }, rest @ ..] =
        judgement.reasons.as_slice()
    {
        let best = match level {
            None => "no level is best everywhere".to_string(),
            Some(level) if *resolved => format!("{level} is best everywhere"),
            Some(level) => format!("{level} may be best everywhere"),
        };
        let contests = judgement.values.iter().filter_map(|value| match &value.statistic {
            Some(Statistic::Best { at, candidates }) => {
                Some(contest(at, candidates) + with_cores(value))
            }
            _ => None,
        });
        let contests = contests.collect::<Vec<_>>().join("; ");
        let rest: String = rest.iter().map(|one| format!("; {}", reason(one))).collect();
        return format!("{best}: {contests}, {}{rest}", count(*rounds, "round"));
    }
    let deciding = judgement.values.iter().filter(|value| value.kind == judgement.kind).count();
    let stated = stated_of(judgement);
    let mut texts: Vec<_> = stated.iter().map(|one| labelled(one, is_only)).collect();
    if deciding > texts.len() {
        texts.push(format!("and {} more", deciding - texts.len()));
    }
    texts.extend(judgement.reasons.iter().map(reason));
    if texts.is_empty() { NOTHING.into() } else { texts.join("; ") }
}

/// Returns the argument with the label of its value. The claim itself says which point a single value
/// is of; a ratio has two.
fn labelled(value: &MeasuredValue, is_only: bool) -> String {
    let is_ratio = matches!(value.statistic, Some(Statistic::Ratio { .. }));
    match value.label.is_empty() || is_only && !is_ratio {
        true => argument(value),
        false => format!("{}: {}", value.label, argument(value)),
    }
}

/// The value, the claimed one, and what weakens the result.
fn argument(value: &MeasuredValue) -> String {
    let mut text = value.statistic.as_ref().map_or_else(String::new, |it| statistic(value, it));
    let states_claim = matches!(value.statistic, Some(Statistic::Violations { .. }));
    for one in &value.reasons {
        let (clause, part) = match one {
            Reason::ClaimedAlways { .. } if states_claim => continue,
            one => (is_clause(one), reason(one)),
        };
        if !text.is_empty() {
            text += if clause { ", " } else { "; " };
        }
        text += &part;
    }
    text
}
