//! Frames arrive complete in the other process, and injected faults are detected.

#![allow(clippy::unwrap_used, clippy::expect_used)] // Also outside of test functions.

use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use copy::frames::{
    Check, CpuPair, FaultInjector, NoFaults, Publish, SharedFrames, TimingMode, TransferOutcome,
    TransferParams, ceiling, transfer,
};
use copy::functions;
use machine::topology::allowed_cpus;

const BUDGET: Duration = Duration::from_millis(2);

/// One pair for the whole process, because a transfer pins the thread that calls it.
static PAIR: LazyLock<Option<CpuPair>> = LazyLock::new(|| CpuPair::choose(&allowed_cpus()).ok());

/// Serialises the use of the pair: concurrent transfers would compete for its CPUs.
static LOCK: Mutex<()> = Mutex::new(());

fn pair() -> Option<CpuPair> {
    let pair = *PAIR;
    if pair.is_none() {
        machine::untested::note("frames between two CPUs", &"only one CPU");
    }
    pair
}

fn params(length: usize, slots: usize, check: Check, usage: TimingMode) -> TransferParams {
    TransferParams { length, slots, check, usage, publish: Publish::Each }
}

fn passed(
    params: &TransferParams,
    function: &str,
    faults: &mut impl FaultInjector,
) -> Option<TransferOutcome> {
    let pair = pair()?;
    let _lock = LOCK.lock();
    let function = functions::find(function).unwrap();
    let mut shared = SharedFrames::new(params.bytes()).unwrap();
    Some(transfer(&mut shared, params, function.pointer(), pair, BUDGET, faults).unwrap())
}

#[test]
fn frames_arrive_complete_at_every_length_ring_and_check() {
    for length in [64, 192, 4096, 65536] {
        for slots in [1, 2, 4, 16] {
            for check in [Check::None, Check::Header, Check::All] {
                for publish in [Publish::Each, Publish::Half] {
                    let params = params(length, slots, check, TimingMode::Throughput);
                    let params = TransferParams { publish, ..params };
                    let Some(outcome) = passed(&params, "glibc", &mut NoFaults) else {
                        return;
                    };
                    assert_eq!(outcome.check(), Ok(()), "{params:?}");
                    assert!(
                        outcome.received >= 5 && outcome.ticks.len() >= 5,
                        "{params:?} {outcome:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn long_frames_arrive_complete() {
    let params = params(1 << 20, 2, Check::All, TimingMode::Throughput);
    let Some(outcome) = passed(&params, "glibc", &mut NoFaults) else { return };
    assert_eq!(outcome.check(), Ok(()));
}

#[test]
fn frames_arrive_complete_with_every_function() {
    for function in functions::all() {
        if functions::find(function.name).is_err() {
            continue;
        }
        for length in [64, 4096, 65536] {
            let params = params(length, 16, Check::All, TimingMode::Throughput);
            let Some(outcome) = passed(&params, function.name, &mut NoFaults) else {
                return;
            };
            assert_eq!(outcome.check(), Ok(()), "{} {length}", function.name);
        }
    }
}

#[test]
fn a_single_frame_in_flight_has_a_latency() {
    for check in [Check::Header, Check::All] {
        let params = params(4096, 4, check, TimingMode::Latency);
        let Some(outcome) = passed(&params, "glibc", &mut NoFaults) else {
            return;
        };
        assert_eq!(outcome.check(), Ok(()));
        assert!(!outcome.backwards);
        assert!(outcome.ticks.len() >= 64 && outcome.ticks.iter().all(|ticks| *ticks > 0));
    }
}

#[test]
fn the_ceiling_checks_every_frame() {
    let Some(pair) = pair() else { return };
    let _lock = LOCK.lock();
    for (length, slots) in [(64, 4), (4096, 16), (65536, 4)] {
        let params = params(length, slots, Check::All, TimingMode::Throughput);
        let function = functions::find("glibc").unwrap();
        let mut shared = SharedFrames::new(params.bytes()).unwrap();
        let ceiling =
            ceiling::ceiling(&mut shared, &params, function.pointer(), pair, BUDGET).unwrap();
        assert_eq!(ceiling.outcome.check(), Ok(()));
        let best = ceiling.best().unwrap();
        assert!(best.write > 0.0 && best.read > 0.0, "{best:?}");
        assert!(ceiling.tried.iter().all(|timing| timing.slower() >= best.slower()));
    }
}

/// Flips one byte of one frame.
struct Flip {
    index: u64,
    byte: usize,
}

impl FaultInjector for Flip {
    unsafe fn pass(&mut self, index: u64, frame: *mut u8) {
        if index == self.index {
            // SAFETY: the byte is in the frame, which only the writer accesses until it is published.
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
        let params = params(4096, 4, check, TimingMode::Throughput);
        let Some(outcome) = passed(&params, "glibc", &mut Flip { index: 7, byte }) else {
            return;
        };
        assert_eq!(
            (outcome.torn, outcome.lost, outcome.repeated),
            (torn, 0, 0),
            "{check:?} {byte}"
        );
        assert_eq!(outcome.check().is_err(), torn == 1);
    }
}

/// Changes the sequence numbers from one frame on.
struct Renumber {
    from: u64,
    by: i64,
}

impl FaultInjector for Renumber {
    fn sequence(&mut self, index: u64) -> u64 {
        if index < self.from { index } else { index.wrapping_add_signed(self.by) }
    }
}

#[test]
fn skipped_sequence_numbers_are_lost_and_repeated_ones_are_repeated() {
    let params = params(256, 16, Check::All, TimingMode::Throughput);
    let Some(skipped) = passed(&params, "glibc", &mut Renumber { from: 100, by: 3 }) else {
        return;
    };
    assert_eq!((skipped.lost, skipped.torn, skipped.repeated), (3, 0, 0));
    let again = passed(&params, "glibc", &mut Renumber { from: 100, by: -2 }).unwrap();
    assert_eq!((again.repeated, again.torn), (2, 0));
    assert!(again.check().unwrap_err().why.contains("2 repeated"));
}

/// Restores the previous contents of a slot in part, as if a copy had not finished.
struct Stale {
    index: u64,
    before: Vec<u8>,
}

impl FaultInjector for Stale {
    unsafe fn pass(&mut self, index: u64, frame: *mut u8) {
        let length = self.before.len();
        // SAFETY: the frame has this length, and only the writer accesses it until it is published.
        unsafe {
            if index + 4 == self.index {
                self.before.as_mut_ptr().copy_from_nonoverlapping(frame, length);
            } else if index == self.index {
                // The first half is the new frame's.
                frame
                    .add(length / 2)
                    .copy_from_nonoverlapping(self.before.as_ptr().add(length / 2), length / 2);
            }
        }
    }
}

#[test]
fn a_frame_with_an_old_half_is_torn() {
    let params = params(4096, 4, Check::All, TimingMode::Throughput);
    let mut stale = Stale { index: 9, before: vec![0; 4096] };
    let Some(outcome) = passed(&params, "glibc", &mut stale) else {
        return;
    };
    assert_eq!((outcome.torn, outcome.lost, outcome.repeated), (1, 0, 0));
}

/// Records the order in which frames are prepared and copied.
#[derive(Default)]
struct Order(Vec<(u64, bool)>);

impl FaultInjector for Order {
    fn sequence(&mut self, index: u64) -> u64 {
        self.0.push((index, false));
        index
    }

    unsafe fn pass(&mut self, index: u64, _frame: *mut u8) {
        self.0.push((index, true));
    }
}

/// A header stored just before its frame is copied cannot be forwarded to the copy's loads.
#[test]
fn each_frame_is_prepared_before_the_previous_one_is_copied() {
    let params = params(64, 16, Check::All, TimingMode::Throughput);
    let mut order = Order::default();
    if passed(&params, "glibc", &mut order).is_none() {
        return;
    }
    let expected = (0..).flat_map(|index| [(index + 1, false), (index, true)]);
    let expected = std::iter::once((0, false)).chain(expected);
    assert!(order.0.len() > 100 && order.0.iter().copied().eq(expected.take(order.0.len())));
}
