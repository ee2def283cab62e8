//! Which points of an experiment are measured in which round, and when a point has been measured enough.

use std::collections::BTreeSet;

use crate::experiment::{Effort, Experiment, MAX_ROUNDS};
use crate::journal::Settled;
use crate::link::Origin;
use crate::plan::{self, RoundOrder};
use crate::point::Point;
use crate::sample::Item;
use crate::side;
use crate::statistics::{self, INTERVAL_ROUNDS};

use super::RunError;
use super::sink::JournalSink;

/// Number of rounds after which an item is given up if all of them are void.
const MAX_VOID_ROUNDS: u32 = 10;

/// How many rounds an experiment has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// The experiment's own number; points stop before if they are narrow.
    Rounds,
    /// Any number, until all its points are narrow.
    UntilNarrow,
    /// Any number.
    Unlimited,
}

/// Which points stop before the last round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    /// Each that is narrow.
    Each,
    /// All, when all are narrow: ratios need values of the same rounds.
    Together,
    /// None.
    Never,
}

/// The schedule of one experiment.
pub(super) struct Scheduler<'a> {
    experiment: &'a Experiment,
    id: String,
    /// The host and environment of the samples of each side.
    origins: Vec<Origin>,
    /// The maximum number of rounds.
    max_rounds: u32,
    stop: Stop,
    items: Vec<ScheduledItem>,
    order: RoundOrder,
    /// The round after the last one that this session visited.
    next_round: u32,
    is_complete: bool,
    is_stopped: bool,
}

struct ScheduledItem {
    item: Item,
    /// The values of the experiment's metric, one per valid round.
    values: Vec<f64>,
    void_rounds: u32,
    /// Rounds with a final sample.
    settled_rounds: u32,
    /// Whether its interval was narrow at the last check.
    is_narrow: bool,
    /// The number of rounds that it is expected to take.
    rounds: u32,
    is_complete: bool,
}

impl<'a> Scheduler<'a> {
    /// Creates the schedule of an experiment.
    pub(super) fn new(experiment: &'a Experiment, origins: Vec<Origin>, extent: Extent) -> Self {
        let max_rounds = match extent {
            Extent::Rounds => experiment.effort.rounds,
            Extent::UntilNarrow | Extent::Unlimited => MAX_ROUNDS,
        };
        let scheduled = |item| ScheduledItem {
            item,
            values: Vec::new(),
            void_rounds: 0,
            settled_rounds: 0,
            is_narrow: false,
            rounds: max_rounds,
            is_complete: false,
        };
        let items = plan::items(experiment).into_iter().map(scheduled).collect();
        let id = experiment.id();
        let stop = match extent {
            Extent::Unlimited => Stop::Never,
            _ if side::is_crossed(experiment) => Stop::Never,
            Extent::UntilNarrow => Stop::Together,
            Extent::Rounds => Stop::Each,
        };
        let order = RoundOrder::new(experiment);
        Self {
            experiment,
            id,
            origins,
            max_rounds,
            stop,
            items,
            order,
            next_round: 0,
            is_complete: false,
            is_stopped: false,
        }
    }

    /// Returns the ID of the experiment.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn experiment(&self) -> &'a Experiment {
        self.experiment
    }

    /// Returns whether no further round is to be measured.
    pub(super) fn is_complete(&self) -> bool {
        self.is_complete || self.is_stopped
    }

    /// Stops the experiment, because there is no time for another round.
    pub(super) fn stop(&mut self) {
        self.is_stopped = true;
    }

    /// Continues the experiment unless it is complete, because there is time again.
    pub(super) fn resume(&mut self) {
        self.is_stopped = false;
    }

    /// Returns the round after the last one that this session visited.
    pub(super) fn next_round(&self) -> u32 {
        self.next_round
    }

    /// Returns the items to measure again for some points: those that are measured next to theirs too, so that the order
    /// is that of a whole round. Empty if this machine cannot measure one of the points, or if no round is left.
    pub(super) fn items_with(&self, is_wanted: impl Fn(&Point) -> bool) -> BTreeSet<usize> {
        let is_open = |item: &ScheduledItem| !item.is_complete && is_wanted(&item.item.point);
        match self.next_round < self.max_rounds {
            true => self.order.with_couples(|index| is_open(&self.items[index])),
            false => BTreeSet::new(),
        }
    }

    /// Returns the items that this session still has to measure in a round, each with its position in the round's
    /// order. A round is complete if one session measured every item of it, because only values of one session are
    /// paired; otherwise this session measures all of it. Points that the earlier session found unavailable are tried
    /// again; if one is available now, the round is not complete. `only` are the items of a further round; `None` for all.
    pub(super) fn pending(
        &self,
        round: u32,
        only: Option<&BTreeSet<usize>>,
        sink: &JournalSink,
    ) -> Vec<(u32, Item)> {
        let current = sink.session();
        let wanted = |index: usize| {
            let item = &self.items[index];
            only.is_none_or(|only| only.contains(&index))
                && !item.is_complete
                && !self.is_unavailable(&item.item, current, sink)
        };
        let is_measured = |item: &Item, session| match self.settled(item, round, session, sink) {
            Some(Settled::Failed) => session == current,
            Some(_) => true,
            None => {
                self.is_unavailable(item, session, sink)
                    && self.settled(item, round, current, sink).is_none()
            }
        };
        let items = || (0..self.items.len()).filter(|index| wanted(*index));
        let is_complete =
            |session: &u32| items().all(|index| is_measured(&self.items[index].item, *session));
        let session = (1..=current).rev().find(is_complete).unwrap_or(current);
        let is_pending = |index: &usize| {
            let item = &self.items[*index].item;
            wanted(*index) && self.settled(item, round, session, sink).is_none()
        };
        let order = self.order.of_round(round, sink.seed());
        let order = order.into_iter().enumerate().filter(|(_, index)| is_pending(index));
        order.map(|(position, index)| (position as u32, self.items[index].item.clone())).collect()
    }

    /// Returns the final sample of an item in a round of a session.
    fn settled(
        &self,
        item: &Item,
        round: u32,
        session: u32,
        sink: &JournalSink,
    ) -> Option<Settled> {
        let environment = &self.origins[side::index(&item.point)].environment;
        let settled = sink.journal().settled(&self.id, item, round, environment);
        settled.iter().find(|(by, _)| *by == session).map(|(_, settled)| *settled)
    }

    fn is_unavailable(&self, item: &Item, session: u32, sink: &JournalSink) -> bool {
        let environment = &self.origins[side::index(&item.point)].environment;
        sink.journal().is_unavailable(&self.id, &item.point, session, environment)
    }

    /// Updates all items after a round, with what the journal has of it, and reports the remaining work. `required`
    /// rounds are measured even if no time is left.
    ///
    /// # Errors
    /// Returns an error if the journal cannot be written.
    pub(super) fn finish_round(
        &mut self,
        round: u32,
        required: u32,
        sink: &mut JournalSink,
    ) -> Result<(), RunError> {
        let (effort, finished) = (&self.experiment.effort, round + 1);
        self.next_round = finished;
        for scheduled in self.items.iter_mut().filter(|scheduled| !scheduled.is_complete) {
            let point = &scheduled.item.point;
            let origin = &self.origins[side::index(point)];
            let environment = &origin.environment;
            let settled = sink.journal().settled(&self.id, &scheduled.item, round, environment);
            scheduled.settled_rounds += u32::from(!settled.is_empty());
            match settled.last() {
                Some((_, Settled::Value(value))) => scheduled.values.push(*value),
                Some((_, Settled::Void)) => scheduled.void_rounds += 1,
                Some((_, Settled::NoValue | Settled::Failed)) | None => {}
            }
            // Further rounds have some of the items only.
            let rounds = scheduled.settled_rounds;
            let is_hopeless = finished == self.max_rounds || rounds >= MAX_VOID_ROUNDS;
            if rounds > 0 && scheduled.void_rounds == rounds && is_hopeless {
                sink.give_up(self.experiment, &scheduled.item, round, origin)?;
                scheduled.is_complete = true;
                continue;
            }
            if is_checked(scheduled.values.len(), effort) {
                scheduled.is_narrow = is_narrow(&scheduled.values, effort);
            }
            scheduled.is_complete =
                sink.journal().is_unavailable(&self.id, point, sink.session(), environment)
                    || (self.stop == Stop::Each && scheduled.is_narrow);
            if self.stop != Stop::Never {
                scheduled.update_rounds(effort, self.max_rounds);
            }
        }
        let pending = || self.items.iter().filter(|scheduled| !scheduled.is_complete);
        let are_narrow = self.stop == Stop::Together && pending().all(|one| one.is_narrow);
        self.is_complete = finished >= self.max_rounds || are_narrow || pending().next().is_none();
        let samples = if self.is_complete { 0 } else { self.samples_left(finished) };
        let required = required.saturating_sub(finished);
        let required = pending().count() as u64 * u64::from(required);
        sink.report_remaining(self.experiment, samples, required);
        if finished == effort.min_rounds {
            self.report_projection(finished as usize, sink);
        }
        Ok(())
    }

    /// Returns how many samples are expected after some rounds.
    fn samples_left(&self, finished: u32) -> u64 {
        let pending = self.items.iter().filter(|scheduled| !scheduled.is_complete);
        let left = pending.map(|one| u64::from(one.rounds.saturating_sub(finished)));
        match self.stop {
            Stop::Together => left.clone().max().unwrap_or(0) * left.count() as u64,
            Stop::Each | Stop::Never => left.sum(),
        }
    }

    /// Reports how many rounds the target interval will take.
    fn report_projection(&self, finished: usize, sink: &mut JournalSink) {
        let effort = &self.experiment.effort;
        let pending = self.items.iter().filter(|scheduled| !scheduled.is_complete);
        let needed: Vec<_> =
            pending.filter_map(|scheduled| projected_rounds(&scheduled.values, effort)).collect();
        let Some(&max) = needed.iter().max() else {
            return;
        };
        let limit = self.max_rounds as usize;
        let samples = needed.iter().map(|rounds| rounds.min(&limit).saturating_sub(finished));
        sink.report_projection(self.experiment, max, limit, samples.sum());
    }
}

impl ScheduledItem {
    /// Projects the number of rounds, when there are enough for an interval and at each check of its width.
    fn update_rounds(&mut self, effort: &Effort, max_rounds: u32) {
        let values = self.values.len();
        if values == INTERVAL_ROUNDS || is_checked(values, effort) {
            let next_check = if is_checked(values, effort) { 2 * values } else { 0 };
            let projected = projected_rounds(&self.values, effort).unwrap_or(usize::MAX);
            let projected = projected.max(next_check);
            self.rounds = u32::try_from(projected).unwrap_or(u32::MAX).min(max_rounds);
        }
    }
}

/// Returns whether the 95% interval of the median is as narrow as the target. Ignores significance, and is checked after
/// a few fixed numbers of rounds only: checked after each round, an interval becomes narrow by chance sooner or later,
/// and then its coverage is below 95%.
pub fn is_narrow(values: &[f64], effort: &Effort) -> bool {
    is_checked(values.len(), effort) && statistics::stopping_half_width(values) <= effort.resolve
}

/// Returns the number of rounds before the first check: enough for a 95% interval.
fn first_check(effort: &Effort) -> usize {
    (effort.min_rounds as usize).max(INTERVAL_ROUNDS)
}

/// Returns whether the width is checked after `rounds` rounds: 1, 2, 4, ... times the first check.
fn is_checked(rounds: usize, effort: &Effort) -> bool {
    let first = first_check(effort);
    rounds.is_multiple_of(first) && (rounds / first).is_power_of_two()
}

/// Projects from the values how many rounds the target interval takes, rounded up to the next check; `None` if they do
/// not determine an estimate.
fn projected_rounds(values: &[f64], effort: &Effort) -> Option<usize> {
    let estimate = statistics::estimate(values).ok()?;
    let needed = statistics::rounds_needed(&estimate, effort.resolve)?;
    let first = first_check(effort);
    Some(first * needed.div_ceil(first).next_power_of_two())
}
