//! What programs may have of a NIC: each one, and all together.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use machine::SysError;

/// What programs may have.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Memory that one program may lend.
    pub each: MemoryUse,
    /// Memory that all programs together may lend. The kernel gives a process some 65,000 spans.
    pub all: MemoryUse,
    /// Pairs of notification buffers of one program, one for each of its cores.
    pub pairs: usize,
    /// How long a program may take to say hello, to end a message, and to read an answer. One that has had
    /// nothing of the NIC for so long makes way for others.
    pub timeout: Duration,
}

/// An amount of memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// Bytes.
    pub bytes: u64,
    /// Spans of address space; a ring has two.
    pub regions: usize,
}

impl MemoryUse {
    fn and(self, more: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(more.bytes),
            regions: self.regions.saturating_add(more.regions),
        }
    }
}

/// What was lent so far, and how much may be.
#[derive(Debug)]
pub(super) struct Quota {
    most: MemoryUse,
    lent: Mutex<MemoryUse>,
    /// Whose it is, for people.
    whose: &'static str,
}

impl Quota {
    pub(super) fn new(most: MemoryUse, whose: &'static str) -> Arc<Self> {
        Arc::new(Self { most, lent: Mutex::default(), whose })
    }

    /// Takes a part, which comes back when it is dropped.
    ///
    /// # Errors
    /// If less is left.
    pub(super) fn take(self: &Arc<Self>, part: MemoryUse) -> Result<Taken, SysError> {
        let mut lent = self.lent();
        let (then, Self { most, whose, .. }) = (lent.and(part), &**self);
        let refused = |attempt: String, most: String| SysError {
            attempt,
            source: io::Error::new(
                io::ErrorKind::QuotaExceeded,
                format!("it takes {most} {whose}"),
            ),
            remedy: "use fewer pipes or shorter rings".into(),
        };
        if then.bytes > most.bytes {
            let attempt = format!("lend a NIC {} B where it has {}", part.bytes, lent.bytes);
            return Err(refused(attempt, format!("{} B", most.bytes)));
        }
        if then.regions > most.regions {
            let attempt =
                format!("lend a NIC {} regions where it has {}", part.regions, lent.regions);
            return Err(refused(attempt, format!("{} spans", most.regions)));
        }
        *lent = then;
        Ok(Taken { of: Arc::clone(self), part })
    }

    fn lent(&self) -> MutexGuard<'_, MemoryUse> {
        self.lent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A part of a quota.
#[derive(Debug)]
pub(super) struct Taken {
    of: Arc<Quota>,
    part: MemoryUse,
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut lent = self.of.lent();
        lent.bytes = lent.bytes.saturating_sub(self.part.bytes);
        lent.regions = lent.regions.saturating_sub(self.part.regions);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_comes_back() {
        let quota = Quota::new(MemoryUse { bytes: 10, regions: 3 }, "of all programs");
        let one = quota.take(MemoryUse { bytes: 6, regions: 2 }).unwrap();
        let why = |part| quota.take(part).unwrap_err().to_string();
        assert!(why(MemoryUse { bytes: 5, regions: 1 }).contains("it takes 10 B of all programs"));
        assert!(
            why(MemoryUse { bytes: 1, regions: 2 }).contains("it takes 3 regions of all programs")
        );
        assert!(why(MemoryUse { bytes: u64::MAX, regions: usize::MAX }).contains("10 B"));
        let two = quota.take(MemoryUse { bytes: 4, regions: 1 }).unwrap();
        drop(one);
        quota.take(MemoryUse { bytes: 6, regions: 2 }).unwrap();
        drop(two);
        assert_eq!(*quota.lent(), MemoryUse::default());
    }
}
