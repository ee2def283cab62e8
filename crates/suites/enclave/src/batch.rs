//! Calls timed in batches, so that the counter's step is at most a thousandth of a batch.

use std::time::{Duration, Instant};

use lab::sample::Failure;
use lab::statistics::median;
use machine::tsc::{self, MIN_BATCH_STEPS, Tsc};

/// The minimum and maximum number of batches behind a median.
const BATCHES: std::ops::Range<usize> = 5..1 << 14;
/// The largest batch; if it takes no time, no call was made.
const MAX_SIZE: usize = 1 << 24;

/// Times one of many consecutive calls within `budget`; returns the median over batches, ns. `make` makes the given
/// number of calls, at least `min_size`.
///
/// # Errors
/// Returns the error of a call, or `check` if the calls take no time.
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
    let sizes = min_size as usize..=MAX_SIZE;
    let (size, shortest) = tsc.batch_size(sizes, |size| timed(size as u64))?;
    if shortest < MIN_BATCH_STEPS * tsc.step {
        let why = format!("{size} calls took {shortest} ticks: none was made");
        return Err(Failure::check(why));
    }
    let size = size as u64;
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

    /// Returns the counter, or `None` if nothing can be timed.
    fn tsc() -> Option<&'static Tsc> {
        Tsc::get().inspect_err(|why| machine::untested::note("times of calls", why)).ok()
    }

    #[test]
    fn a_call_takes_its_duration() {
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
        assert!((0.98..1.5).contains(&ratio), "{ratio} of the expected time");
    }

    #[test]
    fn missing_calls_are_detected() {
        let Some(tsc) = tsc() else { return };
        assert!(
            each(tsc, Duration::ZERO, 1, |_| Ok(())).unwrap_err().why.contains("none was made")
        );
    }

    #[test]
    fn a_failed_call_ends_the_batch() {
        let Some(tsc) = tsc() else { return };
        let failing = |_| Err(Failure::check("no"));
        assert_eq!(each(tsc, Duration::ZERO, 1, failing).unwrap_err().why, "no");
    }
}
