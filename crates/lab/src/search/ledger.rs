//! What the trials of a search say of each load, for any loss ratio that is allowed.

use std::time::Duration;

use super::{LoadInterval, TrialOutcome};
use crate::sample::{Failure, MAX_ATTEMPTS, Trial};

/// What is asked of a load before it counts as held.
#[derive(Debug, Clone, Copy)]
pub(super) struct Criterion {
    /// The loss ratio that no trial may exceed.
    pub(super) allowed: f64,
    /// How long a trial lasts, at least.
    pub(super) duration: Duration,
    /// How many such trials must hold.
    pub(super) trials: u32,
}

/// What a void trial does to its load.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Voids {
    /// Nothing; the last of [`MAX_ATTEMPTS`] in a row fails it.
    Repeat,
    /// It fails it.
    Lose,
}

/// A trial as it is judged: for one goal it may hold and for a stricter one be void.
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
    /// Tries a load until it is clear whether it meets the demand. At most [`MAX_ATTEMPTS`] times the demand's
    /// trials: a void one is repeated, and the last of three in a row fails.
    pub(super) fn show(
        &mut self,
        load: f64,
        demand: &Criterion,
        trial: &mut impl FnMut(f64, Duration) -> Result<TrialOutcome, Failure>,
    ) -> Result<bool, Failure> {
        loop {
            if let Some(holds) = self.verdict(load, demand, Voids::Repeat) {
                return Ok(holds);
            }
            let outcome = trial(load, demand.duration)?;
            self.enter(load, demand, outcome);
        }
    }

    fn enter(&mut self, load: f64, demand: &Criterion, outcome: TrialOutcome) {
        let ratio = outcome.ratio();
        let TrialOutcome { sent, lost, void, mut values } = outcome;
        values.insert("duration".into(), demand.duration.as_secs_f64());
        values.insert("sent".into(), sent as f64);
        values.insert("lost".into(), lost as f64);
        values.insert("allowed".into(), demand.allowed);
        let within = ratio <= demand.allowed;
        let holds = (within || void.is_none()).then_some(within);
        self.tried.push(Tried { load, duration: demand.duration, ratio, void: void.is_some() });
        self.trials.push(Trial { level: load, holds, void, values });
    }

    /// Whether a load meets the demand; nothing where that is not clear yet. A trial of any length that
    /// lost too much fails its load for good; only one that is long enough helps it to hold.
    fn verdict(&self, load: f64, demand: &Criterion, voids: Voids) -> Option<bool> {
        let (mut held, mut tries, mut duration) = (0, 0, Duration::ZERO);
        for tried in self.tried.iter().filter(|tried| tried.load == load) {
            if tried.ratio <= demand.allowed {
                tries = 0;
                held += u32::from(tried.duration >= demand.duration);
                continue;
            }
            tries = if tried.duration == duration { tries + 1 } else { 1 };
            duration = tried.duration;
            if !tried.void || tries == MAX_ATTEMPTS || voids == Voids::Lose {
                return Some(false);
            }
        }
        (held >= demand.trials).then_some(true)
    }

    /// The loads that were tried, ascending.
    fn loads(&self) -> Vec<f64> {
        let mut loads: Vec<f64> = self.tried.iter().map(|tried| tried.load).collect();
        loads.sort_by(f64::total_cmp);
        loads.dedup();
        loads
    }

    /// The smallest load that failed, and the largest below it that meets the demand.
    pub(super) fn bounds(&self, demand: &Criterion) -> LoadInterval {
        let (lower, upper) = self.edge(demand, Voids::Repeat);
        LoadInterval { lower, upper, strict: self.edge(demand, Voids::Lose).0 }
    }

    fn edge(&self, demand: &Criterion, voids: Voids) -> (Option<f64>, Option<f64>) {
        let mut lower = None;
        for load in self.loads() {
            match self.verdict(load, demand, voids) {
                Some(true) => lower = Some(load),
                Some(false) => return (lower, Some(load)),
                None => {}
            }
        }
        (lower, None)
    }

    /// The share that was lost in the first trial, with its load.
    pub(super) fn first(&self) -> Option<(f64, f64)> {
        self.tried.first().map(|tried| (tried.load, tried.ratio))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demand(milliseconds: u64) -> Criterion {
        Criterion { allowed: 0.0, duration: Duration::from_millis(milliseconds), trials: 2 }
    }

    /// What a load's trials say: duration in ms, lost of 100, and whether the host stalled.
    fn verdict(tried: &[(u64, u64, bool)], voids: Voids) -> Option<bool> {
        let mut ledger = TrialLog::default();
        for &(milliseconds, lost, stalled) in tried {
            let void = stalled.then(|| "the host stalled".to_string());
            let outcome = TrialOutcome { sent: 100, lost, void, ..TrialOutcome::default() };
            ledger.enter(1.0, &demand(milliseconds), outcome);
        }
        ledger.verdict(1.0, &demand(20), voids)
    }

    #[test]
    fn a_load_holds_by_trials_that_are_long_enough_and_fails_by_any() {
        assert_eq!(verdict(&[(20, 0, false)], Voids::Repeat), None);
        assert_eq!(verdict(&[(20, 0, false), (10, 0, false)], Voids::Repeat), None);
        assert_eq!(verdict(&[(20, 0, false), (30, 0, true)], Voids::Lose), Some(true));
        assert_eq!(
            verdict(&[(10, 1, false), (20, 0, false), (20, 0, false)], Voids::Repeat),
            Some(false)
        );
    }

    #[test]
    fn three_voids_in_a_row_of_one_duration_fail() {
        let void = |milliseconds| (milliseconds, 1, true);
        let held = (20, 0, false);
        let row = [void(20), void(20), held, void(20), void(20)];
        assert_eq!(verdict(&row, Voids::Repeat), None);
        assert_eq!(verdict(&[void(10), void(10), void(20), void(20)], Voids::Repeat), None);
        assert_eq!(verdict(&[held, void(20), void(20), void(20)], Voids::Repeat), Some(false));
        assert_eq!(verdict(&[held, void(20), held], Voids::Repeat), Some(true));
        assert_eq!(verdict(&[held, void(20), held], Voids::Lose), Some(false));
    }

    #[test]
    fn nothing_sent_shows_nothing() {
        assert_eq!(TrialOutcome::default().ratio(), 1.0);
    }
}
