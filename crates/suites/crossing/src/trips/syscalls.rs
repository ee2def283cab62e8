//! Raw system calls, and the trips that make almost empty ones.

use std::arch::asm;
use std::ops::{Range, RangeInclusive};

use lab::sample::Failure;

use super::batch::Operation;

/// Makes a system call without arguments; returns the kernel's result, negative for an error.
///
/// # Safety
/// The caller guarantees that the effects of the call on memory are sound.
#[inline(always)]
pub(super) unsafe fn call0(number: i64) -> i64 {
    let returned;
    // SAFETY: the kernel changes only rax, rcx and r11; the caller guarantees the effects on memory.
    unsafe {
        asm!("syscall", inlateout("rax") number => returned, lateout("rcx") _, lateout("r11") _,
            options(nostack));
    }
    returned
}

/// Makes a system call with three arguments; returns the kernel's result, negative for an error.
///
/// # Safety
/// The requirements of [`call0`] apply.
#[inline(always)]
pub(super) unsafe fn call3(number: i64, first: u64, second: u64, third: u64) -> i64 {
    let returned;
    // SAFETY: the kernel changes only rax, rcx and r11; the caller guarantees the effects on memory.
    unsafe {
        asm!("syscall", inlateout("rax") number => returned, in("rdi") first, in("rsi") second,
            in("rdx") third, lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    returned
}

/// Makes a system call with four arguments and 0 for the other two; returns the kernel's result, negative for an
/// error.
///
/// # Safety
/// The requirements of [`call0`] apply.
#[inline(always)]
pub(super) unsafe fn call4(number: i64, first: u64, second: u64, third: u64, fourth: u64) -> i64 {
    let returned;
    // SAFETY: the kernel changes only rax, rcx and r11; the caller guarantees the effects on memory.
    unsafe {
        asm!("syscall", inlateout("rax") number => returned, in("rdi") first, in("rsi") second,
            in("rdx") third, in("r10") fourth, in("r8") 0, in("r9") 0, lateout("rcx") _,
            lateout("r11") _, options(nostack));
    }
    returned
}

/// An unused system call number: beyond the table, and without the bit of x32.
const UNKNOWN: i64 = 0x0fff_ffff;

/// Loop of one system call without arguments.
pub(super) struct SyscallLoop {
    number: i64,
    expected: i64,
    wrong: i64,
}

impl SyscallLoop {
    /// Creates a loop of getppid, which returns the parent's process ID.
    pub(super) fn getppid() -> Self {
        Self {
            number: libc::SYS_getppid,
            expected: std::os::unix::process::parent_id().into(),
            wrong: 0,
        }
    }

    /// Creates a loop of an unused number, which returns `ENOSYS`.
    pub(super) fn unknown() -> Self {
        Self { number: UNKNOWN, expected: -i64::from(libc::ENOSYS), wrong: 0 }
    }
}

impl Operation for SyscallLoop {
    fn sizes(&self) -> RangeInclusive<usize> {
        1..=1 << 20
    }

    fn make(&mut self, numbers: Range<usize>) {
        self.wrong |= calls(self.number, self.expected, numbers.len());
    }

    fn check(&mut self, made: usize) -> Result<u64, Failure> {
        if self.wrong == 0 {
            return Ok(made as u64);
        }
        let (number, expected) = (self.number, self.expected);
        Err(Failure::check(format!("system call {number} did not always return {expected}")))
    }
}

/// Makes `count` calls; returns the bits in which any result differed from `expected`.
#[inline(never)]
fn calls(number: i64, expected: i64, count: usize) -> i64 {
    let mut wrong = 0;
    for _ in 0..count {
        // SAFETY: callers pass only the numbers above, whose calls access no memory.
        wrong |= unsafe { call0(number) } ^ expected;
    }
    wrong
}

/// Loop of getppid through libc, as in a C program.
///
/// It has one more return, which is mispredicted if the kernel has overwritten the return predictor, as mitigations
/// of speculative execution do.
pub(super) struct LibcLoop {
    expected: i32,
    wrong: i32,
}

impl LibcLoop {
    pub(super) fn new() -> Self {
        Self { expected: std::os::unix::process::parent_id().cast_signed(), wrong: 0 }
    }
}

impl Operation for LibcLoop {
    fn sizes(&self) -> RangeInclusive<usize> {
        1..=1 << 20
    }

    fn make(&mut self, numbers: Range<usize>) {
        self.wrong |= through_libc(self.expected, numbers.len());
    }

    fn check(&mut self, made: usize) -> Result<u64, Failure> {
        match self.wrong {
            0 => Ok(made as u64),
            _ => Err(Failure::check(format!("getppid did not always return {}", self.expected))),
        }
    }
}

/// Same as [`calls`], through libc.
#[inline(never)]
fn through_libc(expected: i32, count: usize) -> i32 {
    let mut wrong = 0;
    for _ in 0..count {
        // SAFETY: the call has no arguments and touches no memory.
        wrong |= unsafe { libc::getppid() } ^ expected;
    }
    wrong
}

/// Checks that the kernel returns `ENOSYS` for an unused number.
///
/// # Errors
/// Returns `unavailable` if a seccomp filter returns another result.
pub(super) fn check_enosys() -> Result<(), Failure> {
    // SAFETY: the number is unused, so the call has no effect.
    let returned = unsafe { call0(UNKNOWN) };
    if returned == -i64::from(libc::ENOSYS) {
        return Ok(());
    }
    Err(Failure::unavailable(
        format!(
            "an unused system call returns {returned} instead of ENOSYS: a seccomp filter is active"
        ),
        "run without the seccomp filter of the container or service",
    ))
}

/// The loop without a call.
pub(super) struct EmptyLoop;

impl Operation for EmptyLoop {
    fn sizes(&self) -> RangeInclusive<usize> {
        1..=1 << 24
    }

    fn make(&mut self, numbers: Range<usize>) {
        no_calls(numbers.len());
    }

    fn check(&mut self, made: usize) -> Result<u64, Failure> {
        Ok(made as u64)
    }
}

/// Same as [`calls`], with no call inside.
#[inline(never)]
fn no_calls(count: usize) {
    for _ in 0..count {
        // SAFETY: the empty instruction keeps the compiler from dropping the loop.
        unsafe { asm!("", options(nostack, preserves_flags)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_result_fails_the_check() {
        for mut valid in [SyscallLoop::getppid(), SyscallLoop::unknown()] {
            valid.make(0..10);
            assert_eq!(valid.check(10), Ok(10));
        }
        let mut libc = LibcLoop::new();
        libc.make(0..10);
        assert_eq!(libc.check(10), Ok(10));
        libc.expected += 1;
        libc.make(0..1);
        assert!(libc.check(1).is_err());
        let mut wrong = SyscallLoop { expected: 0, ..SyscallLoop::unknown() };
        wrong.make(0..1);
        assert!(wrong.check(1).unwrap_err().why.contains("did not always return 0"));
        assert_eq!(check_enosys(), Ok(()));
    }
}
