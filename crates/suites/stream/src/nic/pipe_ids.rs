//! IDs of pipes and buffer pairs, and which client owns each pipe.

// Sizes may be another process's: this crate is compiled without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use machine::SysError;

use super::layout::PIPES;
use super::region::ClientId;

/// Numbers from 0 up, each of which one may have.
#[derive(Default)]
pub(super) struct IdAllocator(Mutex<Free>);

#[derive(Default)]
struct Free {
    /// Nobody ever had this one or those above it.
    next: u32,
    /// Those that came back.
    returned: BTreeSet<u32>,
}

impl IdAllocator {
    /// The lowest number below `all` that nobody has.
    pub(super) fn take(&self, all: u32, what: &str) -> Result<u32, SysError> {
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lowest) = free.returned.pop_first() {
            return Ok(lowest);
        }
        if free.next == all {
            return Err(SysError {
                attempt: format!("take one more than {all} {what}"),
                source: io::ErrorKind::QuotaExceeded.into(),
                remedy: "free those that are no longer used".into(),
            });
        }
        let number = free.next;
        free.next = number.saturating_add(1);
        Ok(number)
    }

    /// Gives one back that was taken.
    pub(super) fn give(&self, number: u32) {
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        free.returned.insert(number);
    }
}

/// No program has it.
const NOBODY: u64 = u64::MAX;

/// The program of each pipe. Who lends pipes writes here, and the NIC reads when a register says where a ring
/// lies: never in its loops over packets.
#[derive(Debug)]
pub(crate) struct Owners(Box<[AtomicU64]>);

impl Default for Owners {
    fn default() -> Self {
        Self((0..PIPES).map(|_| AtomicU64::new(NOBODY)).collect())
    }
}

impl Owners {
    /// A pipe is a program's from now on, or nobody's. No such pipe: nothing is changed.
    pub(super) fn set(&self, pipe: u32, client: Option<ClientId>) {
        if let Some(owner) = self.0.get(pipe as usize) {
            owner.store(client.map_or(NOBODY, |client| client.0.into()), Ordering::Release);
        }
    }

    /// The program that has a pipe.
    pub(crate) fn of(&self, pipe: u32) -> Option<ClientId> {
        let owner = self.0.get(pipe as usize)?.load(Ordering::Acquire);
        u32::try_from(owner).ok().map(ClientId)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_that_nobody_has() {
        let numbers = IdAllocator::default();
        let take = || numbers.take(3, "pipes").ok();
        assert_eq!([take(), take(), take(), take()], [Some(0), Some(1), Some(2), None]);
        numbers.give(1);
        numbers.give(0);
        assert_eq!([take(), take(), take()], [Some(0), Some(1), None]);
    }

    #[test]
    fn a_pipe_has_one_owner_or_none() {
        let owners = Owners::default();
        assert_eq!(owners.of(3), None);
        owners.set(3, Some(ClientId(u32::MAX)));
        assert_eq!((owners.of(3), owners.of(4)), (Some(ClientId(u32::MAX)), None));
        owners.set(3, None);
        owners.set(PIPES, Some(ClientId(1)));
        assert_eq!((owners.of(3), owners.of(PIPES)), (None, None));
    }
}
