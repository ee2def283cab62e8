//! What goes wrong, in one line, with the exit status that says whose fault it is.

use std::fmt;

/// An error for the person at the terminal.
#[derive(Debug)]
pub(crate) struct Fault {
    line: String,
    status: u8,
}

impl Fault {
    /// The command line or a file that it names is wrong: exit status 2.
    pub(crate) fn usage(line: impl fmt::Display) -> Self {
        Self { line: line.to_string(), status: 2 }
    }

    /// What was asked could not be done: exit status 1.
    pub(crate) fn failed(line: impl fmt::Display) -> Self {
        Self { line: line.to_string(), status: 1 }
    }

    pub(crate) fn status(&self) -> u8 {
        self.status
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line)
    }
}

impl From<lab::journal::JournalError> for Fault {
    fn from(error: lab::journal::JournalError) -> Self {
        Self::failed(error)
    }
}

impl From<lab::experiment::DataError> for Fault {
    fn from(error: lab::experiment::DataError) -> Self {
        Self::usage(error)
    }
}
