//! The end of a run on one screen: headlines, verdicts, and how to continue.

use std::fmt;

use lab::claim::{Claim, Statistic, Verdict, VerdictKind};
use lab::format::{count, precise};
use lab::headline::Filled;
use lab::statistics::INTERVAL_ROUNDS;
use lab::table::{Emphasis, Page};

use super::argument::{stated, why};
use super::causes::{causes, lacks};
use super::verdicts::{counts, emphasis};

/// Maximum number of lines on a page of at least 100 columns.
const MAX_LINES: usize = 40;
/// Width of a page that has at most that many lines, in columns.
const FULL_WIDTH: usize = 100;
/// Maximum number of headlines of a suite.
const MAX_HEADLINES: usize = 4;
/// Minimum number of claims listed, however narrow the page.
const MIN_CLAIMS: usize = 3;
/// Maximum number of selected claims whose reasons are printed whole.
const MAX_WHOLE: usize = 3;
/// Maximum number of failures, and of contradictions between values.
const MAX_WARNINGS: usize = 2;
/// Columns of the labels at the left, for pages that are wide enough.
const LABELS: usize = 14;
/// Columns before the text below a label, on a narrow page.
const NARROW_INDENT: usize = 2;
/// Narrowest page with labels at the left.
const MIN_LABELLED: usize = 60;

/// Results of a run for one screen.
pub struct Screen<'a> {
    /// Suites measured, in the order of lists; each with the reason if it has no headline.
    pub suites: &'a [(&'a str, Option<NoHeadline>)],
    /// Headlines that have values.
    pub headlines: &'a [Filled],
    /// Claims on the measured experiments, or those that the user selected, with their verdicts.
    pub judged: &'a [(Claim, Verdict)],
    /// Whether the user selected the claims: each is then shown with its verdict.
    pub selects_claims: bool,
    /// Samples that failed, one line for each experiment and kind of failure.
    pub failures: &'a [String],
    /// Contradictions between values of the run, one line each.
    pub inconsistencies: &'a [String],
    /// Number of samples of this session, and the files, one line each with a label.
    pub facts: &'a [(&'a str, String)],
    /// Commands to continue, each with its purpose.
    pub commands: &'a [(String, &'a str)],
}

/// Why a suite has no headline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoHeadline {
    /// The points of its headlines have no values.
    NoValues,
    /// Each of its headlines has at most this number of rounds, too few for an interval.
    TooFewRounds(usize),
    /// The intervals are too wide, or the ratios are not resolved.
    TooWide,
}

impl fmt::Display for NoHeadline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoValues => f.write_str("their points have no values in this run"),
            Self::TooFewRounds(rounds) => {
                write!(f, "{rounds} of {INTERVAL_ROUNDS} rounds in one state of the core")
            }
            Self::TooWide => f.write_str("the intervals are too wide; more rounds narrow them"),
        }
    }
}

impl Screen<'_> {
    /// Renders the screen: at most 40 lines at 100 columns. If all headlines do not fit, each suite
    /// shows its first ones.
    pub fn text(&self, page: Page) -> String {
        let fits = |text: &String| page.width < FULL_WIDTH || text.lines().count() <= MAX_LINES;
        let mut texts = (2..=MAX_HEADLINES).rev().map(|max| self.rendered(max, page));
        texts.find(fits).unwrap_or_else(|| self.rendered(1, page))
    }

    /// Renders the screen with at most `max` headlines of each suite.
    fn rendered(&self, max: usize, page: Page) -> String {
        let above = self.headlines(max, page) + &self.verdicts(page);
        let below = self.lacking(page) + &self.end(page);
        let used = above.lines().count() + below.lines().count();
        let left = MAX_LINES.saturating_sub(used).max(MIN_CLAIMS);
        // Without headlines, the first part is preceded by nothing.
        (above + &self.claims(left, page) + &below).trim_start_matches('\n').to_owned()
    }

    fn headlines(&self, max: usize, page: Page) -> String {
        let mut text = String::new();
        for (suite, _) in self.suites {
            let of_suite = self.headlines.iter().filter(|one| one.suite == *suite);
            let sentences = of_suite.map(|one| one.sentence.as_str()).take(max);
            for (index, sentence) in sentences.enumerate() {
                let label = if index == 0 { suite } else { "" };
                text += &labelled(label, Emphasis::Strong, sentence, page);
            }
        }
        text + &self.missing_headlines(page)
    }

    /// Renders the suites without headlines, those with one reason in one line.
    fn missing_headlines(&self, page: Page) -> String {
        let mut missing: Vec<(NoHeadline, Vec<&str>)> = Vec::new();
        for (suite, why) in self.suites {
            let Some(why) = *why else { continue };
            match missing.iter_mut().find(|(known, _)| *known == why) {
                Some((_, suites)) => suites.push(suite),
                None => missing.push((why, vec![suite])),
            }
        }
        let line = |(why, suites): &(NoHeadline, Vec<&str>)| match suites.as_slice() {
            [suite] => labelled(suite, Emphasis::Strong, &format!("no headlines: {why}"), page),
            suites => {
                let text = format!("none for {}: {why}", suites.join(", "));
                labelled("headlines", Emphasis::Strong, &text, page)
            }
        };
        missing.iter().map(line).collect()
    }

    /// Renders the number of verdicts of each kind, of published claims and of promises.
    fn verdicts(&self, page: Page) -> String {
        if self.judged.is_empty() {
            return String::new();
        }
        let mut text = String::from("\n");
        for (label, is_promise) in [("published", false), ("promises", true)] {
            let of_part = self.judged.iter().filter(|(it, _)| it.is_promise() == is_promise);
            let judged: Vec<_> = of_part.collect();
            // The verdicts of selected claims follow one by one.
            if !judged.is_empty() && (!self.selects_claims || self.judged.len() > MAX_WHOLE) {
                let line = format!("{}: {}", count(judged.len(), "claim"), counts(&judged));
                text += &labelled(label, Emphasis::Strong, &line, page);
            }
        }
        text
    }

    /// Renders the claims that need attention, in about `max` lines: those that the user selected, or the contradicted
    /// ones.
    fn claims(&self, max: usize, page: Page) -> String {
        if !self.selects_claims {
            return self.contradicted(max, page);
        }
        let claims: Vec<_> = self.judged.iter().collect();
        let shown = if claims.len() > max { max - 1 } else { claims.len() };
        let is_whole = claims.len() <= MAX_WHOLE;
        let mut text = String::new();
        for (claim, verdict) in &claims[..shown] {
            let line = format!("{}: {}", claim.id, why(verdict));
            let line = if is_whole { line } else { shortened(&line, "", columns(page)) };
            text += &labelled(verdict.kind.name(), emphasis(verdict.kind), &line, page);
        }
        text + &more_claims(claims.len() - shown, "", page)
    }

    /// Renders each contradicted claim in one line, or those on one experiment together if there are too many.
    fn contradicted(&self, max: usize, page: Page) -> String {
        let is_contradicted =
            |(_, verdict): &&(Claim, Verdict)| verdict.kind == VerdictKind::Contradicted;
        let claims: Vec<_> = self.judged.iter().filter(is_contradicted).collect();
        let are_many = claims.len() > max;
        let mut experiments: Vec<(&str, Vec<&(Claim, Verdict)>)> = Vec::new();
        for one in &claims {
            let experiment = one.0.experiment.as_str();
            match experiments.iter_mut().find(|(known, _)| are_many && *known == experiment) {
                Some((_, of)) => of.push(one),
                None => experiments.push((experiment, vec![one])),
            }
        }
        let label = VerdictKind::Contradicted.name();
        let shown = if experiments.len() > max { max - 1 } else { experiments.len() };
        let line = |(experiment, of): &(&str, Vec<&(Claim, Verdict)>)| {
            let line = match of.as_slice() {
                [(claim, verdict)] => {
                    shortened(&claim.says, &with_value(claim, verdict), columns(page))
                }
                several => {
                    let ids: Vec<_> = several.iter().map(|(claim, _)| claim.id.as_str()).collect();
                    let line = format!("{} on {experiment}: {}", several.len(), ids.join(", "));
                    shortened(&line, "", columns(page))
                }
            };
            labelled(label, Emphasis::Bad, &line, page)
        };
        let text: String = experiments[..shown].iter().map(line).collect();
        let left = experiments[shown..].iter().map(|(_, of)| of.len()).sum();
        text + &more_claims(left, label, page)
    }

    fn lacking(&self, page: Page) -> String {
        if self.selects_claims {
            return String::new();
        }
        let judged: Vec<_> = self.judged.iter().collect();
        let lacking = lacks(&causes(&judged), columns(page));
        lacking.map_or_else(String::new, |text| {
            labelled("unmeasurable", Emphasis::Doubtful, &text, page)
        })
    }

    fn end(&self, page: Page) -> String {
        let mut text = warnings("failed", self.failures, "the journal has each", page);
        text += &warnings("inconsistent", self.inconsistencies, "tollgate show", page);
        text.push('\n');
        for (label, fact) in self.facts {
            text += &labelled(label, Emphasis::Strong, fact, page);
        }
        let widths = self.commands.iter().map(|(command, _)| command.chars().count());
        let widest = widths.max().unwrap_or_default();
        let fits = |(_, purpose): &(String, &str)| {
            LABELS + widest + 2 + purpose.chars().count() <= page.columns()
        };
        let is_aligned = is_labelled(page) && self.commands.iter().all(fits);
        for (index, (command, purpose)) in self.commands.iter().enumerate() {
            let label = if index == 0 { "next" } else { "" };
            text += &match is_aligned {
                // Wrapping would remove the spaces.
                true => {
                    let label = page.item(label, Emphasis::Strong, LABELS, "");
                    format!("{}{command:widest$}  {purpose}\n", label.trim_end_matches('\n'))
                }
                false => labelled(label, Emphasis::Strong, &format!("{command}: {purpose}"), page),
            };
        }
        text
    }
}

/// Returns the ID of a claim with the value that decides its verdict: ` (ccf-snmalloc-2-over-1; here 0.806)`.
fn with_value(claim: &Claim, verdict: &Verdict) -> String {
    let value = stated(verdict).first().and_then(|one| match &one.statistic {
        Some(Statistic::Violations { valid, .. }) => {
            Some(precise(valid.worst?, claim.unit.as_deref().unwrap_or_default()))
        }
        _ => Some(precise(one.value?, &one.unit)),
    });
    let value = value.map(|value| format!("; here {value}")).unwrap_or_default();
    format!(" ({}{value})", claim.id)
}

/// Renders how many claims are not shown; empty if all are.
fn more_claims(left: usize, label: &str, page: Page) -> String {
    match left {
        0 => String::new(),
        left => labelled(label, Emphasis::Bad, &format!("{left} more: tollgate claims"), page),
    }
}

/// Renders the first lines of a list with a label, and how many more there are: `rest` states where they are.
fn warnings(label: &str, lines: &[String], rest: &str, page: Page) -> String {
    let line = |text: &str| labelled(label, Emphasis::Bad, text, page);
    let text = lines.iter().take(MAX_WARNINGS).map(|text| line(text)).collect::<String>();
    match lines.len().saturating_sub(MAX_WARNINGS) {
        0 => text,
        more => text + &line(&format!("{more} more: {rest}")),
    }
}

/// Renders a text next to its label, or below it on a narrow page.
fn labelled(label: &str, emphasis: Emphasis, text: &str, page: Page) -> String {
    if is_labelled(page) {
        return page.item(label, emphasis, LABELS, text);
    }
    let label = if label.is_empty() { String::new() } else { page.paragraph(label, 0, emphasis) };
    label + &page.item("", Emphasis::Plain, NARROW_INDENT, text)
}

/// Returns the columns for the text of a labelled line.
fn columns(page: Page) -> usize {
    page.columns() - if is_labelled(page) { LABELS } else { NARROW_INDENT }
}

fn is_labelled(page: Page) -> bool {
    page.columns() >= MIN_LABELLED
}

/// Returns `text` and `end` in one line of at most `columns`, with the end of `text` cut between
/// words if it is too long.
fn shortened(text: &str, end: &str, columns: usize) -> String {
    let max = columns.saturating_sub(end.chars().count());
    if text.chars().count() <= max {
        return format!("{text}{end}");
    }
    let mut cut = String::new();
    for word in text.split_whitespace() {
        // The wrapping counts two columns for the ellipsis.
        if cut.chars().count() + word.chars().count() + 3 > max {
            break;
        }
        cut += &format!("{word} ");
    }
    format!("{cut}…{end}")
}
