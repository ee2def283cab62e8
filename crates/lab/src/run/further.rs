//! Further rounds at the end of a run with a time to spend: of the points of claims that lack rounds for a verdict.
//!
//! Which rounds count for a claim, e.g. those with near cores, is known only after they were measured. A share of the time
//! is therefore reserved. What is measured in it depends on the numbers of rounds and their correlation
//! ([`LackingRounds`]), never on a result.

use std::collections::BTreeSet;
use std::time::Duration;

use super::passes::Passes;
use super::scheduler::Scheduler;
use super::session::Session;
use super::{Event, RunError};
use crate::claim::LackingRounds;

/// Share of the time that is reserved: claims that have most of their rounds need about as many further ones as they have
/// lost, and a run of 6 to 12 passes loses one in three or fewer.
const RESERVED: f64 = 0.2;

/// Further rounds of one experiment.
struct Plan {
    /// Index of the experiment.
    index: usize,
    /// Indices of the items of each round.
    items: BTreeSet<usize>,
    rounds: u32,
}

impl Session<'_> {
    /// Returns the time that is reserved for further rounds; zero if none will be measured.
    pub(super) fn reserved(&self) -> Duration {
        let request = self.request;
        match (request.lacking, request.time) {
            (Some(_), Some(time)) => time.mul_f64(RESERVED),
            _ => Duration::ZERO,
        }
    }

    /// Measures further rounds until no claim lacks any, or the time is used up.
    ///
    /// # Errors
    /// See [`Session::run`].
    pub(super) fn measure_further(&mut self, schedulers: &mut [Scheduler]) -> Result<(), RunError> {
        let Some(lacking) = self.request.lacking else { return Ok(()) };
        loop {
            let lacking = lacking(self.sink.journal().folder());
            let (plans, claims) = self.planned(schedulers, lacking);
            if !self.measure_planned(schedulers, &plans, claims)? {
                return Ok(());
            }
            self.sink.save_record()?;
        }
    }

    /// Plans the further rounds of as many claims as there is time for, those that take the least time first. Returns
    /// their number too.
    fn planned(&self, schedulers: &[Scheduler], lacking: Vec<LackingRounds>) -> (Vec<Plan>, usize) {
        let left = self.sink.time_left().unwrap_or_default();
        let time = |plan: &Plan| {
            let experiment = schedulers[plan.index].experiment();
            self.sink.time_of(experiment, plan.items.len()).saturating_mul(plan.rounds)
        };
        let plan = |one: LackingRounds| {
            let index = schedulers.iter().position(|it| it.id() == one.experiment)?;
            let items = schedulers[index].items_with(|point| one.points.contains(point));
            (!items.is_empty()).then_some(Plan { index, items, rounds: one.rounds })
        };
        let mut of_claims: Vec<_> = lacking.into_iter().filter_map(plan).collect();
        of_claims.sort_by_key(&time);
        let (mut plans, mut claims): (Vec<Plan>, usize) = (Vec::new(), 0);
        let mut used = Duration::ZERO;
        for one in of_claims {
            let joined = match plans.iter().position(|it| it.index == one.index) {
                Some(at) => {
                    let before = plans.swap_remove(at);
                    used = used.saturating_sub(time(&before));
                    let items = before.items.union(&one.items).copied().collect();
                    let rounds = before.rounds.max(one.rounds);
                    (Plan { items, rounds, ..one }, Some(before))
                }
                None => (one, None),
            };
            let fits = used.saturating_add(time(&joined.0)) <= left;
            let kept = if fits { Some(joined.0) } else { joined.1 };
            claims += usize::from(fits);
            used = used.saturating_add(kept.as_ref().map_or(Duration::ZERO, &time));
            plans.extend(kept);
        }
        (plans, claims)
    }

    /// Measures planned rounds, those of all experiments spread evenly. Returns whether it measured any.
    ///
    /// # Errors
    /// See [`Session::run`].
    fn measure_planned(
        &mut self,
        schedulers: &mut [Scheduler],
        plans: &[Plan],
        claims: usize,
    ) -> Result<bool, RunError> {
        let rounds = plans.iter().map(|plan| plan.rounds).collect();
        let passes = Passes::new(rounds, self.sink.seed());
        let mut has_measured = false;
        for plan in plans {
            let samples = plan.items.len() as u64 * u64::from(plan.rounds);
            self.sink.report_remaining(schedulers[plan.index].experiment(), samples, 0);
        }
        for (at, _) in (0..passes.count()).flat_map(|pass| passes.visits(pass)) {
            let Some(plan) = plans.get(at) else { continue };
            let scheduler = &mut schedulers[plan.index];
            let round = scheduler.next_round();
            let experiment = scheduler.experiment();
            let announced = Event::FurtherRound { experiment, round, claims };
            has_measured |= self.measure_round(scheduler, round, Some(&plan.items), announced)?;
        }
        Ok(has_measured)
    }
}
