//! Page faults of one thread, as the kernel counts them.

/// Counts at one moment, or between two.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Faults {
    /// Served from memory.
    pub minor: u64,
    /// Waited for a disk.
    pub major: u64,
}

impl Faults {
    /// Of this thread since it began.
    pub fn of_thread() -> Self {
        // SAFETY: an all-zero rusage is valid, and the kernel fills it; RUSAGE_THREAD cannot fail.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(libc::RUSAGE_THREAD, &mut usage);
            usage
        };
        let count = |value: libc::c_long| u64::try_from(value).unwrap_or(0);
        Self { minor: count(usage.ru_minflt), major: count(usage.ru_majflt) }
    }

    /// Since an earlier count.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self { minor: self.minor - before.minor, major: self.major - before.major }
    }

    /// Both kinds.
    pub fn total(self) -> u64 {
        self.minor + self.major
    }
}
