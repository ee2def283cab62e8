//! The faults that are counted are those that happen.

#![allow(clippy::unwrap_used, clippy::expect_used)] // In functions that tests share too.

use std::sync::Arc;
use std::time::Duration;

use copy::faults::{Backing, Event, Faults, PAGES, Pages, SHOT, shootdown, touch};
use machine::topology::allowed_cpus;

const BUDGET: Duration = Duration::from_millis(2);

fn pages(backing: Backing, threads: usize) -> Vec<Arc<Pages>> {
    let folder = std::env::temp_dir();
    (0..threads).map(|_| Arc::new(Pages::new(backing, PAGES, &folder).unwrap())).collect()
}

#[test]
fn each_first_touch_of_the_heap_is_one_fault() {
    for threads in [1, 2, 4] {
        let pages = pages(Backing::Heap, threads);
        let touched =
            touch(Event::FirstTouch, Backing::Heap, &pages, &allowed_cpus(), BUDGET).unwrap();
        let passes = touched.spans.len() as u64;
        assert!(passes >= 3 && touched.pages == passes * (threads * PAGES) as u64);
        let strays = touched.faults.total() - touched.pages;
        assert!(strays <= 8 * passes * threads as u64, "{:?}", touched.faults);
        assert_eq!(touched.faults.major, 0);
    }
}

#[test]
fn pages_that_are_there_do_not_fault() {
    let pages = pages(Backing::Heap, 2);
    let touched = touch(Event::None, Backing::Heap, &pages, &allowed_cpus(), BUDGET).unwrap();
    assert!(touched.faults.total() < touched.pages / 100, "{:?}", touched.faults);
}

#[test]
fn a_mapped_files_first_touch_brings_pages_in_by_groups() {
    let pages = pages(Backing::File, 2);
    let touched = touch(Event::FirstTouch, Backing::File, &pages, &allowed_cpus(), BUDGET).unwrap();
    assert!(touched.faults.total() >= touched.pages / 512, "{:?}", touched.faults);
    assert!(touched.faults.total() <= touched.pages, "{:?} {}", touched.faults, touched.pages);
}

#[test]
fn evicted_pages_fault_again() {
    let heap = pages(Backing::Heap, 2);
    let touched = touch(Event::Eviction, Backing::Heap, &heap, &allowed_cpus(), BUDGET).unwrap();
    assert!(touched.faults.total() >= touched.pages);
    assert!(touched.evicting.iter().all(|ticks| *ticks > 0));
    let file = pages(Backing::File, 1);
    match touch(Event::Eviction, Backing::File, &file, &allowed_cpus(), BUDGET) {
        Ok(touched) => assert!(touched.faults.major > 0, "{:?}", touched.faults),
        Err(failure) => {
            assert!(failure.why.contains("stayed after eviction"), "{failure}");
            machine::untested::note("eviction of a mapped file", &failure);
        }
    }
}

#[test]
fn the_threads_own_faults_are_counted_and_no_others() {
    let own = Pages::new(Backing::Heap, 100, &std::env::temp_dir()).unwrap();
    let other = std::thread::spawn(|| {
        let pages = Pages::new(Backing::Heap, 1000, &std::env::temp_dir()).unwrap();
        pages.touch();
    });
    let before = Faults::of_thread();
    own.touch();
    other.join().unwrap();
    let counted = Faults::of_thread().since(before).total();
    assert!((100..=108).contains(&counted), "{counted}");
    assert_eq!(own.resident().unwrap(), 100);
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
