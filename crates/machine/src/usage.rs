//! Resources used by this process or thread, by the kernel's accounting.

use std::time::Duration;

/// Resources used since a process or thread started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time in user mode. Kernels that sample it count in ticks of 1 to 10 ms.
    pub user: Duration,
    /// CPU time in the kernel, in the same resolution.
    pub system: Duration,
    /// Page faults served from memory.
    pub minor_faults: u64,
    /// Page faults that waited for a disk.
    pub major_faults: u64,
    /// Context switches because a thread waited.
    pub voluntary_switches: u64,
    /// Context switches because the scheduler chose another thread.
    pub involuntary_switches: u64,
    /// Peak resident memory of the process, in bytes.
    pub peak_memory: u64,
}

impl Usage {
    /// Returns the usage of this process, of which all threads are part.
    pub fn of_process() -> Self {
        Self::of(libc::RUSAGE_SELF)
    }

    /// Returns the usage of this thread.
    pub fn of_thread() -> Self {
        Self::of(libc::RUSAGE_THREAD)
    }

    fn of(who: libc::c_int) -> Self {
        // SAFETY: an all-zero rusage is valid and the kernel fills it; the call cannot fail for these two.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(who, &raw mut usage);
            usage
        };
        let count = |value: libc::c_long| u64::try_from(value).unwrap_or(0);
        let time = |time: libc::timeval| {
            Duration::from_secs(count(time.tv_sec)) + Duration::from_micros(count(time.tv_usec))
        };
        Self {
            user: time(usage.ru_utime),
            system: time(usage.ru_stime),
            minor_faults: count(usage.ru_minflt),
            major_faults: count(usage.ru_majflt),
            voluntary_switches: count(usage.ru_nvcsw),
            involuntary_switches: count(usage.ru_nivcsw),
            peak_memory: count(usage.ru_maxrss) << 10,
        }
    }

    /// Returns the usage since an earlier reading; the peak of the memory stays that of the whole time.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            user: self.user.saturating_sub(before.user),
            system: self.system.saturating_sub(before.system),
            minor_faults: self.minor_faults.saturating_sub(before.minor_faults),
            major_faults: self.major_faults.saturating_sub(before.major_faults),
            voluntary_switches: self.voluntary_switches.saturating_sub(before.voluntary_switches),
            involuntary_switches: self
                .involuntary_switches
                .saturating_sub(before.involuntary_switches),
            peak_memory: self.peak_memory,
        }
    }

    /// Returns the page faults of both kinds.
    pub fn faults(&self) -> u64 {
        self.minor_faults + self.major_faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_part_of_its_process() {
        let before = Usage::of_thread();
        std::thread::sleep(Duration::from_millis(2));
        // New pages, because another thread may have touched the stack. Glibc maps every block of over 32 MiB.
        let mut fresh = std::hint::black_box(vec![0_u8; 64 << 20]);
        fresh[0] = 1;
        std::hint::black_box(&fresh);
        let (thread, process) = (Usage::of_thread(), Usage::of_process());
        assert!(thread.since(before).voluntary_switches >= 1, "{before:?} {thread:?}");
        assert!(process.voluntary_switches >= thread.voluntary_switches);
        assert!(thread.since(before).faults() > 0, "{before:?} {thread:?}");
        assert!(process.faults() >= thread.faults(), "{process:?} {thread:?}");
        assert!((1 << 20..1 << 40).contains(&process.peak_memory), "{process:?}");
    }
}
