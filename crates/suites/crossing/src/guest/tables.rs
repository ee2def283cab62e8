//! Page tables, GDT and IDT of the guest.

use machine::kvm::tables::{self, GATE_BYTES, PageTable, USER, WRITABLE, gate, tss_descriptor};

use super::code::{Code, STUB};
use super::layout::{
    BINS_END, CODE, CODE_CAPACITY, EMPTY_BINS, END, ENTRY_DATA, FAULT_STACK, GDT, IDT, INT_VECTOR,
    KERNEL_DATA, KERNEL_STACK, PAGE, TABLES, TRAP_STACK, TSS, USER_DATA, USER_STACK, VGA,
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
pub(super) fn page_tables(code: &Code) -> [PageTable; 2] {
    let kernel = page_table(code, TABLES, |_| true);
    let user = page_table(code, TABLES + LEVELS * PAGE, |access| access != Access::Kernel);
    [kernel, user]
}

/// Returns a table of 4 pages at `address` that maps the pages below 2 MiB for which `maps` returns true.
fn page_table(code: &Code, address: u64, maps: impl Fn(Access) -> bool) -> PageTable {
    let mut table = PageTable::new(address);
    for page in (CODE..END).step_by(PAGE as usize).chain([VGA]) {
        let access = access(code, page);
        if maps(access) {
            let user = if access == Access::User { USER } else { 0 };
            table.map(page..page + PAGE, page, WRITABLE | user);
        }
    }
    table
}

/// Returns the GDT, with the TSS.
pub(super) fn gdt() -> Vec<u8> {
    tables::GDT.into_iter().chain(tss_descriptor(TSS)).flat_map(u64::to_le_bytes).collect()
}

/// Returns the IDT: every exception goes to its stub, on the fault stack. The guest redirects the gate of a
/// sample's kind.
pub(super) fn idt(code: &Code) -> Vec<u8> {
    let stub = |vector| CODE + (code.stubs + vector * STUB) as u64;
    let mut idt = tables::idt(stub(0), STUB);
    idt.resize(GATE_BYTES * INT_VECTOR as usize, 0);
    // Until a sample redirects the gate, handled like the reserved exception 15: neither has an error code.
    idt.extend(gate(stub(15), 3));
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
const _: () = assert!(USER_DATA < USER_STACK && USER_STACK <= TABLES);
const _: () = assert!(TABLES < EMPTY_BINS && EMPTY_BINS < BINS_END && BINS_END <= END);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::code::code;
    use crate::guest::layout::{HOLE, SCHEDULE};

    #[test]
    fn ring_3s_table_maps_the_entries_and_no_other_page_of_the_kernel() {
        let code = code();
        let tables = page_tables(&code);
        let [kernel, user] = &tables;
        assert_eq!([kernel, user].map(|table| table.entries().len()), [LEVELS as usize * 512; 2]);
        for page in [CODE, KERNEL_DATA, KERNEL_STACK - PAGE, TABLES, SCHEDULE, VGA] {
            assert!(kernel.walk(page).is_some(), "{page:x}");
            assert_eq!(user.walk(page), None, "{page:x}");
        }
        let entries = CODE + code.entries as u64;
        for page in [entries, GDT, IDT, TRAP_STACK - PAGE, FAULT_STACK - PAGE, ENTRY_DATA] {
            for table in &tables {
                assert_eq!(table.walk(page), Some((page, WRITABLE)), "{page:x}");
            }
        }
        let ring_3 = CODE + code.user as u64;
        for page in [ring_3, USER_DATA, USER_STACK - PAGE, EMPTY_BINS, BINS_END - PAGE] {
            for table in &tables {
                assert_eq!(table.walk(page), Some((page, WRITABLE | USER)), "{page:x}");
            }
        }
        for table in &tables {
            assert_eq!(table.walk(HOLE), None);
        }
    }
}
