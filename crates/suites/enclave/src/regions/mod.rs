//! The regions of loaded enclaves, in a form that signal handlers can read.

mod table;
#[cfg(test)]
mod tests;

use std::ops::Range;

use sync::AtomicU64;
use table::Regions;

/// How many enclaves can be loaded at once.
pub(crate) const MAX_REGIONS: usize = 256;

/// The regions of all loaded enclaves whose threads have an FS base of the enclave.
static LOADED: Regions<MAX_REGIONS> = Regions([const { AtomicU64::new(0) }; MAX_REGIONS]);

/// Adds a region of whole pages; returns its slot, or `None` if too many regions are loaded.
pub(crate) fn add(region: Range<usize>) -> Option<usize> {
    LOADED.add(region)
}

/// Removes the region of a slot, in which no thread may be inside.
pub(crate) fn remove(slot: usize) {
    LOADED.remove(slot);
}

/// Returns whether an FS base is that of a thread inside an enclave.
pub(crate) fn is_inside(fs: usize) -> bool {
    LOADED.contains(fs)
}

/// The atomics of the table, which a test replaces by loom's.
mod sync {
    pub(super) use std::sync::atomic::{AtomicU64, Ordering};
}
