//! Timed loops of calls, placed at run time.
//!
//! Where a loop lies decides what it costs: where it begins within a cache line, and which other
//! function the processor saw called from the same place. So each function has loops of its own, copied
//! from one template to the start of a cache line. Every function is called by the same instructions at
//! the same distance from a line's start, from a call instruction that calls nothing else. Which
//! line that is differs in every process, so that the spread over rounds covers it.

use std::arch::global_asm;
use std::collections::BTreeMap;

use lab::sample::Failure;
use machine::executable::Executable;
use machine::mapping::PAGE;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::timed::{Call, Mover, Ring};
use crate::functions::CopyFn;

/// Every loop begins at a multiple of this, and every template is a multiple of it long.
const LINE: usize = 64;

// Each template saves the registers that it uses, and keeps rsp a multiple of 16 at its call.
//
// The call is the last instruction but a nop of a cache line, and the jump back is the first branch of
// the next one. With both in one line, Zen 5 predicts them in 5 cycles or in 8, and changes between the
// two for milliseconds at a time. No branch crosses or ends at a multiple of 32: there some processors
// from Skylake on decode it anew in every iteration.
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
    // rdi, rsi, rdx: as above, rcx: the walk. rbx: the number of the call; at rsp: mask, end
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
    // At rsp + 16: zero, which the processor does not know; at rsp + 24: the source. Where a copy
    // reads depends on the last byte that the copy before delivered.
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
    ".globl tollgate_copy_nothing",
    ".hidden tollgate_copy_nothing",
    "tollgate_copy_nothing:",
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
        walk: *const Walk,
    );
    fn tollgate_copy_chained(
        copy: CopyFn,
        destination: *mut u8,
        source: *const u8,
        walk: *const Walk,
    );
    static tollgate_copy_loops_end: [u8; 0];
    fn tollgate_copy_nothing(destination: *mut u8, source: *const u8, length: usize);
}

/// A function that returns at once, to learn what the loop takes at least; it begins a line, as ours do.
pub(super) const NOTHING: CopyFn = tollgate_copy_nothing;

type Fixed = unsafe extern "C" fn(CopyFn, *mut u8, *const u8, usize, usize);
type Walked = unsafe extern "C" fn(CopyFn, *mut u8, *const u8, *const Walk);

/// A part of a walk, as the templates read it.
#[repr(C)]
struct Walk {
    calls: *const Call,
    mask: usize,
    first: usize,
    end: usize,
    zero: usize,
}

impl From<Ring<'_>> for Walk {
    fn from(ring: Ring<'_>) -> Self {
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
    /// Where the first of them begins in the code: a multiple of [`LINE`] within the first page.
    start: usize,
}

impl Loops {
    /// Places the loops at a line drawn by the seed, in pages that the kernel chooses.
    fn new(seed: u64) -> Result<Self, Failure> {
        let start = Pcg64Mcg::seed_from_u64(seed).random_range(0..PAGE / LINE) * LINE;
        // A breakpoint: nothing may come here.
        let mut code = vec![0xcc; start];
        code.extend_from_slice(templates());
        let code =
            Executable::new(&code).map_err(|refusal| Failure::failed(refusal.to_string()))?;
        Ok(Self { code, start })
    }

    /// Where the copy of a template lies.
    fn address(&self, template: usize) -> *const u8 {
        let offset = template - tollgate_copy_fixed as *const () as usize;
        self.code.as_ptr().wrapping_add(self.start + offset)
    }

    fn fixed(&self) -> Fixed {
        let address = self.address(tollgate_copy_fixed as *const () as usize);
        // SAFETY: a copy of the function of this type, which refers to nothing by its own address.
        unsafe { std::mem::transmute::<*const u8, Fixed>(address) }
    }

    fn walked(&self) -> Walked {
        let address = self.address(tollgate_copy_walked as *const () as usize);
        // SAFETY: as for `fixed`.
        unsafe { std::mem::transmute::<*const u8, Walked>(address) }
    }

    fn chained(&self) -> Walked {
        let address = self.address(tollgate_copy_chained as *const () as usize);
        // SAFETY: as for `fixed`.
        unsafe { std::mem::transmute::<*const u8, Walked>(address) }
    }
}

/// The bytes of all templates.
fn templates() -> &'static [u8] {
    let start = tollgate_copy_fixed as *const () as *const u8;
    let end = (&raw const tollgate_copy_loops_end).cast::<u8>();
    // SAFETY: the templates lie in one section, from the first to the label behind the last.
    unsafe { std::slice::from_raw_parts(start, end as usize - start as usize) }
}

/// The loops of all functions that a process has called: kept, since a call instruction of which the
/// processor has learnt one target would be wrong for the next.
#[derive(Debug, Default)]
pub(super) struct Places(BTreeMap<String, Loops>);

impl Places {
    /// A function, to be called from the loops of its name; the seed draws where they lie when the
    /// name is new.
    ///
    /// # Errors
    /// Where the system allows no code made at run time.
    pub(super) fn function(
        &mut self,
        name: &str,
        copy: CopyFn,
        seed: u64,
    ) -> Result<Function<'_>, Failure> {
        if !self.0.contains_key(name) {
            self.0.insert(name.to_owned(), Loops::new(seed)?);
        }
        Ok(Function { copy, loops: &self.0[name] })
    }
}

/// A function, called from loops of its own.
#[derive(Debug, Clone, Copy)]
pub(super) struct Function<'a> {
    copy: CopyFn,
    loops: &'a Loops,
}

impl Mover for Function<'_> {
    unsafe fn copy(&self, destination: *mut u8, source: *const u8, at: usize, length: usize) {
        // By the loop too, for it holds the only call instruction.
        // SAFETY: as the caller promises.
        unsafe { self.fixed(destination.add(at), source.add(at), length, 1) }
    }

    unsafe fn fixed(&self, destination: *mut u8, source: *const u8, length: usize, count: usize) {
        // SAFETY: as the caller promises.
        unsafe { (self.loops.fixed())(self.copy, destination, source, length, count) }
    }

    unsafe fn walked(&self, destination: *mut u8, source: *const u8, walk: Ring) {
        // SAFETY: as the caller promises; the mask keeps the number within the ring.
        unsafe { (self.loops.walked())(self.copy, destination, source, &Walk::from(walk)) }
    }

    unsafe fn chained(&self, destination: *mut u8, source: *const u8, walk: Ring) {
        // SAFETY: as the caller promises; the mask keeps the number within the ring.
        unsafe { (self.loops.chained())(self.copy, destination, source, &Walk::from(walk)) }
    }
}

#[cfg(test)]
mod tests;
