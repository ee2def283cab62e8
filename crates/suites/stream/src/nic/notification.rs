//! Notifications: how NIC and program tell each other of packets, in slots that both see.
//!
//! Whoever writes a slot writes its signal last, and whoever reads it looks at its signal first; then the slot
//! is the reader's until it sets the signal to 0. What that orders is more than the slot: packets are in memory
//! before the program is told of them, and memory that is sent from is the NIC's until it says that it is done.

use super::sync::{AtomicU64, Ordering};

/// The NIC tells a program that a pipe has grown.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct RxNotification {
    /// 1 once the rest is there; the program sets it to 0.
    pub signal: AtomicU64,
    /// The pipe.
    pub queue: AtomicU64,
    /// Up to where the pipe now holds packets, flits.
    pub tail: AtomicU64,
    padding: [u64; 5],
}

impl RxNotification {
    /// The NIC tells of packets that it has written.
    #[inline(always)]
    pub(crate) fn tell(&self, pipe: u32, tail: u32) {
        self.queue.store(u64::from(pipe), Ordering::Relaxed);
        self.tail.store(u64::from(tail), Ordering::Relaxed);
        self.signal.store(1, Ordering::Release);
    }

    /// The program takes it: pipe and tail; none where there is nothing new.
    ///
    /// The slot is the NIC's again only once a doorbell says so: the write of the doorbell comes after that
    /// of the signal, which so is 0 before the NIC's next lap.
    #[inline(always)]
    pub(crate) fn take(&self) -> Option<(u32, u32)> {
        if self.signal.load(Ordering::Acquire) == 0 {
            return None;
        }
        let told =
            (self.queue.load(Ordering::Relaxed) as u32, self.tail.load(Ordering::Relaxed) as u32);
        self.signal.store(0, Ordering::Relaxed);
        Some(told)
    }
}

/// A program tells the NIC what to send, or to change its configuration.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct TxNotification {
    /// [`SEND`] or [`CONFIGURE`]; the NIC sets it to 0 when it is done.
    pub signal: AtomicU64,
    /// Where the packets lie, or which configuration.
    pub address: AtomicU64,
    /// Bytes, at most [`MAX_TRANSFER`](super::layout::LONGEST_TRANSFER); or the configuration's first word.
    pub length: AtomicU64,
    /// The configuration's further words. The last is the NIC's: how many rules its flow table has, where those
    /// leave no place for the one that it was asked for.
    pub words: [AtomicU64; 5],
}

/// The signal of a TX notification that sends.
pub const SEND: u64 = 1;
/// The signal of a TX notification that configures.
pub const CONFIGURE: u64 = 2;

/// What is said in place of a number of rules if another program has the flow, or what was to be set.
pub(crate) const TAKEN: u64 = u64::MAX;

/// The words of a notification after its signal.
pub(crate) type Words = [u64; 7];

impl TxNotification {
    /// The program asks for bytes to be sent.
    #[inline(always)]
    pub(crate) fn request_send(&self, address: u64, length: u64) {
        self.address.store(address, Ordering::Relaxed);
        self.length.store(length, Ordering::Relaxed);
        self.signal.store(SEND, Ordering::Release);
    }

    /// The program asks for a configuration.
    pub(crate) fn request_configure(&self, words: Words) {
        self.set_words(words);
        self.signal.store(CONFIGURE, Ordering::Release);
    }

    /// What the NIC is asked for: [`SEND`], [`CONFIGURE`], or nothing that it knows.
    #[inline(always)]
    pub(crate) fn asked(&self) -> u64 {
        self.signal.load(Ordering::Acquire)
    }

    /// Which bytes are to be sent: address and length.
    #[inline(always)]
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (self.address.load(Ordering::Relaxed), self.length.load(Ordering::Relaxed))
    }

    /// The NIC does not do what it was asked for: its flow table has no place for the rule beside so many that
    /// it has, or another program has it ([`TAKEN`]). It says so before it [finishes](Self::finish), in the last
    /// word, which all configurations leave at 0.
    ///
    /// The published hardware loses a rule without place, counts it and writes nothing there: by it, every rule
    /// seems to have a place. It knows of no programs, so each changes what it likes.
    pub(crate) fn refuse(&self, why: u64) {
        self.words[4].store(why, Ordering::Relaxed);
    }

    /// How many rules left no place for the one that the NIC was asked for, or [`TAKEN`]; 0 if it has done what
    /// it was asked for. To be asked once it is [done](Self::is_done).
    pub(crate) fn refused(&self) -> u64 {
        self.words[4].load(Ordering::Relaxed)
    }

    /// The NIC has done what it was asked for, and needs nothing of it any more.
    #[inline(always)]
    pub(crate) fn finish(&self) {
        self.signal.store(0, Ordering::Release);
    }

    /// Whether the NIC has done what it was asked for.
    #[inline(always)]
    pub(crate) fn is_done(&self) -> bool {
        self.signal.load(Ordering::Acquire) == 0
    }

    /// Writes all words but the signal.
    pub(crate) fn set_words(&self, words: Words) {
        let [address, length, rest @ ..] = words;
        self.address.store(address, Ordering::Relaxed);
        self.length.store(length, Ordering::Relaxed);
        for (word, value) in self.words.iter().zip(rest) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Reads all words but the signal.
    pub(crate) fn get_words(&self) -> Words {
        let rest = self.words.each_ref().map(|word| word.load(Ordering::Relaxed));
        let [a, b, c, d, e] = rest;
        [self.address.load(Ordering::Relaxed), self.length.load(Ordering::Relaxed), a, b, c, d, e]
    }
}
