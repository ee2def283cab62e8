//! How long a sample runs: the size of its batches, their warm-up and their number.

use std::time::{Duration, Instant};

use lab::sample::Failure;
use lab::statistics::median;
use machine::noise::WaitClock;
use machine::tsc::Tsc;

use super::Conditions;
use super::layout::Layout;
use super::params::{Choices, Mode, ThroughputParams, Touch};
use super::queue::QUEUED;
use super::runner::Runner;
use super::summary::Batches;
use super::timed::Mover;
use crate::memory::Region;

/// A batch is so many times the timer's step, so that the step is half a percent of it.
const STEPS: u64 = 200;
/// Batches of a sample, about.
const BATCHES: u32 = 32;
/// The least batches that make a median: a stall may spend the whole budget in one.
const LEAST_BATCHES: usize = 5;
/// A sample may take this much longer than its budget in all, with what is not timed, but without what
/// its thread waits for its CPU.
const PATIENCE: u32 = 4;
/// Calls of a batch that times calls, and how many such batches there are.
const CALLS: usize = 1024;
/// See [`CALLS`]. Fewer if they take more than an eighth of the budget, but not fewer than the least.
const CALL_BATCHES: std::ops::Range<usize> = LEAST_BATCHES..31;
/// Copies of a batch, at most.
const MOST_COPIES: usize = 1 << 30;

/// When a sample has enough batches, in ticks.
struct Limits {
    /// Of all batches.
    budget: u64,
    /// Of the whole sample.
    patience: u64,
}

impl Limits {
    fn of(budget: Duration, tsc: &Tsc) -> Self {
        Self { budget: tsc.ticks(budget), patience: tsc.ticks(budget.saturating_mul(PATIENCE)) }
    }

    /// Whether these batches are enough, `elapsed` ticks after the first began. What the thread waited
    /// for its CPU is not the sample's: it ends no patience.
    fn are_reached(&self, batches: &Batches, elapsed: u64) -> bool {
        let is_enough = batches.count() >= LEAST_BATCHES && batches.ticks() >= self.budget;
        let is_late = elapsed.saturating_sub(batches.waited()) > self.patience;
        is_enough || (batches.count() > 0 && is_late)
    }
}

/// How a sample is timed.
pub(super) struct Timing<'a> {
    pub(super) conditions: &'a Conditions<'a>,
    pub(super) params: &'a ThroughputParams,
    pub(super) choices: &'a Choices,
    pub(super) layout: Layout,
    pub(super) destination: &'a Region,
}

impl Timing<'_> {
    /// Warms up, then runs batches until the budget is spent, five at least; fewer only where one
    /// takes so long that the sample's patience ends.
    pub(super) fn measure<M: Mover + Sync>(
        &self,
        runner: &mut Runner<M>,
    ) -> Result<Batches, Failure> {
        let tsc = self.conditions.tsc;
        let cold = self.params.touch == Touch::Cold;
        let mut batches = Batches::new(tsc.overhead);
        let count = if cold {
            let count = self.layout.slots;
            self.destination.forget();
            runner.batch(0, count)?;
            batches.skip(count);
            count
        } else {
            self.calibrated(runner, &mut batches)?
        };
        // Where threads share the copies, those that wait may be more than the CPUs by the point's choice.
        let clock = if self.params.threads == 0 { WaitClock::of_this_thread() } else { None };
        let waited = || clock.as_ref().and_then(WaitClock::now).unwrap_or_default();
        let (limits, begun) = (Limits::of(self.conditions.budget, tsc), Instant::now());
        while !limits.are_reached(&batches, tsc.ticks(begun.elapsed())) {
            if cold {
                self.destination.forget();
            }
            let before = waited();
            let ticks = runner.batch(batches.next(), count)?;
            batches.add(count, ticks, tsc.ticks(waited().saturating_sub(before)));
        }
        Ok(batches)
    }

    /// How many copies a batch needs, for the timer and for a sample of some batches. What it runs
    /// to learn that is the warm-up.
    fn calibrated<M: Mover + Sync>(
        &self,
        runner: &mut Runner<M>,
        batches: &mut Batches,
    ) -> Result<usize, Failure> {
        let tsc = self.conditions.tsc;
        let share = tsc.ticks(self.conditions.budget / BATCHES);
        let enough = share.max(STEPS * tsc.step.max(tsc.overhead - tsc.overhead_least));
        // A queue is filled as the source fills it; a shorter one would measure its sleeps alone.
        let queued = if self.params.mode == Mode::Queue { QUEUED } else { 1 };
        let mut count = self.choices.runs.max(queued);
        loop {
            // The shorter of two: a batch that was interrupted would pass for a long one.
            let mut ticks = runner.batch(batches.next(), count)?;
            batches.skip(count);
            if ticks >= enough {
                ticks = ticks.min(runner.batch(batches.next(), count)?);
                batches.skip(count);
            }
            let net = ticks.saturating_sub(tsc.overhead).max(1);
            if net >= enough || count >= MOST_COPIES {
                return Ok(count);
            }
            // Early batches are slow, so go up by steps and look again.
            let factor = (enough as f64 / net as f64 * 1.2).clamp(1.5, 16.0);
            count = ((count as f64 * factor).ceil() as usize).min(MOST_COPIES);
        }
    }

    /// Ticks of one iteration of the loop at least: the median over batches of a runner whose function returns at once.
    pub(super) fn loop_floor<M: Mover + Sync>(
        &self,
        runner: &mut Runner<M>,
    ) -> Result<f64, Failure> {
        let tsc = self.conditions.tsc;
        let (limit, begun) = (self.conditions.budget / 8, Instant::now());
        // The first call warms the code up.
        runner.batch(0, 1)?;
        let mut each = Vec::new();
        while each.len() < CALL_BATCHES.start
            || (each.len() < CALL_BATCHES.end && begun.elapsed() < limit)
        {
            let ticks = runner.batch(each.len() * CALLS, CALLS)?;
            each.push(ticks.saturating_sub(tsc.overhead) as f64 / CALLS as f64);
        }
        Ok(median(&each).unwrap_or(f64::NAN))
    }

    /// One copy alone, with no warm-up: somebody watches it.
    pub(super) fn once<M: Mover + Sync>(&self, runner: &mut Runner<M>) -> Result<Batches, Failure> {
        let mut batches = Batches::new(self.conditions.tsc.overhead);
        let ticks = runner.batch(0, 1)?;
        batches.add(1, ticks, 0);
        Ok(batches)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::throughput::Call;

    const TSC: Tsc = Tsc { hertz: 1e9, step: 10, overhead: 0, overhead_least: 0 };

    /// The batches of 10 copies that a sample of 5 ms makes, where each takes and waits so many ticks,
    /// and the last goes on.
    fn gathered(timed: &[(u64, u64)]) -> Batches {
        let limits = Limits::of(Duration::from_millis(5), &TSC);
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
        for stalled in 0..LEAST_BATCHES {
            let mut timed = [good; LEAST_BATCHES];
            timed[stalled] = stall;
            let batches = gathered(&timed);
            assert!(batches.count() >= LEAST_BATCHES, "{}", batches.count());
            let sample = batches.summary(&TSC, &[Call { at: 0, length: 64 }], 1);
            assert_eq!((sample.values["time"], sample.void), (100.0, None));
        }
    }

    #[test]
    fn a_sample_ends_by_its_budget_or_its_patience() {
        assert_eq!(gathered(&[(500_000, 0)]).count(), 10);
        assert_eq!(gathered(&[(2_000_000, 0)]).count(), LEAST_BATCHES);
        // A batch that is long by itself: 20 ms are over after the third, and the first makes a sample.
        assert_eq!(gathered(&[(8_000_000, 0)]).count(), 3);
        assert_eq!(gathered(&[(60_000_000, 0)]).count(), 1);
    }
}
