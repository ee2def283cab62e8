//! Threads that touch pages of their own at the same moment, again and again.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lab::sample::Failure;
use machine::pin::spawn_pinned;
use machine::tsc;

use super::Event;
use super::backing::{Backing, Pages};
use super::count::Faults;

/// The least passes that make a median, and the most.
const PASSES: std::ops::Range<usize> = 5..4096;
/// Faults of a pass that have other causes: a stack that grows, a page of the heap.
const STRAY: u64 = 8;
/// Times that pages are touched in a pass where they stay: a pass must outlast the threads' start.
const AGAIN: u64 = 256;
/// Tries to see the others before a thread lets go of its CPU, which they may need.
const TRIES: usize = 10_000;
/// Pages that one page table maps: no fault brings in more of a file.
const MOST_AT_ONCE: u64 = 512;

/// One thread's pass over its pages.
#[derive(Debug, Clone, Copy)]
struct Pass {
    begun: u64,
    evicted: u64,
    ended: u64,
    faults: Faults,
}

/// What the passes of all threads gave, by pass.
#[derive(Debug, Clone, Default)]
pub struct Touched {
    /// From the first thread's begin to the last one's end, ticks.
    pub spans: Vec<u64>,
    /// Of each thread and pass: evicting, ticks; 0 where nothing is evicted.
    pub evicting: Vec<u64>,
    /// Of each thread and pass: touching, ticks.
    pub touching: Vec<u64>,
    /// All faults of all passes.
    pub faults: Faults,
    /// Pages that a thread touches in a pass, again and again where they stay.
    pub each: u64,
    /// Pages touched in all passes.
    pub pages: u64,
}

/// Has each thread touch its pages until the budget is spent.
///
/// # Errors
/// Where a thread cannot be had, nothing is evicted, or the faults are not those that the event
/// must have.
pub fn touch(
    event: Event,
    backing: Backing,
    pages: &[Arc<Pages>],
    cpus: &[usize],
    budget: Duration,
) -> Result<Touched, Failure> {
    if event == Event::Eviction {
        evictable(&pages[0])?;
    }
    let start = Arc::new(Start::new(pages.len()));
    let mut threads = Vec::new();
    for (number, own) in pages.iter().enumerate() {
        let (own, start) = (Arc::clone(own), Arc::clone(&start));
        let leads = (number == 0).then(|| Instant::now() + budget);
        let body = move || passes(event, &own, &start, leads);
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
        expected(event, backing, each, pass.faults)?;
    }
    Ok(summed(&passes, each * times(event)))
}

/// Lets all threads begin a pass at the same moment.
struct Start {
    threads: usize,
    meeting: Mutex<Meeting>,
    changed: Condvar,
    arrived: AtomicUsize,
    over: AtomicBool,
}

/// Who is at the barrier.
#[derive(Default)]
struct Meeting {
    waiting: usize,
    number: usize,
    /// A thread panicked and will never come.
    failed: bool,
}

impl Start {
    fn new(threads: usize) -> Self {
        let (arrived, over) = (AtomicUsize::new(0), AtomicBool::new(false));
        Self { threads, meeting: Mutex::default(), changed: Condvar::new(), arrived, over }
    }

    /// Waits until every thread is here; `None` if one of them panicked. Asleep, so that whoever is
    /// late has the CPU.
    fn meet(&self) -> Option<()> {
        let mut meeting = self.meeting.lock().unwrap_or_else(PoisonError::into_inner);
        meeting.waiting += 1;
        let number = meeting.number;
        if meeting.waiting == self.threads {
            (meeting.waiting, meeting.number) = (0, number + 1);
            self.changed.notify_all();
        }
        while meeting.number == number && !meeting.failed {
            meeting = self.changed.wait(meeting).unwrap_or_else(PoisonError::into_inner);
        }
        (!meeting.failed).then_some(())
    }

    /// Waits for the others; awake, for waking from the barrier takes longer than some passes.
    fn wait(&self, pass: usize) -> Option<()> {
        self.meet()?;
        self.arrived.fetch_add(1, Ordering::AcqRel);
        let mut tries = 0;
        while self.arrived.load(Ordering::Acquire) < self.threads * (pass + 1) {
            tries += 1;
            if tries > TRIES {
                std::thread::yield_now();
            }
        }
        Some(())
    }
}

/// Held by each thread: releases the others if it panics.
struct Attends<'a>(&'a Start);

impl Drop for Attends<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.meeting.lock().unwrap_or_else(PoisonError::into_inner).failed = true;
            self.0.changed.notify_all();
        }
    }
}

/// The passes of one thread; `None` if another one panicked.
fn passes(event: Event, own: &Pages, start: &Start, leads: Option<Instant>) -> Option<Vec<Pass>> {
    let _attends = Attends(start);
    let mut passes = Vec::with_capacity(PASSES.end);
    // Present before the first pass, or by it; it is not counted.
    own.touch();
    loop {
        if event == Event::FirstTouch {
            own.unmap();
        }
        start.wait(passes.len())?;
        passes.push(pass(event, own));
        // Whether another pass follows is the first thread's to say; all hear it behind the barrier.
        if let Some(end) = leads {
            let enough = passes.len() > PASSES.start && Instant::now() > end;
            start.over.store(enough || passes.len() + 1 >= PASSES.end, Ordering::Relaxed);
        }
        start.meet()?;
        if start.over.load(Ordering::Relaxed) {
            // The first pass warms up.
            passes.remove(0);
            return Some(passes);
        }
    }
}

/// Times that a pass touches each page.
fn times(event: Event) -> u64 {
    if event == Event::None { AGAIN } else { 1 }
}

#[inline(never)]
fn pass(event: Event, own: &Pages) -> Pass {
    let before = Faults::of_thread();
    let begun = tsc::start();
    if event == Event::Eviction {
        // That it works was tried before; the count of faults would show that it does not now.
        let _ = own.evict();
    }
    let evicted = tsc::start();
    for _ in 0..times(event) {
        own.touch();
    }
    let ended = tsc::stop();
    Pass { begun, evicted, ended, faults: Faults::of_thread().since(before) }
}

/// Whether the kernel evicts these pages when it is asked to.
fn evictable(pages: &Pages) -> Result<(), Failure> {
    pages.bring_in()?;
    let unavailable = |why: String| {
        Failure::unavailable(why, "name a folder on a disk (file-folder) and use a kernel from 5.4")
    };
    pages.evict().map_err(|why| unavailable(format!("evict pages: {why}")))?;
    let left = pages.resident()?;
    if left * 2 > pages.count() {
        return Err(unavailable(format!(
            "{left} of {} pages stayed after eviction",
            pages.count()
        )));
    }
    Ok(())
}

/// Whether a thread's faults are those that touching so many pages must have.
fn expected(event: Event, backing: Backing, pages: u64, faults: Faults) -> Result<(), Failure> {
    let (least, most) = match (event, backing) {
        (Event::None | Event::Shootdown, _) => (0, STRAY),
        (_, Backing::Heap) => (pages, pages + STRAY),
        // A fault brings in the pages around it too.
        (_, Backing::File) => (pages.div_ceil(MOST_AT_ONCE), pages + STRAY),
    };
    let total = faults.total();
    if (least..=most).contains(&total) {
        return Ok(());
    }
    Err(Failure::check(format!(
        "{total} faults over {pages} pages, where {least} to {most} are due"
    )))
}

fn summed(threads: &[Vec<Pass>], pages: u64) -> Touched {
    let mut touched = Touched { each: pages, ..Touched::default() };
    let passes = threads.first().map_or(0, Vec::len);
    for number in 0..passes {
        let all = || threads.iter().filter_map(|passes| passes.get(number));
        let begun = all().map(|pass| pass.begun).min().unwrap_or(0);
        let ended = all().map(|pass| pass.ended).max().unwrap_or(0);
        touched.spans.push(ended.saturating_sub(begun));
        for pass in all() {
            touched.evicting.push(pass.evicted - pass.begun);
            touched.touching.push(pass.ended - pass.evicted);
            touched.faults.minor += pass.faults.minor;
            touched.faults.major += pass.faults.major;
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
        let start = Arc::new(Start::new(3));
        for number in 0..3 {
            let (sender, start) = (sender.clone(), Arc::clone(&start));
            std::thread::spawn(move || {
                let attends = Attends(&start);
                let first = attends.0.meet();
                if number == 1 {
                    std::panic::resume_unwind(Box::new("planted"));
                }
                // A thread that wakes late from the first meeting may see the panic there.
                sender.send(first.and_then(|_| attends.0.meet())).unwrap();
            });
        }
        // A hang must fail the test, not stop all of them.
        for _ in 0..2 {
            assert_eq!(receiver.recv_timeout(Duration::from_secs(60)), Ok(None));
        }
    }

    #[test]
    fn faults_must_be_those_of_the_event() {
        let check = |event, backing, minor| {
            expected(event, backing, 512, Faults { minor, major: 0 }).is_ok()
        };
        assert!(check(Event::FirstTouch, Backing::Heap, 512));
        assert!(!check(Event::FirstTouch, Backing::Heap, 511));
        assert!(check(Event::FirstTouch, Backing::File, 32));
        assert!(!check(Event::Eviction, Backing::File, 0));
        assert!(check(Event::None, Backing::Heap, 1) && !check(Event::None, Backing::Heap, 9));
    }

    #[test]
    fn a_span_goes_from_the_first_begin_to_the_last_end() {
        let pass = |begun, ended| {
            vec![Pass { begun, evicted: begun + 1, ended, faults: Faults { minor: 2, major: 1 } }]
        };
        let touched = summed(&[pass(100, 200), pass(150, 300)], 10);
        assert_eq!((touched.spans, touched.pages), (vec![200], 20));
        assert_eq!((touched.evicting, touched.touching), (vec![1, 1], vec![99, 149]));
        assert_eq!(touched.faults, Faults { minor: 4, major: 2 });
    }
}
