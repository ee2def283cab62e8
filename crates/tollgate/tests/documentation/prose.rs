//! Form of the pages: their length, the width of their lines, and the first words of their sentences.

use crate::page::{self, Page};

/// Maximum number of lines of a page.
const MAX_LINES: usize = 500;
/// Maximum width of a line, in characters.
const MAX_WIDTH: usize = 125;
/// First words that hide the subject of a sentence.
const OPENINGS: [&str; 5] = ["What ", "Those ", "Who ", "Whoever ", "So many "];

/// Returns the lines with their numbers, without blocks of code and tables.
fn prose(page: &Page) -> Vec<(usize, &str)> {
    let mut is_code = false;
    let is_prose = |(_, line): &(usize, &str)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence && !line.trim_start().starts_with('|')
    };
    page.text.lines().enumerate().map(|(at, line)| (at + 1, line)).filter(is_prose).collect()
}

/// Returns the sentences of the prose. A line that starts a paragraph or an item of a list starts a sentence.
fn sentences(page: &Page) -> Vec<String> {
    let mut text = String::new();
    for (_, line) in prose(page) {
        let line = line.trim();
        let item = line.strip_prefix("- ").or_else(|| {
            line.split_once(". ").and_then(|(number, item)| {
                number.chars().all(|c| c.is_ascii_digit()).then_some(item)
            })
        });
        text += if item.is_some() || line.is_empty() { "\n" } else { " " };
        text += item.unwrap_or(line);
    }
    let paragraphs =
        text.lines().flat_map(|paragraph| paragraph.split_inclusive(['.', '?', '!', '*']));
    paragraphs.map(|sentence| sentence.trim_start().to_owned()).collect()
}

#[test]
fn lines_of_prose_are_not_too_wide() {
    let mut wide = Vec::new();
    for page in page::all() {
        for (number, line) in prose(&page) {
            if line.chars().count() > MAX_WIDTH {
                wide.push(format!("{}:{number}: {line}", page.path.display()));
            }
        }
    }
    assert!(wide.is_empty(), "over {MAX_WIDTH} columns:\n{wide:#?}");
}

#[test]
fn pages_are_not_too_long() {
    for page in page::all() {
        let lines = page.text.lines().count();
        assert!(lines <= MAX_LINES, "{}: {lines} lines; split it", page.path.display());
    }
}

#[test]
fn sentences_start_with_their_subject() {
    let mut wrong = Vec::new();
    for page in page::all() {
        for sentence in sentences(&page) {
            if OPENINGS.iter().any(|opening| sentence.starts_with(opening)) {
                wrong.push(format!("{}: {sentence}", page.path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn openings_are_found_in_paragraphs_and_lists() {
    let page = |text: &str| Page { path: "page.md".into(), text: text.into() };
    let count = |text: &str| {
        let found = sentences(&page(text));
        found.iter().filter(|sentence| OPENINGS.iter().any(|one| sentence.starts_with(one))).count()
    };
    for text in
        ["What is lost.", "A b. What\nis lost.", "- Those that", "1. Who is", "**A.** What is"]
    {
        assert_eq!(count(text), 1, "{text}");
    }
    for text in ["It states what What is.", "```\nWhat is\n```", "| a | b |\n| What | Those |"] {
        assert_eq!(count(text), 0, "{text}");
    }
}
