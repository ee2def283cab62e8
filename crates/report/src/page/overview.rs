//! The top of a page: the run, its headlines, the number of verdicts, warnings; and at the end how to repeat it.

use std::path::Path;

use lab::claim::{Claim, Verdict, VerdictKind};
use lab::format::count;
use lab::journal::Run;
use lab::run::is_lab_experiment;
use maud::{Markup, html};

use super::samples::EmbeddedSamples;
use super::terms::meaning;
use super::{RunPage, SuiteHeadlines, machine, slug};
use crate::table::{VERDICT_KINDS, lacking_line};

/// Maximum number of characters of the line on what the machine lacks.
const MAX_LACKING: usize = 220;

/// Renders the name of the run, where and when it was measured, and how much.
pub(super) fn header(run: &Run) -> Markup {
    let record = &run.record;
    let samples = run.samples.iter().filter(|one| !is_lab_experiment(&one.experiment)).count();
    let last = run.samples.last().map(|one| &one.environment);
    let environment = last.and_then(|id| record.environments.get(id));
    html! {
        header {
            p.brand { "tollgate: what does it cost to cross a boundary?" }
            h1 { (record.name) }
            p.origin {
                @if let Some(environment) = environment { (machine::cpu(environment)) ", " }
                (record.place()) "; profile " (record.profile.name()) "; "
                (count(samples, "sample")) " in " (count(record.sessions.len(), "session"))
                " from " time datetime=(record.start) { (record.start) }
                "; tollgate " (record.program)
            }
        }
    }
}

/// Renders the headlines of each suite.
pub(super) fn headlines(suites: &[SuiteHeadlines]) -> Markup {
    let is_shown = |one: &&SuiteHeadlines| !one.filled.is_empty() || one.missing.is_some();
    html! {
        @if !suites.iter().any(|one| is_shown(&one)) { p { "No headline has values in this run." } }
        dl.headlines {
            @for one in suites.iter().filter(is_shown) {
                dt { a href={ "#suite-" (slug(&one.suite)) } { (one.suite) } }
                @for headline in &one.filled { dd { (headline.sentence) } }
                @if let Some(why) = one.missing { dd.faint { "no headlines: " (why) } }
            }
        }
    }
}

/// Renders what the machine lacks in one line, with a link to the element that has all of it.
pub(super) fn lacking(judged: &[(Claim, Verdict)], target: &str) -> Markup {
    html! {
        @if let Some(line) = lacking_line(judged, MAX_LACKING) {
            p.lacking {
                span.verdict.unmeasurable { (VerdictKind::Unmeasurable.name()) } " "
                (line) ". " a href={ "#" (target) } { "Remedies" }
            }
        }
    }
}

/// Renders the number of verdicts of each kind, of published claims and of promises, with the meaning of each kind, and how
/// many claims are on experiments that the run does not have.
pub(super) fn verdicts(page: &RunPage) -> Markup {
    let RunPage { judged, unlisted_claims: unlisted, .. } = *page;
    if judged.is_empty() {
        return html! {};
    }
    let parts =
        [("published", "published claims", false), ("promises", "promises of tollgate", true)];
    let kinds = VERDICT_KINDS.into_iter().map(VerdictKind::name);
    let number = |is_promise: bool, name: &str| {
        let of_part = judged.iter().filter(|(claim, _)| claim.is_promise() == is_promise);
        of_part.filter(|(_, verdict)| verdict.kind.name() == name).count()
    };
    let total = |is_promise| judged.iter().filter(|it| it.0.is_promise() == is_promise).count();
    html! {
        section aria-labelledby="verdicts" {
            h2 #verdicts { "Verdicts" }
            div.scroll tabindex="0" role="region" aria-label="Number of verdicts" {
                table.counts {
                    thead { tr {
                        th scope="col" { "verdict" }
                        @for (_, title, _) in parts { th.number scope="col" { (title) } }
                        th scope="col" { "meaning" }
                    } }
                    tbody {
                        @for name in kinds {
                            tr {
                                th scope="row" { (name) }
                                @for (value, _, is_promise) in parts {
                                    td.number { (link(number(is_promise, name), value, name)) }
                                }
                                td.meaning { (meaning(page.terms, name)) }
                            }
                        }
                        tr {
                            th scope="row" { "all" }
                            @for (_, _, is_promise) in parts { td.number { (total(is_promise)) } }
                            td {}
                        }
                    }
                }
            }
            @if unlisted > 0 {
                p.faint {
                    (count(unlisted, "more claim")) " on experiments that this run did not measure: tollgate claims --all"
                }
            }
        }
    }
}

/// Renders a number of verdicts, which leads to its claims.
fn link(number: usize, kind: &str, verdict: &str) -> Markup {
    html! {
        @if number == 0 { "0" } @else {
            a href="#claims" data-kind=(kind) data-verdict=(slug(verdict)) { (number) }
        }
    }
}

/// Renders contradictions between values, and signs that the journal was edited.
pub(super) fn warnings(lines: &[String]) -> Markup {
    html! {
        @if !lines.is_empty() {
            section aria-labelledby="inconsistencies" {
                h2 #inconsistencies { "Inconsistent" }
                ul.warnings { @for line in lines { li { (line) } } }
            }
        }
    }
}

/// Renders the command that repeats a run, in an element with an ID.
pub(super) fn repetition(page: &RunPage, id: &str) -> Markup {
    let record = &page.run.record;
    let hash = record.environments.values().find_map(|it| it.program_hash.as_deref());
    html! {
        p { "This command repeats the measurement:" }
        pre { code id=(id) { (page.repetition.command) } }
        p.actions { button type="button" data-copy=(id) hidden { "Copy the command" } }
        @if !page.repetition.limits.is_empty() {
            ul.notes { @for line in &page.repetition.limits { li { (line) } } }
        }
        p {
            "Measured by tollgate " (record.program)
            @if let Some(hash) = hash { ", BLAKE3 digest " code.digest { (hash) } }
            "; seed " (record.seed) "; journal format " (record.format) "."
        }
    }
}

/// Renders the download of all samples.
pub(super) fn samples(samples: &EmbeddedSamples) -> Markup {
    html! {
        h3 #samples { "Samples" }
        p {
            "The page contains every sample of its experiments " (samples.words())
            ". Histograms, noise counts, parts and trials are in the journal only: "
            code { "tollgate export" } "."
        }
        p.actions { button type="button" data-download="all" hidden { "Download all samples (CSV)" } }
        noscript { p { "The downloads need JavaScript." } }
    }
}

/// Quotes a path for a shell.
pub(super) fn shell(path: &Path) -> String {
    let path = path.to_string_lossy();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    match !path.is_empty() && path.chars().all(is_plain) {
        true => path.into_owned(),
        false => format!("'{}'", path.replace('\'', r"'\''")),
    }
}
