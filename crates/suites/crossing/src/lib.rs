//! Cost of crossing from user mode to the kernel and back.
//!
//! One-way times without the kernel's entry code come from a micro-guest ([`guest`]) and from a patched
//! Linux ([`patched`]). On any Linux the suite measures the time to the first tracepoint ([`trace`]) and
//! round trips ([`trips`]).

pub mod cli;
pub mod clock;
pub mod consistency;
pub mod guest;
pub mod one_way;
pub mod patched;
mod signal_handler;
pub mod stamping;
mod suite;
pub mod ticks;
pub mod trace;
pub mod trips;
pub mod vm;

pub use suite::{COMMAND, SUITE};

/// Returns the number of minor and major page faults of this thread since it started.
pub(crate) fn page_faults_of_thread() -> u64 {
    // SAFETY: an all-zero rusage is valid, and the kernel fills it; RUSAGE_THREAD cannot fail.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage
    };
    u64::try_from(usage.ru_minflt + usage.ru_majflt).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    #[test]
    #[should_panic(expected = "overflow")]
    fn integer_overflow_panics() {
        black_box(black_box(u64::MAX) + black_box(1));
    }
}
