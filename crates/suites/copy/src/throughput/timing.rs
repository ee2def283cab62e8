//! How long a sample runs: the size of its batches, their warm-up and their number.

use std::time::Instant;

use lab::sample::Failure;
use lab::statistics::median;

use super::Conditions;
use super::layout::Layout;
use super::queue::QUEUED;
use super::runner::Runner;
use super::settings::{Choices, Mode, Settings, Touch};
use super::summary::Batches;
use super::timed::Mover;
use crate::memory::Region;

/// A batch is so many times the timer's step, so that the step is half a percent of it.
const STEPS: u64 = 200;
/// Batches of a sample, about.
const BATCHES: u32 = 32;
/// A sample may take this much longer than its budget in all, with what is not timed.
const PATIENCE: u32 = 4;
/// Calls of a batch that times calls, and how many such batches there are.
const CALLS: usize = 1024;
/// See [`CALLS`]. Fewer if they take more than an eighth of the budget, but three at least.
const CALL_BATCHES: std::ops::Range<usize> = 3..31;
/// Copies of a batch, at most.
const MOST_COPIES: usize = 1 << 30;

/// How a sample is timed.
pub(super) struct Timing<'a> {
    pub(super) conditions: &'a Conditions<'a>,
    pub(super) settings: &'a Settings,
    pub(super) choices: &'a Choices,
    pub(super) layout: Layout,
    pub(super) destination: &'a Region,
}

impl Timing<'_> {
    /// Warms up, then runs batches until the budget is spent; one at least.
    pub(super) fn measure<M: Mover + Sync>(
        &self,
        runner: &mut Runner<M>,
    ) -> Result<Batches, Failure> {
        let tsc = self.conditions.tsc;
        let cold = self.settings.touch == Touch::Cold;
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
        let (budget, begun) = (tsc.ticks(self.conditions.budget), Instant::now());
        loop {
            if cold {
                self.destination.forget();
            }
            let ticks = runner.batch(batches.next(), count)?;
            batches.add(count, ticks);
            if batches.ticks() >= budget
                || begun.elapsed() > self.conditions.budget.saturating_mul(PATIENCE)
            {
                return Ok(batches);
            }
        }
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
        let queued = if self.settings.mode == Mode::Queue { QUEUED } else { 1 };
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

    /// Ticks of one call: the median over batches of a runner whose function returns at once.
    pub(super) fn call<M: Mover + Sync>(&self, runner: &mut Runner<M>) -> Result<f64, Failure> {
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
        batches.add(1, ticks);
        Ok(batches)
    }
}
