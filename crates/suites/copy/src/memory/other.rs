//! The other process of shared memory: it fills what is read, and checks what is written.
//!
//! It is forked while the memory is mapped. A page of its own memfd carries the orders; a futex on
//! each side's counter wakes the other.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lab::sample::Failure;
use machine::child::{Forked, fork_child};
use machine::mapping::Mapping;
use machine::memfd::Memfd;

use super::Tally;
use crate::pattern::Pattern;
use crate::throughput::Call;

/// Copies that are checked by one order.
const CALLS: usize = 1 << 16;
/// How long the other process may take for one order.
const PATIENCE: Duration = Duration::from_secs(20);

const FILL: u32 = 1;
const VERIFY: u32 = 2;

/// What both processes see: counters, an order and its answer, then the list of copies.
#[repr(C)]
struct Page {
    /// Orders given, and orders carried out: each a futex.
    given: AtomicU32,
    done: AtomicU32,
    what: AtomicU32,
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

const LIST: usize = machine::mapping::PAGE;

/// The other process; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Other {
    control: Mapping,
    child: Forked,
}

impl Other {
    /// Starts it on memory that is mapped shared.
    pub(super) fn start(memory: &Mapping) -> Result<Self, Failure> {
        const BYTES: usize = LIST + CALLS * size_of::<Call>();
        let memfd = Memfd::create("tollgate-orders", BYTES)?;
        let control = Mapping::shared(&memfd, BYTES)
            .map_err(|refusal| Failure::failed(refusal.to_string()))?;
        let page = control.as_mut_ptr();
        let (page, list) = (page as usize, page.wrapping_add(LIST) as usize);
        let (start, length) = (memory.as_mut_ptr() as usize, memory.len());
        let body = move || -> i32 {
            // SAFETY: the child inherits both mappings at the same places and never unmaps them.
            let (page, memory) = unsafe {
                (&*(page as *const Page), std::slice::from_raw_parts_mut(start as *mut u8, length))
            };
            serve(page, list as *const Call, memory)
        };
        // SAFETY: the body uses only memory mapped before, atomics and futex calls.
        let child = unsafe { fork_child(body) }?;
        Ok(Self { control, child })
    }

    fn page(&self) -> &Page {
        // SAFETY: the mapping is longer than a page, page-aligned and zeroed; all fields are atomic.
        unsafe { &*(self.control.as_ptr().cast::<Page>()) }
    }

    /// Has it write the pattern, from its first byte, into a span.
    pub(super) fn fill(
        &mut self,
        pattern: Pattern,
        start: usize,
        length: usize,
    ) -> Result<(), Failure> {
        self.order(FILL, pattern, start, length).map(|_| ())
    }

    /// Has it verify copies.
    pub(super) fn verify(
        &mut self,
        pattern: Pattern,
        start: usize,
        calls: &[Call],
    ) -> Result<Tally, Failure> {
        let mut whole = Tally::default();
        for part in calls.chunks(CALLS) {
            // SAFETY: the list has room for CALLS, and the other process reads it only on an order.
            unsafe {
                let list = self.control.as_mut_ptr().add(LIST).cast::<Call>();
                std::ptr::copy_nonoverlapping(part.as_ptr(), list, part.len());
            }
            let tally = self.order(VERIFY, pattern, start, part.len())?;
            whole.join(tally);
        }
        Ok(whole)
    }

    fn order(
        &mut self,
        what: u32,
        pattern: Pattern,
        start: usize,
        amount: usize,
    ) -> Result<Tally, Failure> {
        let page = self.page();
        page.what.store(what, Ordering::Relaxed);
        page.pattern.store(u32::from(pattern.offset), Ordering::Relaxed);
        page.start.store(start as u64, Ordering::Relaxed);
        page.amount.store(amount as u64, Ordering::Relaxed);
        let given = page.given.load(Ordering::Relaxed).wrapping_add(1);
        page.given.store(given, Ordering::Release);
        wake(&page.given);
        self.answered(given)?;
        let page = self.page();
        let read = |field: &AtomicU64| field.load(Ordering::Relaxed);
        Ok(Tally {
            delivered: read(&page.delivered),
            bytes: read(&page.bytes),
            missing: read(&page.missing),
            torn: read(&page.torn),
            torn_at: read(&page.torn_at),
        })
    }

    fn answered(&mut self, given: u32) -> Result<(), Failure> {
        let begun = Instant::now();
        loop {
            let done = self.page().done.load(Ordering::Acquire);
            if done == given {
                return Ok(());
            }
            if self.child.wait(Duration::ZERO)?.is_some() {
                return Err(Failure::failed("the other process of the shared memory ended"));
            }
            if begun.elapsed() > PATIENCE {
                return Err(Failure::failed(
                    "the other process of the shared memory does not answer",
                ));
            }
            sleep_while(&self.page().done, done, Duration::from_millis(100));
        }
    }
}

/// The other process: waits for orders until it is killed.
fn serve(page: &Page, list: *const Call, memory: &mut [u8]) -> i32 {
    let mut done = 0;
    loop {
        let given = page.given.load(Ordering::Acquire);
        if given == done {
            sleep_while(&page.given, given, PATIENCE);
            continue;
        }
        let pattern = Pattern { offset: page.pattern.load(Ordering::Relaxed) as u8 };
        let start = page.start.load(Ordering::Relaxed) as usize;
        let amount = page.amount.load(Ordering::Relaxed) as usize;
        let mut tally = Tally::default();
        if page.what.load(Ordering::Relaxed) == FILL {
            pattern.fill(0, &mut memory[start..][..amount]);
        } else {
            for index in 0..amount.min(CALLS) {
                // SAFETY: the list holds that many copies, written before the order was given.
                let call = unsafe { list.add(index).read() };
                let bytes = &memory[start..][call.at as usize..][..call.length as usize];
                tally.add(pattern, call.at as usize, bytes);
            }
        }
        page.delivered.store(tally.delivered, Ordering::Relaxed);
        page.bytes.store(tally.bytes, Ordering::Relaxed);
        page.missing.store(tally.missing, Ordering::Relaxed);
        page.torn.store(tally.torn, Ordering::Relaxed);
        page.torn_at.store(tally.torn_at, Ordering::Relaxed);
        done = given;
        page.done.store(done, Ordering::Release);
        wake(&page.done);
    }
}

/// Sleeps until the counter is woken, unless it has moved already; may end early.
fn sleep_while(counter: &AtomicU32, value: u32, at_most: Duration) {
    let timeout = libc::timespec {
        tv_sec: at_most.as_secs() as i64,
        tv_nsec: i64::from(at_most.subsec_nanos()),
    };
    // SAFETY: the counter and the timeout live through the call; a shared futex needs no more.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            counter.as_ptr(),
            libc::FUTEX_WAIT,
            value,
            &raw const timeout,
        )
    };
}

fn wake(counter: &AtomicU32) {
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_futex, counter.as_ptr(), libc::FUTEX_WAKE, 1) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(bytes: usize) -> (Mapping, Other) {
        let memfd = Memfd::create("test", bytes).unwrap();
        let mapping = Mapping::shared(&memfd, bytes).unwrap();
        let other = Other::start(&mapping).unwrap();
        (mapping, other)
    }

    #[test]
    fn it_fills_what_we_read() {
        let (mapping, mut other) = shared(10_000);
        let pattern = Pattern { offset: 5 };
        other.fill(pattern, 64, 9000).unwrap();
        // SAFETY: the other process is idle between orders.
        let bytes = unsafe { std::slice::from_raw_parts(mapping.as_ptr(), 10_000) };
        assert_eq!(pattern.first_fault(0, &bytes[64..9064]), None);
        assert!(bytes[9064..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn it_sees_what_arrives_and_what_does_not() {
        let (mapping, mut other) = shared(1 << 20);
        let pattern = Pattern { offset: 200 };
        let calls: Vec<Call> =
            (0..100_000).map(|index| Call { at: index * 10, length: 10 }).collect();
        let write = |pattern: Pattern| {
            // SAFETY: the other process is idle between orders.
            let bytes = unsafe { std::slice::from_raw_parts_mut(mapping.as_mut_ptr(), 1_000_000) };
            pattern.fill(0, bytes);
        };
        write(pattern);
        let all = Tally { delivered: 100_000, bytes: 1_000_000, ..Tally::default() };
        assert_eq!(other.verify(pattern, 0, &calls).unwrap(), all);
        // SAFETY: within the mapping, and the other process is idle.
        unsafe {
            *mapping.as_mut_ptr().add(25) ^= 1;
            *mapping.as_mut_ptr().add(30) ^= 1;
        }
        let tally = other.verify(pattern, 0, &calls).unwrap();
        assert_eq!((tally.delivered, tally.torn, tally.torn_at, tally.missing), (99_998, 1, 25, 1));
        write(Pattern { offset: 1 });
        assert_eq!(other.verify(pattern, 0, &calls).unwrap().missing, 100_000);
    }

    #[test]
    fn its_death_is_noticed() {
        let (_mapping, mut other) = shared(4096);
        // SAFETY: kill takes numbers only; the process is this test's own child.
        unsafe { libc::kill(other.child.pid() as i32, libc::SIGKILL) };
        assert!(other.fill(Pattern { offset: 0 }, 0, 10).unwrap_err().why.contains("ended"));
    }
}
