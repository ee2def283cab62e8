//! Conversion of CLOCK_MONOTONIC to ticks of the time-stamp counter.

use std::time::Duration;

use lab::sample::Failure;
use machine::tsc;
use rustix::time::{ClockId, clock_gettime};

/// Readings per pairing. Each narrows the bounds.
const READINGS: usize = 300;
/// Duration of the calibration of the rate, for a precision of 1 in 100,000.
const CALIBRATION_TIME: Duration = Duration::from_millis(10);
/// Truncation of the clock, ns, both in the readings and in the converted times.
const TRUNCATION: f64 = 1.0;

/// A reading of the clock between two of the counter.
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

    /// Takes several readings and returns the one with the shortest interval.
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

/// Measures the ticks per nanosecond of CLOCK_MONOTONIC. NTP adjusts this clock, so the rate may differ from the
/// nominal frequency of the counter.
///
/// # Errors
/// Returns `check` if either clock does not advance.
pub fn rate() -> Result<f64, Failure> {
    let first = Reading::narrowest();
    std::thread::sleep(CALIBRATION_TIME);
    let last = Reading::narrowest();
    let ticks =
        (last.before as f64 - first.before as f64 + last.after as f64 - first.after as f64) / 2.0;
    let nanoseconds = last.nanoseconds as f64 - first.nanoseconds as f64;
    if ticks <= 0.0 || nanoseconds <= 0.0 {
        return Err(Failure::check("CLOCK_MONOTONIC or the time-stamp counter did not advance"));
    }
    Ok(ticks / nanoseconds)
}

/// The time of CLOCK_MONOTONIC at one tick of the counter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pairing {
    ticks: u64,
    /// Whole nanoseconds, and the fraction to add.
    nanoseconds: u64,
    fraction: f64,
    /// Maximum error, in ns.
    uncertainty: f64,
}

impl Pairing {
    /// Reads both clocks many times.
    ///
    /// # Errors
    /// Returns `check` if the readings contradict each other.
    pub fn now(rate: f64) -> Result<Self, Failure> {
        let readings: Vec<_> = (0..READINGS).map(|_| Reading::now()).collect();
        Self::of(&readings, rate)
            .ok_or_else(|| Failure::check("CLOCK_MONOTONIC and the time-stamp counter disagree"))
    }

    /// Returns the tightest pairing consistent with all readings; `None` if they contradict each other.
    fn of(readings: &[Reading], rate: f64) -> Option<Self> {
        let first = readings.first()?;
        // Relative to the first reading, so that an f64 is precise to far below a nanosecond.
        let ns = |ticks: u64| ticks.wrapping_sub(first.before) as i64 as f64 / rate;
        let clock =
            |reading: &Reading| reading.nanoseconds.wrapping_sub(first.nanoseconds) as i64 as f64;
        let lower = readings.iter().map(|reading| clock(reading) - ns(reading.after));
        let upper = readings.iter().map(|reading| clock(reading) + TRUNCATION - ns(reading.before));
        let (lower, upper) = (lower.fold(f64::MIN, f64::max), upper.fold(f64::MAX, f64::min));
        (lower <= upper).then_some(Self {
            ticks: first.before,
            nanoseconds: first.nanoseconds,
            fraction: (lower + upper) / 2.0,
            uncertainty: (upper - lower) / 2.0,
        })
    }
}

/// Converter of times between two pairings to ticks.
#[derive(Debug, Clone, Copy)]
pub struct Conversion {
    start: Pairing,
    ticks_per_nanosecond: f64,
    /// Maximum error of a converted time, in ns.
    pub uncertainty: f64,
}

impl Conversion {
    /// Creates a converter from a pairing before and one after.
    ///
    /// # Errors
    /// Returns `check` if no time passed between them.
    pub fn between(start: Pairing, end: Pairing) -> Result<Self, Failure> {
        let ticks = end.ticks.wrapping_sub(start.ticks) as i64 as f64;
        let whole = end.nanoseconds.wrapping_sub(start.nanoseconds) as i64 as f64;
        let nanoseconds = whole + end.fraction - start.fraction;
        if ticks <= 0.0 || nanoseconds <= 0.0 {
            return Err(Failure::check(
                "CLOCK_MONOTONIC or the time-stamp counter did not advance",
            ));
        }
        let uncertainty = start.uncertainty.max(end.uncertainty) + TRUNCATION / 2.0;
        Ok(Self { start, ticks_per_nanosecond: ticks / nanoseconds, uncertainty })
    }

    /// Converts a time of the clock, ns, to ticks.
    pub fn ticks(&self, nanoseconds: u64) -> u64 {
        let elapsed =
            nanoseconds.wrapping_sub(self.start.nanoseconds) as i64 as f64 + TRUNCATION / 2.0;
        let ticks = (elapsed - self.start.fraction) * self.ticks_per_nanosecond;
        self.start.ticks.wrapping_add_signed(ticks.round() as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates a clock that runs 0.03% slow relative to a counter of 2.5 GHz with steps.
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
    fn converted_times_are_exact_within_the_reported_uncertainty() {
        for step in [1, 26] {
            let pairing = |from| Pairing::of(&readings(from, step), 2.5 / 0.9997).unwrap();
            let conversion = Conversion::between(pairing(10_000), pairing(20_000_000)).unwrap();
            assert!(conversion.uncertainty < 25.0, "{conversion:?}");
            for ticks in (1_000_000..20_000_000).step_by(99_991) {
                let ticks = ticks / step * step;
                let nanoseconds = (ticks as f64 / 2.5 * 0.9997) as u64 + 5_000;
                let error = conversion.ticks(nanoseconds).abs_diff(ticks) as f64 / 2.5;
                assert!(error <= conversion.uncertainty, "{error} {conversion:?}");
            }
        }
    }

    #[test]
    fn contradicting_clocks_are_detected() {
        let mut jumped = readings(10_000, 1);
        jumped[500].nanoseconds += 1_000;
        assert_eq!(Pairing::of(&jumped, 2.5 / 0.9997), None);
        let pairing = Pairing::of(&readings(10_000, 1), 2.5 / 0.9997).unwrap();
        assert!(Conversion::between(pairing, pairing).is_err());
    }

    #[test]
    fn the_clocks_of_this_machine_agree() {
        if let Err(why) = tsc::Tsc::get() {
            machine::untested::note("the_clocks_of_this_machine_agree", &why);
            return;
        }
        let rate = rate().unwrap();
        let start = Pairing::now(rate).unwrap();
        std::thread::sleep(Duration::from_millis(5));
        let conversion = Conversion::between(start, Pairing::now(rate).unwrap()).unwrap();
        println!("{conversion:?}");
        // Reading the kernel's clock takes longer if it is a system call.
        let reading_start = std::time::Instant::now();
        (0..1000).for_each(|_| _ = std::hint::black_box(std::time::Instant::now()));
        let reading = reading_start.elapsed().as_nanos() as f64 / 1000.0;
        assert!(conversion.uncertainty < 1_000.0 + 10.0 * reading, "{conversion:?} {reading}");
    }
}
