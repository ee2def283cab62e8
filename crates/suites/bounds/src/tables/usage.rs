//! Instructions that a thread executed, by performance counters.

use std::io;

use lab::capability::{self, Capability};
use lab::sample::Failure;
use machine::SysError;
use machine::counters::{Counters, Event, Mode};

/// Experiments that count the same without performance counters.
const WITHOUT_COUNTERS: &str = "without counters, bounds/table-instructions counts those of the program and \
                                bounds/kernel-tables those of a kernel, both by an emulator";

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
        let unavailable = |error: SysError| {
            let attempt = "instructions cannot be counted".into();
            let remedy = format!("{}; {WITHOUT_COUNTERS}", error.remedy);
            Failure::refused(SysError { attempt, remedy, ..error })
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

/// Returns the counting of the kernel's instructions as a capability of this machine.
pub(crate) fn capability() -> Capability {
    let opened = InstructionCounters::open().map(|_| "performance counters".into());
    let about = "counts the kernel's instructions for a thread";
    capability::checked("kernel-instructions", about, opened)
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
                let remedy = failure.remedy.as_deref().unwrap();
                assert!(remedy.contains("bounds/kernel-tables"), "{remedy}");
                machine::untested::note("instructions counted", &failure);
            }
        }
    }
}
