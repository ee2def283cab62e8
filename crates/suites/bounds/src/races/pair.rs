//! Atomic stores and loads of two words.

use std::arch::asm;

/// Atomic access to 16 bytes.
pub(super) trait Pair {
    /// Stores both words.
    ///
    /// # Safety
    /// `address` is valid for 16 bytes, aligned to 16, and accessed by all threads only through this implementation.
    /// The CPU supports its instructions.
    unsafe fn store(address: *mut u64, words: [u64; 2]);
    /// Loads both words.
    ///
    /// # Safety
    /// The requirements of [`store`](Self::store) apply.
    unsafe fn load(address: *mut u64) -> [u64; 2];
}

/// `lock cmpxchg16b`, also for loads, which write back what they read.
pub(super) struct Compare;

impl Pair for Compare {
    #[inline(always)]
    unsafe fn store(address: *mut u64, words: [u64; 2]) {
        let mut seen = [0, 0];
        loop {
            // SAFETY: the caller guarantees 16 aligned bytes.
            let (old, swapped) = unsafe { compare_exchange(address, seen, words) };
            if swapped {
                return;
            }
            seen = old;
        }
    }

    #[inline(always)]
    unsafe fn load(address: *mut u64) -> [u64; 2] {
        // SAFETY: the caller guarantees 16 aligned bytes.
        unsafe { compare_exchange(address, [0, 0], [0, 0]).0 }
    }
}

/// Replaces `old` by `new`. Returns the previous words and whether they were `old`.
///
/// # Safety
/// `address` is valid for 16 bytes and aligned to 16.
#[inline(always)]
unsafe fn compare_exchange(address: *mut u64, old: [u64; 2], new: [u64; 2]) -> ([u64; 2], bool) {
    let (low, high): (u64, u64);
    let swapped: u8;
    // SAFETY: the caller guarantees 16 aligned bytes. rbx is reserved by the compiler, so it is restored; all other
    // operands have named registers, or the compiler could choose rbx for them.
    unsafe {
        asm!(
            "xchg {new}, rbx",
            "lock cmpxchg16b [rdi]",
            "sete r8b",
            "mov rbx, {new}",
            new = inout(reg) new[0] => _,
            in("rdi") address,
            out("r8b") swapped,
            inout("rax") old[0] => low,
            inout("rdx") old[1] => high,
            in("rcx") new[1],
            options(nostack),
        );
    }
    ([low, high], swapped == 1)
}

/// An aligned 16-byte move, which Intel and AMD document as atomic on CPUs with AVX.
pub(super) struct Vector;

impl Pair for Vector {
    #[inline(always)]
    unsafe fn store(address: *mut u64, words: [u64; 2]) {
        // SAFETY: the caller guarantees 16 aligned bytes.
        unsafe {
            asm!(
                "movq {vector}, {low}",
                "pinsrq {vector}, {high}, 1",
                "movdqa [{address}], {vector}",
                address = in(reg) address,
                low = in(reg) words[0],
                high = in(reg) words[1],
                vector = out(xmm_reg) _,
                options(nostack, preserves_flags),
            );
        }
    }

    #[inline(always)]
    unsafe fn load(address: *mut u64) -> [u64; 2] {
        let (low, high): (u64, u64);
        // SAFETY: the caller guarantees 16 aligned bytes.
        unsafe {
            asm!(
                "movdqa {vector}, [{address}]",
                "movq {low}, {vector}",
                "pextrq {high}, {vector}, 1",
                address = in(reg) address,
                low = out(reg) low,
                high = out(reg) high,
                vector = out(xmm_reg) _,
                options(nostack, preserves_flags, readonly),
            );
        }
        [low, high]
    }
}
