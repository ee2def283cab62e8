//! The end of a run on one screen: headlines, verdicts, and how to continue.

use lab::claim::{Claim, Verdict, VerdictKind};
use lab::format::count;
use lab::headline::Stated;
use lab::table::{Emphasis, Page};

use super::causes::{causes, lacks};
use super::verdicts::counts;

/// Maximum number of lines on a page of at least 100 columns.
const MAX_LINES: usize = 40;
/// Width of a page that has at most that many lines, in columns.
const FULL_WIDTH: usize = 100;
/// Maximum number of headlines of a suite.
const MAX_HEADLINES: usize = 4;
/// Minimum number of contradicted claims listed, however narrow the page.
const MIN_CONTRADICTED: usize = 3;
/// Columns of the labels at the left, for pages that are wide enough.
const LABELS: usize = 14;
/// Narrowest page with labels at the left.
const MIN_LABELLED: usize = 60;

/// Results of a run for one screen.
pub struct Screen<'a> {
    /// Suites measured, in the order of lists.
    pub suites: &'a [&'a str],
    /// Headlines that have values.
    pub headlines: &'a [Stated],
    /// Claims on the measured experiments, with their verdicts.
    pub judged: &'a [(Claim, Verdict)],
    /// Contradictions between values of the run, one line each.
    pub inconsistencies: &'a [String],
    /// What was measured in this session, and the files, one line each with a label.
    pub facts: &'a [(&'a str, String)],
    /// Commands to continue, each with its purpose.
    pub commands: &'a [(String, &'a str)],
}

impl Screen<'_> {
    /// Renders the screen: at most 40 lines at 100 columns. If all headlines do not fit, each suite
    /// shows its first ones.
    pub fn text(&self, page: Page) -> String {
        let fits = |text: &String| page.width < FULL_WIDTH || text.lines().count() <= MAX_LINES;
        let mut texts = (2..=MAX_HEADLINES).rev().map(|most| self.rendered(most, page));
        texts.find(fits).unwrap_or_else(|| self.rendered(1, page))
    }

    /// Renders the screen with at most `most` headlines of each suite.
    fn rendered(&self, most: usize, page: Page) -> String {
        let above = self.headlines(most, page) + &self.verdicts(page);
        let below = self.lacking(page) + &self.end(page);
        let used = above.lines().count() + below.lines().count();
        let room = MAX_LINES.saturating_sub(used).max(MIN_CONTRADICTED);
        above + &self.contradicted(room, page) + &below
    }

    fn headlines(&self, most: usize, page: Page) -> String {
        let mut text = String::new();
        for suite in self.suites {
            let stated = self.headlines.iter().filter(|one| one.suite == *suite);
            let mut sentences: Vec<&str> =
                stated.map(|one| one.sentence.as_str()).take(most).collect();
            if sentences.is_empty() {
                sentences.push("no headline is resolved: more rounds or a quieter machine may do");
            }
            for (index, sentence) in sentences.iter().enumerate() {
                let label = if index == 0 { suite } else { "" };
                text += &labelled(label, Emphasis::Strong, sentence, page);
            }
        }
        text
    }

    fn verdicts(&self, page: Page) -> String {
        if self.judged.is_empty() {
            return String::new();
        }
        let claims = count(self.judged.len(), "claim");
        format!(
            "\n{}",
            labelled(
                "verdicts",
                Emphasis::Strong,
                &format!("{claims}: {}", counts(self.judged)),
                page
            )
        )
    }

    /// Renders one line per contradicted claim, in at most `room` lines.
    fn contradicted(&self, room: usize, page: Page) -> String {
        let is_contradicted =
            |(_, verdict): &&(Claim, Verdict)| verdict.kind == VerdictKind::Contradicted;
        let claims: Vec<&Claim> =
            self.judged.iter().filter(is_contradicted).map(|(claim, _)| claim).collect();
        let shown = if claims.len() > room { room - 1 } else { claims.len() };
        let indent = if is_labelled(page) { LABELS } else { 2 };
        let columns = page.columns() - indent;
        let mut text = String::new();
        for claim in &claims[..shown] {
            let line = shortened(&claim.says, &format!(" ({})", claim.id), columns);
            text += &labelled("contradicted", Emphasis::Bad, &line, page);
        }
        if shown < claims.len() {
            let more = format!("{} more: tollgate claims", claims.len() - shown);
            text += &labelled("contradicted", Emphasis::Bad, &more, page);
        }
        text
    }

    fn lacking(&self, page: Page) -> String {
        let indent = if is_labelled(page) { LABELS } else { 2 };
        let lacking = lacks(&causes(self.judged), page.columns() - indent);
        lacking.map_or_else(String::new, |text| {
            labelled("unmeasurable", Emphasis::Doubtful, &text, page)
        })
    }

    fn end(&self, page: Page) -> String {
        let mut text = String::new();
        for line in self.inconsistencies {
            text += &labelled("inconsistent", Emphasis::Bad, line, page);
        }
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

/// Renders a text next to its label, or below it on a narrow page.
fn labelled(label: &str, emphasis: Emphasis, text: &str, page: Page) -> String {
    if is_labelled(page) {
        return page.item(label, emphasis, LABELS, text);
    }
    let label = if label.is_empty() { String::new() } else { page.paragraph(label, 0, emphasis) };
    label + &page.item("", Emphasis::Plain, 2, text)
}

fn is_labelled(page: Page) -> bool {
    page.columns() >= MIN_LABELLED
}

/// Returns `text` and `end` in one line of at most `columns`, with the end of `text` cut between
/// words if it is too long.
fn shortened(text: &str, end: &str, columns: usize) -> String {
    let room = columns.saturating_sub(end.chars().count());
    if text.chars().count() <= room {
        return format!("{text}{end}");
    }
    let mut cut = String::new();
    for word in text.split_whitespace() {
        // The wrapping counts two columns for the ellipsis.
        if cut.chars().count() + word.chars().count() + 3 > room {
            break;
        }
        cut += &format!("{word} ");
    }
    format!("{cut}…{end}")
}
