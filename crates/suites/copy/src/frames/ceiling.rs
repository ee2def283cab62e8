//! The write-then-checked-read ceiling: what no ring between the same two cores can beat.
//!
//! Writer and reader take turns over the same slots with the same function and the same check. In its
//! turn the writer writes some frames into slots that the other core read last; in its own, the reader
//! reads and checks them, as the other core left them. Each turn is timed alone, so neither side ever
//! waits, polls, publishes, or has the other on its bus. A ring lets both work at once, and at best
//! takes as long a frame as the slower of the two: the ceiling is `length / max(write, read)`.
//!
//! How far the data has sunk through the caches between the turns depends on how many frames a turn
//! has, as it does in a ring on how full it runs. So turns of one frame up to all slots are tried, and
//! the best is the ceiling: a ring cannot gain by any distance that was not tried.

use std::time::Duration;

use lab::sample::Failure;
use machine::tsc::{self, Tsc};

use super::Setup;
use super::frame::Source;
use super::pair::Pair;
use super::pool::{Pool, spin};
use super::reader::{Reader, Tally};
use super::transfer::{Outcome, deadline};
use super::writer::{Faithful, Writer};
use crate::functions::CopyFn;

/// Turns of either side before any is counted.
const WARM_UP: usize = 3;
/// The least turns that make a median.
const LEAST: usize = 5;
/// The most turns of one size, which bounds what is recorded.
const MOST: usize = 1 << 14;
/// Turns of fewer bytes than this measure the timer.
const LEAST_BYTES: usize = 16 << 10;

/// The ceiling of one turn size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Turns {
    /// Frames a turn.
    pub batch: usize,
    /// Median time to write a frame, ticks.
    pub write: f64,
    /// Median time to read and check a frame, ticks.
    pub read: f64,
}

impl Turns {
    /// Ticks a frame where both sides work at once and neither hinders the other.
    pub fn slower(&self) -> f64 {
        self.write.max(self.read)
    }
}

/// What the turns gave.
#[derive(Debug, Clone)]
pub struct Ceiling {
    /// Every size that was tried.
    pub tried: Vec<Turns>,
    /// What the reader found in the frames.
    pub outcome: Outcome,
}

impl Ceiling {
    /// The size with the least time a frame.
    pub fn best(&self) -> Option<Turns> {
        self.tried.iter().copied().min_by(|a, b| a.slower().total_cmp(&b.slower()))
    }
}

/// The turn sizes: powers of two up to all slots, from the least that can be timed.
fn sizes(setup: &Setup) -> Vec<usize> {
    let powers = (0..).map(|power| 1 << power).take_while(|batch| *batch <= setup.slots);
    let mut sizes: Vec<usize> =
        powers.filter(|batch| batch * setup.length >= LEAST_BYTES).collect();
    if sizes.is_empty() {
        sizes.push(setup.slots);
    }
    sizes
}

/// Takes turns for as long as the budget says.
///
/// # Errors
/// Where either side could not start or end.
pub fn ceiling(
    pool: &mut Pool,
    setup: &Setup,
    copy: CopyFn,
    pair: Pair,
    budget: Duration,
) -> Result<Ceiling, Failure> {
    let tsc = Tsc::get().map_err(|why| Failure::failed(why.to_string()))?;
    let source = Source::new(setup.length).map_err(|why| Failure::failed(why.to_string()))?;
    let expected = source.expected();
    let deadline = deadline(budget)?;
    pool.clear();
    let pool: &Pool = pool;
    let reader = Reader { pool, setup, expected, deadline };
    let mut line = Faithful;
    let mut writer = Writer { pool, setup, source: &source, copy, line: &mut line, deadline };
    let sizes = sizes(setup);
    let share = tsc.ticks(budget) / sizes.len() as u64;
    let write = || {
        let mut place = 0;
        let tried: Option<Vec<Turns>> =
            sizes.iter().map(|batch| turns(&mut writer, &mut place, *batch, share, tsc)).collect();
        pool.control().last.set(place);
        pool.control().batch.set(0);
        pass_turn(pool);
        Some((tried?, place))
    };
    // SAFETY: the reader only touches memory made before.
    let (tried, sent) =
        unsafe { pair.run(pool, setup.bytes(), || read_turns(&reader, tsc), write) }?;
    Ok(Ceiling { tried, outcome: Outcome::of(pool, sent) })
}

fn pass_turn(pool: &Pool) {
    let turn = &pool.control().turn;
    turn.set(turn.get() + 1);
}

/// The writer's turns of one size, each followed by the reader's.
fn turns(
    writer: &mut Writer<'_, Faithful>,
    place: &mut u64,
    batch: usize,
    ticks: u64,
    tsc: &Tsc,
) -> Option<Turns> {
    let control = writer.pool.control();
    let (mut writes, mut reads) = (Vec::with_capacity(MOST), Vec::with_capacity(MOST));
    control.batch.set(batch as u64);
    let mut frame = writer.prepare(*place);
    let end = tsc::start().saturating_add(ticks);
    for turn in 0..MOST + WARM_UP {
        let begun = tsc::start();
        for _ in 0..batch {
            let next = writer.prepare(*place + 1);
            writer.put(*place, frame);
            frame = next;
            *place += 1;
        }
        let now = tsc::stop();
        pass_turn(writer.pool);
        if !spin(writer.deadline, || control.turn.get().is_multiple_of(2)) {
            return None;
        }
        if turn >= WARM_UP {
            writes.push((now - begun).saturating_sub(tsc.overhead));
            reads.push(control.taken.get());
        }
        if writes.len() >= LEAST && now > end {
            break;
        }
    }
    let each = |ticks: &mut [u64]| super::median(ticks).map(|ticks| ticks / batch as f64);
    Some(Turns { batch, write: each(&mut writes)?, read: each(&mut reads)? })
}

/// The reader's turns, until one of no frames; false where the deadline passes first.
fn read_turns(reader: &Reader<'_>, tsc: &Tsc) -> bool {
    let control = reader.pool.control();
    let mut tally = Tally::default();
    let mut place = 0;
    loop {
        if !spin(reader.deadline, || !control.turn.get().is_multiple_of(2)) {
            return false;
        }
        let batch = control.batch.get();
        if batch == 0 {
            tally.tell(reader.pool, control.last.get());
            return true;
        }
        let begun = tsc::start();
        for _ in 0..batch {
            reader.take(place, &mut tally);
            place += 1;
        }
        let took = tsc::stop() - begun;
        control.taken.set(took.saturating_sub(tsc.overhead));
        pass_turn(reader.pool);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Check, Use};
    use super::*;

    #[test]
    fn turns_are_long_enough_to_time() {
        let setup =
            |length, slots| Setup { length, slots, check: Check::All, usage: Use::Throughput };
        assert_eq!(sizes(&setup(65536, 4)), [1, 2, 4]);
        assert_eq!(sizes(&setup(4096, 16)), [4, 8, 16]);
        assert_eq!(sizes(&setup(64, 4)), [4]);
    }
}
