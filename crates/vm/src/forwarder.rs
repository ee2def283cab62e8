//! Forwarding of the stores to write-only memory.
//!
//! QEMU has no memory that a guest may write and not read. A host that may only write a range has a private copy of it
//! instead. A thread outside of the guests compares the copy with what it forwarded before, and stores each byte that
//! changed in the range. A store that changes no byte of the copy is not forwarded, and stores to different words may arrive
//! in another order.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lab::sample::Failure;

/// Minimum time between two comparisons.
const MIN_INTERVAL: Duration = Duration::from_millis(1);
/// Pause after a comparison, relative to its duration, so that it takes little of the CPUs that the guests need.
const PAUSE_FACTOR: u32 = 20;

/// A thread that forwards the stores of one host; it ends when this value is dropped.
#[derive(Debug)]
pub struct Forwarder {
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

/// State that the thread and its owner share.
#[derive(Debug, Default)]
struct State {
    is_stopped: AtomicBool,
    /// Why the thread ended before it was stopped, in one line.
    failure: Mutex<Option<String>>,
}

/// A range that a host may only write.
#[derive(Debug)]
pub(crate) struct WriteOnly {
    /// Its name in messages.
    name: String,
    /// The host's private copy. It is read, not mapped: another process may truncate it, and then an access to a mapping
    /// would end this process.
    copy: File,
    /// The range.
    range: File,
    /// The copy's bytes, as they were forwarded.
    forwarded: Vec<u8>,
    /// The copy's bytes now.
    current: Vec<u8>,
}

impl Forwarder {
    /// Starts to forward what changes in the copies of these ranges from now on.
    pub(crate) fn start(mut ranges: Vec<WriteOnly>) -> Self {
        let state = Arc::new(State::default());
        let shared = state.clone();
        let thread = std::thread::spawn(move || {
            if let Err(why) = forward_until_stopped(&mut ranges, &shared.is_stopped) {
                *shared.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
            }
        });
        Self { state, thread: Some(thread) }
    }

    /// Checks that it forwards.
    ///
    /// # Errors
    /// Returns why it has ended.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        match &*self.state.failure.lock().unwrap_or_else(PoisonError::into_inner) {
            None => Ok(()),
            Some(why) => Err(Failure::failed(why.clone())),
        }
    }
}

fn forward_until_stopped(ranges: &mut [WriteOnly], is_stopped: &AtomicBool) -> Result<(), String> {
    loop {
        // After the stop, the last stores of a host that has ended.
        let is_last = is_stopped.load(Ordering::Relaxed);
        let start = Instant::now();
        ranges.iter_mut().try_for_each(WriteOnly::forward)?;
        if is_last {
            return Ok(());
        }
        std::thread::sleep((start.elapsed() * PAUSE_FACTOR).max(MIN_INTERVAL));
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.state.is_stopped.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl WriteOnly {
    /// Forwards from `copy` to `range`, two files of `length` bytes.
    ///
    /// # Errors
    /// Returns one line if the copy cannot be read.
    pub(crate) fn new(name: &str, copy: File, range: File, length: usize) -> Result<Self, String> {
        let mut new = Self {
            name: name.into(),
            copy,
            range,
            forwarded: vec![0; length],
            current: vec![0; length],
        };
        new.read()?;
        new.forwarded.copy_from_slice(&new.current);
        Ok(new)
    }

    fn read(&mut self) -> Result<(), String> {
        let read = self.copy.read_exact_at(&mut self.current, 0);
        read.map_err(|why| self.failure("the copy of a host that may only write", &why))
    }

    fn failure(&self, what: &str, why: &io::Error) -> String {
        let why = match why.kind() {
            io::ErrorKind::UnexpectedEof => "another process truncated it".to_owned(),
            _ => why.to_string(),
        };
        format!("{}: {what}: {why}; stores are no longer forwarded, so run again", self.name)
    }

    /// Stores each changed run of bytes in the range.
    fn forward(&mut self) -> Result<(), String> {
        self.read()?;
        let mut at = 0;
        while let Some(start) = self.first_change(at) {
            let is_equal = |at: &usize| self.current[*at] == self.forwarded[*at];
            let end = (start..self.current.len()).find(is_equal).unwrap_or(self.current.len());
            let written = self.range.write_all_at(&self.current[start..end], start as u64);
            written.map_err(|why| self.failure("the range", &why))?;
            self.forwarded[start..end].copy_from_slice(&self.current[start..end]);
            at = end;
        }
        Ok(())
    }

    /// Returns the first changed byte from `at` on.
    fn first_change(&self, at: usize) -> Option<usize> {
        let (now, before) = (&self.current[at..], &self.forwarded[at..]);
        // Most comparisons find nothing; that of slices is fast.
        if now == before {
            return None;
        }
        now.iter().zip(before).position(|(now, before)| now != before).map(|index| at + index)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use machine::mapping::PAGE;
    use machine::memfd::Memfd;

    use super::*;

    fn file(memory: &Memfd) -> File {
        File::from(memory.as_fd().try_clone_to_owned().unwrap())
    }

    fn write_only(copy: &Memfd, range: &Memfd) -> WriteOnly {
        let [copy, range] = [copy, range].map(file);
        WriteOnly::new("range", copy, range, PAGE).unwrap()
    }

    #[test]
    fn a_truncated_file_ends_forwarding_with_its_cause() {
        let [copy, range] = ["copy", "range"].map(|name| Memfd::create(name, PAGE).unwrap());
        let forwarder = Forwarder::start(vec![write_only(&copy, &range)]);
        forwarder.check().unwrap();
        file(&copy).set_len(10).unwrap();
        let start = Instant::now();
        while forwarder.check().is_ok() && start.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let why = forwarder.check().unwrap_err().to_string();
        assert!(why.contains("another process truncated it"), "{why}");
    }

    #[test]
    fn changed_bytes_arrive_while_the_guest_runs_and_others_keep_their_value() {
        let [copy, range] = ["copy", "range"].map(|name| Memfd::create(name, PAGE).unwrap());
        let [guest, other] = [&copy, &range].map(file);
        let bytes = |file: &File| {
            let mut bytes = vec![0; PAGE];
            file.read_exact_at(&mut bytes, 0).unwrap();
            bytes
        };
        let mut expected = vec![0xee; PAGE];
        other.write_all_at(&expected, 0).unwrap();
        let forwarder = Forwarder::start(vec![write_only(&copy, &range)]);
        for (at, byte) in [(9, 7), (PAGE - 1, 8)] {
            guest.write_all_at(&[byte], at as u64).unwrap();
            expected[at] = byte;
        }
        let start = Instant::now();
        while bytes(&other) != expected && start.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(bytes(&other), expected, "forwarded before the guest ends");
        // The last stores are forwarded when the guest ends.
        guest.write_all_at(&[9], 100).unwrap();
        expected[100] = 9;
        drop(forwarder);
        assert_eq!(bytes(&other), expected);
        assert_eq!(bytes(&guest)[0], 0, "the host sees nothing of the range");
    }
}
