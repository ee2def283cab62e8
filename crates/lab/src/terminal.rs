//! Output to a terminal. Control characters in text from outside, which would move the cursor or hide text, are
//! replaced by a visible character.

use std::borrow::Cow;
use std::io::{self, Write};

/// The replacement of a control character.
const REPLACEMENT: char = '\u{fffd}';

/// Returns whether a character has an effect instead of a glyph: C0 and C1 control characters, line separators, and
/// direction marks.
pub fn is_control(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Replaces all control characters, including line ends and tabs.
pub fn one_line(text: &str) -> Cow<'_, str> {
    replaced(text, is_control)
}

/// Replaces all control characters except line ends and tabs.
pub fn lines(text: &str) -> Cow<'_, str> {
    replaced(text, |c| is_control(c) && c != '\n' && c != '\t')
}

/// Formats JSON over several lines. Control characters that JSON leaves unescaped (DEL, C1) are escaped
/// too, because a terminal acts on them.
pub fn json(value: &serde_json::Value) -> String {
    let acts = |c: char| c != '\n' && is_control(c);
    let escaped = |c: char| if acts(c) { format!("\\u{:04x}", u32::from(c)) } else { c.into() };
    // Outside strings JSON has no such character.
    let text = format!("{value:#}");
    if text.contains(acts) { text.chars().map(escaped).collect() } else { text }
}

fn replaced(text: &str, wrong: impl Fn(char) -> bool) -> Cow<'_, str> {
    if text.contains(&wrong) {
        Cow::Owned(text.chars().map(|c| if wrong(c) { REPLACEMENT } else { c }).collect())
    } else {
        Cow::Borrowed(text)
    }
}

/// An error in the command line, or in a file that it names: one line, `what: cause; fix`. The program exits with 2.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(String);

impl UsageError {
    /// Creates an error from its line.
    pub fn new(line: impl Into<String>) -> Self {
        Self(line.into())
    }
}

/// The failure to write to standard output or standard error: the inner error of what [`Plain`] returns, which
/// distinguishes it from other I/O errors.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct OutputError(io::Error);

impl OutputError {
    /// Extracts the failure of standard output or standard error; `None` for other errors.
    pub fn of<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a io::Error> {
        let inner = error.downcast_ref::<io::Error>()?.get_ref()?;
        inner.downcast_ref::<Self>().map(|output| &output.0)
    }

    fn wrap(error: io::Error) -> io::Error {
        io::Error::new(error.kind(), Self(error))
    }
}

/// A writer that replaces control characters, as [`lines`] does. The commands of suites print through it.
#[derive(Debug)]
pub struct Plain<W: Write> {
    inner: W,
    /// The first bytes of an incomplete character.
    partial: Vec<u8>,
}

/// Returns standard output; see [`Plain`].
pub fn stdout() -> Plain<io::StdoutLock<'static>> {
    Plain::new(io::stdout().lock())
}

/// Returns standard error; see [`Plain`].
pub fn stderr() -> Plain<io::StderrLock<'static>> {
    Plain::new(io::stderr().lock())
}

impl<W: Write> Plain<W> {
    /// Wraps a writer.
    pub fn new(inner: W) -> Self {
        Self { inner, partial: Vec::new() }
    }
}

impl<W: Write> Write for Plain<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.partial.extend_from_slice(bytes);
        let whole = match std::str::from_utf8(&self.partial) {
            Err(wrong) if wrong.error_len().is_none() => wrong.valid_up_to(),
            _ => self.partial.len(),
        };
        let text = String::from_utf8_lossy(&self.partial[..whole]);
        let written = self.inner.write_all(lines(&text).as_bytes());
        self.partial.drain(..whole);
        written.map(|()| bytes.len()).map_err(OutputError::wrap)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush().map_err(OutputError::wrap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_replaced() {
        assert_eq!(one_line("\u{1b}[31mred\u{7}\n\u{9b}2J"), "�[31mred��\u{fffd}2J");
        assert_eq!(lines("a\tb\nc\r\u{202e}d\u{7f}"), "a\tb\nc��d�");
        for plain in ["", "±0.9% — 16 MiB", "日本"] {
            assert!(matches!(one_line(plain), Cow::Borrowed(text) if text == plain));
        }
    }

    #[test]
    fn json_has_no_control_character_and_parses_to_the_same_value() {
        let value = serde_json::json!({"host": "a\u{9b}2J\u{7f}\u{1b}[1m\n\u{202e}b"});
        assert!(value.to_string().contains('\u{9b}'));
        let text = json(&value);
        assert!(!text.contains(|c: char| c != '\n' && is_control(c)), "{text:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }

    #[test]
    fn an_error_of_output_differs_from_other_errors() {
        let refused = || io::Error::from(io::ErrorKind::BrokenPipe);
        let mut full = Plain::new(&mut [0_u8; 0][..]);
        let error = writeln!(full, "a line").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WriteZero);
        assert_eq!(OutputError::of(&error).unwrap().kind(), io::ErrorKind::WriteZero);
        assert!(OutputError::of(&refused()).is_none());
        assert!(OutputError::of(&io::Error::other(refused())).is_none());
    }

    #[test]
    fn control_characters_are_replaced_across_writes() {
        let mut written = Vec::new();
        let mut out = Plain::new(&mut written);
        // The dash and the C1 character are split between two writes.
        for piece in [&b"\xe2\x80"[..], b"\x94\x1b[0m\xc2", b"\x9bx\xff\n"] {
            out.write_all(piece).unwrap();
        }
        assert_eq!(String::from_utf8(written).unwrap(), "—�[0m�x�\n");
    }
}
