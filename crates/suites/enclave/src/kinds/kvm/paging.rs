//! A guest's page table, which maps exactly the pages that the guest may use, at the host's addresses.

use std::ops::Range;

use crate::conf::PAGE;
use crate::elf::Access;

/// The privilege level that may use a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PageAccess {
    /// Only ring 0 of the guest.
    Kernel,
    /// Ring 3 too, in which the enclave runs.
    User,
}

/// Pages with the same access.
#[derive(Debug, Clone)]
pub(super) struct Part {
    /// Their addresses: whole pages.
    pub(super) range: Range<usize>,
    /// The permitted access.
    pub(super) access: Access,
    /// The privilege level required.
    pub(super) page_access: PageAccess,
}

const PRESENT: u64 = 1;
const WRITABLE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
/// Set in advance, so that the CPU never writes them.
const ACCESSED_DIRTY: u64 = 3 << 5;
const NO_EXECUTE: u64 = 1 << 63;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
/// Number of entries per page of the table.
const ENTRIES: usize = 512;

/// A four-level page table, in the layout of the guest's memory.
#[derive(Debug)]
pub(super) struct PageTable {
    at: u64,
    entries: Vec<u64>,
}

impl PageTable {
    /// Creates an empty table at an address of the guest's memory.
    pub(super) fn new(at: u64) -> Self {
        Self { at, entries: vec![0; ENTRIES] }
    }

    /// Maps a part to consecutive guest-physical addresses that start at `memory`.
    pub(super) fn map(&mut self, part: &Part, memory: u64) {
        let mut flags = PRESENT | ACCESSED_DIRTY;
        flags |= if part.access == Access::Write { WRITABLE } else { 0 };
        flags |= if part.access == Access::Execute { 0 } else { NO_EXECUTE };
        flags |= if part.page_access == PageAccess::User { USER } else { 0 };
        for (address, memory) in part.range.clone().step_by(PAGE).zip((memory..).step_by(PAGE)) {
            let entry = self.last(address);
            self.entries[entry] = memory | flags;
        }
    }

    /// Returns the index of the last-level entry of an address; creates the levels above.
    fn last(&mut self, address: usize) -> usize {
        let index = |level: usize| address >> (12 + 9 * level) & (ENTRIES - 1);
        let mut table = 0;
        for level in [3, 2, 1] {
            let entry = table * ENTRIES + index(level);
            if self.entries[entry] == 0 {
                let next = self.at + (self.entries.len() / ENTRIES * PAGE) as u64;
                self.entries[entry] = next | PRESENT | WRITABLE | USER | ACCESSED_DIRTY;
                self.entries.resize(self.entries.len() + ENTRIES, 0);
            }
            table = ((self.entries[entry] & ADDRESS) - self.at) as usize / PAGE;
        }
        table * ENTRIES + index(0)
    }

    /// Returns all entries: whole pages.
    pub(super) fn entries(&self) -> &[u64] {
        &self.entries
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Walks the table as the CPU does; returns the last-level entry of an address.
    fn walk(table: &PageTable, address: usize) -> Option<u64> {
        let mut page = table.at;
        let mut entry = 0;
        for shift in [39, 30, 21, 12] {
            let index = (page - table.at) as usize / 8 + (address >> shift & 0x1ff);
            entry = table.entries[index];
            if entry & PRESENT == 0 {
                return None;
            }
            page = entry & ADDRESS;
        }
        Some(entry)
    }

    proptest! {
        #[test]
        fn exactly_the_pages_of_parts_are_mapped(
            base in 1usize..1 << 34,
            lengths in prop::collection::vec((1usize..600, 1usize..3, 0usize..4), 1..6),
        ) {
            let mut table = PageTable::new(1 << 30);
            let (mut page, mut memory, mut parts) = (base, 1 << 32, vec![]);
            for (pages, hole, kind) in lengths {
                let (access, page_access) = [
                    (Access::Read, PageAccess::User), (Access::Write, PageAccess::User),
                    (Access::Execute, PageAccess::User), (Access::Write, PageAccess::Kernel),
                ][kind];
                let part = Part { range: page * PAGE..(page + pages) * PAGE, access, page_access };
                table.map(&part, memory);
                prop_assert_eq!(walk(&table, part.range.start - PAGE), None);
                page += pages + hole;
                parts.push((part, memory));
                memory += ((pages + hole) * PAGE) as u64;
            }
            for (part, memory) in parts {
                prop_assert_eq!(walk(&table, part.range.end), None);
                for (number, address) in part.range.clone().step_by(PAGE).enumerate() {
                    let entry = walk(&table, address).unwrap();
                    prop_assert_eq!(entry & ADDRESS, memory + (number * PAGE) as u64);
                    prop_assert_eq!(entry & WRITABLE != 0, part.access == Access::Write);
                    prop_assert_eq!(entry & NO_EXECUTE == 0, part.access == Access::Execute);
                    prop_assert_eq!(entry & USER != 0, part.page_access == PageAccess::User);
                }
            }
        }
    }
}
