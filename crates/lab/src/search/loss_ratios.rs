//! A search for several loss ratios at once, after MLRsearch (RFC 9971): short trials and wide steps first,
//! every trial shared by all goals, and a load that counts only once it is confirmed at full duration.

use std::time::Duration;

use super::ladder::LoadGrid;
use super::ledger::{Criterion, TrialLog};
use super::{LoadInterval, TrialOutcome};
use crate::sample::{Failure, Trial};

#[cfg(test)]
mod tests;

/// The largest load that loses no more than a ratio.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Goal {
    /// The share of the packets that no trial may exceed: 0 (NDR), 0.005 (PDR).
    pub ratio: f64,
    /// How close the bounds must come, as a share of the upper one.
    pub width: f64,
}

/// How to search for loss ratios.
#[derive(Debug, Clone, PartialEq)]
pub struct LossRatios {
    /// What is sought.
    pub goals: Vec<Goal>,
    /// Below this nothing is tried; over 0.
    pub least: f64,
    /// Above this nothing is tried; tried first.
    pub largest: f64,
    /// How long a full trial lasts.
    pub duration: Duration,
    /// How many further full trials must hold at a lower bound.
    pub confirmations: u32,
    /// How long the trials of the first phase last.
    pub shortest: Duration,
    /// How many phases of shorter trials come before the full ones. From one to the next the width
    /// halves and the duration grows by one factor.
    pub shorter_phases: u32,
}

/// What a search found.
#[derive(Debug, Clone, PartialEq)]
pub struct LossRatioResult {
    /// For each goal, in the order given, between which loads its edge lies. Each lower bound was
    /// confirmed, and a goal that allows more never has a smaller one.
    pub goals: Vec<LoadInterval>,
    /// Every trial in order, void ones too; `holds` is for the goal that asked, which allows `allowed`.
    pub trials: Vec<Trial>,
}

/// One pass over the goals.
#[derive(Debug, Clone, Copy)]
struct Phase {
    duration: Duration,
    /// How many trials a load takes to hold.
    trials: u32,
    /// How often the width is doubled.
    doublings: u32,
}

impl Phase {
    fn demand(&self, goal: &Goal) -> Criterion {
        Criterion { allowed: goal.ratio, duration: self.duration, trials: self.trials }
    }
}

impl LossRatios {
    fn check(&self) -> Result<(), Failure> {
        let goal =
            |goal: &Goal| (0.0..1.0).contains(&goal.ratio) && (1e-6..1.0).contains(&goal.width);
        let why = if !(self.least > 0.0 && self.least <= self.largest && self.largest.is_finite()) {
            format!("no loads lie between {} and {}", self.least, self.largest)
        } else if self.goals.is_empty() || !self.goals.iter().all(goal) {
            "each goal needs a ratio from 0 to below 1 and a width from 1e-6 to below 1".into()
        } else if self.shortest.is_zero() || self.shortest > self.duration {
            format!("trials cannot last from {:?} to {:?}", self.shortest, self.duration)
        } else if self.shorter_phases > 16 || self.confirmations > 1000 {
            "at most 16 shorter phases and 1000 confirmations".into()
        } else {
            return Ok(());
        };
        Err(Failure::failed(why))
    }

    /// One for all goals, so that they meet on the same loads.
    fn ladder(&self) -> LoadGrid {
        let width = self.goals.iter().map(|goal| goal.width).fold(1.0, f64::min);
        LoadGrid::new(self.least, self.largest, width)
    }

    /// The shorter phases, then full trials, then their confirmations: a load that is only passed
    /// through on the way is not worth confirming.
    fn phases(&self) -> Vec<Phase> {
        let shorter = self.shorter_phases;
        let growth = self.duration.as_secs_f64() / self.shortest.as_secs_f64();
        let mut phases: Vec<Phase> = (0..shorter)
            .map(|phase| {
                let grown = growth.powf(f64::from(phase) / f64::from(shorter));
                let duration = self.shortest.mul_f64(grown).min(self.duration);
                Phase { duration, trials: 1, doublings: shorter - phase }
            })
            .collect();
        let full = Phase { duration: self.duration, trials: 1, doublings: 0 };
        phases.extend([full, Phase { trials: 1 + self.confirmations, ..full }]);
        phases
    }
}

/// Finds for each goal the largest load that loses no more than it allows. A void trial is kept and
/// repeated, three tries at most, and then has failed. A load that failed once is never passed again, even
/// by higher ones that hold: where trials contradict one another the lower bound is the cautious one.
///
/// # Errors
/// A search that makes no sense; those of the trial.
pub fn loss_ratios(
    search: &LossRatios,
    mut trial: impl FnMut(f64, Duration) -> Result<TrialOutcome, Failure>,
) -> Result<LossRatioResult, Failure> {
    search.check()?;
    // The strictest goal first: what holds for it holds for the others.
    let mut goals = search.goals.clone();
    goals.sort_by(|a, b| a.ratio.total_cmp(&b.ratio));
    let phases = search.phases();
    let mut narrowing = Narrowing { ladder: search.ladder(), ledger: TrialLog::default() };
    let mut before = None;
    for phase in &phases {
        for goal in &goals {
            narrowing.narrow(goal, phase, before, &mut trial)?;
        }
        before = Some(phase);
    }
    let ledger = narrowing.ledger;
    // The last phase asks for the most.
    let bounds = |goal| before.map(|last| ledger.bounds(&last.demand(goal))).unwrap_or_default();
    let goals = search.goals.iter().map(bounds).collect();
    Ok(LossRatioResult { goals, trials: ledger.trials })
}

struct Narrowing {
    ladder: LoadGrid,
    ledger: TrialLog,
}

impl Narrowing {
    /// Brings a goal's bounds as close as a phase asks, or shows that there are none.
    fn narrow(
        &mut self,
        goal: &Goal,
        phase: &Phase,
        before: Option<&Phase>,
        trial: &mut impl FnMut(f64, Duration) -> Result<TrialOutcome, Failure>,
    ) -> Result<(), Failure> {
        let demand = phase.demand(goal);
        let width = self.width(goal, phase);
        let mut step = width;
        let (mut held, mut fresh) = (false, true);
        loop {
            // A rung below the ladder stands for no lower bound, one above for no upper.
            let bounds = self.ledger.bounds(&demand);
            let low = bounds.lower.map_or(-1, |load| self.ladder.rung(load));
            let high = bounds.upper.map_or(self.ladder.top + 1, |load| self.ladder.rung(load));
            let close = high - low <= width;
            let found = bounds.lower.is_some() && bounds.upper.is_some() && close;
            if low == self.ladder.top || high == 0 || found {
                return Ok(());
            }
            let rung = if bounds.upper.is_none() {
                self.ladder.top
            } else {
                let hint = std::mem::take(&mut fresh).then(|| self.hint(goal, before)).flatten();
                hint.filter(|hint| low < *hint && *hint < high).unwrap_or_else(|| {
                    // Steps that double, away from the last load, and no further than half way.
                    let middle = low + (high - low) / 2;
                    let reach = step;
                    step = (2 * step).min(self.ladder.top + 1);
                    if held { middle.min(low + reach) } else { middle.max(high - reach) }
                })
            };
            held = self.ledger.show(self.ladder.load(rung), &demand, trial)?;
        }
    }

    /// How many rungs the bounds may lie apart.
    fn width(&self, goal: &Goal, phase: &Phase) -> i64 {
        (self.ladder.rungs(goal.width) << phase.doublings).min(self.ladder.top + 1)
    }

    /// Where a phase begins: at the lower bound of the phase before, and the first phase at what came
    /// through when the largest load was offered.
    fn hint(&self, goal: &Goal, before: Option<&Phase>) -> Option<i64> {
        let load = match before {
            Some(before) => self.ledger.bounds(&before.demand(goal)).lower,
            None => self.ledger.first().map(|(load, ratio)| load * (1.0 - ratio)),
        };
        load.map(|load| self.ladder.rung(load))
    }
}
