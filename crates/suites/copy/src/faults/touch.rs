//! Threads that touch separate pages concurrently, in repeated passes.

use super::Event;
use super::backing::{Backing, Pages};
use lab::sample::Failure;
use machine::pin::spawn_pinned;
use machine::tsc;
use machine::usage::Usage;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Minimum and maximum number of passes.
const PASSES: std::ops::Range<usize> = 5..4096;
/// Faults of a pass with other causes: a growing stack, a page of the heap.
const STRAY: u64 = 8;
/// Touches of each page per pass if pages stay present: a pass must outlast the threads' start.
const AGAIN: u64 = 256;
/// Iterations of the wait loop before a thread yields its CPU, which the others may need.
const SPIN_ITERATIONS: usize = 10_000;
/// Pages that one page table maps: no fault brings in more of a file.
const MAX_AT_ONCE: u64 = 512;

/// One thread's pass over its pages, with timestamps in ticks.
#[derive(Debug, Clone, Copy)]
struct Pass {
    start: u64,
    evicted: u64,
    end: u64,
    usage: Usage,
}

/// Results of the passes of all threads.
#[derive(Debug, Clone, Default)]
pub struct TouchTimes {
    /// Per pass: ticks from the first thread's start to the last one's end.
    pub spans: Vec<u64>,
    /// Per thread and pass: ticks of eviction; 0 for other events.
    pub evicting: Vec<u64>,
    /// Per thread and pass: ticks of touching.
    pub touching: Vec<u64>,
    /// Page faults of all passes, minor and major.
    pub faults: u64,
    /// Page faults that waited for a disk.
    pub major_faults: u64,
    /// Touches per thread and pass.
    pub each: u64,
    /// Touches of all passes.
    pub pages: u64,
}

/// Has each thread touch its pages until the budget is spent.
///
/// # Errors
/// Returns an error if a thread cannot be created, the kernel does not evict the pages, or the
/// number of faults does not match the event.
pub fn touch(
    event: Event,
    backing: Backing,
    pages: &[Arc<Pages>],
    cpus: &[usize],
    budget: Duration,
) -> Result<TouchTimes, Failure> {
    match event {
        Event::Eviction => check_evictable(&pages[0])?,
        Event::None | Event::FirstTouch | Event::Shootdown => {}
    }
    let start = Arc::new(StartBarrier::new(pages.len()));
    let mut threads = Vec::new();
    for (number, pages) in pages.iter().enumerate() {
        let (pages, start) = (Arc::clone(pages), Arc::clone(&start));
        let end = (number == 0).then(|| Instant::now() + budget);
        let body = move || passes(event, &pages, &start, end);
        threads.push(spawn_pinned(cpus[number % cpus.len()], body)?);
    }
    let passes: Result<Vec<Vec<Pass>>, Failure> = threads
        .into_iter()
        .map(|thread| {
            let passes = thread.join().ok().flatten();
            passes.ok_or_else(|| Failure::failed("a thread panicked: report this"))
        })
        .collect();
    let passes = passes?;
    let each = pages[0].count() as u64;
    for pass in passes.iter().flatten() {
        check_faults(event, backing, each, pass.usage.faults())?;
    }
    Ok(sum(&passes, each * touches_per_page(event)))
}

/// Barrier at which all threads begin a pass concurrently.
struct StartBarrier {
    threads: usize,
    state: Mutex<BarrierState>,
    changed: Condvar,
    arrived: AtomicUsize,
    is_done: AtomicBool,
}

/// State of the barrier.
#[derive(Default)]
struct BarrierState {
    waiting: usize,
    number: usize,
    /// A thread panicked and will never arrive.
    failed: bool,
}

impl StartBarrier {
    fn new(threads: usize) -> Self {
        let (arrived, is_done) = (AtomicUsize::new(0), AtomicBool::new(false));
        Self { threads, state: Mutex::default(), changed: Condvar::new(), arrived, is_done }
    }

    /// Waits until every thread has arrived; `None` if one of them panicked. Sleeps, so that late
    /// threads get the CPU.
    fn meet(&self) -> Option<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.waiting += 1;
        let number = state.number;
        if state.waiting == self.threads {
            (state.waiting, state.number) = (0, number + 1);
            self.changed.notify_all();
        }
        while state.number == number && !state.failed {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        (!state.failed).then_some(())
    }

    /// Waits for the others, then spins: waking from the barrier takes longer than some passes.
    fn wait(&self, pass: usize) -> Option<()> {
        self.meet()?;
        self.arrived.fetch_add(1, Ordering::AcqRel);
        let mut tries = 0;
        while self.arrived.load(Ordering::Acquire) < self.threads * (pass + 1) {
            tries += 1;
            if tries > SPIN_ITERATIONS {
                std::thread::yield_now();
            }
        }
        Some(())
    }
}

/// Guard of each thread: releases the others if the thread panics.
struct ReleaseOnPanic<'a>(&'a StartBarrier);

impl Drop for ReleaseOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.state.lock().unwrap_or_else(PoisonError::into_inner).failed = true;
            self.0.changed.notify_all();
        }
    }
}

/// Runs the passes of one thread; `None` if another one panicked. The thread with an `end` decides
/// when the passes are over.
fn passes(
    event: Event,
    pages: &Pages,
    start: &StartBarrier,
    end: Option<Instant>,
) -> Option<Vec<Pass>> {
    let _guard = ReleaseOnPanic(start);
    let mut passes = Vec::with_capacity(PASSES.end);
    // Makes the pages present before the first pass; not counted.
    pages.touch();
    loop {
        match event {
            Event::FirstTouch => pages.madvise_dontneed(),
            Event::None | Event::Eviction | Event::Shootdown => {}
        }
        start.wait(passes.len())?;
        passes.push(pass(event, pages));
        // The first thread decides whether another pass follows; the others read it after the barrier.
        if let Some(end) = end {
            let enough = passes.len() > PASSES.start && Instant::now() > end;
            start.is_done.store(enough || passes.len() + 1 >= PASSES.end, Ordering::Relaxed);
        }
        start.meet()?;
        if start.is_done.load(Ordering::Relaxed) {
            // The first pass is the warm-up.
            passes.remove(0);
            return Some(passes);
        }
    }
}

/// Returns how often a pass touches each page.
fn touches_per_page(event: Event) -> u64 {
    match event {
        Event::None => AGAIN,
        Event::FirstTouch | Event::Eviction | Event::Shootdown => 1,
    }
}

#[inline(never)]
fn pass(event: Event, pages: &Pages) -> Pass {
    let before = Usage::of_thread();
    let start = tsc::start();
    match event {
        Event::Eviction => {
            // `check_evictable` has shown that eviction works; the number of faults shows if it fails here.
            let _ = pages.evict();
        }
        Event::None | Event::FirstTouch | Event::Shootdown => {}
    }
    let evicted = tsc::start();
    for _ in 0..touches_per_page(event) {
        pages.touch();
    }
    let end = tsc::stop();
    Pass { start, evicted, end, usage: Usage::of_thread().since(before) }
}

/// Checks that the kernel evicts these pages on request.
fn check_evictable(pages: &Pages) -> Result<(), Failure> {
    pages.bring_in()?;
    let unavailable = |why: String| {
        Failure::unavailable(
            why,
            "--set file-folder=DIR, a folder on a disk, and use Linux 5.4 or later",
        )
    };
    pages.evict().map_err(|why| unavailable(format!("cannot evict pages: {why}")))?;
    let left = pages.resident()?;
    if left * 2 > pages.count() {
        return Err(unavailable(format!(
            "{left} of {} pages are resident after eviction",
            pages.count()
        )));
    }
    Ok(())
}

/// Checks that a thread's faults in a pass over `pages` pages match the event.
fn check_faults(event: Event, backing: Backing, pages: u64, faults: u64) -> Result<(), Failure> {
    let (min, max) = match (event, backing) {
        (Event::None | Event::Shootdown, _) => (0, STRAY),
        (Event::FirstTouch | Event::Eviction, Backing::Heap) => (pages, pages + STRAY),
        // A fault also brings in the pages around it.
        (Event::FirstTouch | Event::Eviction, Backing::File) => {
            (pages.div_ceil(MAX_AT_ONCE), pages + STRAY)
        }
    };
    if (min..=max).contains(&faults) {
        return Ok(());
    }
    Err(Failure::check(format!("{faults} faults in {pages} pages; expected {min} to {max}")))
}

fn sum(threads: &[Vec<Pass>], pages: u64) -> TouchTimes {
    let mut touched = TouchTimes { each: pages, ..TouchTimes::default() };
    let passes = threads.first().map_or(0, Vec::len);
    for number in 0..passes {
        let all = || threads.iter().filter_map(|passes| passes.get(number));
        let start = all().map(|pass| pass.start).min().unwrap_or(0);
        let end = all().map(|pass| pass.end).max().unwrap_or(0);
        touched.spans.push(end.saturating_sub(start));
        for pass in all() {
            touched.evicting.push(pass.evicted - pass.start);
            touched.touching.push(pass.end - pass.evicted);
            touched.faults += pass.usage.faults();
            touched.major_faults += pass.usage.major_faults;
            touched.pages += pages;
        }
    }
    touched
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_releases_the_threads_that_wait_for_it() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let start = Arc::new(StartBarrier::new(3));
        for number in 0..3 {
            let (sender, start) = (sender.clone(), Arc::clone(&start));
            std::thread::spawn(move || {
                let guard = ReleaseOnPanic(&start);
                let first = guard.0.meet();
                if number == 1 {
                    std::panic::resume_unwind(Box::new("planted"));
                }
                // A thread that wakes late from the first barrier may see the panic there.
                sender.send(first.and_then(|_| guard.0.meet())).unwrap();
            });
        }
        // A hang fails this test only.
        for _ in 0..2 {
            assert_eq!(receiver.recv_timeout(Duration::from_secs(60)), Ok(None));
        }
    }

    #[test]
    fn the_number_of_faults_must_match_the_event() {
        let check = |event, backing, faults| check_faults(event, backing, 512, faults).is_ok();
        assert!(check(Event::FirstTouch, Backing::Heap, 512));
        assert!(!check(Event::FirstTouch, Backing::Heap, 511));
        assert!(check(Event::FirstTouch, Backing::File, 32));
        assert!(!check(Event::Eviction, Backing::File, 0));
        assert!(check(Event::None, Backing::Heap, 1) && !check(Event::None, Backing::Heap, 9));
    }

    #[test]
    fn a_span_lasts_from_the_first_start_to_the_last_end() {
        let pass = |start, end| {
            let usage = Usage { minor_faults: 2, major_faults: 1, ..Usage::default() };
            vec![Pass { start, evicted: start + 1, end, usage }]
        };
        let touched = sum(&[pass(100, 200), pass(150, 300)], 10);
        assert_eq!((touched.spans, touched.pages), (vec![200], 20));
        assert_eq!((touched.evicting, touched.touching), (vec![1, 1], vec![99, 149]));
        assert_eq!((touched.faults, touched.major_faults), (6, 2));
    }
}
