//! Frames pass whole between two processes, and what goes wrong on the way is seen.

#![allow(clippy::unwrap_used, clippy::expect_used)] // In functions that tests share too.

use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use copy::frames::{Check, Faithful, Line, Outcome, Pair, Pool, Setup, Use, ceiling, transfer};
use copy::functions;
use machine::topology::allowed_cpus;

const BUDGET: Duration = Duration::from_millis(2);

/// Of the whole process: a transfer pins the thread that calls it.
static PAIR: LazyLock<Option<Pair>> = LazyLock::new(|| Pair::of(&allowed_cpus()).ok());

/// Held by who uses the pair: transfers at the same time would wait for each other's turns on it.
static ALONE: Mutex<()> = Mutex::new(());

fn pair() -> Option<Pair> {
    let pair = *PAIR;
    if pair.is_none() {
        machine::untested::note("frames between two CPUs", &"there is one CPU");
    }
    pair
}

fn setup(length: usize, slots: usize, check: Check, usage: Use) -> Setup {
    Setup { length, slots, check, usage }
}

fn passed(setup: &Setup, function: &str, line: &mut impl Line) -> Option<Outcome> {
    let pair = pair()?;
    let _alone = ALONE.lock();
    let function = functions::find(function).unwrap();
    let mut pool = Pool::new(setup.bytes()).unwrap();
    Some(transfer(&mut pool, setup, function.pointer(), pair, BUDGET, line).unwrap())
}

#[test]
fn frames_arrive_complete_at_every_length_ring_and_check() {
    for length in [64, 192, 4096, 65536] {
        for slots in [1, 2, 4, 16] {
            for check in [Check::None, Check::Header, Check::All] {
                let setup = setup(length, slots, check, Use::Throughput);
                let Some(outcome) = passed(&setup, "glibc", &mut Faithful) else {
                    return;
                };
                assert_eq!(outcome.faultless(), Ok(()), "{setup:?}");
                assert!(outcome.received >= 5 && outcome.ticks.len() >= 5, "{setup:?} {outcome:?}");
            }
        }
    }
}

#[test]
fn long_frames_arrive_complete() {
    let setup = setup(1 << 20, 2, Check::All, Use::Throughput);
    let Some(outcome) = passed(&setup, "glibc", &mut Faithful) else { return };
    assert_eq!(outcome.faultless(), Ok(()));
}

#[test]
fn frames_arrive_complete_by_every_function() {
    for function in functions::all() {
        if functions::find(function.name).is_err() {
            continue;
        }
        for length in [64, 4096, 65536] {
            let setup = setup(length, 16, Check::All, Use::Throughput);
            let Some(outcome) = passed(&setup, function.name, &mut Faithful) else {
                return;
            };
            assert_eq!(outcome.faultless(), Ok(()), "{} {length}", function.name);
        }
    }
}

#[test]
fn one_frame_in_flight_has_a_latency() {
    for check in [Check::Header, Check::All] {
        let setup = setup(4096, 4, check, Use::Latency);
        let Some(outcome) = passed(&setup, "glibc", &mut Faithful) else {
            return;
        };
        assert_eq!(outcome.faultless(), Ok(()));
        assert!(!outcome.backwards);
        assert!(outcome.ticks.len() >= 64 && outcome.ticks.iter().all(|ticks| *ticks > 0));
    }
}

#[test]
fn by_turns_every_frame_is_checked_too() {
    let Some(pair) = pair() else { return };
    let _alone = ALONE.lock();
    for (length, slots) in [(64, 4), (4096, 16), (65536, 4)] {
        let setup = setup(length, slots, Check::All, Use::Throughput);
        let function = functions::find("glibc").unwrap();
        let mut pool = Pool::new(setup.bytes()).unwrap();
        let ceiling =
            ceiling::ceiling(&mut pool, &setup, function.pointer(), pair, BUDGET).unwrap();
        assert_eq!(ceiling.outcome.faultless(), Ok(()));
        let best = ceiling.best().unwrap();
        assert!(best.write > 0.0 && best.read > 0.0, "{best:?}");
        assert!(ceiling.tried.iter().all(|turns| turns.slower() >= best.slower()));
    }
}

/// Flips one byte of one frame.
struct Flip {
    place: u64,
    byte: usize,
}

impl Line for Flip {
    unsafe fn pass(&mut self, place: u64, frame: *mut u8) {
        if place == self.place {
            // SAFETY: the byte lies in the frame, which is the writer's until it is published.
            unsafe { *frame.add(self.byte) ^= 0x10 };
        }
    }
}

#[test]
fn a_flipped_byte_is_one_torn_frame() {
    for (check, byte, torn) in [
        (Check::All, 3000, 1),
        (Check::All, 0, 1),
        (Check::Header, 4095, 1),
        (Check::Header, 3000, 0),
        (Check::None, 0, 0),
    ] {
        let setup = setup(4096, 4, check, Use::Throughput);
        let Some(outcome) = passed(&setup, "glibc", &mut Flip { place: 7, byte }) else {
            return;
        };
        assert_eq!(
            (outcome.torn, outcome.lost, outcome.repeated),
            (torn, 0, 0),
            "{check:?} {byte}"
        );
        assert_eq!(outcome.faultless().is_err(), torn == 1);
    }
}

/// Numbers the frames from a place on differently.
struct Renumber {
    from: u64,
    by: i64,
}

impl Line for Renumber {
    fn sequence(&mut self, place: u64) -> u64 {
        if place < self.from { place } else { place.wrapping_add_signed(self.by) }
    }
}

#[test]
fn a_skipped_sequence_is_lost_and_one_that_comes_again_is_repeated() {
    let setup = setup(256, 16, Check::All, Use::Throughput);
    let Some(skipped) = passed(&setup, "glibc", &mut Renumber { from: 100, by: 3 }) else {
        return;
    };
    assert_eq!((skipped.lost, skipped.torn, skipped.repeated), (3, 0, 0));
    let again = passed(&setup, "glibc", &mut Renumber { from: 100, by: -2 }).unwrap();
    assert_eq!((again.repeated, again.torn), (2, 0));
    assert!(again.faultless().unwrap_err().why.contains("2 repeated"));
}

/// Leaves in the slot what was there before, as a copy that did not happen.
struct Stale {
    place: u64,
    before: Vec<u8>,
}

impl Line for Stale {
    unsafe fn pass(&mut self, place: u64, frame: *mut u8) {
        let length = self.before.len();
        // SAFETY: the frame has the length, and is the writer's until it is published.
        unsafe {
            if place + 4 == self.place {
                self.before.as_mut_ptr().copy_from_nonoverlapping(frame, length);
            } else if place == self.place {
                // Half of the frame only: the other half is the new one.
                frame
                    .add(length / 2)
                    .copy_from_nonoverlapping(self.before.as_ptr().add(length / 2), length / 2);
            }
        }
    }
}

#[test]
fn half_an_old_frame_in_the_slot_is_torn() {
    let setup = setup(4096, 4, Check::All, Use::Throughput);
    let mut line = Stale { place: 9, before: vec![0; 4096] };
    let Some(outcome) = passed(&setup, "glibc", &mut line) else {
        return;
    };
    assert_eq!((outcome.torn, outcome.lost, outcome.repeated), (1, 0, 0));
}

/// Notes in which order frames are prepared and copied.
#[derive(Default)]
struct Order(Vec<(u64, bool)>);

impl Line for Order {
    fn sequence(&mut self, place: u64) -> u64 {
        self.0.push((place, false));
        place
    }

    unsafe fn pass(&mut self, place: u64, _frame: *mut u8) {
        self.0.push((place, true));
    }
}

/// A header that is stored just before its frame is copied cannot be forwarded to the copy's loads.
#[test]
fn back_to_back_each_frame_is_prepared_before_the_one_before_it_is_copied() {
    let setup = setup(64, 16, Check::All, Use::Throughput);
    let mut order = Order::default();
    if passed(&setup, "glibc", &mut order).is_none() {
        return;
    }
    let expected = (0..).flat_map(|place| [(place + 1, false), (place, true)]);
    let expected = std::iter::once((0, false)).chain(expected);
    assert!(order.0.len() > 100 && order.0.iter().copied().eq(expected.take(order.0.len())));
}
