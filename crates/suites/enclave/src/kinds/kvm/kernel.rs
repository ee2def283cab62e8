//! The memory of a guest beyond the enclave's region: code, descriptor tables, mailboxes, and for each TCS a TSS with
//! the stack for exceptions. Guest and host use the same addresses.
//!
//! ```text
//! code of ring 3 | code of ring 0 | GDT, IDT | mailboxes | for each TCS { TSS, stack }
//! ```

use std::ops::Range;
use std::ptr;

use lab::sample::Failure;
use machine::kvm::tables::{
    self, EXCEPTIONS, GATE_BYTES, GDT, NO_EXECUTE, TSS_BYTES, USER, WRITABLE,
};
use machine::mapping::Mapping;

use super::code::{Code, ENDED, MAILBOXES, Mailbox, OCALL, STUB, code};
use crate::conf::PAGE;

/// Pages with the same flags in the page table.
#[derive(Debug, Clone)]
pub(super) struct Part {
    /// Their addresses: whole pages.
    pub(super) range: Range<usize>,
    /// The flags, as of [`tables::WRITABLE`].
    pub(super) flags: u64,
}

const TABLES: usize = 2 * PAGE;
const IDT: usize = TABLES + 0x100;

/// Length of a TSS with the permission bitmap of ports 0 to 15 and its terminating byte.
pub(super) const TSS: usize = TSS_BYTES + 3;

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
        kernel.write(IDT, &tables::idt((kernel.base() + code.stubs) as u64, STUB));
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
        let part = |pages: Range<usize>, flags| Part {
            range: self.base() + pages.start..self.base() + pages.end,
            flags,
        };
        vec![
            part(0..PAGE, USER),
            part(PAGE..TABLES, 0),
            part(TABLES..MAILBOXES, NO_EXECUTE),
            part(MAILBOXES..stacks(self.tcs), WRITABLE | USER | NO_EXECUTE),
            part(stacks(self.tcs)..self.len(), WRITABLE | NO_EXECUTE),
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
        ((self.base() + IDT) as u64, (GATE_BYTES * EXCEPTIONS) as u16 - 1)
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
    let mut tss = [0xff; TSS];
    tss[..TSS_BYTES].copy_from_slice(&tables::tss(stack as u64, stack as u64));
    let allowed: u16 = 1 << ENDED | 1 << OCALL;
    tss[TSS_BYTES..TSS_BYTES + 2].copy_from_slice(&(!allowed).to_le_bytes());
    tss
}
