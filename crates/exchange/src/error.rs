//! Errors of imports and exports: one line each, with the cause and a fix.

use std::io;

use lab::data::DataError;
use lab::terminal::one_line;

/// Error of an import or an export.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// The file cannot be read.
    #[error("{}: {why}; pass a readable file, or '-' for standard input", one_line(file))]
    Read {
        /// Name of the file.
        file: String,
        /// Error of the system.
        why: io::Error,
    },
    /// The file is not of the format.
    #[error("{}{}: {}", one_line(file), line.map(|line| format!(":{line}")).unwrap_or_default(), one_line(what))]
    Content {
        /// Name of the file.
        file: String,
        /// Line, from 1, if it is known.
        line: Option<usize>,
        /// Cause and fix.
        what: String,
    },
    /// An option is missing or does not fit the file.
    #[error("{}", one_line(.0))]
    Option(String),
    /// The built-in data are wrong.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The output cannot be written.
    #[error("cannot write the output: {0}")]
    Write(String),
}

impl ExchangeError {
    /// Creates an error of a whole file.
    pub(crate) fn content(file: &str, what: impl Into<String>) -> Self {
        Self::Content { file: file.into(), line: None, what: what.into() }
    }

    /// Creates an error at a line, counted from 1.
    pub(crate) fn at(file: &str, line: usize, what: impl Into<String>) -> Self {
        Self::Content { file: file.into(), line: Some(line), what: what.into() }
    }
}
