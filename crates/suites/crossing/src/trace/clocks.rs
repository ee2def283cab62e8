//! The system's clock and the time-stamp counter, held together.

use std::time::Duration;

use lab::sample::Failure;
use machine::tsc;
use rustix::time::{ClockId, clock_gettime};

/// Readings of one pairing. Each narrows down what the clock said at one tick.
const READINGS: usize = 300;
/// How long the two are compared to learn their rate: long enough that it is right to 1 in 100,000.
const COMPARED: Duration = Duration::from_millis(10);
/// The clock cuts off what is less than a nanosecond; so does the one that is converted.
const CUT_OFF: f64 = 1.0;

/// One reading of the clock between two of the counter.
#[derive(Debug, Clone, Copy)]
struct Reading {
    before: u64,
    nanoseconds: u64,
    after: u64,
}

impl Reading {
    fn now() -> Self {
        let before = tsc::start();
        let time = clock_gettime(ClockId::Monotonic);
        let after = tsc::start();
        let nanoseconds = time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
        Self { before, nanoseconds, after }
    }

    /// Of several, the one whose moment is best known.
    fn narrowest() -> Self {
        let mut best = Self::now();
        for _ in 0..READINGS {
            let next = Self::now();
            if next.after - next.before < best.after - best.before {
                best = next;
            }
        }
        best
    }
}

/// How many ticks the counter makes in a nanosecond of CLOCK_MONOTONIC, which is steered and so need
/// not run at the rate that the counter is stated to have.
///
/// # Errors
/// A check where one of them stands still.
pub fn rate() -> Result<f64, Failure> {
    let first = Reading::narrowest();
    std::thread::sleep(COMPARED);
    let last = Reading::narrowest();
    let ticks =
        (last.before as f64 - first.before as f64 + last.after as f64 - first.after as f64) / 2.0;
    let nanoseconds = last.nanoseconds as f64 - first.nanoseconds as f64;
    if ticks <= 0.0 || nanoseconds <= 0.0 {
        return Err(Failure::check("CLOCK_MONOTONIC or the time-stamp counter stood still"));
    }
    Ok(ticks / nanoseconds)
}

/// What CLOCK_MONOTONIC said at one tick of the counter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pairing {
    ticks: u64,
    /// Whole nanoseconds, and what is to be added.
    nanoseconds: u64,
    rest: f64,
    /// By how much that may be wrong, ns.
    uncertainty: f64,
}

impl Pairing {
    /// Reads both, many times.
    ///
    /// # Errors
    /// A check where the two clocks contradict each other.
    pub fn now(rate: f64) -> Result<Self, Failure> {
        let readings: Vec<_> = (0..READINGS).map(|_| Reading::now()).collect();
        Self::of(&readings, rate)
            .ok_or_else(|| Failure::check("CLOCK_MONOTONIC and the time-stamp counter disagree"))
    }

    /// The narrowest that all readings allow; none where they contradict one another.
    fn of(readings: &[Reading], rate: f64) -> Option<Self> {
        let first = readings.first()?;
        // Relative to the first reading, so that a double holds them to far below a nanosecond.
        let ns = |ticks: u64| ticks.wrapping_sub(first.before) as i64 as f64 / rate;
        let said =
            |reading: &Reading| reading.nanoseconds.wrapping_sub(first.nanoseconds) as i64 as f64;
        let least = readings.iter().map(|reading| said(reading) - ns(reading.after));
        let most = readings.iter().map(|reading| said(reading) + CUT_OFF - ns(reading.before));
        let (least, most) = (least.fold(f64::MIN, f64::max), most.fold(f64::MAX, f64::min));
        (least <= most).then_some(Self {
            ticks: first.before,
            nanoseconds: first.nanoseconds,
            rest: (least + most) / 2.0,
            uncertainty: (most - least) / 2.0,
        })
    }
}

/// Turns times of the clock between two pairings into ticks.
#[derive(Debug, Clone, Copy)]
pub struct Conversion {
    begin: Pairing,
    ticks_a_nanosecond: f64,
    /// By how much a converted time may be wrong, ns.
    pub uncertainty: f64,
}

impl Conversion {
    /// From a pairing before and one after.
    ///
    /// # Errors
    /// A check where time did not pass between them.
    pub fn between(begin: Pairing, end: Pairing) -> Result<Self, Failure> {
        let ticks = end.ticks.wrapping_sub(begin.ticks) as i64 as f64;
        let whole = end.nanoseconds.wrapping_sub(begin.nanoseconds) as i64 as f64;
        let nanoseconds = whole + end.rest - begin.rest;
        if ticks <= 0.0 || nanoseconds <= 0.0 {
            return Err(Failure::check("CLOCK_MONOTONIC or the time-stamp counter stood still"));
        }
        let uncertainty = begin.uncertainty.max(end.uncertainty) + CUT_OFF / 2.0;
        Ok(Self { begin, ticks_a_nanosecond: ticks / nanoseconds, uncertainty })
    }

    /// The tick at which the clock said so many nanoseconds.
    pub fn ticks(&self, nanoseconds: u64) -> u64 {
        let passed = nanoseconds.wrapping_sub(self.begin.nanoseconds) as i64 as f64 + CUT_OFF / 2.0;
        let ticks = (passed - self.begin.rest) * self.ticks_a_nanosecond;
        self.begin.ticks.wrapping_add_signed(ticks.round() as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock that runs 0.03% slow against a counter of 2.5 GHz, read by a counter that steps.
    fn readings(from: u64, step: u64) -> Vec<Reading> {
        let stepped = |ticks: u64| ticks / step * step;
        let reading = |n: u64| {
            let at = from + n * 317 + n * n % 41;
            let nanoseconds = (stepped(at + 60 + n % 13) as f64 / 2.5 * 0.9997) as u64 + 5_000;
            Reading { before: stepped(at), nanoseconds, after: stepped(at + 110) }
        };
        (0..1000).map(reading).collect()
    }

    #[test]
    fn converted_times_are_right_within_the_uncertainty_stated() {
        for step in [1, 26] {
            let pairing = |from| Pairing::of(&readings(from, step), 2.5 / 0.9997).unwrap();
            let conversion = Conversion::between(pairing(10_000), pairing(20_000_000)).unwrap();
            assert!(conversion.uncertainty < 25.0, "{conversion:?}");
            for ticks in (1_000_000..20_000_000).step_by(99_991) {
                let ticks = ticks / step * step;
                let nanoseconds = (ticks as f64 / 2.5 * 0.9997) as u64 + 5_000;
                let wrong = conversion.ticks(nanoseconds).abs_diff(ticks) as f64 / 2.5;
                assert!(wrong <= conversion.uncertainty, "{wrong} {conversion:?}");
            }
        }
    }

    #[test]
    fn clocks_that_contradict_each_other_are_seen() {
        let mut jumped = readings(10_000, 1);
        jumped[500].nanoseconds += 1_000;
        assert_eq!(Pairing::of(&jumped, 2.5 / 0.9997), None);
        let pairing = Pairing::of(&readings(10_000, 1), 2.5 / 0.9997).unwrap();
        assert!(Conversion::between(pairing, pairing).is_err());
    }

    #[test]
    fn this_machines_clocks_pair_up() {
        if let Err(why) = tsc::Tsc::get() {
            machine::untested::note("this_machines_clocks_pair_up", &why);
            return;
        }
        let rate = rate().unwrap();
        let begin = Pairing::now(rate).unwrap();
        std::thread::sleep(Duration::from_millis(5));
        let conversion = Conversion::between(begin, Pairing::now(rate).unwrap()).unwrap();
        println!("{conversion:?}");
        // A reading of the kernel's clock takes longer where it is a system call.
        let begun = std::time::Instant::now();
        (0..1000).for_each(|_| _ = std::hint::black_box(std::time::Instant::now()));
        let reading = begun.elapsed().as_nanos() as f64 / 1000.0;
        assert!(conversion.uncertainty < 1_000.0 + 10.0 * reading, "{conversion:?} {reading}");
    }
}
