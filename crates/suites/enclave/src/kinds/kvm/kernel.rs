//! What a guest holds beside the region: its code, descriptor tables, mailboxes, and for each TCS a TSS
//! with the stack of its exceptions. All has the host's own addresses.
//!
//! ```text
//! code of ring 3 | code of ring 0 | GDT, IDT | mailboxes | for each TCS { TSS, stack }
//! ```

use std::ptr;

use lab::sample::Failure;
use machine::mapping::Mapping;

use super::code::{Code, ENDED, MAILBOXES, Mailbox, OCALL, STUB, code};
use super::paging::{PageAccess, Part};
use crate::conf::PAGE;
use crate::elf::Access;

/// Kernel code.
pub(super) const KERNEL_CS: u16 = 0x08;
/// Kernel data.
pub(super) const KERNEL_SS: u16 = 0x10;
/// What `sysret` would count its selectors from.
pub(super) const SYSRET_BASE: u16 = 0x18;
/// Ring 3's data.
pub(super) const USER_SS: u16 = 0x23;
/// Ring 3's code.
pub(super) const USER_CS: u16 = 0x2b;

/// Vectors of exceptions.
const EXCEPTIONS: usize = 32;

const TABLES: usize = 2 * PAGE;
const IDT: usize = TABLES + 0x100;

/// The GDT: null, kernel code and data, ring 3's 32-bit code, data and code. TR is loaded by the host.
const GDT: [u64; 6] = {
    const CODE_64: u64 = 0x00af_9b00_0000_ffff;
    const CODE_32: u64 = 0x00cf_9b00_0000_ffff;
    const DATA: u64 = 0x00cf_9300_0000_ffff;
    const RING_3: u64 = 3 << 45;
    [0, CODE_64, DATA, CODE_32 | RING_3, DATA | RING_3, CODE_64 | RING_3]
};

const TSS_ALONE: usize = 104;
/// Bytes of a TSS: with a bitmap of the ports 0 to 15, and the byte that ends it.
pub(super) const TSS: usize = TSS_ALONE + 3;

/// What an exception leaves at the top of its stack, the last pushed first.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct Frame {
    /// The address of a page fault.
    pub(super) cr2: u64,
    /// RAX as it was.
    pub(super) rax: u64,
    /// The exception.
    pub(super) vector: u64,
    _error: u64,
    /// The instruction's address.
    pub(super) rip: u64,
    _cs: u64,
    _rflags: u64,
    _rsp: u64,
    _ss: u64,
}

/// The memory of a guest's own.
#[derive(Debug)]
pub(super) struct Kernel {
    memory: Mapping,
    tcs: usize,
}

impl Kernel {
    /// Makes one for so many TCS.
    pub(super) fn new(tcs: usize) -> Result<Self, Failure> {
        let length = stacks(tcs) + tcs * PAGE;
        let memory = Mapping::anonymous(length)
            .map_err(|why| Failure::failed(format!("the guest's own memory: {why}")))?;
        let kernel = Self { memory, tcs };
        let code = code();
        kernel.write(0, code.bytes);
        kernel.write(TABLES, &GDT.map(u64::to_le_bytes).concat());
        kernel.write(IDT, &idt(kernel.base(), &code));
        for number in 0..tcs {
            kernel.write(kernel.tss(number) - kernel.base(), &tss(kernel.fault_stack(number)));
        }
        Ok(kernel)
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.memory.len(), "the layout has room for all parts");
        // SAFETY: inside the mapping, as just seen; nobody else writes there, and no guest runs yet.
        unsafe {
            let to = self.memory.as_ptr().cast_mut().add(at);
            ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
    }

    /// Its first byte's address.
    pub(super) fn base(&self) -> usize {
        self.memory.as_ptr() as usize
    }

    /// Its length in bytes.
    pub(super) fn len(&self) -> usize {
        self.memory.len()
    }

    /// Who may do what with its pages.
    pub(super) fn parts(&self) -> Vec<Part> {
        let part = |pages: std::ops::Range<usize>, access, page_access| Part {
            range: self.base() + pages.start..self.base() + pages.end,
            access,
            page_access,
        };
        vec![
            part(0..PAGE, Access::Execute, PageAccess::User),
            part(PAGE..TABLES, Access::Execute, PageAccess::Kernel),
            part(TABLES..MAILBOXES, Access::Read, PageAccess::Kernel),
            part(MAILBOXES..stacks(self.tcs), Access::Write, PageAccess::User),
            part(stacks(self.tcs)..self.len(), Access::Write, PageAccess::Kernel),
        ]
    }

    /// The address of a part of the code.
    pub(super) fn code(&self, part: impl Fn(&Code) -> usize) -> u64 {
        (self.base() + part(&code())) as u64
    }

    /// Address and limit of the GDT.
    pub(super) fn gdt(&self) -> (u64, u16) {
        ((self.base() + TABLES) as u64, size_of_val(&GDT) as u16 - 1)
    }

    /// Address and limit of the IDT.
    pub(super) fn idt(&self) -> (u64, u16) {
        ((self.base() + IDT) as u64, 16 * EXCEPTIONS as u16 - 1)
    }

    /// Where `syscall` goes: no code, so that it ends in a page fault there, known by its address. It needs
    /// no code in ring 0, where the stack would be the inside's, and it is the same on a KVM that leaves the
    /// ring as it was.
    pub(super) fn system_call(&self) -> u64 {
        (self.base() + TABLES) as u64
    }

    /// The address of a TCS's TSS.
    pub(super) fn tss(&self, tcs: usize) -> usize {
        self.base() + stacks(self.tcs) + tcs * PAGE
    }

    /// Where the stack of a TCS's exceptions begins, at its high end.
    fn fault_stack(&self, tcs: usize) -> usize {
        self.tss(tcs) + PAGE
    }

    /// A TCS's mailbox.
    pub(super) fn mailbox(&self, tcs: usize) -> &Mailbox {
        assert!(tcs < self.tcs);
        // SAFETY: there is one a TCS, aligned, made of atomics and zero at first.
        unsafe { &*((self.base() + MAILBOXES) as *const Mailbox).add(tcs) }
    }

    /// What the last exception of a TCS left, which stands still.
    pub(super) fn frame(&self, tcs: usize) -> Frame {
        assert!(tcs < self.tcs);
        let at = self.fault_stack(tcs) - size_of::<Frame>();
        // SAFETY: inside the mapping and aligned; any bytes are a frame, and the TCS's vCPU does not run.
        unsafe { (at as *const Frame).read_volatile() }
    }
}

/// Where the TCS's own pages begin.
fn stacks(tcs: usize) -> usize {
    MAILBOXES + (tcs * size_of::<Mailbox>()).next_multiple_of(PAGE)
}

/// A TSS: every exception's stack, and the ports by which ring 3 leaves.
fn tss(stack: usize) -> [u8; TSS] {
    let mut tss = [0; TSS];
    tss[4..12].copy_from_slice(&stack.to_le_bytes());
    tss[36..44].copy_from_slice(&stack.to_le_bytes());
    tss[102..104].copy_from_slice(&(TSS_ALONE as u16).to_le_bytes());
    let allowed: u16 = 1 << ENDED | 1 << OCALL;
    tss[TSS_ALONE..TSS_ALONE + 2].copy_from_slice(&(!allowed).to_le_bytes());
    tss[TSS_ALONE + 2] = 0xff;
    tss
}

/// The IDT: every exception goes to its stub on the exceptions' stack.
fn idt(base: usize, code: &Code) -> Vec<u8> {
    let mut idt = vec![0; 16 * EXCEPTIONS];
    for vector in 0..EXCEPTIONS {
        // int3 is ring 3's to use.
        let ring = if vector == 3 { 3 } else { 0 };
        let handler = (base + code.stubs + vector * STUB) as u64;
        let gate = &mut idt[16 * vector..][..16];
        gate[0..2].copy_from_slice(&handler.to_le_bytes()[0..2]);
        gate[2..4].copy_from_slice(&KERNEL_CS.to_le_bytes());
        // The first of the TSS's interrupt stacks; present, an interrupt gate, open to this ring.
        gate[4] = 1;
        gate[5] = 0x8e | ring << 5;
        gate[6..12].copy_from_slice(&handler.to_le_bytes()[2..8]);
    }
    idt
}
