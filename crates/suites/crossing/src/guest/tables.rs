//! Page tables, GDT, TSS and IDT, in the CPU's format.

use super::code::{Code, STUB};
use super::layout::{
    BINS_END, CODE, CODE_CAPACITY, EMPTY_BINS, END, ENTRY_DATA, FAULT_STACK, GATES, GDT, IDT,
    INT_VECTOR, KERNEL_CS, KERNEL_DATA, KERNEL_STACK, PAGE, TABLES, TRAP_STACK, TSS, USER_DATA,
    USER_STACK, VGA,
};

/// Access rights of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// The kernel, with only its page table loaded.
    Kernel,
    /// The kernel, with either page table loaded.
    Entry,
    /// Ring 3 and the kernel.
    User,
}

const PRESENT: u64 = 1;
const WRITABLE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
const ACCESSED_DIRTY: u64 = 3 << 5;

/// Levels of a page table, one page each.
pub(super) const LEVELS: u64 = 4;

/// Returns the access rights of the page at an address of the guest.
pub(super) fn access(code: &Code, page: u64) -> Access {
    let entries = CODE + code.entries as u64;
    let user = CODE + code.user as u64;
    match page {
        _ if (user..CODE + CODE_CAPACITY).contains(&page) => Access::User,
        _ if (entries..user).contains(&page) => Access::Entry,
        _ if (GDT..KERNEL_DATA).contains(&page) => Access::Entry,
        _ if (USER_DATA..USER_STACK).contains(&page) => Access::User,
        _ if (EMPTY_BINS..BINS_END).contains(&page) => Access::User,
        _ => Access::Kernel,
    }
}

/// Returns the two page tables, to be loaded at [`TABLES`]: the kernel's maps all pages, ring 3's under
/// isolation all but the kernel's private pages.
pub(super) fn page_tables(code: &Code) -> Vec<u64> {
    let kernel = page_table(code, TABLES, |_| true);
    let user = page_table(code, TABLES + LEVELS * PAGE, |access| access != Access::Kernel);
    [kernel, user].concat()
}

/// Returns a table of 4 pages at `address` that maps the pages below 2 MiB for which `maps` returns true.
fn page_table(code: &Code, address: u64, maps: impl Fn(Access) -> bool) -> Vec<u64> {
    const ENTRIES: usize = 512;
    let mut table = vec![0; LEVELS as usize * ENTRIES];
    for level in 0..LEVELS - 1 {
        let next = address + (level + 1) * PAGE;
        table[level as usize * ENTRIES] = next | PRESENT | WRITABLE | USER | ACCESSED_DIRTY;
    }
    let last = (LEVELS - 1) as usize * ENTRIES;
    for page in (CODE..END).step_by(PAGE as usize).chain([VGA]) {
        let access = access(code, page);
        if maps(access) {
            let user = if access == Access::User { USER } else { 0 };
            table[last + (page / PAGE) as usize] =
                page | PRESENT | WRITABLE | ACCESSED_DIRTY | user;
        }
    }
    table
}

/// Returns the GDT: null, kernel code and data, ring 3's 32-bit code (the base of sysret), data and code, and
/// the TSS.
pub(super) fn gdt() -> [u64; 8] {
    const CODE_64: u64 = 0x00af_9b00_0000_ffff;
    const CODE_32: u64 = 0x00cf_9b00_0000_ffff;
    const DATA: u64 = 0x00cf_9300_0000_ffff;
    const RING_3: u64 = 3 << 45;
    let (limit, available_tss) = (TSS_BYTES as u64 - 1, 0x89 << 40);
    let low = limit | (TSS & 0xff_ffff) << 16 | available_tss | (TSS >> 24 & 0xff) << 56;
    [0, CODE_64, DATA, CODE_32 | RING_3, DATA | RING_3, CODE_64 | RING_3, low, TSS >> 32]
}

/// Size of the GDT, in bytes.
pub(super) const GDT_BYTES: usize = 64;
/// Size of the TSS without an I/O map, in bytes.
pub(super) const TSS_BYTES: usize = 104;

/// Returns the TSS, with the stack for traps from ring 3 and one interrupt stack (IST 1) for faults.
pub(super) fn tss() -> [u8; TSS_BYTES] {
    let mut tss = [0; TSS_BYTES];
    tss[4..12].copy_from_slice(&TRAP_STACK.to_le_bytes());
    tss[36..44].copy_from_slice(&FAULT_STACK.to_le_bytes());
    tss[102..104].copy_from_slice(&(TSS_BYTES as u16).to_le_bytes());
    tss
}

/// Returns the IDT: every exception goes to its stub, on the fault stack. The guest redirects the gate of a
/// sample's kind.
pub(super) fn idt(code: &Code) -> Vec<u8> {
    let mut idt = vec![0; 16 * GATES as usize];
    let mut gate = |vector: u64, handler: usize, stack: u8, ring: u8| {
        let handler = CODE + handler as u64;
        let gate = &mut idt[16 * vector as usize..][..16];
        gate[0..2].copy_from_slice(&handler.to_le_bytes()[0..2]);
        gate[2..4].copy_from_slice(&KERNEL_CS.to_le_bytes()[0..2]);
        gate[4] = stack;
        // Present interrupt gate, usable by `int` from this ring.
        gate[5] = 0x8e | ring << 5;
        gate[6..12].copy_from_slice(&handler.to_le_bytes()[2..8]);
    };
    for vector in 0..32 {
        let ring = if vector == 3 { 3 } else { 0 };
        gate(vector, code.stubs + vector as usize * STUB, 1, ring);
    }
    // Until a sample redirects the gate, handled like the reserved exception 15: neither has an error code.
    gate(INT_VECTOR, code.stubs + 15 * STUB, 1, 3);
    idt
}

/// Returns the operand of lgdt or lidt.
pub(super) fn pointer(address: u64, bytes: usize) -> [u8; 10] {
    let mut pointer = [0; 10];
    pointer[0..2].copy_from_slice(&((bytes - 1) as u16).to_le_bytes());
    pointer[2..].copy_from_slice(&address.to_le_bytes());
    pointer
}

// `access` relies on this order.
const _: () = assert!(
    CODE + CODE_CAPACITY <= GDT && GDT < IDT && IDT < TRAP_STACK && TRAP_STACK < FAULT_STACK
);
const _: () = assert!(FAULT_STACK <= ENTRY_DATA && ENTRY_DATA < KERNEL_DATA);
const _: () = assert!(KERNEL_DATA < KERNEL_STACK && KERNEL_STACK <= USER_DATA);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::code::code;
    use crate::guest::layout::{HOLE, SCHEDULE};

    /// Walks a page table as the CPU does, and returns the last entry; `None` if the address is unmapped.
    fn walk(tables: &[u64], root: u64, address: u64) -> Option<u64> {
        let mut table = root;
        let mut entry = 0;
        for shift in [39, 30, 21, 12] {
            let index = (table - TABLES) / 8 + (address >> shift & 0x1ff);
            entry = tables[index as usize];
            if entry & PRESENT == 0 {
                return None;
            }
            table = entry & 0x000f_ffff_ffff_f000;
        }
        Some(entry)
    }

    #[test]
    fn ring_3s_table_maps_the_entries_and_no_other_page_of_the_kernel() {
        let code = code();
        let tables = page_tables(&code);
        let (kernel, user) = (TABLES, TABLES + LEVELS * PAGE);
        for page in [CODE, KERNEL_DATA, KERNEL_STACK - PAGE, TABLES, SCHEDULE, VGA] {
            assert!(walk(&tables, kernel, page).is_some(), "{page:x}");
            assert_eq!(walk(&tables, user, page), None, "{page:x}");
        }
        let entries = CODE + code.entries as u64;
        for page in [entries, GDT, IDT, TRAP_STACK - PAGE, FAULT_STACK - PAGE, ENTRY_DATA] {
            for root in [kernel, user] {
                let entry = walk(&tables, root, page).unwrap();
                assert_eq!((entry & USER, entry & !0xfff), (0, page), "{page:x}");
            }
        }
        let ring_3 = CODE + code.user as u64;
        for page in [ring_3, USER_DATA, USER_STACK - PAGE, EMPTY_BINS, BINS_END - PAGE] {
            for root in [kernel, user] {
                let entry = walk(&tables, root, page).unwrap();
                assert_eq!((entry & USER, entry & !0xfff), (USER, page), "{page:x}");
            }
        }
        for root in [kernel, user] {
            assert_eq!(walk(&tables, root, HOLE), None);
        }
    }
}
