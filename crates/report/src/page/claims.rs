//! Claims of a page: published and measured values, verdicts and reasons.

use std::collections::BTreeSet;

use lab::claim::{Claim, MeasuredValue, Verdict, VerdictKind};
use lab::experiment::suite_name;
use lab::format::count;
use lab::summary::TwinAlarm;
use maud::{Markup, html};

use super::slug;
use crate::table::{
    SharedCause, VERDICT_ORDER, attribution, elsewhere, shared_cause, value_with_interval, why,
    with_cores,
};

/// Number of values of a claim that are visible at once.
const VISIBLE_VALUES: usize = 3;
/// Maximum number of values of a claim; `tollgate claims --json` has all.
const MAX_VALUES: usize = 60;

/// A claim with its verdict on each side of a comparison, or of a single run, whose side has no name.
pub(super) struct JudgedClaim<'a> {
    pub(super) claim: &'a Claim,
    pub(super) verdicts: Vec<(&'a str, &'a Verdict)>,
}

impl<'a> JudgedClaim<'a> {
    /// Returns the claims of a single run.
    pub(super) fn of_run(judged: &'a [(Claim, Verdict)]) -> Vec<Self> {
        let one =
            |(claim, verdict): &'a (Claim, Verdict)| Self { claim, verdicts: vec![("", verdict)] };
        judged.iter().map(one).collect()
    }

    /// Returns whether the verdicts of the sides differ.
    fn differs(&self) -> bool {
        let mut names = self.verdicts.iter().map(|(_, verdict)| verdict.kind.name());
        let first = names.next();
        names.any(|name| Some(name) != first)
    }

    fn has(&self, name: &str) -> bool {
        self.verdicts.iter().any(|(_, verdict)| verdict.kind.name() == name)
    }

    /// Returns the position in the list: claims whose verdicts differ first, then decided ones.
    fn position(&self) -> (bool, usize) {
        let kind = self.verdicts.first().map(|(_, verdict)| verdict.kind);
        let position = VERDICT_ORDER.iter().position(|one| Some(*one) == kind);
        (!self.differs(), position.unwrap_or(VERDICT_ORDER.len()))
    }
}

/// Claims that no side decides, for the same causes.
struct Undecided<'a> {
    /// The cause of each side.
    causes: Vec<(&'a str, SharedCause)>,
    /// The remedies of the first of the claims, without repetitions.
    remedies: Vec<String>,
    claims: Vec<&'a JudgedClaim<'a>>,
}

/// Divides claims into those that a side decides, and the others by cause, the cause of most claims first.
fn by_cause<'a>(judged: &'a [JudgedClaim<'a>]) -> (Vec<&'a JudgedClaim<'a>>, Vec<Undecided<'a>>) {
    let (mut decided, mut undecided) = (Vec::new(), Vec::<Undecided>::new());
    for one in judged {
        let shared = one.verdicts.iter().map(|(side, verdict)| {
            let (cause, remedy) = shared_cause(one.claim, verdict)?;
            Some(((*side, cause), remedy))
        });
        let Some(shared) = shared.collect::<Option<Vec<_>>>() else {
            decided.push(one);
            continue;
        };
        let (causes, remedies): (Vec<_>, Vec<_>) = shared.into_iter().unzip();
        match undecided.iter_mut().find(|group| group.causes == causes) {
            Some(group) => group.claims.push(one),
            None => {
                let remedies: BTreeSet<String> = remedies.into_iter().flatten().collect();
                let remedies = remedies.into_iter().collect();
                undecided.push(Undecided { causes, remedies, claims: vec![one] });
            }
        }
    }
    undecided.sort_by_key(|group| std::cmp::Reverse(group.claims.len()));
    (decided, undecided)
}

/// Renders all claims with a filter: decided ones first, then the others by cause in details, which the filter and links
/// open.
pub(super) fn section(mut judged: Vec<JudgedClaim>, experiments: &[String]) -> Markup {
    if judged.is_empty() {
        return html! {};
    }
    judged.sort_by_key(JudgedClaim::position);
    let (decided, undecided) = by_cause(&judged);
    let verdicts = judged.iter().flat_map(|one| &one.verdicts);
    let alarms = verdicts.flat_map(|(_, verdict)| &verdict.alarms).map(TwinAlarm::to_string);
    let alarms: BTreeSet<String> = alarms.collect();
    html! {
        section aria-labelledby="claims" {
            h2 #claims { "Claims" }
            (filter(&judged))
            @if !decided.is_empty() { (list(&decided, experiments)) }
            @if !undecided.is_empty() {
                h3 #undecided { "Without a verdict, by cause" }
                @for group in &undecided { (undecided_claims(group, experiments)) }
            }
            @if !alarms.is_empty() { ul.warnings { @for alarm in &alarms { li { (alarm) } } } }
        }
    }
}

/// Renders the filter, which scripts show.
fn filter(judged: &[JudgedClaim]) -> Markup {
    let suites: BTreeSet<&str> =
        judged.iter().map(|one| suite_name(&one.claim.experiment)).collect();
    let verdicts = VERDICT_ORDER.into_iter().map(VerdictKind::name);
    let present = |name: &&str| judged.iter().any(|one| one.has(name));
    let is_comparison = judged.iter().any(|one| one.verdicts.len() > 1);
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
            @if is_comparison {
                div { (choice("filter-sides", "Sides", vec![("differ".into(), "differ"), ("agree".into(), "agree")])) }
            }
            div.text { label for="filter-text" { "Text" } input #filter-text type="search" autocomplete="off"; }
            output #filter-count for="filter-suite filter-verdict filter-kind filter-text" {
                (count(judged.len(), "claim"))
            }
        }
    }
}

fn list(claims: &[&JudgedClaim], experiments: &[String]) -> Markup {
    html! { ul.claims { @for one in claims { (item(one, experiments)) } } }
}

/// Renders the claims of one cause in details.
fn undecided_claims(group: &Undecided, experiments: &[String]) -> Markup {
    let is_common =
        group.causes.iter().all(|(_, cause)| Some(cause) == group.causes.first().map(|it| &it.1));
    let shown = if is_common { group.causes.get(..1) } else { None }.unwrap_or(&group.causes);
    html! {
        details.cause {
            summary {
                @for (side, cause) in shown {
                    (badge(if is_common { "" } else { side }, cause.kind)) " " (cause.text) ": "
                }
                span.total { (count(group.claims.len(), "claim")) }
            }
            @for remedy in &group.remedies { p.remedy { (remedy) } }
            (list(&group.claims, experiments))
        }
    }
}

fn item(judged: &JudgedClaim, experiments: &[String]) -> Markup {
    let JudgedClaim { claim, verdicts } = judged;
    let kind = if claim.is_promise() { "promises" } else { "published" };
    let names: BTreeSet<String> = verdicts.iter().map(|(_, it)| slug(it.kind.name())).collect();
    let names = names.into_iter().collect::<Vec<_>>().join(" ");
    let id = slug(&claim.id);
    html! {
        li id={ "claim-" (id) } data-suite=(slug(suite_name(&claim.experiment))) data-verdict=(names)
            data-kind=(kind) data-sides=(if judged.differs() { "differ" } else { "agree" }) {
            p.head {
                @for (side, verdict) in verdicts { (badge(side, verdict.kind)) " " }
                a.link href={ "#claim-" (id) } { (claim.id) }
                " "
                @if experiments.contains(&claim.experiment) {
                    a.of href={ "#experiment-" (slug(&claim.experiment)) } { (claim.experiment) }
                } @else {
                    span.of { (claim.experiment) }
                }
            }
            p.says { (claim.says) }
            dl {
                @if let Some((_, verdict)) = verdicts.first() {
                    dt { (attributed(claim, verdict)) }
                    dd { (attribution(claim, verdict)) }
                }
                @for (side, verdict) in verdicts {
                    dt { (if side.is_empty() { "here" } else { side }) }
                    dd { (values(verdict)) }
                    dt { "reason" }
                    dd { (why(verdict)) @if let Some(other) = elsewhere(verdict) { "; " (other) } }
                }
            }
        }
    }
}

/// Returns what the source of a claim is next to: its value, or the condition by which tollgate judges its words.
fn attributed(claim: &Claim, verdict: &Verdict) -> &'static str {
    match (verdict.published.as_ref().or(claim.published.as_ref()), &claim.expect) {
        (Some(_), _) => "published",
        (None, Some(_)) => "judged as",
        (None, None) => "source",
    }
}

fn badge(side: &str, kind: VerdictKind) -> Markup {
    let name = kind.name();
    html! {
        span class={ "verdict " (slug(name)) } { @if !side.is_empty() { (side) ": " } (name) }
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
