//! Errors of the system, in one line.

use std::io;

/// A failed operation of the system: the attempt, its cause and the remedy.
#[derive(Debug, thiserror::Error)]
#[error("{attempt}: {source}; {remedy}")]
pub struct SysError {
    /// The attempted operation, with the path or size.
    pub attempt: String,
    /// The cause.
    pub source: io::Error,
    /// The remedy available to the user.
    pub remedy: String,
}

impl SysError {
    pub(crate) fn new(
        attempt: impl Into<String>,
        source: io::Error,
        remedy: impl Into<String>,
    ) -> Self {
        Self { attempt: attempt.into(), source, remedy: remedy.into() }
    }

    /// Creates an error that did not come from the kernel.
    pub(crate) fn invalid(
        attempt: impl Into<String>,
        why: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let source = io::Error::new(io::ErrorKind::InvalidInput, why.into());
        Self::new(attempt, source, remedy)
    }

    /// Creates an error from `errno` of this thread.
    pub(crate) fn last(attempt: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(attempt, io::Error::last_os_error(), remedy)
    }
}
