//! Trips between two threads that alternate: by a futex, and by two pipes.

use std::ops::{Range, RangeInclusive};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;

use lab::sample::Failure;
use machine::pin::spawn_pinned;
use rustix::pipe::{PipeFlags, pipe_with};

use super::batch::Operation;
use super::syscalls::{call3, call4};
use crate::trace::thread_id;

/// Thread ID of the partner, 0 until it runs.
#[derive(Debug, Default)]
struct Partner(AtomicU32);

impl Partner {
    /// Stores the thread ID of the caller, the partner.
    fn set_running(&self) {
        self.0.store(thread_id(), Ordering::Release);
    }

    /// Returns the numbers of voluntary context switches of this thread and of the partner.
    ///
    /// # Errors
    /// Returns `failed` if a thread has exited or the kernel does not count.
    fn switches(&self) -> Result<[u64; 2], Failure> {
        let partner = match self.0.load(Ordering::Acquire) {
            0 => 0,
            thread => switches_of(thread)?,
        };
        Ok([switches_of(thread_id())?, partner])
    }
}

/// Returns the number of voluntary context switches of a thread of this process.
fn switches_of(thread: u32) -> Result<u64, Failure> {
    let path = format!("/proc/self/task/{thread}/status");
    let status = std::fs::read_to_string(&path)?;
    let count = machine::proc::number(&status, "voluntary_ctxt_switches:");
    count.ok_or_else(|| Failure::failed(format!("{path}: no voluntary_ctxt_switches")))
}

/// Value of the word that ends the partner; no trip reaches it.
const STOP: u32 = u32::MAX;

/// The futex word, on separate cache lines.
#[derive(Default)]
#[repr(align(128))]
struct FutexWord(AtomicU32);

/// State of the partner, on other cache lines than the word, because the partner writes it when it did not sleep.
#[derive(Default)]
#[repr(align(128))]
struct PartnerState {
    thread: Partner,
    /// Number of times that it found the word changed and did not sleep.
    awake: AtomicU64,
}

impl FutexWord {
    fn set(&self, value: u32) {
        self.0.store(value, Ordering::Release);
        self.call(libc::FUTEX_WAKE, 1);
    }

    /// Waits in the kernel, at least once, until the word differs from `value`. Returns the new value, and whether
    /// the kernel queued this thread.
    fn wait_while(&self, value: u32) -> (u32, bool) {
        let mut queued = false;
        loop {
            // FUTEX_WAIT fails if the word has already changed.
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
        // SAFETY: the kernel only reads the word, and waits without a time limit.
        unsafe { call4(libc::SYS_futex, self.0.as_ptr() as u64, operation, value.into(), 0) }
    }
}

/// Futex trips: this thread sets the word to the next number and wakes the partner, which answers with the number
/// after it. A trip is unproven if a thread finds the word changed before it sleeps.
pub(super) struct FutexPingPong {
    word: Arc<FutexWord>,
    last: u32,
    wrong: u32,
    /// Number of waits in which this thread did not sleep.
    awake: u64,
    /// Context switches of both threads at the start of the timed trips.
    before: [u64; 2],
    state: Arc<PartnerState>,
    partner: Option<JoinHandle<()>>,
}

impl FutexPingPong {
    /// Starts the partner on this CPU.
    pub(super) fn with(cpu: usize) -> Result<Self, Failure> {
        Self::with_reply(cpu, |asked| asked.wrapping_add(1))
    }

    fn with_reply(cpu: usize, reply: fn(u32) -> u32) -> Result<Self, Failure> {
        let (word, state) = (Arc::new(FutexWord::default()), Arc::new(PartnerState::default()));
        let (its_word, its_state) = (Arc::clone(&word), Arc::clone(&state));
        let body = move || answer_futex(&its_word, &its_state, reply);
        let partner = Some(spawn_pinned(cpu, body)?);
        Ok(Self { word, last: 0, wrong: 0, awake: 0, before: [0; 2], state, partner })
    }
}

/// Answers each number until [`STOP`].
fn answer_futex(word: &FutexWord, state: &PartnerState, reply: fn(u32) -> u32) {
    state.thread.set_running();
    let mut last = 0;
    loop {
        let (asked, queued) = word.wait_while(last);
        if !queued {
            state.awake.fetch_add(1, Ordering::Release);
        }
        if asked == STOP {
            return;
        }
        last = reply(asked);
        word.set(last);
    }
}

/// Makes `count` trips after the number `last`. Returns the last number, the bits in which any answer was wrong, and
/// the number of waits in which this thread did not sleep.
#[inline(never)]
fn futex_trips(word: &FutexWord, mut last: u32, count: usize) -> (u32, u32, u64) {
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

impl Operation for FutexPingPong {
    fn sizes(&self) -> RangeInclusive<usize> {
        1..=64
    }

    fn make(&mut self, numbers: Range<usize>) {
        let (last, wrong, awake) = futex_trips(&self.word, self.last, numbers.len());
        self.last = last;
        self.wrong |= wrong;
        self.awake += awake;
    }

    fn check(&mut self, made: usize) -> Result<u64, Failure> {
        match self.wrong {
            0 => Ok(made as u64),
            _ => Err(Failure::check("wrong answer of the partner")),
        }
    }

    fn unproven(&self) -> u64 {
        self.awake + self.state.awake.load(Ordering::Acquire)
    }

    fn start(&mut self) -> Result<(), Failure> {
        self.before = self.state.thread.switches()?;
        Ok(())
    }

    /// Compares the kernel's counts of context switches, because a queued thread may be woken before it sleeps.
    fn is_proven(&mut self, made: u64) -> Result<bool, Failure> {
        let now = self.state.thread.switches()?;
        // At either reading the partner may not yet sleep.
        let [this, partner] = [made, made.saturating_sub(1)];
        Ok(now[0] - self.before[0] >= this && now[1] - self.before[1] >= partner)
    }
}

impl Drop for FutexPingPong {
    fn drop(&mut self) {
        self.word.set(STOP);
        // The trips of a partner that panicked have already failed.
        let _ = self.partner.take().map(JoinHandle::join);
    }
}

/// One end of the two pipes.
struct PipeEnd {
    reader: OwnedFd,
    writer: OwnedFd,
}

impl PipeEnd {
    #[inline(always)]
    fn send(&self, byte: u8) -> i64 {
        let address = (&raw const byte) as u64;
        // SAFETY: the kernel reads one byte, which outlives the call.
        unsafe { call3(libc::SYS_write, self.writer.as_raw_fd() as u64, address, 1) }
    }

    #[inline(always)]
    fn receive(&self, byte: &mut u8) -> i64 {
        let address = (&raw mut *byte) as u64;
        // SAFETY: the kernel writes at most one byte, which outlives the call.
        unsafe { call3(libc::SYS_read, self.reader.as_raw_fd() as u64, address, 1) }
    }
}

/// Pipe trips: this thread sends a byte, and the partner returns its complement. A read does not tell whether its
/// thread slept, so the kernel's counts of context switches give the share of waits that slept.
pub(super) struct PipePingPong {
    end: Option<PipeEnd>,
    wrong: bool,
    made: u64,
    /// Context switches of both threads before the first trip.
    before: [u64; 2],
    thread: Arc<Partner>,
    partner: Option<JoinHandle<()>>,
}

impl PipePingPong {
    /// Starts the partner on this CPU.
    pub(super) fn with(cpu: usize) -> Result<Self, Failure> {
        Self::with_reply(cpu, |byte| !byte)
    }

    fn with_reply(cpu: usize, reply: fn(u8) -> u8) -> Result<Self, Failure> {
        let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(std::io::Error::from);
        let ((its_reader, writer), (reader, its_writer)) = (pipe()?, pipe()?);
        let its_end = PipeEnd { reader: its_reader, writer: its_writer };
        let thread = Arc::new(Partner::default());
        let its_thread = Arc::clone(&thread);
        let body = move || {
            its_thread.set_running();
            answer_pipe(&its_end, reply);
        };
        let partner = Some(spawn_pinned(cpu, body)?);
        let before = thread.switches()?;
        let end = Some(PipeEnd { reader, writer });
        Ok(Self { end, wrong: false, made: 0, before, thread, partner })
    }

    /// Returns the share of all waits of both threads in which the thread gave up its CPU.
    ///
    /// # Errors
    /// Returns `failed` if no trip was made or the kernel does not count.
    pub(super) fn sleep_share(&self) -> Result<f64, Failure> {
        let now = self.thread.switches()?;
        let switches: u64 = now.iter().zip(self.before).map(|(now, before)| now - before).sum();
        match self.made {
            0 => Err(Failure::failed("no trips: no thread waited")),
            // The partner may sleep one more time, before its first byte.
            made => Ok((switches as f64 / (2 * made) as f64).min(1.0)),
        }
    }
}

/// Answers each byte until the other end is closed.
fn answer_pipe(end: &PipeEnd, reply: fn(u8) -> u8) {
    let mut byte = 0;
    while end.receive(&mut byte) == 1 {
        if end.send(reply(byte)) != 1 {
            return;
        }
    }
}

/// Makes trips; reports whether any failed.
#[inline(never)]
fn pipe_trips(end: &PipeEnd, numbers: Range<usize>) -> bool {
    let mut wrong = false;
    for number in numbers {
        let (sent, mut received) = (number as u8, 0);
        wrong |= end.send(sent) != 1;
        wrong |= end.receive(&mut received) != 1;
        wrong |= received != !sent;
    }
    wrong
}

impl Operation for PipePingPong {
    fn sizes(&self) -> RangeInclusive<usize> {
        1..=64
    }

    fn make(&mut self, numbers: Range<usize>) {
        self.made = self.made.wrapping_add(numbers.len() as u64);
        self.wrong |= self.end.as_ref().is_none_or(|end| pipe_trips(end, numbers));
    }

    fn check(&mut self, made: usize) -> Result<u64, Failure> {
        match self.wrong {
            false => Ok(made as u64),
            true => Err(Failure::check("wrong answer of the partner")),
        }
    }
}

impl Drop for PipePingPong {
    fn drop(&mut self) {
        // The partner ends when its pipe is closed.
        self.end = None;
        let _ = self.partner.take().map(JoinHandle::join);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_answered_with_the_next() {
        let cpu = machine::topology::allowed_cpus()[0];
        let mut trips = FutexPingPong::with(cpu).unwrap();
        trips.make(0..100);
        assert_eq!((trips.check(100), trips.last), (Ok(100), 200));
        let mut wrong = FutexPingPong::with_reply(cpu, |asked| asked + 3).unwrap();
        wrong.make(0..1);
        assert!(wrong.check(1).unwrap_err().why.contains("wrong answer"));
    }

    #[test]
    fn a_trip_in_which_a_thread_does_not_sleep_is_unproven() {
        let cpu = machine::topology::allowed_cpus()[0];
        let mut trips = FutexPingPong::with(cpu).unwrap();
        // FUTEX_WAIT does not sleep if the word has another value.
        assert_eq!(trips.word.wait_while(trips.last + 1), (trips.last, false));
        // Without trips there are no context switches.
        trips.start().unwrap();
        assert!(!trips.is_proven(1).unwrap() && trips.is_proven(0).unwrap());
        let before = trips.unproven();
        trips.state.awake.fetch_add(1, Ordering::Release);
        trips.awake += 1;
        assert_eq!(trips.unproven(), before + 2);
    }

    /// Two threads on one CPU eventually sleep alternately.
    #[test]
    fn trips_in_which_both_threads_sleep_are_proven() {
        let cpu = machine::topology::allowed_cpus()[0];
        machine::pin::pin_to(cpu).unwrap();
        let mut trips = FutexPingPong::with(cpu).unwrap();
        let (mut proven, mut all) = (0, 0);
        let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while proven < 10 {
            trips.start().unwrap();
            let before = trips.unproven();
            trips.make(0..1);
            proven += u32::from(trips.unproven() == before && trips.is_proven(1).unwrap());
            all += 1;
            assert!(std::time::Instant::now() < end, "{proven} trips were proven");
        }
        println!("{proven} of {all} trips were proven");
    }

    #[test]
    fn the_share_of_waits_that_slept_comes_from_the_kernel() {
        let mut trips = PipePingPong::with(machine::topology::allowed_cpus()[0]).unwrap();
        assert!(trips.sleep_share().is_err(), "no trips");
        trips.make(0..1000);
        let slept = trips.sleep_share().unwrap();
        assert!(slept > 0.0 && slept <= 1.0, "{slept}");
        // 999 times as many trips without context switches.
        trips.made *= 1000;
        assert!(trips.sleep_share().unwrap() < 0.01);
    }

    #[test]
    fn every_byte_is_answered_with_its_complement() {
        let cpu = machine::topology::allowed_cpus()[0];
        let mut right = PipePingPong::with(cpu).unwrap();
        right.make(0..300);
        assert_eq!(right.check(300), Ok(300));
        let mut wrong = PipePingPong::with_reply(cpu, |byte| byte).unwrap();
        wrong.make(0..1);
        assert!(wrong.check(1).unwrap_err().why.contains("wrong answer"));
    }
}
