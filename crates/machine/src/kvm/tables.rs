//! Tables of a guest in 64-bit mode, in the CPU's format: page table, GDT, TSS and IDT.
//! Source: Intel SDM, volume 3.

use std::ops::Range;

use crate::mapping::PAGE;

/// Selector of the kernel code segment.
pub const KERNEL_CS: u16 = 0x08;
/// Selector of the kernel data segment.
pub const KERNEL_SS: u16 = 0x10;
/// Base from which `sysret` computes its selectors.
pub const SYSRET_BASE: u16 = 0x18;
/// Selector of the ring 3 data segment.
pub const USER_SS: u16 = 0x23;
/// Selector of the ring 3 code segment.
pub const USER_CS: u16 = 0x2b;
/// Selector of the TSS.
pub const TSS_SELECTOR: u16 = 0x30;

/// Descriptors of these selectors: null, kernel code and data, ring 3's 32-bit code, data and code. That of the TSS
/// is [`tss_descriptor`].
pub const GDT: [u64; 6] = {
    const CODE_64: u64 = 0x00af_9b00_0000_ffff;
    const CODE_32: u64 = 0x00cf_9b00_0000_ffff;
    const DATA: u64 = 0x00cf_9300_0000_ffff;
    const RING_3: u64 = 3 << 45;
    [0, CODE_64, DATA, CODE_32 | RING_3, DATA | RING_3, CODE_64 | RING_3]
};

/// Size of a TSS without an I/O bitmap, in bytes.
pub const TSS_BYTES: usize = 104;

/// Returns the descriptor of an available TSS without an I/O bitmap.
pub fn tss_descriptor(address: u64) -> [u64; 2] {
    const AVAILABLE: u64 = 0x89 << 40;
    let base = (address & 0xff_ffff) << 16 | (address >> 24 & 0xff) << 56;
    [(TSS_BYTES as u64 - 1) | base | AVAILABLE, address >> 32]
}

/// Returns a TSS with the top of the stack for traps from ring 3 and of the first interrupt stack. An I/O bitmap may
/// follow it.
pub fn tss(trap_stack: u64, interrupt_stack: u64) -> [u8; TSS_BYTES] {
    let mut tss = [0; TSS_BYTES];
    tss[4..12].copy_from_slice(&trap_stack.to_le_bytes());
    tss[36..44].copy_from_slice(&interrupt_stack.to_le_bytes());
    tss[102..104].copy_from_slice(&(TSS_BYTES as u16).to_le_bytes());
    tss
}

/// Number of exception vectors.
pub const EXCEPTIONS: usize = 32;
/// Size of a gate of the IDT, in bytes.
pub const GATE_BYTES: usize = 16;

/// Returns an interrupt gate to a handler in ring 0 on the first interrupt stack. `dpl` is its privilege level: the highest
/// ring whose `int` may use it.
pub fn gate(handler: u64, dpl: u8) -> [u8; GATE_BYTES] {
    const PRESENT_INTERRUPT_GATE: u8 = 0x8e;
    let handler = handler.to_le_bytes();
    let mut gate = [0; GATE_BYTES];
    gate[0..2].copy_from_slice(&handler[0..2]);
    gate[2..4].copy_from_slice(&KERNEL_CS.to_le_bytes());
    gate[4] = 1;
    gate[5] = PRESENT_INTERRUPT_GATE | dpl << 5;
    gate[6..12].copy_from_slice(&handler[2..8]);
    gate
}

/// Returns an IDT in which every exception goes to its stub. Ring 3 may use `int3`.
pub fn idt(stubs: u64, stub_bytes: usize) -> Vec<u8> {
    let handlers = (stubs..).step_by(stub_bytes).take(EXCEPTIONS);
    handlers
        .zip(0..)
        .flat_map(|(stub, vector)| gate(stub, if vector == 3 { 3 } else { 0 }))
        .collect()
}

/// Flag of a page that may be written.
pub const WRITABLE: u64 = 1 << 1;
/// Flag of a page that ring 3 may use.
pub const USER: u64 = 1 << 2;
/// Flag of a page whose content is not executed; the guest must enable it in EFER.
pub const NO_EXECUTE: u64 = 1 << 63;

const PRESENT: u64 = 1;
/// Set in advance, so that the CPU never writes them.
const ACCESSED_DIRTY: u64 = 3 << 5;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
/// Number of entries per page of the table.
const ENTRIES: usize = PAGE / 8;

/// A four-level page table at an address of the guest's memory.
#[derive(Debug, Clone)]
pub struct PageTable {
    address: u64,
    entries: Vec<u64>,
}

impl PageTable {
    /// Creates an empty table: one page, the root.
    pub fn new(address: u64) -> Self {
        Self { address, entries: vec![0; ENTRIES] }
    }

    /// Maps whole pages to consecutive guest-physical addresses that start at `memory`.
    pub fn map(&mut self, pages: Range<u64>, memory: u64, flags: u64) {
        for (page, memory) in pages.step_by(PAGE).zip((memory..).step_by(PAGE)) {
            let entry = self.last(page);
            self.entries[entry] = memory | flags | PRESENT | ACCESSED_DIRTY;
        }
    }

    /// Returns the index of the last-level entry of an address; appends the pages of the levels above.
    fn last(&mut self, address: u64) -> usize {
        let mut table = 0;
        for level in [3, 2, 1] {
            let entry = table * ENTRIES + index(address, level);
            if self.entries[entry] == 0 {
                let next = self.address + 8 * self.entries.len() as u64;
                self.entries[entry] = next | PRESENT | WRITABLE | USER | ACCESSED_DIRTY;
                self.entries.resize(self.entries.len() + ENTRIES, 0);
            }
            table = self.page(self.entries[entry]);
        }
        table * ENTRIES + index(address, 0)
    }

    /// Returns the number of the page of this table to which an entry points.
    fn page(&self, entry: u64) -> usize {
        ((entry & ADDRESS) - self.address) as usize / PAGE
    }

    /// Walks the table as the CPU does. Returns the guest-physical address and the flags of a mapped page.
    pub fn walk(&self, address: u64) -> Option<(u64, u64)> {
        let entry = |table: usize, level| {
            let entry = self.entries[table * ENTRIES + index(address, level)];
            (entry & PRESENT != 0).then_some(entry)
        };
        let table = [3, 2, 1]
            .into_iter()
            .try_fold(0, |table, level| Some(self.page(entry(table, level)?)))?;
        let last = entry(table, 0)?;
        Some((last & ADDRESS, last & (WRITABLE | USER | NO_EXECUTE)))
    }

    /// Returns all entries: whole pages, to be loaded at the table's address.
    pub fn entries(&self) -> &[u64] {
        &self.entries
    }
}

/// Returns the index of an address in a page of a level.
fn index(address: u64, level: u32) -> usize {
    (address >> (12 + 9 * level)) as usize % ENTRIES
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns base, limit and access byte of a descriptor.
    fn segment(descriptor: u64) -> (u64, u64, u8) {
        let base = descriptor >> 16 & 0xff_ffff | descriptor >> 56 << 24;
        (base, descriptor & 0xffff | descriptor >> 32 & 0xf_0000, (descriptor >> 40) as u8)
    }

    #[test]
    fn selectors_name_descriptors_of_their_ring() {
        for (selector, access) in
            [(KERNEL_CS, 0x9b), (KERNEL_SS, 0x93), (USER_SS, 0xf3), (USER_CS, 0xfb)]
        {
            let descriptor = GDT[usize::from(selector) / 8];
            assert_eq!(segment(descriptor), (0, 0xf_ffff, access), "{selector:#x}");
            assert_eq!(selector & 3, u16::from(access >> 5 & 3), "{selector:#x}");
        }
        assert_eq!([(SYSRET_BASE + 8) | 3, (SYSRET_BASE + 16) | 3], [USER_SS, USER_CS]);
        assert_eq!(usize::from(TSS_SELECTOR), size_of_val(&GDT));
        let [low, high] = tss_descriptor(0x1234_5678_9abc_def0);
        assert_eq!((segment(low), high), ((0x9abc_def0, 103, 0x89), 0x1234_5678));
    }

    #[test]
    fn every_exception_goes_to_its_stub() {
        let idt = idt(0x1234_5678_9abc_d000, 16);
        assert_eq!(idt.len(), EXCEPTIONS * GATE_BYTES);
        for (vector, gate) in idt.chunks(GATE_BYTES).enumerate() {
            let handler = [&gate[0..2], &gate[6..12]].concat();
            let handler = u64::from_le_bytes(handler.try_into().unwrap());
            assert_eq!(handler, 0x1234_5678_9abc_d000 + 16 * vector as u64);
            let access = if vector == 3 { 0xee } else { 0x8e };
            assert_eq!(gate[2..6], [KERNEL_CS as u8, 0, 1, access], "{vector}");
        }
    }

    proptest! {
        #[test]
        fn exactly_the_mapped_pages_are_found(
            base in 1u64..1 << 34,
            parts in prop::collection::vec(
                (1u64..600, 1u64..3, prop::sample::subsequence(vec![WRITABLE, USER, NO_EXECUTE], 0..3)),
                1..6,
            ),
        ) {
            let page = PAGE as u64;
            let mut table = PageTable::new(1 << 30);
            let (mut start, mut memory, mut mapped) = (base * page, 1 << 32, vec![]);
            for (pages, hole, flags) in parts {
                let (part, flags) = (start..start + pages * page, flags.iter().sum());
                table.map(part.clone(), memory, flags);
                prop_assert_eq!(table.walk(start - page), None);
                start += (pages + hole) * page;
                mapped.push((part, memory, flags));
                memory += (pages + hole) * page;
            }
            for (part, memory, flags) in mapped {
                prop_assert_eq!(table.walk(part.end), None);
                for (address, memory) in part.step_by(PAGE).zip((memory..).step_by(PAGE)) {
                    prop_assert_eq!(table.walk(address), Some((memory, flags)));
                }
            }
        }
    }
}
