//! Text from outside on its way to a terminal: control characters would move the cursor, rename the
//! window or hide what follows, so each is shown as a visible sign instead.

use std::borrow::Cow;
use std::io::{self, Write};

/// What stands for a control character.
const SIGN: char = '\u{fffd}';

/// Whether a terminal or reader would act on a character instead of showing it: C0 and C1 control
/// characters, line separators, and the marks that change the direction of the text after them.
pub fn is_control(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A text for one line: control characters, line ends and tabs among them, are replaced.
pub fn one_line(text: &str) -> Cow<'_, str> {
    replaced(text, is_control)
}

/// A text of several lines: only line ends and tabs act.
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
        Cow::Owned(text.chars().map(|c| if wrong(c) { SIGN } else { c }).collect())
    } else {
        Cow::Borrowed(text)
    }
}

/// Why standard output or error was not written: the inner error of what [`Plain`] returns, so that it
/// is told from any other error of the system on its way up.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct OutputError(io::Error);

impl OutputError {
    /// The error of standard output or error in an error; `None` if it is another.
    pub fn of<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a io::Error> {
        let inner = error.downcast_ref::<io::Error>()?.get_ref()?;
        inner.downcast_ref::<Self>().map(|output| &output.0)
    }

    fn wrap(error: io::Error) -> io::Error {
        io::Error::new(error.kind(), Self(error))
    }
}

/// Standard output or error for lines that may hold text from outside; what is written is passed on
/// with control characters replaced, see [`lines`]. Direct commands of suites print through it.
#[derive(Debug)]
pub struct Plain<W: Write> {
    inner: W,
    /// The start of a character whose end was not yet written.
    partial: Vec<u8>,
}

/// Standard output; see [`Plain`].
pub fn stdout() -> Plain<io::StdoutLock<'static>> {
    Plain::new(io::stdout().lock())
}

/// Standard error; see [`Plain`].
pub fn stderr() -> Plain<io::StderrLock<'static>> {
    Plain::new(io::stderr().lock())
}

impl<W: Write> Plain<W> {
    /// Passes everything on to `inner`.
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
    fn what_a_terminal_would_act_on_is_shown() {
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
    fn an_error_of_output_is_told_from_others() {
        let refused = || io::Error::from(io::ErrorKind::BrokenPipe);
        let mut full = Plain::new(&mut [0_u8; 0][..]);
        let error = writeln!(full, "a line").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WriteZero);
        assert_eq!(OutputError::of(&error).unwrap().kind(), io::ErrorKind::WriteZero);
        assert!(OutputError::of(&refused()).is_none());
        assert!(OutputError::of(&io::Error::other(refused())).is_none());
    }

    #[test]
    fn a_writer_replaces_across_pieces() {
        let mut written = Vec::new();
        let mut out = Plain::new(&mut written);
        // The dash and the C1 character are cut between their bytes.
        for piece in [&b"\xe2\x80"[..], b"\x94\x1b[0m\xc2", b"\x9bx\xff\n"] {
            out.write_all(piece).unwrap();
        }
        assert_eq!(String::from_utf8(written).unwrap(), "—�[0m�x�\n");
    }
}
