//! Timed loops of calls, placed at run time.
//!
//! The address of a loop affects its cost: its offset within a cache line, and the targets that the
//! CPU has seen for the same call instruction. So each function has its own loops, copied
//! from one template to the start of a cache line. Every function is called by the same instructions
//! at the same offset from a line's start, from a call instruction with no other target. The line is
//! drawn for every process, so that the spread over rounds covers it.

use std::arch::global_asm;
use std::collections::BTreeMap;

use lab::sample::Failure;
use machine::executable::Executable;
use machine::mapping::PAGE;
use machine::timed_code;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::copiers::{CallRange, Copier};
use crate::functions::CopyFn;
use crate::memory::Call;

/// Every loop begins at a multiple of this, and the length of every template is a multiple of it.
const LINE: usize = 64;

// Each template saves the registers that it uses, and keeps rsp a multiple of 16 at its call.
//
// The call is the last instruction of a cache line, apart from a nop, and the jump back is the first
// branch of the next line. With both in one line, Zen 5 predicts them in 5 or in 8 cycles and switches
// between the two for milliseconds at a time. No branch crosses or ends at a multiple of 32: some
// CPUs from Skylake on would decode it again in every iteration.
global_asm!(
    ".pushsection .text.tollgate_copy_loops, \"ax\", @progbits",
    ".macro enter name",
    ".p2align 6",
    ".globl tollgate_copy_\\name",
    ".hidden tollgate_copy_\\name",
    "tollgate_copy_\\name:",
    "push rbx",
    "push rbp",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "sub rsp, 40",
    "mov r12, rdi",
    "mov r13, rsi",
    "mov r14, rdx",
    ".endm",
    // The loop begins \\before bytes before its call, which is at 60 of 64.
    ".macro head before",
    ".p2align 6",
    ".nops 60 - \\before",
    "2:",
    ".endm",
    ".macro leave",
    "9:",
    "add rsp, 40",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbp",
    "pop rbx",
    "ret",
    ".endm",
    // rdi: function, rsi: destination, rdx: source, rcx: length, r8: count
    "enter fixed",
    "mov r15, rcx",
    "mov rbx, r8",
    "test rbx, rbx",
    "jz 9f",
    "head 9",
    "mov rdi, r13",
    "mov rsi, r14",
    "mov rdx, r15",
    "call r12",
    "nop",
    "dec rbx",
    "jnz 2b",
    "leave",
    // rdi, rsi, rdx: as above, rcx: WalkArgs. rbx: index of the call; at rsp: mask, end
    ".macro enter_walk name",
    "enter \\name",
    "mov r15, [rcx]",
    "mov rax, [rcx + 8]",
    "mov [rsp], rax",
    "mov rbx, [rcx + 16]",
    "mov rax, [rcx + 24]",
    "mov [rsp + 8], rax",
    "cmp rbx, rax",
    "je 9f",
    ".endm",
    "enter_walk walked",
    "head 23",
    "mov rax, rbx",
    "and rax, [rsp]",
    "mov edi, [r15 + rax*8]",
    "mov edx, [r15 + rax*8 + 4]",
    "lea rsi, [r14 + rdi]",
    "add rdi, r13",
    "call r12",
    "nop",
    "inc rbx",
    "cmp rbx, [rsp + 8]",
    "jne 2b",
    "leave",
    // At rsp + 16: zero, unknown to the CPU; at rsp + 24: the source. The source address of a
    // copy depends on the last byte that the previous copy delivered.
    "enter_walk chained",
    "mov rax, [rcx + 32]",
    "mov [rsp + 16], rax",
    "mov [rsp + 24], r14",
    "head 28",
    "mov rax, rbx",
    "and rax, [rsp]",
    "mov edi, [r15 + rax*8]",
    "mov edx, [r15 + rax*8 + 4]",
    "lea rsi, [r14 + rdi]",
    "add rdi, r13",
    "lea rbp, [rdi + rdx - 1]",
    "call r12",
    "nop",
    "inc rbx",
    "movzx eax, byte ptr [rbp]",
    "and rax, [rsp + 16]",
    "add rax, [rsp + 24]",
    "mov r14, rax",
    "cmp rbx, [rsp + 8]",
    "jne 2b",
    "leave",
    ".p2align 6",
    ".globl tollgate_copy_loops_end",
    ".hidden tollgate_copy_loops_end",
    "tollgate_copy_loops_end:",
    ".globl tollgate_copy_empty",
    ".hidden tollgate_copy_empty",
    "tollgate_copy_empty:",
    "ret",
    ".purgem enter",
    ".purgem head",
    ".purgem leave",
    ".purgem enter_walk",
    ".popsection",
);

unsafe extern "C" {
    fn tollgate_copy_fixed(
        copy: CopyFn,
        destination: *mut u8,
        source: *const u8,
        length: usize,
        count: usize,
    );
    fn tollgate_copy_walked(
        copy: CopyFn,
        destination: *mut u8,
        source: *const u8,
        walk: *const WalkArgs,
    );
    fn tollgate_copy_chained(
        copy: CopyFn,
        destination: *mut u8,
        source: *const u8,
        walk: *const WalkArgs,
    );
    static tollgate_copy_loops_end: [u8; 0];
    fn tollgate_copy_empty(destination: *mut u8, source: *const u8, length: usize);
}

/// A function that returns at once, to time the loop itself. It begins a cache line, as our functions do.
pub(super) const EMPTY: CopyFn = tollgate_copy_empty;

type Fixed = unsafe extern "C" fn(CopyFn, *mut u8, *const u8, usize, usize);
type Walked = unsafe extern "C" fn(CopyFn, *mut u8, *const u8, *const WalkArgs);

/// Part of a walk, as the templates read it.
#[repr(C)]
struct WalkArgs {
    calls: *const Call,
    mask: usize,
    first: usize,
    end: usize,
    zero: usize,
}

impl From<CallRange<'_>> for WalkArgs {
    fn from(ring: CallRange<'_>) -> Self {
        Self {
            calls: ring.calls.as_ptr(),
            mask: ring.calls.len() - 1,
            first: ring.first,
            end: ring.first + ring.count,
            zero: 0,
        }
    }
}

/// The loops of one function.
#[derive(Debug)]
struct Loops {
    code: Executable,
    /// Offset of the first loop in the code: a multiple of [`LINE`] within the first page.
    start: usize,
}

impl Loops {
    /// Places the loops at a line drawn from the seed, in pages that the kernel chooses.
    fn new(seed: u64) -> Result<Self, Failure> {
        let start = Pcg64Mcg::seed_from_u64(seed).random_range(0..PAGE / LINE) * LINE;
        // Breakpoints: the padding is never executed.
        let mut code = vec![0xcc; start];
        code.extend_from_slice(templates());
        let code = Executable::new(&code)?;
        Ok(Self { code, start })
    }

    /// Returns the address of the copy of a template.
    fn address(&self, template: usize) -> *const u8 {
        let offset = template - tollgate_copy_fixed as *const () as usize;
        self.code.as_ptr().wrapping_add(self.start + offset)
    }

    fn fixed(&self) -> Fixed {
        let address = self.address(tollgate_copy_fixed as *const () as usize);
        // SAFETY: the address is that of a copy of this function, which is position-independent.
        unsafe { std::mem::transmute::<*const u8, Fixed>(address) }
    }

    fn walked(&self) -> Walked {
        let address = self.address(tollgate_copy_walked as *const () as usize);
        // SAFETY: the address is that of a copy of this function, which is position-independent.
        unsafe { std::mem::transmute::<*const u8, Walked>(address) }
    }

    fn chained(&self) -> Walked {
        let address = self.address(tollgate_copy_chained as *const () as usize);
        // SAFETY: the address is that of a copy of this function, which is position-independent.
        unsafe { std::mem::transmute::<*const u8, Walked>(address) }
    }
}

/// The bytes of all templates.
fn templates() -> &'static [u8] {
    let start = tollgate_copy_fixed as *const () as *const u8;
    let end = (&raw const tollgate_copy_loops_end).cast::<u8>();
    // SAFETY: the templates are contiguous in one section, from the first to the end label.
    unsafe { std::slice::from_raw_parts(start, end as usize - start as usize) }
}

/// The loops of all functions that a process has called. They are kept, because a call instruction
/// whose target the CPU has learned would be mispredicted for the next function.
#[derive(Debug, Default)]
pub(super) struct PlacedLoops(BTreeMap<String, Loops>);

impl PlacedLoops {
    /// Returns the function, called from the loops of its name. `seed` draws their address if the name
    /// is new.
    ///
    /// # Errors
    /// Returns an error if the system permits no code generated at run time.
    pub(super) fn function(
        &mut self,
        name: &str,
        copy: CopyFn,
        seed: u64,
    ) -> Result<PlacedFunction<'_>, Failure> {
        if !self.0.contains_key(name) {
            self.0.insert(name.to_owned(), Loops::new(seed)?);
        }
        Ok(PlacedFunction { copy, loops: &self.0[name] })
    }
}

/// A function and the loops that call it.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlacedFunction<'a> {
    copy: CopyFn,
    loops: &'a Loops,
}

impl PlacedFunction<'_> {
    /// Records the loops as timed.
    pub(super) fn record(&self, what: &str) {
        let code = self.loops.code.bytes().get(self.loops.start..).unwrap_or_default();
        timed_code::record(|| format!("loops that call {what}"), code);
    }
}

impl Copier for PlacedFunction<'_> {
    unsafe fn copy(&self, destination: *mut u8, source: *const u8, at: usize, length: usize) {
        // Through the loop too, because it contains the only call instruction.
        // SAFETY: the caller guarantees the same contract.
        unsafe { self.fixed(destination.add(at), source.add(at), length, 1) }
    }

    unsafe fn fixed(&self, destination: *mut u8, source: *const u8, length: usize, count: usize) {
        // SAFETY: the caller guarantees the same contract.
        unsafe { (self.loops.fixed())(self.copy, destination, source, length, count) }
    }

    unsafe fn walked(&self, destination: *mut u8, source: *const u8, range: CallRange) {
        // SAFETY: the caller guarantees the same contract; the mask keeps the index within the ring.
        unsafe { (self.loops.walked())(self.copy, destination, source, &WalkArgs::from(range)) }
    }

    unsafe fn chained(&self, destination: *mut u8, source: *const u8, range: CallRange) {
        // SAFETY: the caller guarantees the same contract; the mask keeps the index within the ring.
        unsafe { (self.loops.chained())(self.copy, destination, source, &WalkArgs::from(range)) }
    }
}

#[cfg(test)]
mod tests;
