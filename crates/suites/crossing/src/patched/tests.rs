//! Tests of what needs no patched kernel.

use lab::sample::FailureKind;

use super::*;
use crate::params::{Isolation, Route};

fn params(kind: Kind, isolation: Isolation) -> OneWayParams {
    OneWayParams { route: Route::Patched, kind, isolation, crossings: 1000 }
}

#[test]
fn kinds_that_a_patched_kernel_does_not_stamp_are_refused_by_name() {
    let why = available(&params(Kind::Breakpoint, Isolation::Off)).unwrap_err();
    assert_eq!(why.kind, FailureKind::Unavailable);
    assert!(why.why.contains("breakpoint"));
}

#[test]
fn one_isolation_is_this_boots_where_the_kernel_stamps() {
    let told = [Isolation::On, Isolation::Off]
        .map(|isolation| available(&params(Kind::PageFault, isolation)));
    match stamp::available() {
        Ok(()) => assert_eq!(told.iter().filter(|told| told.is_ok()).count(), 1),
        Err(why) => {
            assert!(told.iter().all(|told| told.as_ref() == Err(&why)));
            machine::untested::note("isolation of a patched kernel", &why);
        }
    }
}

#[test]
fn every_touch_of_a_batch_is_a_fault_and_is_noted_with_its_tag() {
    let (pages, mut tags) = (Pages::new(BATCH).unwrap(), Tags::new(3));
    let mut own = 0;
    for _ in 0..4 {
        batch(&pages, BATCH, &mut tags, |crossing, tag| {
            own += u64::from(crossing.is_untouched(tag));
        })
        .unwrap();
    }
    assert_eq!(own, 4 * BATCH as u64);
}

#[test]
fn a_fault_falls_apart_into_three_each_less_the_empty_pair() {
    let mut noted = Noted::new(50).unwrap();
    let whole = Crossing { user_after: 2_800, user_before: 1_000, ..Crossing::default() };
    let parts =
        Crossing { kernel_in: 1_500, kernel_out: 2_500, user_after: 2_900, tag: 8, ..whole };
    for _ in 0..10 {
        noted.unstamped(&whole);
        noted.stamped(&parts, 7);
    }
    let tsc = Tsc { hertz: 1e9, step: 1, overhead: 0, overhead_least: 0 };
    let told = noted.into_measurement(&tsc).unwrap();
    let value = |name| told.values[name];
    assert_eq!([value("u2k"), value("kernel"), value("k2u")], [450.0, 950.0, 350.0]);
    // Two pairs more than the whole holds: so the parts make up the whole.
    assert_eq!(value("round_trip"), 450.0 + 950.0 + 350.0);
    assert_eq!([value("crossings_made"), value("crossings_stamped")], [10.0, 10.0]);
}

#[test]
fn an_unstamped_fault_is_a_failed_check_and_not_a_figure() {
    let mut noted = Noted::new(0).unwrap();
    let pages = Pages::new(1).unwrap();
    noted.stamped(&pages.touch(0, 1), 1);
    let tsc = Tsc { hertz: 1e9, step: 1, overhead: 0, overhead_least: 0 };
    let failure = noted.into_measurement(&tsc).unwrap_err();
    assert_eq!(failure, Failure::check("0 of 1 faults are stamped in order"));
}

#[test]
fn the_empty_pair_is_below_a_fault() {
    let (pages, mut tags) = (Pages::new(BATCH).unwrap(), Tags::new(4));
    batch(&pages, BATCH, &mut tags, |_, _| ()).unwrap();
    let empty = empty_pair(&pages, &mut tags).unwrap();
    let mut faults = Ticks::new().unwrap();
    batch(&pages, BATCH, &mut tags, |crossing, _| faults.record(crossing.round_trip())).unwrap();
    assert!(empty < faults.median(), "{empty} of {} ticks", faults.median());
}
