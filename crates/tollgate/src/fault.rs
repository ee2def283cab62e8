//! What goes wrong, in one line, with the exit status that says whose fault it is.

use std::fmt;

use lab::compare::CompareError;
use lab::journal::JournalError;
use lab::summary::SummaryError;
use report::figure::FigureError;

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

    /// The same error for a command whose exit status 1 is an answer: exit status 2.
    pub(crate) fn no_answer(self) -> Self {
        Self { status: 2, ..self }
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

impl From<JournalError> for Fault {
    fn from(error: JournalError) -> Self {
        match error {
            JournalError::IsRun(_) => Self::usage(error),
            _ => Self::failed(error),
        }
    }
}

impl From<lab::data::DataError> for Fault {
    fn from(error: lab::data::DataError) -> Self {
        Self::usage(error)
    }
}

impl From<SummaryError> for Fault {
    fn from(error: SummaryError) -> Self {
        Self { status: status_of(&error), line: error.to_string() }
    }
}

impl From<CompareError> for Fault {
    fn from(error: CompareError) -> Self {
        let status = match &error {
            CompareError::Summary(why) => status_of(why),
            CompareError::NoMetric(_) | CompareError::Differ { .. } => 2,
        };
        Self { line: error.to_string(), status }
    }
}

impl From<FigureError> for Fault {
    fn from(error: FigureError) -> Self {
        use FigureError::{
            Empty, File, Histogram, NoFactor, NoLogarithm, NoPosition, NotNumber, Nothing, Render,
            Several, Summary, TooWide, Unit,
        };
        let status = match &error {
            Summary { why, .. } => status_of(why),
            // The figure does not fit the samples.
            NoFactor { .. }
            | Several { .. }
            | NoLogarithm { .. }
            | NotNumber { .. }
            | Unit { .. } => 2,
            Nothing { .. }
            | Histogram { .. }
            | NoPosition { .. }
            | Empty(_)
            | TooWide { .. }
            | Render(_)
            | File { .. } => 1,
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
