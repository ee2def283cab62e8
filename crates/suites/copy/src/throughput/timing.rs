//! How long a sample runs: the size of its batches, their warm-up and their number.

use std::time::{Duration, Instant};

use lab::sample::Failure;
use lab::statistics::median;
use machine::noise::WaitClock;
use machine::tsc::Tsc;

use super::copiers::Copier;
use super::layout::Layout;
use super::params::{Mode, PageState, RunOptions, ThroughputParams};
use super::runner::{QUEUED, Runner};
use super::summary::Batches;
use super::{Conditions, LAST_LEVEL, available};
use crate::memory::{MemoryKind, Region};

/// Minimum batch in timer steps, so that one step is at most half a percent of it.
const STEPS: u64 = 200;
/// Target number of batches per sample.
const BATCHES: u32 = 32;
/// Minimum batches for a median: one stall may consume the whole budget.
const MIN_BATCHES: usize = 5;
/// Limit of a sample's duration as a multiple of its budget. It includes untimed work but not the
/// time that the thread waits for its CPU.
const TIME_LIMIT: u32 = 4;
/// Calls per batch that times the empty function.
const CALLS: usize = 1024;
/// Number of these batches: fewer than the maximum if they take more than an eighth of the budget.
const CALL_BATCHES: std::ops::Range<usize> = MIN_BATCHES..31;
/// Maximum copies per batch.
const MAX_COPIES: usize = 1 << 30;

/// Approximate rate of filling, copying and verifying memory, bytes/s.
const RATE: f64 = 8e9;
/// The same for device memory, bytes/s.
const DEVICE_RATE: f64 = 100e6;
/// Rate of first touches, bytes/s.
const FAULT_RATE: f64 = 2e9;
/// Fixed cost of a sample: clock calibrations and the journal line.
const FIXED: Duration = Duration::from_millis(2);
/// Average number of points that one opened region serves.
const KEPT: f64 = 16.0;

/// Limits of a sample, in ticks.
struct Limits {
    /// Sum of all batches.
    budget: u64,
    /// Duration of the whole sample.
    time_limit: u64,
}

impl Limits {
    fn new(budget: Duration, tsc: &Tsc) -> Self {
        Self { budget: tsc.ticks(budget), time_limit: tsc.ticks(budget.saturating_mul(TIME_LIMIT)) }
    }

    /// Returns whether the batches suffice, `elapsed` ticks after the first one started. Time that
    /// the thread waited for its CPU does not count towards the limit.
    fn are_reached(&self, batches: &Batches, elapsed: u64) -> bool {
        let is_enough = batches.count() >= MIN_BATCHES && batches.ticks() >= self.budget;
        let is_late = elapsed.saturating_sub(batches.waited()) > self.time_limit;
        is_enough || (batches.count() > 0 && is_late)
    }
}

/// Timing of a sample.
pub(super) struct Timing<'a> {
    pub(super) conditions: &'a Conditions<'a>,
    pub(super) params: &'a ThroughputParams,
    pub(super) options: &'a RunOptions,
    pub(super) layout: Layout,
    pub(super) destination: &'a Region,
}

impl Timing<'_> {
    /// Warms up, then runs batches until the budget is spent: at least five, or fewer only if they
    /// take so long that the time limit ends the sample.
    pub(super) fn measure<M: Copier + Sync>(
        &self,
        runner: &mut Runner<M>,
    ) -> Result<Batches, Failure> {
        let Some(tsc) = self.conditions.tsc else { return self.count(runner) };
        let cold = self.params.touch == PageState::Cold;
        let mut batches = Batches::new(tsc.overhead);
        let count = if cold {
            let count = self.layout.slots;
            self.destination.madvise_dontneed();
            runner.batch(0, count)?;
            batches.skip(count);
            count
        } else {
            self.calibrate_batch(tsc, runner, &mut batches)?
        };
        // Threads that share the copies may outnumber the CPUs by the point's choice.
        let clock = if self.params.threads == 0 { WaitClock::of_this_thread() } else { None };
        let waited = || clock.as_ref().and_then(WaitClock::now).unwrap_or_default();
        let (limits, start) = (Limits::new(self.conditions.budget, tsc), Instant::now());
        while !limits.are_reached(&batches, tsc.ticks(start.elapsed())) {
            if cold {
                self.destination.madvise_dontneed();
            }
            let before = waited();
            let ticks = runner.batch(batches.next(), count)?;
            batches.add(count, ticks, tsc.ticks(waited().saturating_sub(before)));
        }
        Ok(batches)
    }

    /// Makes a fixed number of copies, untimed: each call at least once.
    fn count<M: Copier + Sync>(&self, runner: &mut Runner<M>) -> Result<Batches, Failure> {
        let mut batches = Batches::new(0);
        if self.params.touch == PageState::Cold {
            self.destination.madvise_dontneed();
        }
        // In mode jobs every thread makes all copies.
        let min = if self.params.mode == Mode::Jobs { 1 } else { min_copies(self.params) };
        let count = self.options.runs.max(self.layout.slots).max(min).next_multiple_of(min);
        runner.untimed(0, count)?;
        batches.skip(count);
        Ok(batches)
    }

    /// Returns how many copies a batch needs for the timer's resolution and the target number of
    /// batches. Its trial batches are the warm-up.
    fn calibrate_batch<M: Copier + Sync>(
        &self,
        tsc: &Tsc,
        runner: &mut Runner<M>,
        batches: &mut Batches,
    ) -> Result<usize, Failure> {
        let share = tsc.ticks(self.conditions.budget / BATCHES);
        let enough = share.max(STEPS * tsc.step.max(tsc.overhead - tsc.min_overhead));
        let min = min_copies(self.params);
        let mut count = self.options.runs.max(min);
        loop {
            count = count.next_multiple_of(min);
            // The shorter of two, because an interruption lengthens a batch.
            let mut ticks = runner.batch(batches.next(), count)?;
            batches.skip(count);
            if ticks >= enough {
                ticks = ticks.min(runner.batch(batches.next(), count)?);
                batches.skip(count);
            }
            let net = ticks.saturating_sub(tsc.overhead).max(1);
            if net >= enough || count >= MAX_COPIES {
                return Ok(count);
            }
            // Early batches are slow, so increase the count in steps.
            let factor = (enough as f64 / net as f64 * 1.2).clamp(1.5, 16.0);
            count = ((count as f64 * factor).ceil() as usize).min(MAX_COPIES);
        }
    }

    /// Returns the ticks per iteration of the loop: the median over batches of a function that returns at once.
    pub(super) fn loop_floor<M: Copier + Sync>(
        &self,
        tsc: &Tsc,
        runner: &mut Runner<M>,
    ) -> Result<f64, Failure> {
        let (limit, start) = (self.conditions.budget / 8, Instant::now());
        // The first call warms up the code.
        runner.batch(0, 1)?;
        let mut each = Vec::new();
        while each.len() < CALL_BATCHES.start
            || (each.len() < CALL_BATCHES.end && start.elapsed() < limit)
        {
            let ticks = runner.batch(each.len() * CALLS, CALLS)?;
            each.push(ticks.saturating_sub(tsc.overhead) as f64 / CALLS as f64);
        }
        Ok(median(&each).unwrap_or(f64::NAN))
    }

    /// Makes one copy without warm-up, to be watched.
    pub(super) fn run_once<M: Copier + Sync>(
        &self,
        runner: &mut Runner<M>,
    ) -> Result<Batches, Failure> {
        let mut batches = Batches::new(self.conditions.tsc.map_or(0, |tsc| tsc.overhead));
        let ticks = runner.batch(0, 1)?;
        batches.add(1, ticks, 0);
        Ok(batches)
    }
}

/// Returns the minimum number of copies in a batch; each batch has a multiple of it.
fn min_copies(params: &ThroughputParams) -> usize {
    match params.mode {
        // As many copies for each thread: with fewer than threads, some threads would have none.
        Mode::Jobs => params.threads.max(1),
        Mode::Split => 1,
        // A queue is filled as `memcpy_test` fills it; with fewer jobs, the sleeps would dominate.
        Mode::Queue => QUEUED,
    }
}

/// Returns the expected duration of a sample, including its preparation.
pub(super) fn expected(params: &ThroughputParams, budget: Duration) -> Duration {
    if available(params).is_err() {
        return FIXED;
    }
    let longest = params.length.longest() as f64;
    if params.mbw().is_some() {
        // mbw fills two arrays, then copies three times.
        return FIXED + Duration::from_secs_f64(2.0 * longest / FAULT_RATE + 3.0 * longest / RATE);
    }
    let layout = Layout::new(params, *LAST_LEVEL, params.memory == MemoryKind::HeapHuge);
    let bytes = layout.bytes() as f64;
    let is_slow = params.memory.is_physical() || params.memory == MemoryKind::GpuBar;
    let rate = if is_slow { DEVICE_RATE } else { RATE };
    let fresh = if params.touch == PageState::Cold { 3.0 } else { 2.0 / KEPT };
    let copies = if params.mode == Mode::Jobs { min_copies(params) } else { 1 };
    let batch = longest * copies as f64 / rate;
    // Filling, warm-up and verification, then the budget or one longer batch.
    let around = 2.0 * bytes / RATE + bytes * fresh / FAULT_RATE + 3.0 * batch;
    let timed = budget.as_secs_f64().max(batch);
    let threads = Duration::from_micros(200) * params.threads as u32;
    FIXED + threads + Duration::from_secs_f64(around + timed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Call;

    const TSC: Tsc = Tsc { hertz: 1e9, step: 10, overhead: 0, min_overhead: 0 };

    /// Returns the batches that a sample with a budget of 5 ms makes of these durations and waiting
    /// times; the last one repeats. Each batch has 10 copies.
    fn batches_of(timed: &[(u64, u64)]) -> Batches {
        let limits = Limits::new(Duration::from_millis(5), &TSC);
        let mut batches = Batches::new(0);
        let (mut elapsed, mut next) = (0, 0);
        while !limits.are_reached(&batches, elapsed) {
            let (ticks, waited) = timed[next.min(timed.len() - 1)];
            batches.add(10, ticks, waited);
            (elapsed, next) = (elapsed + ticks, next + 1);
        }
        batches
    }

    #[test]
    fn a_stall_that_spends_the_budget_does_not_move_the_median() {
        let (good, stall) = ((1_000, 0), (100_000_000, 99_999_000));
        for stalled in 0..MIN_BATCHES {
            let mut timed = [good; MIN_BATCHES];
            timed[stalled] = stall;
            let batches = batches_of(&timed);
            assert!(batches.count() >= MIN_BATCHES, "{}", batches.count());
            let sample = batches.summary(&TSC, &[Call { at: 0, length: 64 }], 1);
            assert_eq!((sample.values["time"], sample.void), (100.0, None));
        }
    }

    #[test]
    fn each_thread_has_a_copy_in_each_batch() {
        let min = |mode, threads| {
            min_copies(&ThroughputParams { mode, threads, ..ThroughputParams::default() })
        };
        assert_eq!((min(Mode::Jobs, 0), min(Mode::Jobs, 8)), (1, 8));
        assert_eq!((min(Mode::Split, 8), min(Mode::Queue, 8)), (1, QUEUED));
    }

    #[test]
    fn a_sample_ends_by_its_budget_or_its_time_limit() {
        assert_eq!(batches_of(&[(500_000, 0)]).count(), 10);
        assert_eq!(batches_of(&[(2_000_000, 0)]).count(), MIN_BATCHES);
        // Batches that are long themselves: 20 ms have passed after the third, and one makes a sample.
        assert_eq!(batches_of(&[(8_000_000, 0)]).count(), 3);
        assert_eq!(batches_of(&[(60_000_000, 0)]).count(), 1);
    }
}
