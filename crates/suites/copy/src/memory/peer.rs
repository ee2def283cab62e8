//! The peer process of shared memory: it fills the memory that is read and verifies the memory
//! that is written.
//!
//! It is forked while the memory is mapped. A second memfd carries the commands; a futex on each
//! side's counter wakes the other side.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lab::sample::Failure;
use machine::child::{Forked, fork_child};
use machine::mapping::Mapping;
use machine::memfd::Memfd;
use rustix::thread::futex::{self, Timespec};

use super::{Call, VerifyCounts};
use crate::pattern::Pattern;

/// Maximum copies that one command verifies.
const CALLS: usize = 1 << 16;
/// Time limit of one command.
const TIME_LIMIT: Duration = Duration::from_secs(20);

const FILL: u32 = 1;
const VERIFY: u32 = 2;

/// Memory shared by both processes: counters, one command and its result. The list of copies
/// follows at [`LIST_OFFSET`].
#[repr(C)]
struct CommandPage {
    /// Commands issued and commands completed: each is a futex.
    issued: AtomicU32,
    completed: AtomicU32,
    command: AtomicU32,
    pattern: AtomicU32,
    start: AtomicU64,
    /// Bytes to fill, or copies to verify.
    amount: AtomicU64,
    delivered: AtomicU64,
    bytes: AtomicU64,
    missing: AtomicU64,
    torn: AtomicU64,
    torn_at: AtomicU64,
}

/// Byte offset of the list of copies.
const LIST_OFFSET: usize = machine::mapping::PAGE;

/// The peer process; dropping the handle ends it.
#[derive(Debug)]
pub(super) struct PeerProcess {
    control: Mapping,
    child: Forked,
}

impl PeerProcess {
    /// Forks the process, which shares `memory`.
    pub(super) fn start(memory: &Mapping) -> Result<Self, Failure> {
        const BYTES: usize = LIST_OFFSET + CALLS * size_of::<Call>();
        let memfd = Memfd::create("tollgate-commands", BYTES)?;
        let control = Mapping::shared(&memfd, BYTES)?;
        let page = control.as_mut_ptr();
        let (page, list) = (page as usize, page.wrapping_add(LIST_OFFSET) as usize);
        let (start, length) = (memory.as_mut_ptr() as usize, memory.len());
        let body = move || -> i32 {
            // SAFETY: the child inherits both mappings at the same addresses and never unmaps them.
            let (page, memory) = unsafe {
                (
                    &*(page as *const CommandPage),
                    std::slice::from_raw_parts_mut(start as *mut u8, length),
                )
            };
            serve(page, list as *const Call, memory)
        };
        // SAFETY: the body uses only existing mappings, atomics and futex calls.
        let child = unsafe { fork_child(body) }?;
        Ok(Self { control, child })
    }

    fn page(&self) -> &CommandPage {
        // SAFETY: the mapping is page-aligned, zeroed and longer than the struct; all fields are atomic.
        unsafe { &*(self.control.as_ptr().cast::<CommandPage>()) }
    }

    /// Has the process write the pattern, from its first byte, to `start..start + length`.
    pub(super) fn fill(
        &mut self,
        pattern: Pattern,
        start: usize,
        length: usize,
    ) -> Result<(), Failure> {
        self.run_command(FILL, pattern, start, length).map(|_| ())
    }

    /// Has the process verify copies.
    pub(super) fn verify(
        &mut self,
        pattern: Pattern,
        start: usize,
        calls: &[Call],
    ) -> Result<VerifyCounts, Failure> {
        let mut whole = VerifyCounts::default();
        for part in calls.chunks(CALLS) {
            // SAFETY: the list has space for CALLS copies, and the peer reads it only during a command.
            unsafe {
                let list = self.control.as_mut_ptr().add(LIST_OFFSET).cast::<Call>();
                std::ptr::copy_nonoverlapping(part.as_ptr(), list, part.len());
            }
            let counts = self.run_command(VERIFY, pattern, start, part.len())?;
            whole.join(counts);
        }
        Ok(whole)
    }

    fn run_command(
        &mut self,
        command: u32,
        pattern: Pattern,
        start: usize,
        amount: usize,
    ) -> Result<VerifyCounts, Failure> {
        let page = self.page();
        page.command.store(command, Ordering::Relaxed);
        page.pattern.store(u32::from(pattern.offset), Ordering::Relaxed);
        page.start.store(start as u64, Ordering::Relaxed);
        page.amount.store(amount as u64, Ordering::Relaxed);
        let issued = page.issued.load(Ordering::Relaxed).wrapping_add(1);
        page.issued.store(issued, Ordering::Release);
        wake(&page.issued);
        self.await_done(issued)?;
        let page = self.page();
        let read = |field: &AtomicU64| field.load(Ordering::Relaxed);
        Ok(VerifyCounts {
            delivered: read(&page.delivered),
            bytes: read(&page.bytes),
            missing: read(&page.missing),
            torn: read(&page.torn),
            torn_at: read(&page.torn_at),
        })
    }

    /// Waits until command number `issued` is completed.
    fn await_done(&mut self, issued: u32) -> Result<(), Failure> {
        let start = Instant::now();
        loop {
            let completed = self.page().completed.load(Ordering::Acquire);
            if completed == issued {
                return Ok(());
            }
            if self.child.wait(Duration::ZERO)?.is_some() {
                return Err(Failure::failed("the peer process of the shared memory exited"));
            }
            if start.elapsed() > TIME_LIMIT {
                return Err(Failure::failed(
                    "the peer process of the shared memory does not answer",
                ));
            }
            sleep_while(&self.page().completed, completed, Duration::from_millis(100));
        }
    }
}

/// Runs the peer process: executes commands until it is killed.
fn serve(page: &CommandPage, list: *const Call, memory: &mut [u8]) -> i32 {
    let mut completed = 0;
    loop {
        let issued = page.issued.load(Ordering::Acquire);
        if issued == completed {
            sleep_while(&page.issued, issued, TIME_LIMIT);
            continue;
        }
        let pattern = Pattern { offset: page.pattern.load(Ordering::Relaxed) as u8 };
        let start = page.start.load(Ordering::Relaxed) as usize;
        let amount = page.amount.load(Ordering::Relaxed) as usize;
        let mut counts = VerifyCounts::default();
        if page.command.load(Ordering::Relaxed) == FILL {
            pattern.fill(0, &mut memory[start..][..amount]);
        } else {
            for index in 0..amount.min(CALLS) {
                // SAFETY: the list contains `amount` copies, written before the command was issued.
                let call = unsafe { list.add(index).read() };
                let bytes = &memory[start..][call.at as usize..][..call.length as usize];
                counts.add(pattern, call.at as usize, bytes);
            }
        }
        page.delivered.store(counts.delivered, Ordering::Relaxed);
        page.bytes.store(counts.bytes, Ordering::Relaxed);
        page.missing.store(counts.missing, Ordering::Relaxed);
        page.torn.store(counts.torn, Ordering::Relaxed);
        page.torn_at.store(counts.torn_at, Ordering::Relaxed);
        completed = issued;
        page.completed.store(completed, Ordering::Release);
        wake(&page.completed);
    }
}

/// Sleeps while the counter has this value, at most `at_most`; may return early.
fn sleep_while(counter: &AtomicU32, value: u32, at_most: Duration) {
    let timeout =
        Timespec { tv_sec: at_most.as_secs() as i64, tv_nsec: at_most.subsec_nanos().into() };
    // The caller checks the counter again.
    let _ = futex::wait(counter, futex::Flags::empty(), value, Some(&timeout));
}

fn wake(counter: &AtomicU32) {
    // It only fails for an unmapped counter.
    let _ = futex::wake(counter, futex::Flags::empty(), 1);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(bytes: usize) -> (Mapping, PeerProcess) {
        let memfd = Memfd::create("test", bytes).unwrap();
        let mapping = Mapping::shared(&memfd, bytes).unwrap();
        let peer = PeerProcess::start(&mapping).unwrap();
        (mapping, peer)
    }

    #[test]
    fn the_peer_fills_memory_that_is_read() {
        let (mapping, mut peer) = shared(10_000);
        let pattern = Pattern { offset: 5 };
        peer.fill(pattern, 64, 9000).unwrap();
        // SAFETY: the peer is idle between commands.
        let bytes = unsafe { std::slice::from_raw_parts(mapping.as_ptr(), 10_000) };
        assert_eq!(pattern.first_mismatch(0, &bytes[64..9064]), None);
        assert!(bytes[9064..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn the_peer_counts_delivered_torn_and_missing_copies() {
        let (mapping, mut peer) = shared(1 << 20);
        let pattern = Pattern { offset: 200 };
        let calls: Vec<Call> =
            (0..100_000).map(|index| Call { at: index * 10, length: 10 }).collect();
        let write = |pattern: Pattern| {
            // SAFETY: the peer is idle between commands.
            let bytes = unsafe { std::slice::from_raw_parts_mut(mapping.as_mut_ptr(), 1_000_000) };
            pattern.fill(0, bytes);
        };
        write(pattern);
        let all = VerifyCounts { delivered: 100_000, bytes: 1_000_000, ..VerifyCounts::default() };
        assert_eq!(peer.verify(pattern, 0, &calls).unwrap(), all);
        // SAFETY: the bytes are within the mapping, and the peer is idle.
        unsafe {
            *mapping.as_mut_ptr().add(25) ^= 1;
            *mapping.as_mut_ptr().add(30) ^= 1;
        }
        let counts = peer.verify(pattern, 0, &calls).unwrap();
        assert_eq!(
            (counts.delivered, counts.torn, counts.torn_at, counts.missing),
            (99_998, 1, 25, 1)
        );
        write(Pattern { offset: 1 });
        assert_eq!(peer.verify(pattern, 0, &calls).unwrap().missing, 100_000);
    }

    #[test]
    fn the_death_of_the_peer_is_reported() {
        let (_mapping, mut peer) = shared(4096);
        // SAFETY: kill(2) takes no pointers; the process is a child of this test.
        unsafe { libc::kill(peer.child.pid() as i32, libc::SIGKILL) };
        assert!(peer.fill(Pattern { offset: 0 }, 0, 10).unwrap_err().why.contains("exited"));
    }
}
