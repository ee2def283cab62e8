//! Cells: what one column says of one sample.

use std::borrow::Cow;

use lab::sample::Sample;

/// One row of an export.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row<'a> {
    /// The run's name.
    pub(super) run: &'a str,
    /// The sample.
    pub(super) sample: &'a Sample,
}

/// What kind of values a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Real,
    Whole,
    Truth,
}

/// A value of a column.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Cell<'a> {
    Text(Cow<'a, str>),
    Real(f64),
    Whole(u64),
    Truth(bool),
}

impl std::fmt::Display for Cell<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            // The shortest text that reads back as the same number.
            Self::Real(number) => write!(f, "{number:?}"),
            Self::Whole(number) => write!(f, "{number}"),
            Self::Truth(truth) => write!(f, "{truth}"),
        }
    }
}
