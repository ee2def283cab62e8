//! The faults that are counted are those that happen.

#![allow(clippy::unwrap_used, clippy::expect_used)] // In functions that tests share too.

use std::sync::Arc;
use std::time::{Duration, Instant};

use copy::faults::{Backing, Event, Faults, PAGES, Pages, SHOT, Touched, shootdown, touch};
use machine::topology::allowed_cpus;

const BUDGET: Duration = Duration::from_millis(2);

fn pages(backing: Backing, threads: usize) -> Vec<Arc<Pages>> {
    let folder = std::env::temp_dir();
    (0..threads).map(|_| Arc::new(Pages::new(backing, PAGES, &folder).unwrap())).collect()
}

/// Faults of a thread and pass that have other causes than its touches.
const STRAY: u64 = 8;
/// How long a test waits for an undisturbed attempt.
const PATIENCE: Duration = Duration::from_secs(60);

/// Tries until it succeeds: a kernel that moves pages between nodes adds faults to any one attempt.
fn repeated<T>(mut attempt: impl FnMut() -> Result<T, String>) -> T {
    let begun = Instant::now();
    loop {
        match attempt() {
            Ok(done) => return done,
            Err(why) => assert!(begun.elapsed() < PATIENCE, "for {PATIENCE:?}: {why}"),
        }
    }
}

fn touched(event: Event, backing: Backing, pages: &[Arc<Pages>]) -> Touched {
    repeated(|| {
        touch(event, backing, pages, &allowed_cpus(), BUDGET).map_err(|failure| failure.to_string())
    })
}

#[test]
fn each_first_touch_of_the_heap_is_one_fault() {
    for threads in [1, 2, 4] {
        let pages = pages(Backing::Heap, threads);
        let touched = touched(Event::FirstTouch, Backing::Heap, &pages);
        let passes = touched.spans.len() as u64;
        assert!(passes >= 5 && touched.pages == passes * (threads * PAGES) as u64);
        let (faults, touches) = (touched.faults, touched.pages);
        let strays = STRAY * passes * threads as u64;
        let due = touches..=touches + strays;
        assert!(due.contains(&faults.total()), "{faults:?}, {due:?} are due");
    }
}

#[test]
fn pages_that_are_there_do_not_fault() {
    let pages = pages(Backing::Heap, 2);
    let touched = touched(Event::None, Backing::Heap, &pages);
    let strays = STRAY * touched.spans.len() as u64 * 2;
    assert!(touched.faults.total() <= strays, "{:?}, up to {strays} are due", touched.faults);
}

#[test]
fn a_mapped_files_first_touch_brings_pages_in_by_groups() {
    let pages = pages(Backing::File, 2);
    let touched = touched(Event::FirstTouch, Backing::File, &pages);
    let most = touched.pages + STRAY * touched.spans.len() as u64 * 2;
    let due = touched.pages / 512..=most;
    assert!(due.contains(&touched.faults.total()), "{:?}, {due:?} are due", touched.faults);
}

#[test]
fn evicted_pages_fault_again() {
    let heap = pages(Backing::Heap, 2);
    let touched = touched(Event::Eviction, Backing::Heap, &heap);
    assert!(touched.faults.total() >= touched.pages, "{:?} {}", touched.faults, touched.pages);
    assert!(touched.evicting.iter().all(|ticks| *ticks > 0));
    let file = pages(Backing::File, 1);
    let attempt = || touch(Event::Eviction, Backing::File, &file, &allowed_cpus(), BUDGET);
    let outcome = repeated(|| match attempt() {
        Err(failure) if failure.why.contains("are due") => Err(failure.to_string()),
        other => Ok(other),
    });
    match outcome {
        Ok(touched) => assert!(touched.faults.major > 0, "{:?}", touched.faults),
        Err(failure) => {
            assert!(failure.why.contains("stayed after eviction"), "{failure}");
            machine::untested::note("eviction of a mapped file", &failure);
        }
    }
}

#[test]
fn the_threads_own_faults_are_counted_and_no_others() {
    repeated(|| {
        let own = Pages::new(Backing::Heap, 100, &std::env::temp_dir()).unwrap();
        let other = std::thread::spawn(|| {
            let pages = Pages::new(Backing::Heap, 1000, &std::env::temp_dir()).unwrap();
            pages.touch();
        });
        let before = Faults::of_thread();
        own.touch();
        other.join().unwrap();
        let counted = Faults::of_thread().since(before).total();
        assert!(counted >= 100, "{counted} faults of 100 pages");
        let present = own.resident().unwrap();
        match counted {
            ..=108 if present == 100 => Ok(()),
            _ => Err(format!("{counted} faults of 100 pages, of which {present} are there")),
        }
    });
}

#[test]
fn changes_of_protection_are_timed_and_reach_the_others() {
    let cpus = allowed_cpus();
    let pages = Arc::new(Pages::new(Backing::Heap, SHOT, &std::env::temp_dir()).unwrap());
    let alone = shootdown(&pages, cpus[0], &[], BUDGET).unwrap();
    assert!(alone.changes.len() >= 16 && alone.slowdowns.is_empty());
    let Some(other) = cpus.get(1) else {
        return machine::untested::note(
            "a shootdown that reaches another CPU",
            &"there is one CPU",
        );
    };
    // On a busy machine the other may not get its CPU in time, and a victim that never ran has no
    // slowdown: it is given more and more of it.
    let slowdown = (0..8).find_map(|doubled| {
        let budget = Duration::from_millis(20 << doubled);
        let shared = shootdown(&pages, cpus[0], &[*other], budget).unwrap();
        assert!(shared.changes.len() >= 16);
        shared.slowdowns.first().copied()
    });
    assert!(slowdown.expect("a victim that ran within 2.5 s") > 0.0);
}
