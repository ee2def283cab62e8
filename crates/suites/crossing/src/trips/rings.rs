//! Operations that do nothing, through io_uring.

use std::ops::{Range, RangeInclusive};
use std::os::fd::AsRawFd;

use io_uring::{IoUring, cqueue, opcode};
use lab::sample::Failure;

use super::batch::Operation;
use super::enter::call4;

/// Operations that enter the kernel together.
pub(super) const TOGETHER: usize = 32;
/// Completions that may wait to be looked at: those of the longest batch.
const MOST: usize = 8192;
/// The flag of io_uring_enter that waits for completions.
const GET_EVENTS: u64 = 1;

/// Submits nops and waits for them, so many at a time.
pub(super) struct Nops {
    ring: IoUring,
    together: usize,
    wrong: bool,
}

impl Nops {
    /// So many enter the kernel together.
    pub(super) fn new(together: usize) -> Result<Self, Failure> {
        let ring = IoUring::builder().setup_cqsize(MOST as u32).build(TOGETHER as u32)?;
        Ok(Self { ring, together, wrong: false })
    }
}

impl Operation for Nops {
    fn sizes(&self) -> RangeInclusive<usize> {
        self.together..=MOST
    }

    fn make(&mut self, numbers: Range<usize>) {
        self.wrong |= nops(&mut self.ring, numbers, self.together);
    }

    /// Looks at the completions here, outside all time: how the crate copies one out is its own affair.
    fn check(&mut self, made: usize) -> Result<u64, Failure> {
        let right = |(number, completed): (usize, cqueue::Entry)| {
            completed.user_data() == number as u64 && completed.result() == 0
        };
        let completed: Vec<bool> = self.ring.completion().enumerate().map(right).collect();
        if self.wrong || completed.len() != made || completed.contains(&false) {
            return Err(Failure::check("a nop was not completed, or not as itself"));
        }
        Ok(made as u64)
    }
}

/// Submits each number as a nop of its own and waits until it and all before it are completed;
/// whether any went wrong.
#[inline(never)]
fn nops(ring: &mut IoUring, numbers: Range<usize>, together: usize) -> bool {
    let fd = ring.as_raw_fd() as u64;
    let mut submissions = ring.submission();
    let mut wrong = false;
    for first in numbers.step_by(together) {
        let behind = first + together;
        for number in first..behind {
            let nop = opcode::Nop::new().build().user_data(number as u64);
            // SAFETY: a nop points to no memory.
            wrong |= unsafe { submissions.push(&nop) }.is_err();
        }
        submissions.sync();
        // SAFETY: the kernel touches the ring alone, which `ring` holds.
        let entered = unsafe {
            call4(libc::SYS_io_uring_enter, fd, together as u64, behind as u64, GET_EVENTS)
        };
        wrong |= entered != together as i64;
        submissions.sync();
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_nop_comes_back_as_itself() {
        for together in [1, TOGETHER] {
            let mut made = match Nops::new(together) {
                Ok(made) => made,
                Err(why) => return machine::untested::note("nops through io_uring", &why),
            };
            made.make(0..10 * TOGETHER);
            assert_eq!(made.check(10 * TOGETHER), Ok(10 * TOGETHER as u64));
            // One that was submitted by another and is still there comes in place of our own.
            let stray = opcode::Nop::new().build().user_data(u64::MAX);
            // SAFETY: a nop points to no memory.
            unsafe { made.ring.submission().push(&stray) }.unwrap();
            made.ring.submit_and_wait(1).unwrap();
            made.make(0..TOGETHER);
            assert!(made.check(TOGETHER).is_err());
        }
    }
}
