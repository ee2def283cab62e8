//! Search for several loss ratios at once, based on MLRsearch (RFC 9971): short trials and wide
//! steps first, every trial shared by all goals, and lower bounds confirmed by trials of full
//! duration.

use std::time::Duration;

use super::trial_log::{Counted, Criterion, TrialLog};
use super::{LoadInterval, TrialOutcome};
use crate::sample::{Failure, Trial};

#[cfg(test)]
mod tests;

/// A search goal: the largest load that loses at most a ratio of the packets.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Goal {
    /// Maximum loss ratio of a trial: 0 (NDR), 0.005 (PDR).
    pub ratio: f64,
    /// Maximum difference of the bounds, as a share of the upper one.
    pub width: f64,
}

/// Parameters of a search for loss ratios.
#[derive(Debug, Clone, PartialEq)]
pub struct LossRatios {
    /// Goals.
    pub goals: Vec<Goal>,
    /// Smallest load, above 0.
    pub min_load: f64,
    /// Largest load, tried first.
    pub max_load: f64,
    /// Duration of a full trial.
    pub duration: Duration,
    /// Number of further full trials that must pass at a lower bound.
    pub confirmations: u32,
    /// Duration of the trials of the first phase.
    pub min_duration: Duration,
    /// Number of phases with shorter trials, before the full ones. From phase to phase the width is
    /// halved, and the duration grows by a constant factor.
    pub shorter_phases: u32,
}

/// Result of a search.
#[derive(Debug, Clone, PartialEq)]
pub struct LossRatioResult {
    /// Result of each goal, in the given order. A goal with a higher ratio never has a smaller lower
    /// bound.
    pub goals: Vec<GoalResult>,
    /// Every trial in order, void ones included; `holds` is for the goal that requested the trial,
    /// which allows `allowed`.
    pub trials: Vec<Trial>,
}

/// Bounds of one goal. Both lower bounds are confirmed.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct GoalResult {
    /// Bounds by valid trials.
    pub valid: LoadInterval,
    /// Bounds by all trials, void ones included: at and below the lower one, no trial of any duration lost
    /// more than is allowed. The lower one is at most that of `valid`.
    pub strict: LoadInterval,
}

/// A pass over the goals.
#[derive(Debug, Clone, Copy)]
struct Phase {
    duration: Duration,
    /// Number of trials that a load must pass.
    trials: u32,
    /// Number of times that the width is doubled.
    doublings: u32,
}

impl Phase {
    fn criterion(&self, goal: &Goal) -> Criterion {
        Criterion { allowed: goal.ratio, duration: self.duration, trials: self.trials }
    }
}

impl LossRatios {
    fn check(&self) -> Result<(), Failure> {
        let goal =
            |goal: &Goal| (0.0..1.0).contains(&goal.ratio) && (1e-6..1.0).contains(&goal.width);
        let why = if !(self.min_load > 0.0
            && self.min_load <= self.max_load
            && self.max_load.is_finite())
        {
            format!(
                "no loads between {} and {}; set 0 < minimum <= maximum",
                self.min_load, self.max_load
            )
        } else if self.goals.is_empty() || !self.goals.iter().all(goal) {
            "a goal requires a ratio from 0 to below 1 and a width from 1e-6 to below 1".into()
        } else if self.min_duration.is_zero() || self.min_duration > self.duration {
            format!("trials cannot last from {:?} to {:?}", self.min_duration, self.duration)
        } else if self.shorter_phases > 16 || self.confirmations > 1000 {
            "at most 16 shorter phases and 1000 confirmations".into()
        } else {
            return Ok(());
        };
        Err(Failure::failed(why))
    }

    /// Returns the common grid of all goals.
    fn grid(&self) -> LoadGrid {
        let width = self.goals.iter().map(|goal| goal.width).fold(1.0, f64::min);
        LoadGrid::new(self.min_load, self.max_load, width)
    }

    /// Returns the shorter phases, the phase of full trials, and that of their confirmations.
    /// Confirmations come last because loads tried on the way need none.
    fn phases(&self) -> Vec<Phase> {
        let shorter = self.shorter_phases;
        let growth = self.duration.as_secs_f64() / self.min_duration.as_secs_f64();
        let mut phases: Vec<Phase> = (0..shorter)
            .map(|phase| {
                let grown = growth.powf(f64::from(phase) / f64::from(shorter));
                let duration = self.min_duration.mul_f64(grown).min(self.duration);
                Phase { duration, trials: 1, doublings: shorter - phase }
            })
            .collect();
        let last = self.last_phase();
        phases.extend([Phase { trials: 1, ..last }, last]);
        phases
    }

    fn last_phase(&self) -> Phase {
        Phase { duration: self.duration, trials: 1 + self.confirmations, doublings: 0 }
    }
}

/// Finds for each goal the largest load that loses at most its ratio. A void trial is repeated, whatever
/// it lost, and the third consecutive one counts. No load above one that failed becomes a lower bound,
/// even if it passes: if trials contradict each other, the lower bound is the cautious one. If there are
/// void trials, the search continues for the bounds that count them.
///
/// # Errors
/// Returns an error for inconsistent parameters, and those of the trial.
pub fn loss_ratios(
    search: &LossRatios,
    mut trial: impl FnMut(f64, Duration) -> Result<TrialOutcome, Failure>,
) -> Result<LossRatioResult, Failure> {
    search.check()?;
    // The strictest goal first: a load that passes it passes the others.
    let mut goals = search.goals.clone();
    goals.sort_by(|a, b| a.ratio.total_cmp(&b.ratio));
    let mut narrowing = Narrowing { grid: search.grid(), log: TrialLog::default() };
    let mut before = None;
    let phases = search.phases();
    for phase in &phases {
        for goal in &goals {
            narrowing.narrow(goal, phase, before, Counted::Valid, &mut trial)?;
        }
        before = Some(phase);
    }
    // The criterion of the last phase is the strictest.
    let last = search.last_phase();
    // The trials for one kind of bounds may move the other. This ends because a load that all kinds have
    // decided is not tried again.
    let mut known = None;
    while narrowing.log.has_void() && known != Some(narrowing.log.trials.len()) {
        known = Some(narrowing.log.trials.len());
        for counted in [Counted::All, Counted::Valid] {
            for goal in &goals {
                narrowing.narrow(goal, &last, Some(&last), counted, &mut trial)?;
            }
        }
    }
    let log = narrowing.log;
    let result = |goal| {
        let bounds = |counted| log.bounds(&last.criterion(goal), counted);
        let (mut valid, strict) = (bounds(Counted::Valid), bounds(Counted::All));
        // A load that passed all trials also passed the valid ones, of which there may be too few.
        valid.lower = valid.lower.into_iter().chain(strict.lower).reduce(f64::max);
        GoalResult { valid, strict }
    };
    let goals = search.goals.iter().map(result).collect();
    Ok(LossRatioResult { goals, trials: log.trials })
}

struct Narrowing {
    grid: LoadGrid,
    log: TrialLog,
}

impl Narrowing {
    /// Narrows the bounds of a goal to the width of a phase, or shows that there are none.
    fn narrow(
        &mut self,
        goal: &Goal,
        phase: &Phase,
        before: Option<&Phase>,
        counted: Counted,
        trial: &mut impl FnMut(f64, Duration) -> Result<TrialOutcome, Failure>,
    ) -> Result<(), Failure> {
        let criterion = phase.criterion(goal);
        let width = self.width(goal, phase);
        let mut step = width;
        let (mut held, mut fresh) = (false, true);
        loop {
            // An index outside the grid represents a missing bound.
            let bounds = self.log.bounds(&criterion, counted);
            let low = bounds.lower.map_or(-1, |load| self.grid.index(load));
            let high = bounds.upper.map_or(self.grid.top + 1, |load| self.grid.index(load));
            let close = high - low <= width;
            let found = bounds.lower.is_some() && bounds.upper.is_some() && close;
            if low == self.grid.top || high == 0 || found {
                return Ok(());
            }
            let index = if bounds.upper.is_none() {
                self.grid.top
            } else {
                let hint =
                    std::mem::take(&mut fresh).then(|| self.hint(goal, before, counted)).flatten();
                hint.filter(|hint| low < *hint && *hint < high).unwrap_or_else(|| {
                    // Doubling steps away from the last load, at most half way.
                    let middle = low + (high - low) / 2;
                    let reach = step;
                    step = (2 * step).min(self.grid.top + 1);
                    if held { middle.min(low + reach) } else { middle.max(high - reach) }
                })
            };
            held = self.log.try_load(self.grid.load(index), &criterion, counted, trial)?;
        }
    }

    /// Returns the maximum difference of the indices of the bounds.
    fn width(&self, goal: &Goal, phase: &Phase) -> i64 {
        (self.grid.steps(goal.width) << phase.doublings).min(self.grid.top + 1)
    }

    /// Returns the index at which a phase starts: the lower bound of the phase before, or, for the
    /// first phase, the load that passed through when the largest was offered.
    fn hint(&self, goal: &Goal, before: Option<&Phase>, counted: Counted) -> Option<i64> {
        let load = match before {
            Some(before) => self.log.bounds(&before.criterion(goal), counted).lower,
            None => self.log.first().map(|(load, ratio)| load * (1.0 - ratio)),
        };
        load.map(|load| self.grid.index(load))
    }
}

/// Loads at equal ratios, by index from the smallest to the largest. Goals share the trials of a
/// load.
#[derive(Debug, Clone, Copy)]
pub(super) struct LoadGrid {
    min: f64,
    max: f64,
    /// Index of the largest load.
    top: i64,
}

impl LoadGrid {
    /// Creates a grid whose adjacent loads differ by at most `width` of the larger one.
    fn new(min: f64, max: f64, width: f64) -> Self {
        let top = ((max / min).ln() / -(-width).ln_1p()).ceil();
        Self { min, max, top: top as i64 }
    }

    /// Returns the load at an index; the ends are exact.
    fn load(&self, index: i64) -> f64 {
        match index {
            0 if self.top > 0 => self.min,
            index if index == self.top => self.max,
            index => self.min * (self.max / self.min).powf(index as f64 / self.top as f64),
        }
    }

    /// Returns the index of a load of the grid; of another load, the index of the next lower one in
    /// the grid.
    fn index(&self, load: f64) -> i64 {
        if self.top == 0 {
            return 0;
        }
        let index = (load / self.min).ln() / (self.max / self.min).ln() * self.top as f64;
        ((index + 1e-3).floor() as i64).clamp(0, self.top)
    }

    /// Returns the maximum difference of the indices of two loads that differ by at most `width` of
    /// the larger one; at least 1.
    fn steps(&self, width: f64) -> i64 {
        let step = (self.max / self.min).ln() / self.top.max(1) as f64;
        ((-(-width).ln_1p() / step + 1e-9).floor() as i64).clamp(1, self.top + 1)
    }
}
