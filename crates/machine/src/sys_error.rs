//! What the system would not do, said in one line.

use std::io;

/// The system refused something: what was tried, why not, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[error("{attempt}: {source}; {remedy}")]
pub struct SysError {
    /// What was tried, with the path or size in question.
    pub attempt: String,
    /// Why it failed.
    pub source: io::Error,
    /// What a person can do about it.
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

    /// A refusal that is ours, not the kernel's.
    pub(crate) fn invalid(
        attempt: impl Into<String>,
        why: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let source = io::Error::new(io::ErrorKind::InvalidInput, why.into());
        Self::new(attempt, source, remedy)
    }

    /// The kernel's last error on this thread.
    pub(crate) fn last(attempt: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(attempt, io::Error::last_os_error(), remedy)
    }
}
