//! Ways to allocate a bounds table when the first pointer of its MiB is stored.

use std::io;
use std::sync::atomic::Ordering;

use machine::SysError;
use machine::mapping::Mapping;

use super::memory::{madvise_dontneed, reserve, unmap};
use super::trap::TableFaultHandler;
use crate::software::{Directory, Entry, TABLE_BYTES, object_bounds, offset_in_table};

/// Bounds tables, allocated on the first store.
pub(super) trait BoundsTables {
    /// Stores the bounds of the pointer at `address`, in a new table if there is none.
    fn store(&mut self, address: usize, pointer: u64) -> io::Result<()>;
    /// Frees the table of `address`.
    fn free(&mut self, address: usize) -> io::Result<()>;
    /// Returns the pointer in the entry of `address`; `None` if there is no table.
    fn stored_pointer(&self, address: usize) -> Option<u64>;
    /// Returns the number of tables made so far.
    fn made(&self) -> u64;
}

/// No tables.
pub(super) struct Untracked;

impl BoundsTables for Untracked {
    #[inline]
    fn store(&mut self, _: usize, _: u64) -> io::Result<()> {
        Ok(())
    }

    #[inline]
    fn free(&mut self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn stored_pointer(&self, _: usize) -> Option<u64> {
        None
    }

    fn made(&self) -> u64 {
        0
    }
}

/// Directory and number of tables, common to all strategies.
pub(super) struct Base {
    pub(super) directory: Directory,
    pub(super) made: u64,
}

impl Base {
    pub(super) fn new() -> Result<Self, SysError> {
        Directory::new().map(|directory| Self { directory, made: 0 })
    }

    /// Writes the bounds into the entry of `address`.
    ///
    /// # Safety
    /// `table` is the address of a mapped table that only this thread uses.
    #[inline(always)]
    unsafe fn put(table: usize, address: usize, pointer: u64) {
        // SAFETY: the caller guarantees that the table is mapped, and the offset is within it.
        let entry = unsafe { &*(table.wrapping_add(offset_in_table(address)) as *const Entry) };
        let [lower, upper] = object_bounds(pointer);
        entry.lower.store(lower, Ordering::Relaxed);
        entry.upper.store(upper, Ordering::Relaxed);
        entry.pointer.store(pointer, Ordering::Relaxed);
    }

    fn stored_pointer(&self, address: usize) -> Option<u64> {
        let table = self.directory.entry(address).load(Ordering::Relaxed);
        if table == 0 {
            return None;
        }
        // SAFETY: the directory contains only addresses of mapped tables, and the offset is within the table.
        let entry = unsafe { &*((table + offset_in_table(address)) as *const Entry) };
        Some(entry.pointer.load(Ordering::Relaxed))
    }

    /// Removes the table of `address` from the directory and returns it; 0 if there is none.
    #[inline]
    fn take(&self, address: usize) -> usize {
        let entry = self.directory.entry(address);
        let table = entry.load(Ordering::Relaxed);
        entry.store(0, Ordering::Relaxed);
        table
    }

    /// Removes the table of `address` from the directory and unmaps it.
    #[inline]
    fn unmap(&self, address: usize) -> io::Result<()> {
        match self.take(address) {
            0 => Ok(()),
            // SAFETY: the table was mapped with this size and is no longer in the directory.
            table => unsafe { unmap(table, TABLE_BYTES) },
        }
    }
}

/// The store checks for a table and maps one if it is missing.
pub(super) struct Inline(pub(super) Base);

impl BoundsTables for Inline {
    #[inline]
    fn store(&mut self, address: usize, pointer: u64) -> io::Result<()> {
        let entry = self.0.directory.entry(address);
        let mut table = entry.load(Ordering::Relaxed);
        if table == 0 {
            table = reserve(TABLE_BYTES)?;
            entry.store(table, Ordering::Relaxed);
            self.0.made = self.0.made.wrapping_add(1);
        }
        // SAFETY: the directory contains only addresses of mapped tables.
        unsafe { Base::put(table, address, pointer) };
        Ok(())
    }

    #[inline]
    fn free(&mut self, address: usize) -> io::Result<()> {
        self.0.unmap(address)
    }

    fn stored_pointer(&self, address: usize) -> Option<u64> {
        self.0.stored_pointer(address)
    }

    fn made(&self) -> u64 {
        self.0.made
    }
}

/// The store checks nothing: it faults if the table is missing, and the handler maps one.
pub(super) struct Trap {
    base: Base,
    handler: TableFaultHandler,
}

impl Trap {
    pub(super) fn new(base: Base) -> io::Result<Self> {
        Ok(Self { base, handler: TableFaultHandler::install()? })
    }
}

impl BoundsTables for Trap {
    #[inline]
    fn store(&mut self, address: usize, pointer: u64) -> io::Result<()> {
        let entry = self.base.directory.entry(address);
        self.handler.store(entry, offset_in_table(address), pointer)
    }

    #[inline]
    fn free(&mut self, address: usize) -> io::Result<()> {
        self.base.unmap(address)
    }

    fn stored_pointer(&self, address: usize) -> Option<u64> {
        self.base.stored_pointer(address)
    }

    fn made(&self) -> u64 {
        self.handler.made()
    }
}

/// The store checks for a table and takes one from an existing mapping if it is missing.
pub(super) struct Arena {
    base: Base,
    tables: Mapping,
    free: Vec<usize>,
}

impl Arena {
    /// Reserves space for `count` tables.
    pub(super) fn new(base: Base, count: usize) -> Result<Self, SysError> {
        let tables = Mapping::reserved(count * TABLE_BYTES)?;
        let start = tables.as_ptr() as usize;
        let free = (0..count).rev().map(|index| start + index * TABLE_BYTES).collect();
        Ok(Self { base, tables, free })
    }
}

impl BoundsTables for Arena {
    #[inline]
    fn store(&mut self, address: usize, pointer: u64) -> io::Result<()> {
        let entry = self.base.directory.entry(address);
        let mut table = entry.load(Ordering::Relaxed);
        if table == 0 {
            table = self.free.pop().ok_or(io::ErrorKind::OutOfMemory)?;
            entry.store(table, Ordering::Relaxed);
            self.base.made = self.base.made.wrapping_add(1);
        }
        // SAFETY: the directory contains only tables of this arena, which is mapped.
        unsafe { Base::put(table, address, pointer) };
        Ok(())
    }

    #[inline]
    fn free(&mut self, address: usize) -> io::Result<()> {
        let table = self.base.take(address);
        if table == 0 {
            return Ok(());
        }
        debug_assert!(table >= self.tables.as_ptr() as usize);
        self.free.push(table);
        // SAFETY: the table belongs to this arena and is no longer in the directory.
        unsafe { madvise_dontneed(table, TABLE_BYTES) }
    }

    fn stored_pointer(&self, address: usize) -> Option<u64> {
        self.base.stored_pointer(address)
    }

    fn made(&self) -> u64 {
        self.base.made
    }
}
