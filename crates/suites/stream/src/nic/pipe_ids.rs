//! IDs of pipes and buffer pairs, and which client owns each pipe.

// Sizes may come from another process, and this crate is compiled without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use machine::SysError;

use super::layout::PIPES;
use super::region::ClientId;

/// An allocator of IDs from 0 up.
#[derive(Default)]
pub(super) struct IdAllocator(Mutex<Free>);

#[derive(Default)]
struct Free {
    /// This ID and all above it were never allocated.
    next: u32,
    /// Freed IDs.
    returned: BTreeSet<u32>,
}

impl IdAllocator {
    /// Allocates the lowest free ID below `all`.
    pub(super) fn alloc(&self, all: u32, what: &str) -> Result<u32, SysError> {
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lowest) = free.returned.pop_first() {
            return Ok(lowest);
        }
        if free.next == all {
            return Err(SysError {
                attempt: format!("allocate one of {all} {what}"),
                source: io::ErrorKind::QuotaExceeded.into(),
                remedy: "free unused ones".into(),
            });
        }
        let id = free.next;
        free.next = id.saturating_add(1);
        Ok(id)
    }

    /// Frees an allocated ID.
    pub(super) fn free(&self, id: u32) {
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        free.returned.insert(id);
    }
}

/// Entry of a pipe without a client.
const NONE: u64 = u64::MAX;

/// The client of each pipe. Written when pipes are allocated, and read when a register write sets a ring, not in the
/// loops over packets.
#[derive(Debug)]
pub(crate) struct Owners(Box<[AtomicU64]>);

impl Default for Owners {
    fn default() -> Self {
        Self((0..PIPES).map(|_| AtomicU64::new(NONE)).collect())
    }
}

impl Owners {
    /// Sets the client of a pipe. Does nothing if the pipe does not exist.
    pub(super) fn set(&self, pipe: u32, client: Option<ClientId>) {
        if let Some(owner) = self.0.get(pipe as usize) {
            owner.store(client.map_or(NONE, |client| client.0.into()), Ordering::Release);
        }
    }

    /// Returns the client of a pipe.
    pub(crate) fn of(&self, pipe: u32) -> Option<ClientId> {
        let owner = self.0.get(pipe as usize)?.load(Ordering::Acquire);
        u32::try_from(owner).ok().map(ClientId)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_free_id_is_allocated() {
        let ids = IdAllocator::default();
        let take = || ids.alloc(3, "pipes").ok();
        assert_eq!([take(), take(), take(), take()], [Some(0), Some(1), Some(2), None]);
        ids.free(1);
        ids.free(0);
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
