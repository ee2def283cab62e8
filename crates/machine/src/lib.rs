//! This computer: CPU, caches, clocks, memory, processes, noise and capabilities.
//!
//! Linux on x86-64 only. Each module wraps one facility of the system and its `unsafe` code in a safe interface.

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
compile_error!("tollgate measures on Linux x86-64 only");

pub mod bpf;
pub mod cache;
pub mod caching;
pub mod capability;
pub mod child;
pub mod core_clock;
pub mod counters;
pub mod cpu;
pub mod elf_functions;
pub mod environment;
pub mod executable;
pub mod file;
#[cfg(test)]
mod forked;
pub mod huge_pages;
pub mod issue_rate;
pub mod kvm;
pub mod loaded_code;
pub mod mapping;
pub mod memfd;
pub mod noise;
pub mod pin;
pub mod priority;
pub mod proc;
pub mod proximity;
pub mod restorer;
pub mod setting;
pub mod signal;
pub mod timed_code;
pub mod topology;
pub mod tsc;
pub mod untested;
pub mod usage;
pub mod user;

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

/// A facility that this machine lacks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}; {remedy}")]
pub struct Unavailable {
    /// The reason, in one line.
    pub why: String,
    /// The remedy, in one line.
    pub remedy: String,
}

impl Unavailable {
    pub(crate) fn new(why: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { why: why.into(), remedy: remedy.into() }
    }
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    #[test]
    #[should_panic(expected = "overflow")]
    fn a_sum_that_is_too_large_panics() {
        black_box(black_box(u64::MAX) + black_box(1));
    }
}
