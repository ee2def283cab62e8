//! The memory of a guest beyond the enclave's region: code, descriptor tables, mailboxes, and for each TCS a TSS with
//! the stack for exceptions. Guest and host use the same addresses.
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

/// Selector of the kernel code segment.
pub(super) const KERNEL_CS: u16 = 0x08;
/// Selector of the kernel data segment.
pub(super) const KERNEL_SS: u16 = 0x10;
/// Base from which `sysret` would compute its selectors.
pub(super) const SYSRET_BASE: u16 = 0x18;
/// Selector of the ring 3 data segment.
pub(super) const USER_SS: u16 = 0x23;
/// Selector of the ring 3 code segment.
pub(super) const USER_CS: u16 = 0x2b;

/// Number of exception vectors.
const EXCEPTIONS: usize = 32;

const TABLES: usize = 2 * PAGE;
const IDT: usize = TABLES + 0x100;

/// The GDT: null, kernel code and data, ring 3's 32-bit code, data and code. The host loads TR.
const GDT: [u64; 6] = {
    const CODE_64: u64 = 0x00af_9b00_0000_ffff;
    const CODE_32: u64 = 0x00cf_9b00_0000_ffff;
    const DATA: u64 = 0x00cf_9300_0000_ffff;
    const RING_3: u64 = 3 << 45;
    [0, CODE_64, DATA, CODE_32 | RING_3, DATA | RING_3, CODE_64 | RING_3]
};

const TSS_ALONE: usize = 104;
/// Length of a TSS with the permission bitmap of ports 0 to 15 and its terminating byte.
pub(super) const TSS: usize = TSS_ALONE + 3;

/// The frame that an exception leaves at the top of its stack; the last value pushed comes first.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct Frame {
    /// The address of a page fault.
    pub(super) cr2: u64,
    /// RAX at the exception.
    pub(super) rax: u64,
    /// The exception's vector.
    pub(super) vector: u64,
    _error: u64,
    /// The address of the instruction.
    pub(super) rip: u64,
    _cs: u64,
    _rflags: u64,
    _rsp: u64,
    _ss: u64,
}

/// The guest's memory beyond the region.
#[derive(Debug)]
pub(super) struct Kernel {
    memory: Mapping,
    tcs: usize,
}

impl Kernel {
    /// Creates the memory for a number of TCS.
    pub(super) fn new(tcs: usize) -> Result<Self, Failure> {
        let length = stacks(tcs) + tcs * PAGE;
        let memory = Mapping::anonymous(length)
            .map_err(|why| Failure::failed(format!("memory for the guest's kernel: {why}")))?;
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
        assert!(at + bytes.len() <= self.memory.len(), "the layout has space for all parts");
        // SAFETY: the assertion keeps it inside the mapping; no other thread writes there, and no guest runs yet.
        unsafe {
            let to = self.memory.as_ptr().cast_mut().add(at);
            ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
    }

    /// Returns the address of the first byte.
    pub(super) fn base(&self) -> usize {
        self.memory.as_ptr() as usize
    }

    /// Returns the length, in bytes.
    pub(super) fn len(&self) -> usize {
        self.memory.len()
    }

    /// Returns the pages with their access rights.
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

    /// Returns the address of a part of the code.
    pub(super) fn code(&self, part: impl Fn(&Code) -> usize) -> u64 {
        (self.base() + part(&code())) as u64
    }

    /// Returns the address and the limit of the GDT.
    pub(super) fn gdt(&self) -> (u64, u16) {
        ((self.base() + TABLES) as u64, size_of_val(&GDT) as u16 - 1)
    }

    /// Returns the address and the limit of the IDT.
    pub(super) fn idt(&self) -> (u64, u16) {
        ((self.base() + IDT) as u64, 16 * EXCEPTIONS as u16 - 1)
    }

    /// Returns the target of `syscall`: an address without code, so that a system call ends in a page fault that is
    /// recognised by its address. This needs no ring 0 code, which would run on the enclave's stack, and it works on
    /// a KVM that does not change the ring.
    pub(super) fn system_call(&self) -> u64 {
        (self.base() + TABLES) as u64
    }

    /// Returns the address of the TSS of a TCS.
    pub(super) fn tss(&self, tcs: usize) -> usize {
        self.base() + stacks(self.tcs) + tcs * PAGE
    }

    /// Returns the high end of the exception stack of a TCS.
    fn fault_stack(&self, tcs: usize) -> usize {
        self.tss(tcs) + PAGE
    }

    /// Returns the mailbox of a TCS.
    pub(super) fn mailbox(&self, tcs: usize) -> &Mailbox {
        assert!(tcs < self.tcs);
        // SAFETY: there is one mailbox per TCS, aligned, composed of atomics and initially zero.
        unsafe { &*((self.base() + MAILBOXES) as *const Mailbox).add(tcs) }
    }

    /// Returns the frame of the last exception of a TCS, whose vCPU must not run.
    pub(super) fn frame(&self, tcs: usize) -> Frame {
        assert!(tcs < self.tcs);
        let at = self.fault_stack(tcs) - size_of::<Frame>();
        // SAFETY: inside the mapping and aligned; any bytes are a valid frame, and the TCS's vCPU does not run.
        unsafe { (at as *const Frame).read_volatile() }
    }
}

/// Returns the offset of the per-TCS pages.
fn stacks(tcs: usize) -> usize {
    MAILBOXES + (tcs * size_of::<Mailbox>()).next_multiple_of(PAGE)
}

/// Builds a TSS with the exception stack and the ports by which ring 3 exits.
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

/// Builds an IDT in which every exception goes to its stub, on the exception stack.
fn idt(base: usize, code: &Code) -> Vec<u8> {
    let mut idt = vec![0; 16 * EXCEPTIONS];
    for vector in 0..EXCEPTIONS {
        // Ring 3 may use int3.
        let ring = if vector == 3 { 3 } else { 0 };
        let handler = (base + code.stubs + vector * STUB) as u64;
        let gate = &mut idt[16 * vector..][..16];
        gate[0..2].copy_from_slice(&handler.to_le_bytes()[0..2]);
        gate[2..4].copy_from_slice(&KERNEL_CS.to_le_bytes());
        // The first interrupt stack of the TSS; a present interrupt gate, accessible from this ring.
        gate[4] = 1;
        gate[5] = 0x8e | ring << 5;
        gate[6..12].copy_from_slice(&handler.to_le_bytes()[2..8]);
    }
    idt
}
