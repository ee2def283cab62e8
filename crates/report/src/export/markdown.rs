//! A summary for continuous integration as Markdown: headlines, verdicts, contradicted claims, and what the machine lacks.
//!
//! It is CommonMark with the tables of GitHub. Texts from journals and claims are escaped, so that none of them is markup.

use std::fmt::Write as _;

use lab::claim::{Claim, Verdict, VerdictKind};
use lab::format::count;
use lab::headline::Filled;
use lab::journal::Run;
use lab::run::is_lab_experiment;
use lab::terminal::is_control;

use crate::table::{LackOfRun, VERDICT_KINDS, lacks_of_run, why};

/// Maximum number of rows of a table.
const MAX_ROWS: usize = 20;
/// Maximum length of a cell, in characters.
const MAX_CELL: usize = 240;
/// Characters that may be markup anywhere in a text.
const MARKUP: &str = r"\`*_[]<>&~|$";
/// Invisible character that ends a word: after an `@` it keeps GitHub from taking the next word for a user.
const WORD_JOINER: char = '\u{2060}';

/// Results for a summary.
pub struct Summary<'a> {
    /// The run.
    pub run: &'a Run,
    /// Headlines that have values.
    pub headlines: &'a [Filled],
    /// Claims on the experiments of the run, with their verdicts.
    pub judged: &'a [(Claim, Verdict)],
    /// Signs that the journal was edited, and contradictions between values, one line each.
    pub inconsistencies: &'a [String],
}

impl Summary<'_> {
    /// Renders the summary.
    pub fn text(&self) -> String {
        let parts = [
            self.heading(),
            self.warnings(),
            self.headline_list(),
            self.verdicts(),
            self.contradicted(),
            self.lacking(),
        ];
        let parts = parts.into_iter().filter(|part| !part.is_empty());
        parts.collect::<Vec<_>>().join("\n")
    }

    fn heading(&self) -> String {
        let record = &self.run.record;
        let samples = self.run.samples.iter().filter(|one| !is_lab_experiment(&one.experiment));
        let last = self.run.samples.last().map(|one| &one.environment);
        let environment = last.and_then(|id| record.environments.get(id));
        let cpu = environment.map(|it| it.cpu.brand.clone()).filter(|brand| !brand.is_empty());
        let facts = [
            cpu,
            Some(record.place()),
            Some(format!("profile {}", record.profile.name())),
            Some(count(samples.count(), "sample")),
            Some(format!("from {}", record.start)),
            Some(format!("tollgate {}", record.program)),
        ];
        let facts: Vec<String> = facts.into_iter().flatten().map(|fact| escaped(&fact)).collect();
        format!("## tollgate: {}\n\n{}\n", escaped(&record.name), facts.join(", "))
    }

    fn warnings(&self) -> String {
        section("Inconsistent", &list(self.inconsistencies.iter().map(String::as_str)))
    }

    fn headline_list(&self) -> String {
        section("Headlines", &list(self.headlines.iter().map(|one| one.sentence.as_str())))
    }

    /// Renders the number of verdicts of each kind, of published claims and of promises.
    fn verdicts(&self) -> String {
        if self.judged.is_empty() {
            return String::new();
        }
        let kinds = VERDICT_KINDS.into_iter().map(VerdictKind::name);
        let row = |name: &str| {
            let number = |is_promise: bool| {
                let of_part = self.judged.iter().filter(|it| it.0.is_promise() == is_promise);
                of_part.filter(|(_, verdict)| verdict.kind.name() == name).count().to_string()
            };
            vec![name.to_owned(), number(false), number(true)]
        };
        let rows: Vec<_> = kinds.map(row).collect();
        section("Verdicts", &table(&["verdict", "published", "promises of tollgate"], &rows))
    }

    fn contradicted(&self) -> String {
        let is_contradicted = |it: &&(Claim, Verdict)| it.1.kind == VerdictKind::Contradicted;
        let row = |(claim, verdict): &(Claim, Verdict)| {
            vec![claim.id.clone(), claim.says.clone(), why(verdict)]
        };
        let rows: Vec<_> = self.judged.iter().filter(is_contradicted).map(row).collect();
        section("Contradicted", &table(&["claim", "statement", "measured"], &rows))
    }

    fn lacking(&self) -> String {
        let lacks = lacks_of_run(self.run, self.judged);
        let row = |(cause, lack): &(String, LackOfRun<'_>)| {
            let remedy = lack.remedy.clone().unwrap_or_else(|| "—".into());
            vec![cause.clone(), remedy, lack.points.len().to_string(), lack.claims.to_string()]
        };
        let rows: Vec<_> = lacks.iter().map(row).collect();
        section("What this machine lacks", &table(&["cause", "remedy", "points", "claims"], &rows))
    }
}

/// Returns a section; empty without content.
fn section(title: &str, content: &str) -> String {
    if content.is_empty() { String::new() } else { format!("### {title}\n\n{content}") }
}

fn list<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    lines.map(|line| format!("- {}\n", escaped(line))).collect()
}

/// Returns a table; empty without rows. The first rows are shown, and the number of the others below.
fn table(headers: &[&str], rows: &[Vec<String>]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut text = format!("| {} |\n|{}\n", headers.join(" | "), " --- |".repeat(headers.len()));
    for row in rows.iter().take(MAX_ROWS) {
        let cells: Vec<_> = row.iter().map(|cell| escaped(&shortened(cell))).collect();
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    let more = rows.len().saturating_sub(MAX_ROWS);
    if more > 0 {
        let _ = write!(text, "\n{more} more: `tollgate claims`, `tollgate report`\n");
    }
    text
}

/// Shortens a text to the length of a cell.
fn shortened(text: &str) -> String {
    match text.chars().count() > MAX_CELL {
        true => text.chars().take(MAX_CELL - 1).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

/// Escapes a text, so that it is one line of plain text at the start of a line and within one.
fn escaped(text: &str) -> String {
    let plain: String = text.chars().map(|c| if is_control(c) { ' ' } else { c }).collect();
    let plain = plain.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut escaped = String::with_capacity(plain.len());
    // A line may start with a heading, a list or a rule.
    let digits = plain.len() - plain.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    for (at, c) in plain.char_indices() {
        let rest = &plain[at..];
        let is_start = at == 0 && "#+-=".contains(c) || at == digits && at > 0 && ".)".contains(c);
        // GitHub makes links of addresses without markup.
        // GitHub makes references of numbers of issues.
        let is_reference = c == '#' && rest[1..].starts_with(|next: char| next.is_ascii_digit());
        let is_address = rest.starts_with("://") || c == '.' && plain[..at].ends_with("www");
        if MARKUP.contains(c) || is_start || is_address || is_reference {
            escaped.push('\\');
        }
        escaped.push(c);
        if c == '@' {
            escaped.push(WORD_JOINER);
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped() {
        for (text, expected) in [
            ("a|b <b>*c*</b>", r"a\|b \<b\>\*c\*\</b\>"),
            ("# heading", r"\# heading"),
            ("1. item", r"1\. item"),
            ("12) item", r"12\) item"),
            ("at 1.64 times, 2) and #3, # 4", r"at 1.64 times, 2) and \#3, # 4"),
            ("- item", r"\- item"),
            ("a\n\n---\n\tcode", "a --- code"),
            ("https://x.y www.z", r"https\://x.y www\.z"),
            ("@user", "@\u{2060}user"),
            ("\u{1b}[31m\u{202e}", r"\[31m"),
        ] {
            assert_eq!(escaped(text), expected, "{text:?}");
        }
    }

    #[test]
    fn tables_fit() {
        let rows = vec![vec!["x".repeat(1000)]; 30];
        let text = table(&["a"], &rows);
        assert_eq!(text.lines().filter(|line| line.starts_with("| x")).count(), MAX_ROWS);
        assert!(text.lines().all(|line| line.chars().count() <= MAX_CELL + 4), "{text}");
        assert!(text.ends_with("\n10 more: `tollgate claims`, `tollgate report`\n"), "{text}");
        assert_eq!(table(&["a"], &[]), "");
    }
}
