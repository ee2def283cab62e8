//! Log of the trials of a search, and their verdict on each load for any permitted loss ratio.

use std::time::Duration;

use super::{LoadInterval, TrialOutcome};
use crate::sample::{Failure, MAX_ATTEMPTS, Trial};

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

/// Effect of void trials on the verdict.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Voids {
    /// A void trial is repeated; the last of [`MAX_ATTEMPTS`] consecutive ones fails the load.
    Repeat,
    /// A void trial fails the load.
    Fail,
}

/// A trial; it may pass for one goal and be void for a stricter one.
#[derive(Debug)]
struct Tried {
    load: f64,
    duration: Duration,
    ratio: f64,
    void: bool,
}

/// All trials of a search, in order.
#[derive(Debug, Default)]
pub(super) struct TrialLog {
    tried: Vec<Tried>,
    pub(super) trials: Vec<Trial>,
}

impl TrialLog {
    /// Tries a load until it passes or fails a criterion, with at most [`MAX_ATTEMPTS`] times the
    /// trials of the criterion: a void trial is repeated, and the last of three consecutive ones fails.
    ///
    /// # Errors
    /// Returns those of the trial.
    pub(super) fn try_load(
        &mut self,
        load: f64,
        criterion: &Criterion,
        trial: &mut impl FnMut(f64, Duration) -> Result<TrialOutcome, Failure>,
    ) -> Result<bool, Failure> {
        loop {
            if let Some(holds) = self.verdict(load, criterion, Voids::Repeat) {
                return Ok(holds);
            }
            let outcome = trial(load, criterion.duration)?;
            self.record(load, criterion, outcome);
        }
    }

    fn record(&mut self, load: f64, criterion: &Criterion, outcome: TrialOutcome) {
        let ratio = outcome.ratio();
        let TrialOutcome { sent, lost, void, mut values } = outcome;
        values.insert("duration".into(), criterion.duration.as_secs_f64());
        values.insert("sent".into(), sent as f64);
        values.insert("lost".into(), lost as f64);
        values.insert("allowed".into(), criterion.allowed);
        let within = ratio <= criterion.allowed;
        let holds = (within || void.is_none()).then_some(within);
        self.tried.push(Tried { load, duration: criterion.duration, ratio, void: void.is_some() });
        self.trials.push(Trial { level: load, holds, void, values });
    }

    /// Returns whether a load passes or fails; `None` if it is undecided. A trial of any duration
    /// that lost too much fails its load; only trials that are long enough count towards passing.
    fn verdict(&self, load: f64, criterion: &Criterion, voids: Voids) -> Option<bool> {
        let (mut passed, mut attempts, mut duration) = (0, 0, Duration::ZERO);
        for tried in self.tried.iter().filter(|tried| tried.load == load) {
            if tried.ratio <= criterion.allowed {
                attempts = 0;
                passed += u32::from(tried.duration >= criterion.duration);
                continue;
            }
            attempts = if tried.duration == duration { attempts + 1 } else { 1 };
            duration = tried.duration;
            if !tried.void || attempts == MAX_ATTEMPTS || voids == Voids::Fail {
                return Some(false);
            }
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
    pub(super) fn bounds(&self, criterion: &Criterion) -> LoadInterval {
        let (lower, upper) = self.edge(criterion, Voids::Repeat);
        LoadInterval { lower, upper, strict: self.edge(criterion, Voids::Fail).0 }
    }

    fn edge(&self, criterion: &Criterion, voids: Voids) -> (Option<f64>, Option<f64>) {
        let mut lower = None;
        for load in self.loads() {
            match self.verdict(load, criterion, voids) {
                Some(true) => lower = Some(load),
                Some(false) => return (lower, Some(load)),
                None => {}
            }
        }
        (lower, None)
    }

    /// Returns the load and the loss ratio of the first trial.
    pub(super) fn first(&self) -> Option<(f64, f64)> {
        self.tried.first().map(|tried| (tried.load, tried.ratio))
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
    fn verdict(tried: &[(u64, u64, bool)], voids: Voids) -> Option<bool> {
        let mut log = TrialLog::default();
        for &(milliseconds, lost, stalled) in tried {
            let void = stalled.then(|| "the host stalled".to_string());
            let outcome = TrialOutcome { sent: 100, lost, void, ..TrialOutcome::default() };
            log.record(1.0, &criterion(milliseconds), outcome);
        }
        log.verdict(1.0, &criterion(20), voids)
    }

    #[test]
    fn a_load_passes_by_long_trials_and_fails_by_any() {
        assert_eq!(verdict(&[(20, 0, false)], Voids::Repeat), None);
        assert_eq!(verdict(&[(20, 0, false), (10, 0, false)], Voids::Repeat), None);
        assert_eq!(verdict(&[(20, 0, false), (30, 0, true)], Voids::Fail), Some(true));
        assert_eq!(
            verdict(&[(10, 1, false), (20, 0, false), (20, 0, false)], Voids::Repeat),
            Some(false)
        );
    }

    #[test]
    fn three_void_trials_of_one_duration_in_a_row_fail() {
        let void = |milliseconds| (milliseconds, 1, true);
        let held = (20, 0, false);
        let row = [void(20), void(20), held, void(20), void(20)];
        assert_eq!(verdict(&row, Voids::Repeat), None);
        assert_eq!(verdict(&[void(10), void(10), void(20), void(20)], Voids::Repeat), None);
        assert_eq!(verdict(&[held, void(20), void(20), void(20)], Voids::Repeat), Some(false));
        assert_eq!(verdict(&[held, void(20), held], Voids::Repeat), Some(true));
        assert_eq!(verdict(&[held, void(20), held], Voids::Fail), Some(false));
    }

    #[test]
    fn a_trial_without_packets_lost_all() {
        assert_eq!(TrialOutcome::default().ratio(), 1.0);
    }
}
