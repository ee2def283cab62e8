//! Bounds in memory as MPX keeps them, done in software on any processor: a directory of 2 GiB that
//! leads to tables of 4 MiB, found by where the pointer lies.

use std::sync::atomic::{AtomicU64, AtomicUsize};

use machine::SysError;
use machine::mapping::Mapping;

/// Bytes of the directory: 8 for each MiB of 48 bits of addresses.
pub(crate) const DIRECTORY_BYTES: usize = 1 << 31;
/// Bytes of a table: an entry for each 8 bytes of a MiB.
pub(crate) const TABLE_BYTES: usize = 4 << 20;
/// Bytes of addresses that a table covers.
pub(crate) const COVERED: usize = 1 << 20;

/// The directory: for each MiB of addresses the address of its table, or 0.
pub(crate) struct Directory {
    memory: Mapping,
}

/// What a table keeps of one pointer.
#[repr(C, align(32))]
#[derive(Debug, Default)]
pub(crate) struct Entry {
    /// The first byte inside.
    pub(crate) lower: AtomicU64,
    /// The last byte inside.
    pub(crate) upper: AtomicU64,
    /// The pointer whose bounds these are.
    pub(crate) pointer: AtomicU64,
    /// MPX has no use for it.
    pub(crate) reserved: AtomicU64,
}

const _: () = assert!(COVERED / 8 * size_of::<Entry>() == TABLE_BYTES);

impl Directory {
    /// A directory with no table.
    ///
    /// # Errors
    /// The kernel's, where it gives no 2 GiB of addresses.
    pub(crate) fn new() -> Result<Self, SysError> {
        Mapping::reserved(DIRECTORY_BYTES).map(|memory| Self { memory })
    }

    /// The directory's entry for a pointer that lies at an address.
    #[inline(always)]
    pub(crate) fn entry(&self, at: usize) -> &AtomicUsize {
        let index = at >> 20 & (DIRECTORY_BYTES / 8 - 1);
        // SAFETY: the index is below the entries that the mapping holds; it lives as long as the
        // borrow, is all zero at first, and is used by atomics alone.
        unsafe { &*self.memory.as_ptr().cast::<AtomicUsize>().add(index) }
    }
}

/// Where in its table the entry of a pointer stands that lies at an address, in bytes.
#[inline(always)]
pub(crate) fn offset_in_table(at: usize) -> usize {
    (at >> 3 & (COVERED / 8 - 1)).wrapping_mul(size_of::<Entry>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn each_mib_has_an_entry_and_each_pointer_a_place() {
        let directory = Directory::new().unwrap();
        let last = (1 << 47) - 8;
        assert_eq!(directory.entry(last).load(Ordering::Relaxed), 0);
        let address = |at: usize| directory.entry(at) as *const _ as usize;
        assert_eq!(address(COVERED) - address(COVERED - 8), 8);
        assert_eq!(address(COVERED), address(2 * COVERED - 1));
        assert_eq!(offset_in_table(COVERED), 0);
        assert_eq!(offset_in_table(COVERED + 8), 32);
        assert_eq!(offset_in_table(COVERED - 8), TABLE_BYTES - 32);
    }
}
