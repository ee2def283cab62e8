//! Limits on the resources of clients, per client and for all together.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use machine::SysError;

/// Limits on the resources of clients.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Memory that one client may register.
    pub each: MemoryUse,
    /// Memory that all clients together may register. The kernel allows a process about 65,000 mappings.
    pub all: MemoryUse,
    /// Pairs of notification buffers per client, one for each of its cores.
    pub pairs: usize,
    /// Time limit for a client to say hello, to complete a message, and to read an answer. A client that has allocated
    /// nothing for longer makes way for others.
    pub timeout: Duration,
}

/// An amount of memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// Bytes.
    /// Size, in bytes.
    pub bytes: u64,
    /// Number of mappings; a ring has two.
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

/// A quota of registered memory.
#[derive(Debug)]
pub(super) struct Quota {
    max: MemoryUse,
    used: Mutex<MemoryUse>,
    /// Owner of the quota, for error messages.
    whose: &'static str,
}

impl Quota {
    pub(super) fn new(max: MemoryUse, whose: &'static str) -> Arc<Self> {
        Arc::new(Self { max, used: Mutex::default(), whose })
    }

    /// Reserves a part until the reservation is dropped.
    ///
    /// # Errors
    /// Returns an error if less is left.
    pub(super) fn reserve(self: &Arc<Self>, part: MemoryUse) -> Result<Reservation, SysError> {
        let mut used = self.used();
        let (then, Self { max, whose, .. }) = (used.and(part), &**self);
        let refused = |attempt: String, max: String| SysError {
            attempt,
            source: io::Error::new(
                io::ErrorKind::QuotaExceeded,
                format!("the limit is {max} {whose}"),
            ),
            remedy: "use fewer pipes or shorter rings".into(),
        };
        if then.bytes > max.bytes {
            let attempt = format!("register {} B after {} B with a NIC", part.bytes, used.bytes);
            return Err(refused(attempt, format!("{} B", max.bytes)));
        }
        if then.regions > max.regions {
            let attempt =
                format!("register {} regions after {} with a NIC", part.regions, used.regions);
            return Err(refused(attempt, format!("{} regions", max.regions)));
        }
        *used = then;
        Ok(Reservation { of: Arc::clone(self), part })
    }

    fn used(&self) -> MutexGuard<'_, MemoryUse> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A reserved part of a quota.
#[derive(Debug)]
pub(super) struct Reservation {
    of: Arc<Quota>,
    part: MemoryUse,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut used = self.of.used();
        used.bytes = used.bytes.saturating_sub(self.part.bytes);
        used.regions = used.regions.saturating_sub(self.part.regions);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reservations_are_returned() {
        let quota = Quota::new(MemoryUse { bytes: 10, regions: 3 }, "for all programs");
        let one = quota.reserve(MemoryUse { bytes: 6, regions: 2 }).unwrap();
        let why = |part| quota.reserve(part).unwrap_err().to_string();
        assert!(why(MemoryUse { bytes: 5, regions: 1 }).contains("is 10 B for all programs"));
        assert!(why(MemoryUse { bytes: 1, regions: 2 }).contains("is 3 regions for all programs"));
        assert!(why(MemoryUse { bytes: u64::MAX, regions: usize::MAX }).contains("10 B"));
        let two = quota.reserve(MemoryUse { bytes: 4, regions: 1 }).unwrap();
        drop(one);
        quota.reserve(MemoryUse { bytes: 6, regions: 2 }).unwrap();
        drop(two);
        assert_eq!(*quota.used(), MemoryUse::default());
    }
}
