//! Where the pointers lie: a MiB apart, so that each has a table of its own.

use std::io;

use machine::mapping::PAGE;

use super::memory::{empty, map, reserve, unmap};
use crate::software::COVERED;

/// Whose memory the pointers lie in.
pub(super) enum Slots {
    /// Each in memory of its own, as `malloc` gives it for a MiB: mapped when it is wanted.
    Own(Vec<usize>),
    /// All in one mapping.
    Shared {
        /// Where it begins.
        base: usize,
        /// How many.
        count: usize,
        /// How many are in use.
        used: usize,
    },
}

impl Slots {
    /// Room for so many, none in use.
    pub(super) fn new(own: bool, count: usize) -> io::Result<Self> {
        Ok(match own {
            true => Self::Own(Vec::with_capacity(count)),
            false => Self::Shared { base: reserve(count * COVERED)?, count, used: 0 },
        })
    }

    /// The next one's address.
    #[inline]
    pub(super) fn next(&mut self) -> io::Result<usize> {
        match self {
            Self::Own(taken) => {
                let at = map(COVERED)?;
                taken.push(at);
                Ok(at)
            }
            Self::Shared { base, count, used } => {
                // `new` has reserved all of them.
                let at = base.wrapping_add((*used % *count).wrapping_mul(COVERED));
                *used = used.wrapping_add(1);
                Ok(at)
            }
        }
    }

    /// Frees the last one.
    #[inline]
    pub(super) fn free(&mut self, at: usize) -> io::Result<()> {
        match self {
            Self::Own(taken) => {
                taken.pop();
                // SAFETY: `next` mapped it, and the caller is done with it.
                unsafe { unmap(at, COVERED) }
            }
            // SAFETY: the page lies in our own mapping, and the caller is done with it.
            Self::Shared { .. } => unsafe { empty(at, PAGE) },
        }
    }

    /// Those in use.
    pub(super) fn used(&self) -> Vec<usize> {
        match self {
            Self::Own(taken) => taken.clone(),
            Self::Shared { base, used, .. } => (0..*used).map(|i| base + i * COVERED).collect(),
        }
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        // What cannot be unmapped ends with the process.
        match self {
            Self::Own(taken) => {
                for at in taken {
                    // SAFETY: `next` mapped it, and nobody has it any more.
                    let _ = unsafe { unmap(*at, COVERED) };
                }
            }
            Self::Shared { base, count, .. } => {
                // SAFETY: `new` mapped it, and nobody has it any more.
                let _ = unsafe { unmap(*base, *count * COVERED) };
            }
        }
    }
}
