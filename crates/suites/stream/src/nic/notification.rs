//! Notifications between NIC and host, in shared slots.
//!
//! The writer of a slot writes its signal last, and the reader checks the signal first; then the slot belongs to the
//! reader until it sets the signal to 0. This orders more than the slot: packets are in memory before the host is
//! notified, and memory being sent belongs to the NIC until it reports completion.

use super::sync::{AtomicU64, Ordering};

/// Notification to the host that a pipe has received packets.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct RxNotification {
    /// 1 once the notification is complete; the host sets it to 0.
    pub signal: AtomicU64,
    /// The pipe.
    pub queue: AtomicU64,
    /// The pipe's tail, up to which it contains packets, in flits.
    pub tail: AtomicU64,
    padding: [u64; 5],
}

impl RxNotification {
    /// Writes the notification (NIC).
    #[inline(always)]
    pub(crate) fn notify(&self, pipe: u32, tail: u32) {
        self.queue.store(u64::from(pipe), Ordering::Relaxed);
        self.tail.store(u64::from(tail), Ordering::Relaxed);
        self.signal.store(1, Ordering::Release);
    }

    /// Takes the notification as pipe and tail (host). Returns `None` if there is none.
    ///
    /// The slot belongs to the NIC again only after a doorbell. The doorbell is written after the signal, which is
    /// therefore 0 before the NIC's next lap.
    #[inline(always)]
    pub(crate) fn take(&self) -> Option<(u32, u32)> {
        if self.signal.load(Ordering::Acquire) == 0 {
            return None;
        }
        let taken =
            (self.queue.load(Ordering::Relaxed) as u32, self.tail.load(Ordering::Relaxed) as u32);
        self.signal.store(0, Ordering::Relaxed);
        Some(taken)
    }
}

/// Request of the host to send packets or to change the configuration.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct TxNotification {
    /// [`SEND`] or [`CONFIGURE`]; the NIC sets it to 0 when it is done.
    pub signal: AtomicU64,
    /// Bus address of the packets, or the kind of configuration.
    pub address: AtomicU64,
    /// Length in bytes, at most [`MAX_TRANSFER`](super::layout::MAX_TRANSFER), or the configuration's first word.
    pub length: AtomicU64,
    /// Further words of the configuration. The last is the NIC's answer: 0, [`TAKEN`], or the number of rules in a full
    /// flow table.
    pub words: [AtomicU64; 5],
}

/// Signal of a request to send.
pub const SEND: u64 = 1;
/// Signal of a configuration request.
pub const CONFIGURE: u64 = 2;

/// Answer if another client has the flow or setting.
pub const TAKEN: u64 = u64::MAX;

/// The words of a notification after its signal.
pub(crate) type Words = [u64; 7];

impl TxNotification {
    /// Requests that the NIC send bytes (host).
    #[inline(always)]
    pub(crate) fn request_send(&self, address: u64, length: u64) {
        self.address.store(address, Ordering::Relaxed);
        self.length.store(length, Ordering::Relaxed);
        self.signal.store(SEND, Ordering::Release);
    }

    /// Requests a configuration (host).
    pub(crate) fn request_configure(&self, words: Words) {
        self.set_words(words);
        self.signal.store(CONFIGURE, Ordering::Release);
    }

    /// Returns the requested operation (NIC): [`SEND`], [`CONFIGURE`], or any other value.
    #[inline(always)]
    pub(crate) fn request(&self) -> u64 {
        self.signal.load(Ordering::Acquire)
    }

    /// Returns address and length of the bytes to send (NIC).
    #[inline(always)]
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (self.address.load(Ordering::Relaxed), self.length.load(Ordering::Relaxed))
    }

    /// Refuses a request (NIC), before it [finishes](Self::finish), because the flow table is full (`why` is its number
    /// of rules) or another client has the flow or setting ([`TAKEN`]). The answer is in the last word, which is 0 in
    /// all requests.
    ///
    /// The published hardware only counts a rule without space and writes no answer, so the host believes that the rule
    /// was set. It does not distinguish clients, so each can change everything.
    pub(crate) fn refuse(&self, why: u64) {
        self.words[4].store(why, Ordering::Relaxed);
    }

    /// Returns the NIC's answer to a [done](Self::is_done) request (host): 0 if it was executed.
    pub(crate) fn refused(&self) -> u64 {
        self.words[4].load(Ordering::Relaxed)
    }

    /// Reports a request as done (NIC), which releases the slot.
    #[inline(always)]
    pub(crate) fn finish(&self) {
        self.signal.store(0, Ordering::Release);
    }

    /// Returns whether the NIC has finished the request (host).
    #[inline(always)]
    pub(crate) fn is_done(&self) -> bool {
        self.signal.load(Ordering::Acquire) == 0
    }

    /// Writes all words except the signal.
    pub(crate) fn set_words(&self, words: Words) {
        let [address, length, rest @ ..] = words;
        self.address.store(address, Ordering::Relaxed);
        self.length.store(length, Ordering::Relaxed);
        for (word, value) in self.words.iter().zip(rest) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Reads all words except the signal.
    pub(crate) fn get_words(&self) -> Words {
        let rest = self.words.each_ref().map(|word| word.load(Ordering::Relaxed));
        let [a, b, c, d, e] = rest;
        [self.address.load(Ordering::Relaxed), self.length.load(Ordering::Relaxed), a, b, c, d, e]
    }
}
