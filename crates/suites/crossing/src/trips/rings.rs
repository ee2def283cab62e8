//! No-operation requests through io_uring.

use std::ops::{Range, RangeInclusive};
use std::os::fd::AsRawFd;

use io_uring::{IoUring, cqueue, opcode};
use lab::sample::Failure;

use super::batch::Operation;
use super::syscalls::call4;

/// NopRing per system call of `io-uring-batched`.
pub(super) const BATCH: usize = 32;
/// Capacity of the completion queue: the maximum size of a timed batch.
const MAX_COMPLETIONS: usize = 8192;
/// Flag of io_uring_enter to wait for completions.
const GET_EVENTS: u64 = 1;

/// An io_uring that submits `per_call` nops per system call and waits for them.
pub(super) struct NopRing {
    ring: IoUring,
    per_call: usize,
    wrong: bool,
}

impl NopRing {
    /// Creates a ring with `per_call` nops per system call.
    pub(super) fn new(per_call: usize) -> Result<Self, Failure> {
        let ring = IoUring::builder().setup_cqsize(MAX_COMPLETIONS as u32).build(BATCH as u32)?;
        Ok(Self { ring, per_call, wrong: false })
    }
}

impl Operation for NopRing {
    fn sizes(&self) -> RangeInclusive<usize> {
        self.per_call..=MAX_COMPLETIONS
    }

    fn make(&mut self, numbers: Range<usize>) {
        self.wrong |= nops(&mut self.ring, numbers, self.per_call);
    }

    /// Reads the completions here, so that the crate's copying of them is not timed.
    fn check(&mut self, made: usize) -> Result<u64, Failure> {
        let is_valid = |(number, completed): (usize, cqueue::Entry)| {
            completed.user_data() == number as u64 && completed.result() == 0
        };
        let completed: Vec<bool> = self.ring.completion().enumerate().map(is_valid).collect();
        if self.wrong || completed.len() != made || completed.contains(&false) {
            return Err(Failure::check("a nop was not completed, or with wrong data"));
        }
        Ok(made as u64)
    }
}

/// Submits each number as a nop and waits until it and all before it have completed; reports whether any failed.
#[inline(never)]
fn nops(ring: &mut IoUring, numbers: Range<usize>, per_call: usize) -> bool {
    let fd = ring.as_raw_fd() as u64;
    let mut submissions = ring.submission();
    let mut wrong = false;
    for first in numbers.step_by(per_call) {
        let end = first + per_call;
        for number in first..end {
            let nop = opcode::Nop::new().build().user_data(number as u64);
            // SAFETY: a nop refers to no memory.
            wrong |= unsafe { submissions.push(&nop) }.is_err();
        }
        submissions.sync();
        // SAFETY: the kernel accesses only the ring, which outlives the call.
        let entered =
            unsafe { call4(libc::SYS_io_uring_enter, fd, per_call as u64, end as u64, GET_EVENTS) };
        wrong |= entered != per_call as i64;
        submissions.sync();
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_nop_completes_with_its_data() {
        for per_call in [1, BATCH] {
            let mut ring = match NopRing::new(per_call) {
                Ok(ring) => ring,
                Err(why) => return machine::untested::note("nops through io_uring", &why),
            };
            ring.make(0..10 * BATCH);
            assert_eq!(ring.check(10 * BATCH), Ok(10 * BATCH as u64));
            // A stray completion is in place of an expected one.
            let stray = opcode::Nop::new().build().user_data(u64::MAX);
            // SAFETY: a nop refers to no memory.
            unsafe { ring.ring.submission().push(&stray) }.unwrap();
            ring.ring.submit_and_wait(1).unwrap();
            ring.make(0..BATCH);
            assert!(ring.check(BATCH).is_err());
        }
    }
}
