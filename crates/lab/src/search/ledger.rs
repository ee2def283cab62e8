//! What the trials of a search say of each load, for any loss ratio that is allowed.

use std::time::Duration;

use super::{Bounds, Outcome};
use crate::sample::{Failure, TRIES, Trial};

/// What is asked of a load before it counts as held.
#[derive(Debug, Clone, Copy)]
pub(super) struct Demand {
    /// The loss ratio that no trial may exceed.
    pub(super) allowed: f64,
    /// How long a trial lasts, at least.
    pub(super) duration: Duration,
    /// How many such trials must hold.
    pub(super) trials: u32,
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
pub(super) struct Ledger {
    tried: Vec<Tried>,
    pub(super) trials: Vec<Trial>,
}

impl Ledger {
    /// Tries a load until it is clear whether it meets the demand. At most [`TRIES`] times the demand's
    /// trials: a void one is repeated, and the last of three in a row fails.
    pub(super) fn show(
        &mut self,
        load: f64,
        demand: &Demand,
        trial: &mut impl FnMut(f64, Duration) -> Result<Outcome, Failure>,
    ) -> Result<bool, Failure> {
        loop {
            if let Some(holds) = self.verdict(load, demand) {
                return Ok(holds);
            }
            let outcome = trial(load, demand.duration)?;
            self.enter(load, demand, outcome);
        }
    }

    fn enter(&mut self, load: f64, demand: &Demand, outcome: Outcome) {
        let ratio = outcome.ratio();
        let Outcome { sent, lost, void, mut values } = outcome;
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
    fn verdict(&self, load: f64, demand: &Demand) -> Option<bool> {
        let (mut held, mut voids, mut duration) = (0, 0, Duration::ZERO);
        for tried in self.tried.iter().filter(|tried| tried.load == load) {
            if tried.ratio <= demand.allowed {
                voids = 0;
                held += u32::from(tried.duration >= demand.duration);
                continue;
            }
            voids = if tried.duration == duration { voids + 1 } else { 1 };
            duration = tried.duration;
            if !tried.void || voids == TRIES {
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
    pub(super) fn bounds(&self, demand: &Demand) -> Bounds {
        let (mut lower, mut upper) = (None, None);
        for load in self.loads() {
            match self.verdict(load, demand) {
                Some(true) => lower = Some(load),
                Some(false) => {
                    upper = Some(load);
                    break;
                }
                None => {}
            }
        }
        Bounds { lower, upper, strict: self.strict(demand) }
    }

    /// The largest load that meets the demand where every void counts as loss.
    fn strict(&self, demand: &Demand) -> Option<f64> {
        let at = |load: f64| self.tried.iter().filter(move |tried| tried.load == load);
        let clean = |load: &f64| at(*load).all(|tried| tried.ratio <= demand.allowed);
        let enough = |load: &f64| {
            at(*load).filter(|tried| tried.duration >= demand.duration).count()
                >= demand.trials as usize
        };
        self.loads().into_iter().take_while(clean).filter(enough).last()
    }

    /// The share that was lost in the first trial, with its load.
    pub(super) fn first(&self) -> Option<(f64, f64)> {
        self.tried.first().map(|tried| (tried.load, tried.ratio))
    }
}
