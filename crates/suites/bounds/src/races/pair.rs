//! Two words that are stored and loaded as one.

use std::arch::asm;

/// A way to store and load 16 bytes as one.
pub(super) trait Pair {
    /// Stores both.
    ///
    /// # Safety
    /// The address is of 16 bytes, aligned to 16, that all threads use by this way alone. The processor
    /// has what the way needs.
    unsafe fn store(at: *mut u64, words: [u64; 2]);
    /// Loads both.
    ///
    /// # Safety
    /// As for the store.
    unsafe fn load(at: *mut u64) -> [u64; 2];
}

/// By `lock cmpxchg16b`, which even a load has to do: it writes what it reads.
pub(super) struct Compare;

impl Pair for Compare {
    #[inline(always)]
    unsafe fn store(at: *mut u64, words: [u64; 2]) {
        let mut seen = [0, 0];
        loop {
            // SAFETY: as the caller says.
            let (was, swapped) = unsafe { compare(at, seen, words) };
            if swapped {
                return;
            }
            seen = was;
        }
    }

    #[inline(always)]
    unsafe fn load(at: *mut u64) -> [u64; 2] {
        // SAFETY: as the caller says.
        unsafe { compare(at, [0, 0], [0, 0]).0 }
    }
}

/// Puts `new` where `old` is; what was there, and whether that was `old`.
#[inline(always)]
unsafe fn compare(at: *mut u64, old: [u64; 2], new: [u64; 2]) -> ([u64; 2], bool) {
    let (low, high): (u64, u64);
    let swapped: u8;
    // SAFETY: the caller gives 16 aligned bytes. rbx is the compiler's, so it is put back; all else has
    // a register by name, or the compiler could choose rbx for it.
    unsafe {
        asm!(
            "xchg {new}, rbx",
            "lock cmpxchg16b [rdi]",
            "sete r8b",
            "mov rbx, {new}",
            new = inout(reg) new[0] => _,
            in("rdi") at,
            out("r8b") swapped,
            inout("rax") old[0] => low,
            inout("rdx") old[1] => high,
            in("rcx") new[1],
            options(nostack),
        );
    }
    ([low, high], swapped == 1)
}

/// By a move of 16 aligned bytes, which Intel and AMD say is one access where the processor has AVX.
pub(super) struct Vector;

impl Pair for Vector {
    #[inline(always)]
    unsafe fn store(at: *mut u64, words: [u64; 2]) {
        // SAFETY: the caller gives 16 aligned bytes.
        unsafe {
            asm!(
                "movq {vector}, {low}",
                "pinsrq {vector}, {high}, 1",
                "movdqa [{at}], {vector}",
                at = in(reg) at,
                low = in(reg) words[0],
                high = in(reg) words[1],
                vector = out(xmm_reg) _,
                options(nostack, preserves_flags),
            );
        }
    }

    #[inline(always)]
    unsafe fn load(at: *mut u64) -> [u64; 2] {
        let (low, high): (u64, u64);
        // SAFETY: the caller gives 16 aligned bytes.
        unsafe {
            asm!(
                "movdqa {vector}, [{at}]",
                "movq {low}, {vector}",
                "pextrq {high}, {vector}, 1",
                at = in(reg) at,
                low = out(reg) low,
                high = out(reg) high,
                vector = out(xmm_reg) _,
                options(nostack, preserves_flags, readonly),
            );
        }
        [low, high]
    }
}
