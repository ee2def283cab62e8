//! Calls timed in batches, in which the counter's step is a thousandth.

use std::time::{Duration, Instant};

use lab::sample::Failure;
use lab::statistics::median;
use machine::tsc::{self, Tsc};

/// A batch lasts at min_size so many steps of the counter.
const MIN_STEPS: u64 = 1000;
/// The min_size batches that make a median, and the most.
const BATCHES: std::ops::Range<usize> = 5..1 << 14;
/// Tries of one size before a longer one: a stall makes a short batch look long.
const ATTEMPTS: usize = 3;
/// A batch of more makes no sense: what takes no time is not there.
const MAX_SIZE: u64 = 1 << 24;

/// What one of many calls in a row takes, ns: the median over batches, for as long as the budget.
/// `make` makes so many, `min_size` or more.
///
/// # Errors
/// Those of the calls; where the calls take no time.
pub fn each(
    tsc: &Tsc,
    budget: Duration,
    min_size: u64,
    mut make: impl FnMut(u64) -> Result<(), Failure>,
) -> Result<f64, Failure> {
    let mut timed = |size: u64| -> Result<u64, Failure> {
        let begin = tsc::start();
        make(size)?;
        Ok(tsc::stop().saturating_sub(begin).saturating_sub(tsc.overhead))
    };
    let mut size = min_size;
    loop {
        let mut shortest = u64::MAX;
        for _ in 0..ATTEMPTS {
            shortest = shortest.min(timed(size)?);
        }
        if shortest >= MIN_STEPS * tsc.step {
            break;
        }
        if size >= MAX_SIZE {
            return Err(Failure::check(format!(
                "{size} calls took {shortest} ticks: none was made"
            )));
        }
        size *= 2;
    }
    let end = Instant::now() + budget;
    let mut batches = Vec::with_capacity(256);
    while batches.len() < BATCHES.start || (Instant::now() < end && batches.len() < BATCHES.end) {
        batches.push(timed(size)? as f64 / size as f64);
    }
    let median = median(&batches).ok_or_else(|| Failure::failed("no batch was timed"))?;
    Ok(tsc.nanoseconds(median))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The counter, without which nothing is timed.
    fn tsc() -> Option<&'static Tsc> {
        Tsc::get().inspect_err(|why| machine::untested::note("times of calls", why)).ok()
    }

    #[test]
    fn a_call_takes_what_it_takes() {
        let Some(tsc) = tsc() else { return };
        let wait = |size: u64| {
            for _ in 0..size {
                let end = tsc::start() + 20_000;
                while tsc::start() < end {}
            }
            Ok(())
        };
        let ratio =
            each(tsc, Duration::from_millis(2), 1, wait).unwrap() / tsc.nanoseconds(20_000.0);
        assert!((0.98..1.5).contains(&ratio), "{ratio} of what is due");
    }

    #[test]
    fn calls_that_are_not_made_are_found() {
        let Some(tsc) = tsc() else { return };
        assert!(
            each(tsc, Duration::ZERO, 1, |_| Ok(())).unwrap_err().why.contains("none was made")
        );
    }

    #[test]
    fn a_failed_call_ends_it() {
        let Some(tsc) = tsc() else { return };
        let failing = |_| Err(Failure::check("no"));
        assert_eq!(each(tsc, Duration::ZERO, 1, failing).unwrap_err().why, "no");
    }
}
