//! What a thread has used of the processor, by the kernel's account.

use std::mem::MaybeUninit;
use std::ops::Sub;

/// CPU time and faults of this thread since it began; a difference of two is what a part used.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Usage {
    /// In user mode, ns. Kernels that sample it count in ticks of 1 to 10 ms.
    pub(super) user: f64,
    /// In the kernel, ns; as for `user`.
    pub(super) system: f64,
    /// Page faults.
    pub(super) faults: f64,
}

impl Usage {
    /// Until now.
    pub(super) fn now() -> Self {
        let mut usage = MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: all zero is a valid rusage, and the kernel fills it; it cannot fail for this thread.
        let usage = unsafe {
            libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
            usage.assume_init()
        };
        let time = |time: libc::timeval| time.tv_sec as f64 * 1e9 + time.tv_usec as f64 * 1e3;
        Self {
            user: time(usage.ru_utime),
            system: time(usage.ru_stime),
            faults: (usage.ru_minflt + usage.ru_majflt) as f64,
        }
    }
}

impl Sub for Usage {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            user: self.user - before.user,
            system: self.system - before.system,
            faults: self.faults - before.faults,
        }
    }
}
