//! A software model of MPX bounds storage, for any CPU: a 2 GiB directory of 4 MiB tables, indexed by the address of the
//! pointer.

use std::sync::atomic::{AtomicU64, AtomicUsize};

use machine::SysError;
use machine::mapping::Mapping;

/// Bytes of the directory: 8 per MiB of a 48-bit address space.
pub(crate) const DIRECTORY_BYTES: usize = 1 << 31;
/// Bytes of a table: one entry per 8 bytes of a MiB.
pub(crate) const TABLE_BYTES: usize = 4 << 20;
/// Bytes of address space that a table covers.
pub(crate) const COVERED: usize = 1 << 20;

/// Directory of bounds tables: the address of the table of each MiB, or 0.
pub(crate) struct Directory {
    memory: Mapping,
}

/// Table entry of one pointer.
#[repr(C, align(32))]
#[derive(Debug, Default)]
pub(crate) struct Entry {
    /// First byte of the object.
    pub(crate) lower: AtomicU64,
    /// Last byte of the object.
    pub(crate) upper: AtomicU64,
    /// The pointer that has these bounds.
    pub(crate) pointer: AtomicU64,
    /// Not used by MPX.
    pub(crate) reserved: AtomicU64,
}

const _: () = assert!(COVERED / 8 * size_of::<Entry>() == TABLE_BYTES);

impl Directory {
    /// Creates a directory without tables.
    ///
    /// # Errors
    /// Returns the error of the kernel if it cannot reserve 2 GiB of address space.
    pub(crate) fn new() -> Result<Self, SysError> {
        Mapping::reserved(DIRECTORY_BYTES).map(|memory| Self { memory })
    }

    /// Returns the directory's entry for a pointer stored at `address`.
    #[inline(always)]
    pub(crate) fn entry(&self, address: usize) -> &AtomicUsize {
        let index = address >> 20 & (DIRECTORY_BYTES / 8 - 1);
        // SAFETY: the index is within the mapping, which outlives the borrow, is initially zero, and is accessed only
        // by atomics.
        unsafe { &*self.memory.as_ptr().cast::<AtomicUsize>().add(index) }
    }
}

/// Returns the offset in its table of the entry for a pointer stored at `address`, in bytes.
#[inline(always)]
pub(crate) fn offset_in_table(address: usize) -> usize {
    (address >> 3 & (COVERED / 8 - 1)).wrapping_mul(size_of::<Entry>())
}

/// Returns the first and last byte of a 64-byte object at `pointer`.
#[inline(always)]
pub(crate) fn object_bounds(pointer: u64) -> [u64; 2] {
    [pointer, pointer.wrapping_add(63)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn each_mib_has_a_directory_entry_and_each_pointer_a_table_entry() {
        let directory = Directory::new().unwrap();
        let last = (1 << 47) - 8;
        assert_eq!(directory.entry(last).load(Ordering::Relaxed), 0);
        let entry_address = |address: usize| directory.entry(address) as *const _ as usize;
        assert_eq!(entry_address(COVERED) - entry_address(COVERED - 8), 8);
        assert_eq!(entry_address(COVERED), entry_address(2 * COVERED - 1));
        assert_eq!(offset_in_table(COVERED), 0);
        assert_eq!(offset_in_table(COVERED + 8), 32);
        assert_eq!(offset_in_table(COVERED - 8), TABLE_BYTES - 32);
    }
}
