//! Forwarding of the stores to write-only memory.
//!
//! QEMU has no memory that a guest may write and not read. A host that may only write a range has a private copy of it
//! instead. A thread outside of the guests compares the copy with what it forwarded before, and stores each byte that
//! changed in the range. A store that changes no byte of the copy is not forwarded, and stores to different words may arrive
//! in another order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use machine::mapping::Mapping;

/// Minimum time between two comparisons.
const MIN_INTERVAL: Duration = Duration::from_millis(1);
/// Pause after a comparison, relative to its duration, so that it takes little of the CPUs that the guests need.
const PAUSE_FACTOR: u32 = 20;

/// A thread that forwards the stores of one host; it ends when this value is dropped.
#[derive(Debug)]
pub struct Forwarder {
    is_stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// A range that a host may only write.
#[derive(Debug)]
pub(crate) struct WriteOnly {
    /// The host's private copy.
    copy: Mapping,
    /// The range.
    range: Mapping,
    /// The copy's words, as they were forwarded.
    forwarded: Vec<u64>,
}

impl Forwarder {
    /// Starts to forward what changes in the copies of these ranges from now on.
    pub(crate) fn start(mut ranges: Vec<WriteOnly>) -> Self {
        let is_stopped = Arc::new(AtomicBool::new(false));
        let stop = is_stopped.clone();
        let thread = std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let start = Instant::now();
                ranges.iter_mut().for_each(WriteOnly::forward);
                std::thread::sleep((start.elapsed() * PAUSE_FACTOR).max(MIN_INTERVAL));
            }
            // The last stores of a host that has ended.
            ranges.iter_mut().for_each(WriteOnly::forward);
        });
        Self { is_stopped, thread: Some(thread) }
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl WriteOnly {
    /// Forwards from `copy` to `range`, two writable mappings of the same number of whole pages.
    pub(crate) fn new(copy: Mapping, range: Mapping) -> Self {
        let words = copy.len().min(range.len()) / size_of::<u64>();
        let mut new = Self { copy, range, forwarded: Vec::new() };
        new.forwarded = (0..words).map(|index| new.copy_word(index)).collect();
        new
    }

    fn copy_word(&self, index: usize) -> u64 {
        // SAFETY: `new` limits the number of words to those of the mapping, which a guest may write at any time; volatile
        // for that reason.
        unsafe { self.copy.as_ptr().cast::<u64>().add(index).read_volatile() }
    }

    fn forward(&mut self) {
        for index in 0..self.forwarded.len() {
            let (word, before) = (self.copy_word(index), self.forwarded[index]);
            if word == before {
                continue;
            }
            for (byte, (new, old)) in
                word.to_le_bytes().into_iter().zip(before.to_le_bytes()).enumerate()
            {
                if new != old {
                    let at = index * size_of::<u64>() + byte;
                    // SAFETY: `new` limits the number of words to those of the range, which other hosts access at any
                    // time; volatile for that reason.
                    unsafe { self.range.as_mut_ptr().add(at).write_volatile(new) };
                }
            }
            self.forwarded[index] = word;
        }
    }
}

#[cfg(test)]
mod tests {
    use machine::mapping::PAGE;
    use machine::memfd::Memfd;

    use super::*;

    #[test]
    fn changed_bytes_arrive_and_others_keep_their_value() {
        let mapped = |memfd: &Memfd| Mapping::shared(memfd, PAGE).unwrap();
        let [copy, range] = ["copy", "range"].map(|name| Memfd::create(name, PAGE).unwrap());
        let (guest, other) = (mapped(&copy), mapped(&range));
        // SAFETY: all bytes are in mappings of one page, accessed by volatile loads and stores.
        unsafe {
            other.as_mut_ptr().write_bytes(0xee, PAGE);
            let forwarder = Forwarder::start(vec![WriteOnly::new(mapped(&copy), mapped(&range))]);
            guest.as_mut_ptr().add(9).write_volatile(7);
            guest.as_mut_ptr().add(PAGE - 1).write_volatile(8);
            let start = Instant::now();
            while other.as_ptr().add(9).read_volatile() != 7
                && start.elapsed() < Duration::from_secs(20)
            {
                std::thread::sleep(Duration::from_millis(1));
            }
            guest.as_mut_ptr().add(100).write_volatile(9);
            drop(forwarder);
            let bytes: Vec<u8> =
                (0..PAGE).map(|at| other.as_ptr().add(at).read_volatile()).collect();
            let changed: Vec<_> = bytes
                .iter()
                .enumerate()
                .filter(|(_, byte)| **byte != 0xee)
                .map(|(at, byte)| (at, *byte))
                .collect();
            assert_eq!(changed, [(9, 7), (100, 9), (PAGE - 1, 8)]);
            assert_eq!(guest.as_ptr().read_volatile(), 0, "the host sees nothing of the range");
        }
    }
}
