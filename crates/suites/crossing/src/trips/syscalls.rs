//! System calls that do next to nothing, and the loop that does nothing at all.

use std::ops::{Range, RangeInclusive};

use lab::sample::Failure;

use super::batch::Operation;
use super::enter::call0;

/// A number that no kernel has: beyond any table, and without the bit of x32.
const UNKNOWN: i64 = 0x0fff_ffff;

/// One system call without arguments, again and again.
pub(super) struct Calls {
    number: i64,
    due: i64,
    wrong: i64,
}

impl Calls {
    /// getppid, which returns the parent's number.
    pub(super) fn getppid() -> Self {
        Self {
            number: libc::SYS_getppid,
            due: std::os::unix::process::parent_id().into(),
            wrong: 0,
        }
    }

    /// A call that no kernel has, which returns ENOSYS.
    pub(super) fn unknown() -> Self {
        Self { number: UNKNOWN, due: -i64::from(libc::ENOSYS), wrong: 0 }
    }
}

impl Operation for Calls {
    fn sizes(&self) -> RangeInclusive<usize> {
        1..=1 << 20
    }

    fn make(&mut self, numbers: Range<usize>) {
        self.wrong |= calls(self.number, self.due, numbers.len());
    }

    fn check(&mut self, made: usize) -> Result<u64, Failure> {
        if self.wrong == 0 {
            return Ok(made as u64);
        }
        let (number, due) = (self.number, self.due);
        Err(Failure::check(format!("system call {number} did not return {due} each time")))
    }
}

/// Calls so often; the bits in which what was returned ever differed from what is due.
#[inline(never)]
fn calls(number: i64, due: i64, count: usize) -> i64 {
    let mut wrong = 0;
    for _ in 0..count {
        // SAFETY: the only numbers are of calls that touch no memory.
        wrong |= unsafe { call0(number) } ^ due;
    }
    wrong
}

/// getppid as a C program calls it.
///
/// That is one more return, and after a system call its target is mispredicted where the kernel
/// has overwritten the return predictor, as mitigations of speculative execution do.
pub(super) struct ThroughLibc {
    due: i32,
    wrong: i32,
}

impl ThroughLibc {
    pub(super) fn new() -> Self {
        Self { due: std::os::unix::process::parent_id().cast_signed(), wrong: 0 }
    }
}

impl Operation for ThroughLibc {
    fn sizes(&self) -> RangeInclusive<usize> {
        1..=1 << 20
    }

    fn make(&mut self, numbers: Range<usize>) {
        self.wrong |= through_libc(self.due, numbers.len());
    }

    fn check(&mut self, made: usize) -> Result<u64, Failure> {
        match self.wrong {
            0 => Ok(made as u64),
            _ => Err(Failure::check(format!("getppid did not return {} each time", self.due))),
        }
    }
}

/// As [`calls`], through libc.
#[inline(never)]
fn through_libc(due: i32, count: usize) -> i32 {
    let mut wrong = 0;
    for _ in 0..count {
        // SAFETY: the call has no arguments and touches no memory.
        wrong |= unsafe { libc::getppid() } ^ due;
    }
    wrong
}

/// Whether the kernel itself refuses a number that it has not.
///
/// # Errors
/// Where a filter answers in its stead.
pub(super) fn unknown_is_refused() -> Result<(), Failure> {
    // SAFETY: no kernel has the number, so nothing is done.
    let returned = unsafe { call0(UNKNOWN) };
    if returned == -i64::from(libc::ENOSYS) {
        return Ok(());
    }
    Err(Failure::unavailable(
        format!("an unknown system call returns {returned} and not ENOSYS: a filter answers"),
        "run without the seccomp filter of the container or service",
    ))
}

/// The loop alone.
pub(super) struct Nothing;

impl Operation for Nothing {
    fn sizes(&self) -> RangeInclusive<usize> {
        1..=1 << 24
    }

    fn make(&mut self, numbers: Range<usize>) {
        nothing(numbers.len());
    }

    fn check(&mut self, made: usize) -> Result<u64, Failure> {
        Ok(made as u64)
    }
}

/// As the loop of [`calls`], with no call inside.
#[inline(never)]
fn nothing(count: usize) {
    for _ in 0..count {
        // SAFETY: no instruction; the compiler may not drop the loop around it.
        unsafe { std::arch::asm!("", options(nostack, preserves_flags)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_returns_is_checked() {
        for mut right in [Calls::getppid(), Calls::unknown()] {
            right.make(0..10);
            assert_eq!(right.check(10), Ok(10));
        }
        let mut through = ThroughLibc::new();
        through.make(0..10);
        assert_eq!(through.check(10), Ok(10));
        through.due += 1;
        through.make(0..1);
        assert!(through.check(1).is_err());
        let mut wrong = Calls { due: 0, ..Calls::unknown() };
        wrong.make(0..1);
        assert!(wrong.check(1).unwrap_err().why.contains("did not return 0"));
        assert_eq!(unknown_is_refused(), Ok(()));
    }
}
