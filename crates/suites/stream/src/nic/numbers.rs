//! Numbers that programs have: of pipes, of pairs of notification buffers.

// Sizes may be another process's: this crate is compiled without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::collections::BTreeSet;
use std::io;
use std::sync::{Mutex, PoisonError};

use machine::SysError;

/// Numbers from 0 up, each of which one may have.
#[derive(Default)]
pub(super) struct Numbers(Mutex<Free>);

#[derive(Default)]
struct Free {
    /// Nobody ever had this one or those above it.
    next: u32,
    /// Those that came back.
    returned: BTreeSet<u32>,
}

impl Numbers {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_that_nobody_has() {
        let numbers = Numbers::default();
        let take = || numbers.take(3, "pipes").ok();
        assert_eq!([take(), take(), take(), take()], [Some(0), Some(1), Some(2), None]);
        numbers.give(1);
        numbers.give(0);
        assert_eq!([take(), take(), take()], [Some(0), Some(1), None]);
    }
}
