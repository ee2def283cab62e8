//! TOML files, with the place of every fault.

use serde::Deserialize;

use super::limits::MAX_FILE;
use crate::terminal::one_line;

/// A fault in a TOML file, in one line: what, where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {}", one_line(file), one_line(what))]
pub struct DataError {
    /// The file's name.
    pub file: String,
    /// What is wrong, and where in the file.
    pub what: String,
}

/// Reads TOML into a type, with the path to the fault on failure.
///
/// # Errors
/// One line with the file, the line and the path of keys.
pub fn read_toml<'de, T: Deserialize<'de>>(file: &str, text: &'de str) -> Result<T, DataError> {
    let fault = |what: String| DataError { file: file.into(), what };
    if text.len() as u64 > MAX_FILE {
        let what = format!("it is longer than {MAX_FILE} bytes; split it into several files");
        return Err(fault(what));
    }
    let deserializer = toml::Deserializer::parse(text).map_err(|e| fault(of_toml(&e, text)))?;
    serde_path_to_error::deserialize(deserializer).map_err(|e| {
        let path = e.path().to_string();
        // The field by which toml hands over a value with its place in the text.
        let path = path.strip_suffix(".$__serde_spanned_private_value").unwrap_or(&path);
        fault(format!("{} (at {path})", of_toml(e.inner(), text)))
    })
}

fn of_toml(error: &toml::de::Error, text: &str) -> String {
    let message = error.message().lines().collect::<Vec<_>>().join(" ");
    match error.span() {
        Some(span) => {
            let line = line_of(text, span.start);
            format!("line {line}: {message}")
        }
        None => message,
    }
}

/// The line of an offset in a text, from 1.
pub(crate) fn line_of(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
}
