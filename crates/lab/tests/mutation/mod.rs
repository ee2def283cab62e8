//! Random edits of valid documents, including hostile ones.

#![allow(dead_code, unreachable_pub, reason = "each test file uses a part")]
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use proptest::prelude::*;
use std::sync::Once;
use std::time::{Duration, Instant};

/// Replacements of a word.
const HOSTILE: &[&str] = &[
    "",
    "0",
    "-1",
    "1",
    "4000000000",
    "18446744073709551616",
    "1e308",
    "-1e308",
    "1e999",
    "nan",
    "inf",
    "null",
    "true",
    "\"\"",
    "\"0\"",
    "\"-1 B\"",
    "\"7 TiB\"",
    "\"9007199254740993 B\"",
    "\"15e18 s\"",
    "\"0 s\"",
    "\"nan s\"",
    "\"100%\"",
    "\"\\u0000\"",
    "\"a\\nb\"",
    "\"\\u001b[2J\"",
    "\"\u{202e}\"",
    "[]",
    "{}",
    "[[]]",
    "[0]",
    "[1, 2, 3, 4, 5, 6, 7]",
    "{ a = 1 }",
    "{\"a\": 1}",
    "all",
    "=",
    "\"",
    "'",
    "\\",
    "\n",
    "#",
    "HISTFAAA",
    "////",
    "\u{fffd}",
];

/// One edit: its kind, its position (in 65536ths of the text), and its parameter.
type Edit = (u8, u16, u16);

pub fn edits() -> impl Strategy<Value = Vec<Edit>> {
    prop::collection::vec((0u8..9, any::<u16>(), any::<u16>()), 1..8)
}

/// Applies edits to a text: words, lines and characters are replaced, duplicated, removed or moved.
pub fn mutated(text: &str, edits: &[Edit]) -> String {
    let mut text = text.to_string();
    for (what, at, with) in edits {
        text = edited(&text, *what, usize::from(*at), usize::from(*with));
    }
    text
}

fn edited(text: &str, what: u8, at: usize, with: usize) -> String {
    let share = |length: usize, of: usize| length * of / 65536;
    let start = boundary(text, share(text.len(), at));
    let hostile = HOSTILE[with % HOSTILE.len()];
    let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
    let line = share(lines.len(), at);
    match what {
        // A word, delimited by blanks, quotes, commas and brackets.
        0..=2 => {
            let is_edge = |c: char| " \t\n,\"'[]{}=:".contains(c);
            let left = text[..start].rfind(is_edge).map_or(0, |at| boundary(text, at + 1));
            let right = text[start..].find(is_edge).map_or(text.len(), |at| start + at);
            format!("{}{hostile}{}", &text[..left.min(right)], &text[right..])
        }
        3 => format!("{}{hostile}{}", &text[..start], &text[start..]),
        4 if !lines.is_empty() => {
            lines.insert(line, lines[line]);
            lines.concat()
        }
        5 if !lines.is_empty() => {
            lines.remove(line);
            lines.concat()
        }
        6 if !lines.is_empty() => {
            let other = share(lines.len(), with);
            lines.swap(line, other);
            lines.concat()
        }
        // Depth and length.
        7 => format!("{}{}{}", &text[..start], hostile.repeat(with % 3000), &text[start..]),
        _ => text[..start].to_string(),
    }
}

fn boundary(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// The maximum time for one document, so long that only a hang exceeds it.
const MAX_TIME: Duration = Duration::from_secs(60);

/// Runs one case with limited memory, so that excessive allocation fails the test and not the machine.
pub fn bounded<T>(case: impl FnOnce() -> T) -> T {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let limit = libc::rlimit { rlim_cur: 3 << 30, rlim_max: 3 << 30 };
        // SAFETY: `limit` is a valid `rlimit`, which outlives the call.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) }, 0);
    });
    let start = Instant::now();
    let result = case();
    assert!(start.elapsed() < MAX_TIME, "it took {:?}", start.elapsed());
    result
}

/// Checks that an error is one line.
#[track_caller]
pub fn is_one_line(error: &dyn std::fmt::Display) {
    let line = error.to_string();
    assert!(!line.is_empty() && !line.chars().any(char::is_control), "{line:?}");
}
