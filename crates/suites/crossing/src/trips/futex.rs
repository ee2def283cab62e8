//! Two threads that wake each other by a futex.

use std::ops::{Range, RangeInclusive};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;

use lab::sample::Failure;
use machine::pin::spawn_pinned;

use super::batch::Operation;
use super::enter::call4;

/// What the word holds when the partner is to end: no turn comes that far.
const OVER: u32 = u32::MAX;

/// The word, on cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct Word(AtomicU32);

impl Word {
    fn set(&self, value: u32) {
        self.0.store(value, Ordering::Release);
        self.call(libc::FUTEX_WAKE, 1);
    }

    /// Waits in the kernel, at least once, until the word holds something else; what it holds then.
    fn wait_while(&self, value: u32) -> u32 {
        loop {
            self.call(libc::FUTEX_WAIT, value);
            let now = self.0.load(Ordering::Acquire);
            if now != value {
                return now;
            }
        }
    }

    /// What the kernel returns is not looked at: whether the word has changed is what counts.
    #[inline(always)]
    fn call(&self, operation: i32, value: u32) {
        let operation = (operation | libc::FUTEX_PRIVATE_FLAG) as u64;
        // SAFETY: the kernel only reads the word, and waits with no time limit.
        unsafe { call4(libc::SYS_futex, self.0.as_ptr() as u64, operation, value.into(), 0) };
    }
}

/// A turn is a number set and woken for here, and the next one that comes back.
pub(super) struct Turns {
    word: Arc<Word>,
    last: u32,
    wrong: u32,
    partner: Option<JoinHandle<()>>,
}

impl Turns {
    /// The partner runs on this CPU.
    pub(super) fn with(cpu: usize) -> Result<Self, Failure> {
        Self::answered(cpu, |asked| asked.wrapping_add(1))
    }

    fn answered(cpu: usize, reply: fn(u32) -> u32) -> Result<Self, Failure> {
        let word = Arc::new(Word::default());
        let partners = Arc::clone(&word);
        let partner = Some(spawn_pinned(cpu, move || answer(&partners, reply))?);
        Ok(Self { word, last: 0, wrong: 0, partner })
    }
}

/// Answers each number, until there are no more.
fn answer(word: &Word, reply: fn(u32) -> u32) {
    let mut last = 0;
    loop {
        let asked = word.wait_while(last);
        if asked == OVER {
            return;
        }
        last = reply(asked);
        word.set(last);
    }
}

/// Takes turns after the last; the last number that came, and whether any was another than due.
#[inline(never)]
fn turns(word: &Word, mut last: u32, count: usize) -> (u32, u32) {
    let mut wrong = 0;
    for _ in 0..count {
        word.set(last + 1);
        wrong |= word.wait_while(last + 1) ^ (last + 2);
        last += 2;
    }
    (last, wrong)
}

impl Operation for Turns {
    fn sizes(&self) -> RangeInclusive<usize> {
        1..=64
    }

    fn make(&mut self, numbers: Range<usize>) {
        let (last, wrong) = turns(&self.word, self.last, numbers.len());
        self.last = last;
        self.wrong |= wrong;
    }

    fn check(&mut self, made: usize) -> Result<u64, Failure> {
        match self.wrong {
            0 => Ok(made as u64),
            _ => Err(Failure::check("the partner answered with another number than the next")),
        }
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        self.word.set(OVER);
        // A partner that panicked has no more to say: its turns did not come.
        let _ = self.partner.take().map(JoinHandle::join);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_turn_is_answered_with_the_next_number() {
        let cpu = machine::topology::allowed_cpus()[0];
        let mut taken = Turns::with(cpu).unwrap();
        taken.make(0..100);
        assert_eq!((taken.check(100), taken.last), (Ok(100), 200));
        let mut wrong = Turns::answered(cpu, |asked| asked + 3).unwrap();
        wrong.make(0..1);
        assert!(wrong.check(1).unwrap_err().why.contains("another number"));
    }
}
