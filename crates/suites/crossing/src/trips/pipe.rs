//! Two threads that pass one byte by two pipes.

use std::ops::{Range, RangeInclusive};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;

use lab::sample::Failure;
use machine::pin::spawn_pinned;
use rustix::pipe::{PipeFlags, pipe_with};

use super::batch::Operation;
use super::enter::call3;
use super::switches::Partner;

/// One side: where it reads, and where it writes.
struct Side {
    from: OwnedFd,
    to: OwnedFd,
}

impl Side {
    #[inline(always)]
    fn send(&self, byte: u8) -> i64 {
        let at = (&raw const byte) as u64;
        // SAFETY: the kernel reads the one byte, which outlives the call.
        unsafe { call3(libc::SYS_write, self.to.as_raw_fd() as u64, at, 1) }
    }

    #[inline(always)]
    fn receive(&self, byte: &mut u8) -> i64 {
        let at = (&raw mut *byte) as u64;
        // SAFETY: the kernel writes at most the one byte, which outlives the call.
        unsafe { call3(libc::SYS_read, self.from.as_raw_fd() as u64, at, 1) }
    }
}

/// A turn is a byte sent and its complement that comes back. A thread sleeps until its byte comes, or finds it: no
/// call tells which, so the kernel's counts tell of all turns together.
pub(super) struct Turns {
    side: Option<Side>,
    wrong: bool,
    made: u64,
    /// How often each thread had given up its CPU by itself before the first turn.
    before: [u64; 2],
    thread: Arc<Partner>,
    partner: Option<JoinHandle<()>>,
}

impl Turns {
    /// The partner runs on this CPU.
    pub(super) fn with(cpu: usize) -> Result<Self, Failure> {
        Self::answered(cpu, |byte| !byte)
    }

    fn answered(cpu: usize, reply: fn(u8) -> u8) -> Result<Self, Failure> {
        let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(std::io::Error::from);
        let ((there, to), (from, back)) = (pipe()?, pipe()?);
        let partners = Side { from: there, to: back };
        let thread = Arc::new(Partner::default());
        let its = Arc::clone(&thread);
        let body = move || {
            its.runs();
            answer(&partners, reply);
        };
        let partner = Some(spawn_pinned(cpu, body)?);
        let before = thread.switches()?;
        Ok(Self { side: Some(Side { from, to }), wrong: false, made: 0, before, thread, partner })
    }

    /// In which share of all waits so far, of both threads, a thread gave up its CPU.
    ///
    /// # Errors
    /// Where no turn was made, or the kernel does not count.
    pub(super) fn slept(&self) -> Result<f64, Failure> {
        let now = self.thread.switches()?;
        let switches: u64 = now.iter().zip(self.before).map(|(now, before)| now - before).sum();
        match self.made {
            0 => Err(Failure::failed("no byte was sent, so no thread waited")),
            // The partner may sleep once more: before its first byte.
            made => Ok((switches as f64 / (2 * made) as f64).min(1.0)),
        }
    }
}

/// Answers each byte, until the other end is closed.
fn answer(side: &Side, reply: fn(u8) -> u8) {
    let mut byte = 0;
    while side.receive(&mut byte) == 1 {
        if side.send(reply(byte)) != 1 {
            return;
        }
    }
}

/// Takes turns; whether any went wrong.
#[inline(never)]
fn turns(side: &Side, numbers: Range<usize>) -> bool {
    let mut wrong = false;
    for number in numbers {
        let (sent, mut received) = (number as u8, 0);
        wrong |= side.send(sent) != 1;
        wrong |= side.receive(&mut received) != 1;
        wrong |= received != !sent;
    }
    wrong
}

impl Operation for Turns {
    fn sizes(&self) -> RangeInclusive<usize> {
        1..=64
    }

    fn make(&mut self, numbers: Range<usize>) {
        self.made = self.made.wrapping_add(numbers.len() as u64);
        self.wrong |= self.side.as_ref().is_none_or(|side| turns(side, numbers));
    }

    fn check(&mut self, made: usize) -> Result<u64, Failure> {
        match self.wrong {
            false => Ok(made as u64),
            true => Err(Failure::check("a byte did not come back as the partner's answer to it")),
        }
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        // The partner ends when it reads the end of its pipe.
        self.side = None;
        let _ = self.partner.take().map(JoinHandle::join);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells_how_many_waits_were_slept() {
        let mut turns = Turns::with(machine::topology::allowed_cpus()[0]).unwrap();
        assert!(turns.slept().is_err(), "no wait has been made");
        turns.make(0..1000);
        let slept = turns.slept().unwrap();
        assert!(slept > 0.0 && slept <= 1.0, "{slept}");
        // As many turns again in which nobody waited: half the share.
        turns.made *= 1000;
        assert!(turns.slept().unwrap() < 0.01);
    }

    #[test]
    fn every_byte_comes_back_as_its_complement() {
        let cpu = machine::topology::allowed_cpus()[0];
        let mut right = Turns::with(cpu).unwrap();
        right.make(0..300);
        assert_eq!(right.check(300), Ok(300));
        let mut wrong = Turns::answered(cpu, |byte| byte).unwrap();
        wrong.make(0..1);
        assert!(wrong.check(1).unwrap_err().why.contains("did not come back"));
    }
}
