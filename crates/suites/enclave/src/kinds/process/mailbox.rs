//! The shared memory through which the host and a serving thread call each other.
//!
//! A waiting thread spins for a while, then sleeps on a futex. It uses no thread-local variables, because the serving
//! threads have none.

use std::hint;
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use lab::sample::Failure;
use machine::mapping::Mapping;

use crate::system_calls;

/// The value of [`Mailbox::ready`] of a thread that serves. A larger value is this plus an `errno`.
pub(super) const READY: u32 = 1;

/// How often a waiting thread checks the state before it sleeps: some tens of microseconds.
const MAX_SPINS: u32 = 1000;

/// How long the host sleeps before it checks whether the process lives, in ns.
const CHECK_INTERVAL_NS: i64 = 20_000_000;

/// The side whose turn it is, and the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum State {
    /// No message.
    Idle,
    /// The host makes an ECALL: number and five words.
    Call,
    /// The result of the ECALL: one word.
    Answer,
    /// The ECALL was cut short: signal, cause, address of the instruction.
    Failed,
    /// The enclave makes an OCALL: number and five words.
    Ocall,
    /// The result of the OCALL: one word.
    Resume,
}

impl State {
    fn of(number: u32) -> Self {
        match number {
            1 => Self::Call,
            2 => Self::Answer,
            3 => Self::Failed,
            4 => Self::Ocall,
            5 => Self::Resume,
            _ => Self::Idle,
        }
    }
}

/// The mailbox of one TCS. All zero is a valid mailbox.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct Mailbox {
    state: AtomicU32,
    host_sleeps: AtomicU32,
    enclave_sleeps: AtomicU32,
    /// 0 until the thread serves.
    pub(super) ready: AtomicU32,
    words: [AtomicU64; 6],
}

impl Mailbox {
    /// Returns a word of the last message.
    pub(super) fn word(&self, number: usize) -> u64 {
        self.words[number].load(Ordering::Relaxed)
    }

    /// Stores the words of a message, before the state is passed.
    pub(super) fn put(&self, words: [u64; 6]) {
        for (to, word) in self.words.iter().zip(words) {
            to.store(word, Ordering::Relaxed);
        }
    }

    /// Passes the turn to the enclave.
    pub(super) fn pass_to_enclave(&self, state: State) {
        self.pass(state, &self.enclave_sleeps);
    }

    /// Passes the turn to the host.
    pub(super) fn pass_to_host(&self, state: State) {
        self.pass(state, &self.host_sleeps);
    }

    fn pass(&self, state: State, sleeps: &AtomicU32) {
        self.state.store(state as u32, Ordering::SeqCst);
        if sleeps.load(Ordering::SeqCst) != 0 {
            self.futex(libc::FUTEX_WAKE, 1, ptr::null());
        }
    }

    /// Waits until the state changes; returns it, or `None` if the enclave's process has exited.
    pub(super) fn host_waits_while(
        &self,
        waits: impl Fn(State) -> bool,
        lives: impl Fn() -> bool,
    ) -> Option<State> {
        let timeout = libc::timespec { tv_sec: 0, tv_nsec: CHECK_INTERVAL_NS };
        loop {
            if let Some(state) =
                self.spin(&waits).or_else(|| self.sleep(&waits, &self.host_sleeps, &timeout))
            {
                return Some(state);
            }
            if !lives() {
                return None;
            }
        }
    }

    /// Waits for a state.
    pub(super) fn enclave_waits_for(&self, state: State) {
        let waits = |now| now != state;
        while self
            .spin(&waits)
            .or_else(|| self.sleep(&waits, &self.enclave_sleeps, ptr::null()))
            .is_none()
        {}
    }

    fn spin(&self, waits: &impl Fn(State) -> bool) -> Option<State> {
        for _ in 0..MAX_SPINS {
            let now = State::of(self.state.load(Ordering::Acquire));
            if !waits(now) {
                return Some(now);
            }
            hint::spin_loop();
        }
        None
    }

    fn sleep(
        &self,
        waits: &impl Fn(State) -> bool,
        sleeps: &AtomicU32,
        timeout: *const libc::timespec,
    ) -> Option<State> {
        sleeps.store(1, Ordering::SeqCst);
        let seen = self.state.load(Ordering::SeqCst);
        if waits(State::of(seen)) {
            self.futex(libc::FUTEX_WAIT, seen, timeout);
        }
        sleeps.store(0, Ordering::SeqCst);
        let now = State::of(self.state.load(Ordering::SeqCst));
        (!waits(now)).then_some(now)
    }

    fn futex(&self, operation: i32, value: u32, timeout: *const libc::timespec) {
        // SAFETY: the word lives as long as the mailbox, and the callers keep the timeout alive.
        unsafe { system_calls::futex(self.state.as_ptr(), operation, value, timeout) };
    }
}

/// All mailboxes of an enclave, in memory that a forked process shares.
pub(super) struct Mailboxes {
    first: *const Mailbox,
    count: usize,
    mapping: Mapping,
}

// SAFETY: mailboxes consist of atomics.
unsafe impl Send for Mailboxes {}
// SAFETY: mailboxes consist of atomics.
unsafe impl Sync for Mailboxes {}

impl Mailboxes {
    pub(super) fn new(count: usize) -> Result<Self, Failure> {
        let mapping = Mapping::shared_with_forks(count * size_of::<Mailbox>())?;
        Ok(Self { first: mapping.as_ptr().cast(), count, mapping })
    }

    /// Excludes the mailboxes from processes that are forked later.
    pub(super) fn keep_from_forks(&self) -> io::Result<()> {
        self.mapping.madvise_dontfork()
    }

    pub(super) fn all(&self) -> &[Mailbox] {
        // SAFETY: the mapping contains `count` zeroed and aligned mailboxes, and lives as long as this.
        unsafe { std::slice::from_raw_parts(self.first, self.count) }
    }
}
