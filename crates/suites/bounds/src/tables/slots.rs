//! Memory for the stored pointers, a MiB apart so that each needs a separate table.

use std::io;

use machine::mapping::PAGE;

use super::memory::{madvise_dontneed, map, reserve, unmap};
use crate::software::COVERED;

/// Addresses at which pointers are stored.
pub(super) enum Slots {
    /// One mapping per pointer, made when the pointer is stored, as `malloc` does for a MiB.
    Own(Vec<usize>),
    /// One mapping for all pointers.
    Shared { base: usize, count: usize, used: usize },
}

impl Slots {
    /// Reserves `count` unused slots.
    pub(super) fn new(separate: bool, count: usize) -> io::Result<Self> {
        Ok(match separate {
            true => Self::Own(Vec::with_capacity(count)),
            false => Self::Shared { base: reserve(count * COVERED)?, count, used: 0 },
        })
    }

    /// Returns the address of the next slot.
    #[inline]
    pub(super) fn next(&mut self) -> io::Result<usize> {
        match self {
            Self::Own(addresses) => {
                let address = map(COVERED)?;
                addresses.push(address);
                Ok(address)
            }
            Self::Shared { base, count, used } => {
                // `new` has reserved all slots.
                let address = base.wrapping_add((*used % *count).wrapping_mul(COVERED));
                *used = used.wrapping_add(1);
                Ok(address)
            }
        }
    }

    /// Frees the memory of the last slot.
    #[inline]
    pub(super) fn free(&mut self, address: usize) -> io::Result<()> {
        match self {
            Self::Own(addresses) => {
                addresses.pop();
                // SAFETY: `next` mapped the range, and the caller no longer uses it.
                unsafe { unmap(address, COVERED) }
            }
            // SAFETY: the page is in the mapping of `new`, and the caller no longer uses it.
            Self::Shared { .. } => unsafe { madvise_dontneed(address, PAGE) },
        }
    }

    /// Returns the addresses of the slots in use.
    pub(super) fn used(&self) -> Vec<usize> {
        match self {
            Self::Own(addresses) => addresses.clone(),
            Self::Shared { base, used, .. } => (0..*used).map(|i| base + i * COVERED).collect(),
        }
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        // If unmapping fails, the mapping ends with the process.
        match self {
            Self::Own(addresses) => {
                for address in addresses {
                    // SAFETY: `next` mapped the range, and nothing uses it after the drop.
                    let _ = unsafe { unmap(*address, COVERED) };
                }
            }
            Self::Shared { base, count, .. } => {
                // SAFETY: `new` mapped the range, and nothing uses it after the drop.
                let _ = unsafe { unmap(*base, *count * COVERED) };
            }
        }
    }
}
