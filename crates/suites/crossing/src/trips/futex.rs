//! Two threads that wake each other by a futex.

use std::ops::{Range, RangeInclusive};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;

use lab::sample::Failure;
use machine::pin::spawn_pinned;

use super::batch::Operation;
use super::enter::call4;
use super::switches::Partner;

/// What the word holds when the partner is to end: no turn comes that far.
const OVER: u32 = u32::MAX;

/// The word, on cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct Word(AtomicU32);

/// What the partner says of itself, on other cache lines than the word: it is written where it did not sleep.
#[derive(Default)]
#[repr(align(128))]
struct Says {
    thread: Partner,
    /// How often it found the number changed and did not sleep.
    awake: AtomicU64,
}

impl Word {
    fn set(&self, value: u32) {
        self.0.store(value, Ordering::Release);
        self.call(libc::FUTEX_WAKE, 1);
    }

    /// Waits in the kernel, at least once, until the word holds something else; what it holds then, and whether
    /// the kernel put this thread in the queue of those that sleep.
    fn wait_while(&self, value: u32) -> (u32, bool) {
        let mut queued = false;
        loop {
            // It refuses where the word has changed already.
            queued |= self.call(libc::FUTEX_WAIT, value) == 0;
            let now = self.0.load(Ordering::Acquire);
            if now != value {
                return (now, queued);
            }
        }
    }

    #[inline(always)]
    fn call(&self, operation: i32, value: u32) -> i64 {
        let operation = (operation | libc::FUTEX_PRIVATE_FLAG) as u64;
        // SAFETY: the kernel only reads the word, and waits with no time limit.
        unsafe { call4(libc::SYS_futex, self.0.as_ptr() as u64, operation, value.into(), 0) }
    }
}

/// A turn is a number set and woken for here, and the next one that comes back. It is one of two threads that
/// sleep: where a thread finds the number changed before it sleeps, the turn is made and proves nothing.
pub(super) struct Turns {
    word: Arc<Word>,
    last: u32,
    wrong: u32,
    /// Turns in which this thread did not sleep.
    awake: u64,
    /// How often each thread had given up its CPU by itself when the turns that count began.
    before: [u64; 2],
    says: Arc<Says>,
    partner: Option<JoinHandle<()>>,
}

impl Turns {
    /// The partner runs on this CPU.
    pub(super) fn with(cpu: usize) -> Result<Self, Failure> {
        Self::answered(cpu, |asked| asked.wrapping_add(1))
    }

    fn answered(cpu: usize, reply: fn(u32) -> u32) -> Result<Self, Failure> {
        let (word, says) = (Arc::new(Word::default()), Arc::new(Says::default()));
        let (partners, its) = (Arc::clone(&word), Arc::clone(&says));
        let partner = Some(spawn_pinned(cpu, move || answer(&partners, &its, reply))?);
        Ok(Self { word, last: 0, wrong: 0, awake: 0, before: [0; 2], says, partner })
    }
}

/// Answers each number, until there are no more.
fn answer(word: &Word, says: &Says, reply: fn(u32) -> u32) {
    says.thread.runs();
    let mut last = 0;
    loop {
        let (asked, queued) = word.wait_while(last);
        if !queued {
            says.awake.fetch_add(1, Ordering::Release);
        }
        if asked == OVER {
            return;
        }
        last = reply(asked);
        word.set(last);
    }
}

/// Takes turns after the last; the last number that came, whether any was another than due, and in how many
/// this thread did not sleep.
#[inline(never)]
fn turns(word: &Word, mut last: u32, count: usize) -> (u32, u32, u64) {
    let (mut wrong, mut awake) = (0, 0);
    for _ in 0..count {
        let asked = last.wrapping_add(1);
        word.set(asked);
        let (answer, queued) = word.wait_while(asked);
        last = asked.wrapping_add(1);
        wrong |= answer ^ last;
        awake = u64::wrapping_add(awake, u64::from(!queued));
    }
    (last, wrong, awake)
}

impl Operation for Turns {
    fn sizes(&self) -> RangeInclusive<usize> {
        1..=64
    }

    fn make(&mut self, numbers: Range<usize>) {
        let (last, wrong, awake) = turns(&self.word, self.last, numbers.len());
        self.last = last;
        self.wrong |= wrong;
        self.awake += awake;
    }

    fn check(&mut self, made: usize) -> Result<u64, Failure> {
        match self.wrong {
            0 => Ok(made as u64),
            _ => Err(Failure::check("the partner answered with another number than the next")),
        }
    }

    fn unproven(&self) -> u64 {
        self.awake + self.says.awake.load(Ordering::Acquire)
    }

    fn begin(&mut self) -> Result<(), Failure> {
        self.before = self.says.thread.switches()?;
        Ok(())
    }

    /// By the kernel's counts: a thread in the queue may be woken before it has given up its CPU.
    fn is_proven(&mut self, made: u64) -> Result<bool, Failure> {
        let now = self.says.thread.switches()?;
        // The partner may be about to sleep at either look.
        let [own, partner] = [made, made.saturating_sub(1)];
        Ok(now[0] - self.before[0] >= own && now[1] - self.before[1] >= partner)
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

    #[test]
    fn a_turn_in_which_a_thread_does_not_sleep_is_seen() {
        let cpu = machine::topology::allowed_cpus()[0];
        let mut taken = Turns::with(cpu).unwrap();
        // The kernel lets no thread sleep while the word holds another value.
        assert_eq!(taken.word.wait_while(taken.last + 1), (taken.last, false));
        // Turns that were not taken gave up no CPU.
        taken.begin().unwrap();
        assert!(!taken.is_proven(1).unwrap() && taken.is_proven(0).unwrap());
        let before = taken.unproven();
        taken.says.awake.fetch_add(1, Ordering::Release);
        taken.awake += 1;
        assert_eq!(taken.unproven(), before + 2);
    }

    /// Threads on one CPU that nobody else wakes sleep in turn, sooner or later.
    #[test]
    fn turns_in_which_both_threads_sleep_are_proven() {
        let cpu = machine::topology::allowed_cpus()[0];
        machine::pin::pin_to(cpu).unwrap();
        let mut taken = Turns::with(cpu).unwrap();
        let (mut proven, mut all) = (0, 0);
        let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while proven < 10 {
            taken.begin().unwrap();
            let before = taken.unproven();
            taken.make(0..1);
            proven += u32::from(taken.unproven() == before && taken.is_proven(1).unwrap());
            all += 1;
            assert!(std::time::Instant::now() < end, "{proven} turns were proven");
        }
        println!("{proven} of {all} turns were proven");
    }
}
