//! Resources that a thread used: CPU time and page faults by the kernel's accounting, instructions by counters.

use std::io;
use std::mem::MaybeUninit;
use std::ops::Sub;

use lab::sample::Failure;
use machine::SysError;
use machine::counters::{Counters, Event, Mode};

/// CPU time and faults of this thread since its start. The difference of two values is the usage in between.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Usage {
    /// In user mode, ns. Kernels that sample it count in ticks of 1 to 10 ms.
    pub(super) user: f64,
    /// In the kernel, ns, in the same resolution.
    pub(super) system: f64,
    /// Page faults.
    pub(super) faults: f64,
}

impl Usage {
    pub(super) fn now() -> Self {
        let mut usage = MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: an all-zero rusage is valid and the kernel fills it; the call cannot fail for this thread.
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

/// Performance counters of this thread's instructions in user mode and in the kernel.
pub(super) struct InstructionCounters {
    user: Counters,
    system: Counters,
}

impl InstructionCounters {
    /// Opens and starts the counters.
    ///
    /// # Errors
    /// Returns `unavailable` if there are no counters, or if the kernel's instructions may not be counted.
    pub(super) fn open() -> Result<Self, Failure> {
        let unavailable = |SysError { source, remedy, .. }| {
            Failure::unavailable(format!("instructions cannot be counted: {source}"), remedy)
        };
        let open = |mode| Counters::open(&[Event::INSTRUCTIONS], mode).map_err(unavailable);
        Ok(Self { user: open(Mode::User)?, system: open(Mode::Kernel)? })
    }

    /// Returns the instructions since [`open`](Self::open) in user mode and in the kernel.
    pub(super) fn now(&self) -> io::Result<[f64; 2]> {
        let count = |counters: &Counters| Ok::<_, io::Error>(counters.now()?[0] as f64);
        Ok([count(&self.user)?, count(&self.system)?])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_counters_advance_or_the_failure_has_a_remedy() {
        match InstructionCounters::open() {
            Ok(counters) => {
                let [user, system] = counters.now().unwrap();
                let [later, system_later] = counters.now().unwrap();
                assert!(later > user && system_later > system);
            }
            Err(failure) => {
                assert!(failure.remedy.is_some());
                machine::untested::note("instructions counted", &failure);
            }
        }
    }
}
