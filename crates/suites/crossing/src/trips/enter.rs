//! System calls by the instruction alone: no wrapper, no errno.

use std::arch::asm;

/// A call with no arguments; what the kernel returned, a negative number for an error.
///
/// # Safety
/// The call may do to memory only what the caller allows.
#[inline(always)]
pub(super) unsafe fn call0(number: i64) -> i64 {
    let returned;
    // SAFETY: the kernel changes rax, rcx and r11 alone, and memory as the caller answers for.
    unsafe {
        asm!("syscall", inlateout("rax") number => returned, lateout("rcx") _, lateout("r11") _,
            options(nostack));
    }
    returned
}

/// A call with three arguments; what the kernel returned, a negative number for an error.
///
/// # Safety
/// As for [`call0`].
#[inline(always)]
pub(super) unsafe fn call3(number: i64, first: u64, second: u64, third: u64) -> i64 {
    let returned;
    // SAFETY: as in `call0`.
    unsafe {
        asm!("syscall", inlateout("rax") number => returned, in("rdi") first, in("rsi") second,
            in("rdx") third, lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    returned
}

/// A call with four arguments, and 0 for the other two; what the kernel returned, a negative
/// number for an error.
///
/// # Safety
/// As for [`call0`].
#[inline(always)]
pub(super) unsafe fn call4(number: i64, first: u64, second: u64, third: u64, fourth: u64) -> i64 {
    let returned;
    // SAFETY: as in `call0`.
    unsafe {
        asm!("syscall", inlateout("rax") number => returned, in("rdi") first, in("rsi") second,
            in("rdx") third, in("r10") fourth, in("r8") 0, in("r9") 0, lateout("rcx") _,
            lateout("r11") _, options(nostack));
    }
    returned
}
