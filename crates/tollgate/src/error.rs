//! Errors of the program: one line each, with the exit status.

use std::fmt;

use exchange::ExchangeError;
use lab::compare::CompareError;
use lab::data::DataError;
use lab::journal::JournalError;
use lab::summary::SummaryError;
use report::figure::FigureError;
use vm::declaration::GuestError;

/// Error printed to the user, with the exit status of the program.
#[derive(Debug)]
pub(crate) struct CliError {
    line: String,
    status: u8,
}

impl CliError {
    /// Creates an error in the command line or in a file that it names: exit status 2.
    pub(crate) fn usage(line: impl fmt::Display) -> Self {
        Self { line: line.to_string(), status: 2 }
    }

    /// Creates an error of a command that failed: exit status 1.
    pub(crate) fn failed(line: impl fmt::Display) -> Self {
        Self { line: line.to_string(), status: 1 }
    }

    /// Creates an error of a command that the user interrupted: exit status 130.
    pub(crate) fn interrupted(line: impl fmt::Display) -> Self {
        Self { line: line.to_string(), status: 130 }
    }

    /// Changes the exit status to 2, for a command whose exit status 1 is a result.
    pub(crate) fn with_status_2(self) -> Self {
        Self { status: 2, ..self }
    }

    /// Changes the line.
    pub(crate) fn with_line(self, change: impl FnOnce(&str) -> String) -> Self {
        Self { line: change(&self.line), ..self }
    }

    pub(crate) fn status(&self) -> u8 {
        self.status
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line)
    }
}

impl From<JournalError> for CliError {
    fn from(error: JournalError) -> Self {
        match error {
            JournalError::IsRun(_) | JournalError::NoRun(_) => Self::usage(error),
            _ => Self::failed(error),
        }
    }
}

impl From<DataError> for CliError {
    fn from(error: DataError) -> Self {
        Self::usage(error)
    }
}

impl From<GuestError> for CliError {
    fn from(error: GuestError) -> Self {
        match error {
            GuestError::Usage(why) => Self::usage(why),
            GuestError::Failed(why) => Self::failed(why),
        }
    }
}

impl From<SummaryError> for CliError {
    fn from(error: SummaryError) -> Self {
        Self { status: status_of(&error), line: error.to_string() }
    }
}

impl From<CompareError> for CliError {
    fn from(error: CompareError) -> Self {
        let status = match &error {
            CompareError::Summary(why) => status_of(why),
            CompareError::NoMetric(_)
            | CompareError::SameRun { .. }
            | CompareError::Elsewhere { .. }
            | CompareError::Differ { .. } => 2,
        };
        Self { line: error.to_string(), status }
    }
}

impl From<FigureError> for CliError {
    fn from(error: FigureError) -> Self {
        let status = match &error {
            FigureError::Summary { why, .. } => status_of(why),
            FigureError::Declaration { .. } => 2,
            _ => 1,
        };
        Self { line: error.to_string(), status }
    }
}

impl From<ExchangeError> for CliError {
    fn from(error: ExchangeError) -> Self {
        let status = match &error {
            ExchangeError::Read { .. }
            | ExchangeError::Content { .. }
            | ExchangeError::Option(_)
            | ExchangeError::Data(_) => 2,
            ExchangeError::Write(_) => 1,
        };
        Self { line: error.to_string(), status }
    }
}

fn status_of(error: &SummaryError) -> u8 {
    match error {
        SummaryError::NoSamples { .. } => 1,
        SummaryError::NoMetric { .. } | SummaryError::NoTime { .. } => 2,
    }
}
