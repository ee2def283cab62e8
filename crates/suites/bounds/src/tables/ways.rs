//! The ways to come by a table when the first pointer of its MiB is stored.

use std::io;
use std::sync::atomic::Ordering;

use machine::SysError;
use machine::mapping::Mapping;

use super::memory::{empty, reserve, unmap};
use super::trap::Trapping;
use crate::software::{Directory, Entry, TABLE_BYTES, offset_in_table};

/// Stores bounds, and frees what that took.
pub(super) trait Tables {
    /// Stores the bounds of a pointer that lies at an address, in a table made for it where there is
    /// none.
    fn store(&mut self, at: usize, pointer: u64) -> io::Result<()>;
    /// Frees the table of that address.
    fn free(&mut self, at: usize) -> io::Result<()>;
    /// The pointer whose bounds are kept for that address; none where there is no table.
    fn kept(&self, at: usize) -> Option<u64>;
    /// Tables made so far.
    fn made(&self) -> u64;
}

/// The bounds of an object of 64 bytes.
#[inline(always)]
pub(super) fn bounds(pointer: u64) -> [u64; 2] {
    [pointer, pointer.wrapping_add(63)]
}

/// No bounds are stored.
pub(super) struct Untracked;

impl Tables for Untracked {
    #[inline]
    fn store(&mut self, _: usize, _: u64) -> io::Result<()> {
        Ok(())
    }

    #[inline]
    fn free(&mut self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn kept(&self, _: usize) -> Option<u64> {
        None
    }

    fn made(&self) -> u64 {
        0
    }
}

/// What the ways share: a directory, and how many tables were made.
pub(super) struct Base {
    pub(super) directory: Directory,
    pub(super) made: u64,
}

impl Base {
    pub(super) fn new() -> Result<Self, SysError> {
        Directory::new().map(|directory| Self { directory, made: 0 })
    }

    /// The bounds' place in a table.
    ///
    /// # Safety
    /// The table is mapped, and used by this thread alone.
    #[inline(always)]
    unsafe fn put(table: usize, at: usize, pointer: u64) {
        // SAFETY: the offset is inside the table.
        let entry = unsafe { &*(table.wrapping_add(offset_in_table(at)) as *const Entry) };
        let [lower, upper] = bounds(pointer);
        entry.lower.store(lower, Ordering::Relaxed);
        entry.upper.store(upper, Ordering::Relaxed);
        entry.pointer.store(pointer, Ordering::Relaxed);
    }

    fn kept(&self, at: usize) -> Option<u64> {
        let table = self.directory.entry(at).load(Ordering::Relaxed);
        if table == 0 {
            return None;
        }
        // SAFETY: the directory leads only to tables that are mapped; the offset is inside.
        let entry = unsafe { &*((table + offset_in_table(at)) as *const Entry) };
        Some(entry.pointer.load(Ordering::Relaxed))
    }

    /// Takes the table of an address out of the directory; 0 where there is none.
    #[inline]
    fn take(&self, at: usize) -> usize {
        let entry = self.directory.entry(at);
        let table = entry.load(Ordering::Relaxed);
        entry.store(0, Ordering::Relaxed);
        table
    }

    /// Takes it out and unmaps it.
    #[inline]
    fn unmap(&self, at: usize) -> io::Result<()> {
        match self.take(at) {
            0 => Ok(()),
            // SAFETY: the table was reserved with this size, and nothing leads to it any more.
            table => unsafe { unmap(table, TABLE_BYTES) },
        }
    }
}

/// The store looks whether there is a table and maps one.
pub(super) struct Inline(pub(super) Base);

impl Tables for Inline {
    #[inline]
    fn store(&mut self, at: usize, pointer: u64) -> io::Result<()> {
        let entry = self.0.directory.entry(at);
        let mut table = entry.load(Ordering::Relaxed);
        if table == 0 {
            table = reserve(TABLE_BYTES)?;
            entry.store(table, Ordering::Relaxed);
            self.0.made = self.0.made.wrapping_add(1);
        }
        // SAFETY: the directory leads only to tables that are mapped.
        unsafe { Base::put(table, at, pointer) };
        Ok(())
    }

    #[inline]
    fn free(&mut self, at: usize) -> io::Result<()> {
        self.0.unmap(at)
    }

    fn kept(&self, at: usize) -> Option<u64> {
        self.0.kept(at)
    }

    fn made(&self) -> u64 {
        self.0.made
    }
}

/// The store looks for nothing: without a table it faults, and the fault's handler maps one.
pub(super) struct Trap {
    base: Base,
    trapping: Trapping,
}

impl Trap {
    pub(super) fn new(base: Base) -> io::Result<Self> {
        Ok(Self { base, trapping: Trapping::begin()? })
    }
}

impl Tables for Trap {
    #[inline]
    fn store(&mut self, at: usize, pointer: u64) -> io::Result<()> {
        let entry = self.base.directory.entry(at);
        self.trapping.store(entry, offset_in_table(at), pointer)
    }

    #[inline]
    fn free(&mut self, at: usize) -> io::Result<()> {
        self.base.unmap(at)
    }

    fn kept(&self, at: usize) -> Option<u64> {
        self.base.kept(at)
    }

    fn made(&self) -> u64 {
        self.trapping.made()
    }
}

/// The store looks whether there is a table and takes one of a mapping that was made before.
pub(super) struct Arena {
    base: Base,
    tables: Mapping,
    free: Vec<usize>,
}

impl Arena {
    /// With room for so many tables.
    pub(super) fn new(base: Base, count: usize) -> Result<Self, SysError> {
        let tables = Mapping::reserved(count * TABLE_BYTES)?;
        let start = tables.as_ptr() as usize;
        let free = (0..count).rev().map(|index| start + index * TABLE_BYTES).collect();
        Ok(Self { base, tables, free })
    }
}

impl Tables for Arena {
    #[inline]
    fn store(&mut self, at: usize, pointer: u64) -> io::Result<()> {
        let entry = self.base.directory.entry(at);
        let mut table = entry.load(Ordering::Relaxed);
        if table == 0 {
            table = self.free.pop().ok_or(io::ErrorKind::OutOfMemory)?;
            entry.store(table, Ordering::Relaxed);
            self.base.made = self.base.made.wrapping_add(1);
        }
        // SAFETY: the directory leads only to tables of this arena, which is mapped.
        unsafe { Base::put(table, at, pointer) };
        Ok(())
    }

    #[inline]
    fn free(&mut self, at: usize) -> io::Result<()> {
        let table = self.base.take(at);
        if table == 0 {
            return Ok(());
        }
        debug_assert!(table >= self.tables.as_ptr() as usize);
        self.free.push(table);
        // SAFETY: the table is this arena's, and nothing leads to it any more.
        unsafe { empty(table, TABLE_BYTES) }
    }

    fn kept(&self, at: usize) -> Option<u64> {
        self.base.kept(at)
    }

    fn made(&self) -> u64 {
        self.base.made
    }
}
