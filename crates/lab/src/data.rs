//! Data files in TOML, with the location of every error.

use std::fmt;

use serde::{Deserialize, Serialize};
pub use toml::Spanned;

use crate::terminal::one_line;

/// Maximum size of a TOML file, in bytes.
pub const MAX_FILE: u64 = 1 << 20;
/// Maximum number of tables of one kind in a file.
pub const MAX_TABLES: usize = 1000;

/// A location in a data file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceLocation {
    /// Name of the file.
    pub file: String,
    /// Line, counted from 1; 0 for the whole file.
    pub line: usize,
}

impl SourceLocation {
    /// Returns the error `what` at this location.
    pub fn error(&self, what: impl Into<String>) -> DataError {
        DataError { location: self.clone(), what: what.into() }
    }
}

impl fmt::Display for SourceLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&one_line(&self.file))?;
        if self.line > 0 { write!(f, ":{}", self.line) } else { Ok(()) }
    }
}

/// An error in a data file, in one line: `file:line: what; fix`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{location}: {}", one_line(what))]
pub struct DataError {
    /// Location of the error.
    pub location: SourceLocation,
    /// Cause and fix.
    pub what: String,
}

impl DataError {
    /// An error of a whole file.
    pub fn of_file(file: &str, what: impl Into<String>) -> Self {
        SourceLocation { file: file.into(), line: 0 }.error(what)
    }
}

/// Parses TOML text into `T`. `file` names the text in errors.
///
/// # Errors
/// Returns the file, the line and the path of keys of the first error, and an error if the text is
/// longer than [`MAX_FILE`].
pub fn read_toml<'de, T: Deserialize<'de>>(file: &str, text: &'de str) -> Result<T, DataError> {
    if text.len() as u64 > MAX_FILE {
        let what = format!("longer than {MAX_FILE} bytes; split it into several files");
        return Err(DataError::of_file(file, what));
    }
    toml::from_str(text).map_err(|mut error| {
        let line = error.span().map_or(0, |span| line_of(text, span.start));
        // Without its input, the error is shown as its message and the path of keys.
        error.set_input(None);
        let what = error.to_string().lines().collect::<Vec<_>>().join(" ");
        SourceLocation { file: file.into(), line }.error(what)
    })
}

/// Returns whether a text can be a name in file names and on command lines: ASCII letters, digits,
/// `.`, `-` and `_`, not starting with `.`.
pub fn is_plain_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with('.')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'))
}

/// Returns the line, counted from 1, of a byte offset in a text.
pub fn line_of(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
}
