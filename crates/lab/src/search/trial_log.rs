//! Log of the trials of a search, and their verdict on each load for any permitted loss ratio.

use std::time::Duration;

use super::{LoadInterval, TrialOutcome};
use crate::sample::{Failure, MAX_ATTEMPTS, Trial};

/// The value of a trial of loads that is its duration, in s.
pub(crate) const DURATION: &str = "duration";

/// Condition that a load must meet to pass.
#[derive(Debug, Clone, Copy)]
pub(super) struct Criterion {
    /// Maximum loss ratio of a trial.
    pub(super) allowed: f64,
    /// Minimum duration of a trial.
    pub(super) duration: Duration,
    /// Number of such trials that must pass.
    pub(super) trials: u32,
}

/// Trials that count towards a verdict.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Counted {
    /// Valid trials. A void trial is repeated, whatever it lost; the last of [`MAX_ATTEMPTS`] consecutive
    /// ones counts.
    Valid,
    /// All trials, void or not.
    All,
}

#[derive(Debug)]
struct Tried {
    load: f64,
    duration: Duration,
    ratio: f64,
    /// Whether it counts as a valid trial.
    is_valid: bool,
}

/// All trials of a search, in order.
#[derive(Debug, Default)]
pub(super) struct TrialLog {
    tried: Vec<Tried>,
    pub(super) trials: Vec<Trial>,
}

impl TrialLog {
    /// Tries a load until it passes or fails a criterion, with at most [`MAX_ATTEMPTS`] times the
    /// trials of the criterion.
    ///
    /// # Errors
    /// Returns those of the trial.
    pub(super) fn try_load(
        &mut self,
        load: f64,
        criterion: &Criterion,
        counted: Counted,
        trial: &mut impl FnMut(f64, Duration) -> Result<TrialOutcome, Failure>,
    ) -> Result<bool, Failure> {
        loop {
            if let Some(holds) = self.verdict(load, criterion, counted) {
                return Ok(holds);
            }
            let outcome = trial(load, criterion.duration)?;
            self.record(load, criterion, counted, outcome);
        }
    }

    fn record(
        &mut self,
        load: f64,
        criterion: &Criterion,
        counted: Counted,
        outcome: TrialOutcome,
    ) {
        let duration = criterion.duration;
        let ratio = outcome.ratio();
        let TrialOutcome { sent, lost, void, mut values } = outcome;
        values.insert(DURATION.into(), duration.as_secs_f64());
        values.insert("sent".into(), sent as f64);
        values.insert("lost".into(), lost as f64);
        values.insert("allowed".into(), criterion.allowed);
        let earlier = self.tried.iter().rev().filter(|tried| tried.load == load);
        let attempts = earlier.take_while(|it| !it.is_valid && it.duration == duration).count();
        let is_valid = void.is_none() || attempts + 1 >= MAX_ATTEMPTS as usize;
        let counts = is_valid || counted == Counted::All;
        let holds = counts.then_some(ratio <= criterion.allowed);
        self.tried.push(Tried { load, duration, ratio, is_valid });
        self.trials.push(Trial { level: load, holds, void, values });
    }

    /// Returns whether a load passes or fails; `None` if it is undecided. A trial of any duration
    /// that lost too much fails its load; only trials that are long enough count towards passing.
    fn verdict(&self, load: f64, criterion: &Criterion, counted: Counted) -> Option<bool> {
        let at_load = self.tried.iter().filter(|tried| tried.load == load);
        let mut passed = 0;
        for tried in at_load.filter(|tried| tried.is_valid || counted == Counted::All) {
            if tried.ratio > criterion.allowed {
                return Some(false);
            }
            passed += u32::from(tried.duration >= criterion.duration);
        }
        (passed >= criterion.trials).then_some(true)
    }

    /// Returns the loads tried, ascending.
    fn loads(&self) -> Vec<f64> {
        let mut loads: Vec<f64> = self.tried.iter().map(|tried| tried.load).collect();
        loads.sort_by(f64::total_cmp);
        loads.dedup();
        loads
    }

    /// Returns the smallest load that failed, and the largest below it that passed.
    pub(super) fn bounds(&self, criterion: &Criterion, counted: Counted) -> LoadInterval {
        let mut bounds = LoadInterval::default();
        for load in self.loads() {
            match self.verdict(load, criterion, counted) {
                Some(true) => bounds.lower = Some(load),
                Some(false) => return LoadInterval { upper: Some(load), ..bounds },
                None => {}
            }
        }
        bounds
    }

    /// Returns the load and the loss ratio of the first trial.
    pub(super) fn first(&self) -> Option<(f64, f64)> {
        self.tried.first().map(|tried| (tried.load, tried.ratio))
    }

    /// Returns whether a trial is void.
    pub(super) fn has_void(&self) -> bool {
        self.trials.iter().any(|trial| trial.void.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn criterion(milliseconds: u64) -> Criterion {
        Criterion { allowed: 0.0, duration: Duration::from_millis(milliseconds), trials: 2 }
    }

    /// Returns the verdict of trials: duration in ms, packets lost of 100, and whether the host
    /// stalled.
    fn verdict(tried: &[(u64, u64, bool)], counted: Counted) -> Option<bool> {
        let mut log = TrialLog::default();
        for &(milliseconds, lost, stalled) in tried {
            let void = stalled.then(|| "the host stalled".to_string());
            let outcome = TrialOutcome { sent: 100, lost, void, ..TrialOutcome::default() };
            log.record(1.0, &criterion(milliseconds), counted, outcome);
        }
        log.verdict(1.0, &criterion(20), counted)
    }

    #[test]
    fn a_load_passes_by_long_trials_and_fails_by_any() {
        use Counted::Valid;
        assert_eq!(verdict(&[(20, 0, false)], Valid), None);
        assert_eq!(verdict(&[(20, 0, false), (10, 0, false)], Valid), None);
        assert_eq!(verdict(&[(20, 0, false), (30, 0, false)], Valid), Some(true));
        let short = [(10, 1, false), (20, 0, false), (20, 0, false)];
        assert_eq!(verdict(&short, Valid), Some(false));
    }

    #[test]
    fn a_void_trial_counts_for_nothing_whether_or_not_it_lost() {
        let held = (20, 0, false);
        for lost in [0, 1] {
            let void = (20, lost, true);
            assert_eq!(verdict(&[held, void], Counted::Valid), None);
            assert_eq!(verdict(&[held, void, held], Counted::Valid), Some(true));
            assert_eq!(verdict(&[held, void], Counted::All), Some(lost == 0));
        }
    }

    #[test]
    fn the_third_of_consecutive_void_trials_of_one_duration_counts() {
        let void = |milliseconds, lost| (milliseconds, lost, true);
        let held = (20, 0, false);
        let verdict = |tried: &[_]| verdict(tried, Counted::Valid);
        assert_eq!(verdict(&[held, void(20, 1), void(20, 1), void(20, 0)]), Some(true));
        assert_eq!(verdict(&[held, void(20, 0), void(20, 0), void(20, 1)]), Some(false));
        assert_eq!(verdict(&[void(10, 1), void(10, 1), void(20, 1), void(20, 1)]), None);
        assert_eq!(verdict(&[void(20, 1), void(20, 1), held, void(20, 1), void(20, 1)]), None);
    }

    #[test]
    fn a_trial_without_packets_lost_all() {
        assert_eq!(TrialOutcome::default().ratio(), 1.0);
    }
}
