//! The counted faults are those of the pages touched.

#![allow(clippy::unwrap_used, clippy::expect_used)] // Also outside of test functions.

use std::sync::Arc;
use std::time::{Duration, Instant};

use copy::faults::{Backing, Event, PAGES, Pages, SHOOTDOWN_PAGES, TouchTimes, shootdown, touch};
use machine::topology::allowed_cpus;
use machine::usage::Usage;

const BUDGET: Duration = Duration::from_millis(2);

fn pages(backing: Backing, threads: usize) -> Vec<Arc<Pages>> {
    let folder = std::env::temp_dir();
    (0..threads).map(|_| Arc::new(Pages::new(backing, PAGES, &folder).unwrap())).collect()
}

/// Maximum faults per thread and pass with other causes than its touches.
const STRAY: u64 = 8;
/// Time limit of the repetitions of one test.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Repeats until success: a kernel that migrates pages between nodes adds faults to an attempt.
fn repeated<T>(mut attempt: impl FnMut() -> Result<T, String>) -> T {
    let start = Instant::now();
    loop {
        match attempt() {
            Ok(done) => return done,
            Err(why) => {
                assert!(start.elapsed() < TIME_LIMIT, "no success in {TIME_LIMIT:?}: {why}")
            }
        }
    }
}

fn touched(event: Event, backing: Backing, pages: &[Arc<Pages>]) -> TouchTimes {
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
        let expected = touches..=touches + strays;
        assert!(expected.contains(&faults), "{faults:?}, expected {expected:?}");
    }
}

#[test]
fn present_pages_do_not_fault() {
    let pages = pages(Backing::Heap, 2);
    let touched = touched(Event::None, Backing::Heap, &pages);
    let strays = STRAY * touched.spans.len() as u64 * 2;
    assert!(touched.faults <= strays, "{:?}, expected up to {strays}", touched.faults);
}

#[test]
fn a_first_touch_of_a_mapped_file_maps_groups_of_pages() {
    let pages = pages(Backing::File, 2);
    let touched = touched(Event::FirstTouch, Backing::File, &pages);
    let max = touched.pages + STRAY * touched.spans.len() as u64 * 2;
    let expected = touched.pages / 512..=max;
    assert!(expected.contains(&touched.faults), "{:?}, expected {expected:?}", touched.faults);
}

#[test]
fn evicted_pages_fault_again() {
    let heap = pages(Backing::Heap, 2);
    let touched = touched(Event::Eviction, Backing::Heap, &heap);
    assert!(touched.faults >= touched.pages, "{:?} {}", touched.faults, touched.pages);
    assert!(touched.evicting.iter().all(|ticks| *ticks > 0));
    let file = pages(Backing::File, 1);
    let attempt = || touch(Event::Eviction, Backing::File, &file, &allowed_cpus(), BUDGET);
    let outcome = repeated(|| match attempt() {
        Err(failure) if failure.why.contains("; expected") => Err(failure.to_string()),
        other => Ok(other),
    });
    match outcome {
        Ok(touched) => assert!(touched.major_faults > 0, "{:?}", touched.faults),
        Err(failure) => {
            assert!(failure.why.contains("are resident after eviction"), "{failure}");
            machine::untested::note("eviction of a mapped file", &failure);
        }
    }
}

#[test]
fn only_faults_of_the_calling_thread_are_counted() {
    repeated(|| {
        let pages = Pages::new(Backing::Heap, 100, &std::env::temp_dir()).unwrap();
        let other = std::thread::spawn(|| {
            let pages = Pages::new(Backing::Heap, 1000, &std::env::temp_dir()).unwrap();
            pages.touch();
        });
        let before = Usage::of_thread();
        pages.touch();
        other.join().unwrap();
        let counted = Usage::of_thread().since(before).faults();
        assert!(counted >= 100, "{counted} faults of 100 pages");
        let present = pages.resident().unwrap();
        match counted {
            ..=108 if present == 100 => Ok(()),
            _ => Err(format!("{counted} faults of 100 pages, {present} of them resident")),
        }
    });
}

#[test]
fn protection_changes_are_timed_and_slow_other_threads() {
    let cpus = allowed_cpus();
    let pages =
        Arc::new(Pages::new(Backing::Heap, SHOOTDOWN_PAGES, &std::env::temp_dir()).unwrap());
    let alone = shootdown(&pages, cpus[0], &[], BUDGET).unwrap();
    assert!(alone.changes.len() >= 16 && alone.slowdowns.is_empty());
    let Some(other) = cpus.get(1) else {
        return machine::untested::note("a shootdown that reaches another CPU", &"only one CPU");
    };
    // On a busy machine the victim may not get its CPU in time, and a victim that never ran has no
    // slowdown: repeat with longer budgets.
    let slowdown = (0..8).find_map(|doubled| {
        let budget = Duration::from_millis(20 << doubled);
        let shared = shootdown(&pages, cpus[0], &[*other], budget).unwrap();
        assert!(shared.changes.len() >= 16);
        shared.slowdowns.first().copied()
    });
    assert!(slowdown.expect("a victim that ran within 2.5 s") > 0.0);
}
