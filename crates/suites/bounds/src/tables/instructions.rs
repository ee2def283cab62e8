//! Instructions counted by the processor, in user mode and in the kernel.

use std::io;

use lab::sample::Failure;
use machine::SysError;
use machine::counters::{Counters, Event, Mode};

/// Both counters of this thread, running since they were opened.
pub(super) struct Instructions {
    user: Counters,
    system: Counters,
}

impl Instructions {
    /// Opens them.
    ///
    /// # Errors
    /// Where there are none, or the kernel's own instructions may not be counted.
    pub(super) fn open() -> Result<Self, Failure> {
        let refused = |SysError { source, remedy, .. }| {
            Failure::unavailable(format!("instructions cannot be counted: {source}"), remedy)
        };
        let open = |mode| Counters::open(&[Event::INSTRUCTIONS], mode).map_err(refused);
        Ok(Self { user: open(Mode::User)?, system: open(Mode::Kernel)? })
    }

    /// Instructions in user mode and in the kernel until now.
    pub(super) fn now(&self) -> io::Result<[f64; 2]> {
        let one = |counters: &Counters| Ok::<_, io::Error>(counters.now()?[0] as f64);
        Ok([one(&self.user)?, one(&self.system)?])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_counted_or_it_says_why_not() {
        match Instructions::open() {
            Ok(counters) => {
                let [user, system] = counters.now().unwrap();
                let [later, system_later] = counters.now().unwrap();
                assert!(later > user && system_later > system);
            }
            Err(why) => {
                assert!(why.remedy.is_some());
                machine::untested::note("instructions counted", &why);
            }
        }
    }
}
