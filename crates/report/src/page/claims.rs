//! Claims of a page: published and measured values, verdicts and reasons.

use std::collections::BTreeSet;

use lab::claim::{Claim, MeasuredValue, Verdict, VerdictKind};
use lab::experiment::suite_name;
use lab::format::count;
use lab::summary::TwinAlarm;
use maud::{Markup, html};

use super::overview::verdict_name;
use super::slug;
use crate::table::{
    NOT_MEASURED, VERDICT_ORDER, elsewhere, attribution, value_with_interval, why, with_cores,
};

/// Number of values of a claim that are visible at once.
const VISIBLE_VALUES: usize = 3;
/// Maximum number of values of a claim; `tollgate claims --json` has all.
const MAX_VALUES: usize = 60;

/// Renders all claims, decided ones first, with a filter.
pub(super) fn section(judged: &[(Claim, Verdict)], experiments: &[String]) -> Markup {
    if judged.is_empty() {
        return html! {};
    }
    let of_kind = |kind: VerdictKind| judged.iter().filter(move |(_, it)| it.kind == kind);
    let alarms = judged.iter().flat_map(|(_, verdict)| &verdict.alarms).map(TwinAlarm::to_string);
    let alarms: BTreeSet<String> = alarms.collect();
    html! {
        section aria-labelledby="claims" {
            h2 #claims { "Claims" }
            (filter(judged))
            ul.claims { @for (claim, verdict) in VERDICT_ORDER.into_iter().flat_map(of_kind) { (one(claim, verdict, experiments)) } }
            @if !alarms.is_empty() { ul.warnings { @for alarm in &alarms { li { (alarm) } } } }
        }
    }
}

/// Renders the filter, which scripts show.
fn filter(judged: &[(Claim, Verdict)]) -> Markup {
    let suites: BTreeSet<&str> =
        judged.iter().map(|(claim, _)| suite_name(&claim.experiment)).collect();
    let verdicts = VERDICT_ORDER.into_iter().map(VerdictKind::name).chain([NOT_MEASURED]);
    let present = |name: &&str| judged.iter().any(|(_, verdict)| verdict_name(verdict) == *name);
    let choice = |id: &str, label: &str, options: Vec<(String, &str)>| {
        html! {
            label for=(id) { (label) }
            select id=(id) {
                option value="" { "all" }
                @for (value, text) in options { option value=(value) { (text) } }
            }
        }
    };
    let kinds =
        vec![("published".into(), "published"), ("promises".into(), "promises of tollgate")];
    html! {
        form.filter role="search" aria-label="Claims" hidden {
            div { (choice("filter-suite", "Suite", suites.iter().map(|suite| (slug(suite), *suite)).collect())) }
            div { (choice("filter-verdict", "Verdict", verdicts.filter(present).map(|it| (slug(it), it)).collect())) }
            div { (choice("filter-kind", "Kind", kinds)) }
            div.text { label for="filter-text" { "Text" } input #filter-text type="search" autocomplete="off"; }
            output #filter-count for="filter-suite filter-verdict filter-kind filter-text" {
                (count(judged.len(), "claim"))
            }
        }
    }
}

fn one(claim: &Claim, verdict: &Verdict, experiments: &[String]) -> Markup {
    let name = verdict_name(verdict);
    let kind = if claim.is_promise() { "promises" } else { "published" };
    let suite = slug(suite_name(&claim.experiment));
    html! {
        li id={ "claim-" (slug(&claim.id)) } data-suite=(suite) data-verdict=(slug(name)) data-kind=(kind) {
            p.head {
                span class={ "verdict " (slug(name)) } { (name) }
                " " a.link href={ "#claim-" (slug(&claim.id)) } { (claim.id) }
                " "
                @if experiments.contains(&claim.experiment) {
                    a.of href={ "#experiment-" (slug(&claim.experiment)) } { (claim.experiment) }
                } @else {
                    span.of { (claim.experiment) }
                }
            }
            p.says { (claim.says) }
            dl {
                dt { "published" } dd { (attribution(claim, verdict)) }
                dt { "here" } dd { (values(verdict)) }
                dt { "reason" } dd { (why(verdict)) @if let Some(other) = elsewhere(verdict) { "; " (other) } }
            }
        }
    }
}

/// Renders the measured values with their intervals.
fn values(verdict: &Verdict) -> Markup {
    let is_single = verdict.values().count() == 1;
    let texts = verdict.values().filter(|one| one.value.is_some()).map(|one| value(one, is_single));
    let texts: Vec<String> = texts.collect();
    let (visible, others) = texts.split_at(texts.len().min(VISIBLE_VALUES));
    let more = others.len().saturating_sub(MAX_VALUES);
    html! {
        @match visible {
            [] => "—",
            [text] => (text),
            texts => ul { @for text in texts { li { (text) } } },
        }
        @if !others.is_empty() {
            details {
                summary { (count(others.len(), "more value")) }
                ul {
                    @for text in others.iter().take(MAX_VALUES) { li { (text) } }
                    @if more > 0 { li { (more) " more: tollgate claims --json" } }
                }
            }
        }
    }
}

fn value(one: &MeasuredValue, is_single: bool) -> String {
    let label =
        if is_single || one.label.is_empty() { String::new() } else { format!("{}: ", one.label) };
    let rounds = match one.rounds {
        0 => String::new(),
        rounds => format!(", {}", count(rounds, "round")),
    };
    format!("{label}{}{rounds}{}", value_with_interval(one), with_cores(one))
}
