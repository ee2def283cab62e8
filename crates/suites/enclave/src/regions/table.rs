//! A table of regions that a signal handler can read.
//!
//! A handler runs on any thread at any time, so nothing here locks or allocates. A region is encoded in one word: a
//! handler reads all of it or none of it, and never the start of one region with the end of another.

use std::ops::Range;

use super::sync::{AtomicU64, Ordering};

/// Number of address bits within a page.
const PAGE_BITS: u32 = 12;
/// Number of bits of a word for the page count: up to 1 TiB. The other bits are the first page's number: up to 2^48.
const COUNT_BITS: u32 = 28;

/// A table of regions. The word of a free slot is 0, which encodes no region.
pub(crate) struct Regions<const N: usize>(pub(crate) [AtomicU64; N]);

impl<const N: usize> Regions<N> {
    /// Adds a region of whole pages; returns its slot, or `None` if no slot is free or a word has no space for
    /// the region.
    pub(crate) fn add(&self, region: Range<usize>) -> Option<usize> {
        let word = word(region)?;
        let free = |slot: &AtomicU64| {
            slot.compare_exchange(0, word, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        self.0.iter().position(free)
    }

    /// Removes the region of a slot, in which no thread may be inside.
    pub(crate) fn remove(&self, slot: usize) {
        self.0[slot].store(0, Ordering::Release);
    }

    /// Returns whether an address is in a region.
    pub(crate) fn contains(&self, address: usize) -> bool {
        let page = (address >> PAGE_BITS) as u64;
        self.0.iter().any(|slot| {
            let word = slot.load(Ordering::Acquire);
            let (first, count) = (word >> COUNT_BITS, word & ((1 << COUNT_BITS) - 1));
            page.checked_sub(first).is_some_and(|offset| offset < count)
        })
    }
}

/// Encodes a region.
fn word(region: Range<usize>) -> Option<u64> {
    let (first, count) = ((region.start >> PAGE_BITS) as u64, (region.len() >> PAGE_BITS) as u64);
    let fits = first < 1 << (u64::BITS - COUNT_BITS) && (1..1 << COUNT_BITS).contains(&count);
    fits.then_some(first << COUNT_BITS | count)
}
