//! How much of a claim a run measures, and whether what it lacks may change the result.

use std::collections::BTreeSet;

use super::VerdictKind;
use super::evidence::Evidence;
use super::reason::{NoVerdict, Reason};
use crate::point::{Filter, Level, Point};
use crate::statistics::LostRounds;
use crate::summary::Rounds;

/// Share of lost rounds above which a verdict states them and must not depend on them.
const MAX_LOST: f64 = 0.2;

/// What the rounds give with those lost ones that have values.
pub(super) struct WithLost {
    /// The value and its unit; `None` for a result without a value, or if no lost round has values.
    pub(super) value: Option<(f64, String)>,
    /// The result.
    pub(super) kind: VerdictKind,
}

impl VerdictKind {
    /// States that many rounds are lost, because the loss may depend on the values; weakens a result that would be
    /// another with those lost rounds that have values. `rounds` is the number of rounds, lost or not.
    pub(super) fn weigh_lost(
        &mut self,
        lost: usize,
        rounds: usize,
        with_lost: impl FnOnce() -> Option<WithLost>,
        reasons: &mut Vec<Reason>,
    ) {
        if lost as f64 <= MAX_LOST * rounds as f64 {
            return;
        }
        let Some(WithLost { value, kind }) = with_lost() else { return };
        let agrees = *self == Self::Inconclusive || kind == *self;
        if !agrees {
            *self = Self::Inconclusive;
        }
        let (value, unit) = value.unzip();
        reasons.push(Reason::ManyLost { lost, rounds, value, unit, agrees });
    }
}

impl Evidence<'_> {
    /// Returns whether a round of every point was requested: points that are narrow enough are not measured again.
    pub(super) fn is_requested(&self, points: &[&Point], round: u32) -> bool {
        points.iter().all(|point| self.samples.sample(point, round).is_some())
    }

    /// Returns lost rounds of two points without those in which only one of them was requested.
    pub(super) fn without_unrequested(
        &self,
        lost: LostRounds,
        above: (&Point, &Rounds),
        below: (&Point, &Rounds),
    ) -> LostRounds {
        let unrequested = |present: &Rounds, (point, absent): (&Point, &Rounds)| {
            let absent = present.keys().filter(|round| !absent.contains_key(round));
            absent.filter(|round| !self.is_requested(&[point], **round)).count()
        };
        let unrequested = unrequested(above.1, below) + unrequested(below.1, above);
        LostRounds { missing: lost.missing - unrequested, ..lost }
    }

    /// Returns a reason if the filter of a side lists a level that the claim's points may have and none of
    /// the known points has: the run's profile does not contain it.
    pub(super) fn lacks_listed_level(&self, filter: &Filter) -> Option<NoVerdict> {
        let is_claimed = |factor: &str, level: &Level| {
            self.claim.filter.0.get(factor).is_none_or(|levels| levels.levels().contains(level))
        };
        let mut unknown = self.unknown_levels(filter).filter(|(f, level)| is_claimed(f, level));
        let (factor, level) = unknown.next()?;
        let why = Box::new(self.claim.not_measured().why);
        Some(Reason::At { label: format!("{factor}={level}"), why }.into())
    }

    /// Returns the levels that a filter lists and no known point has.
    fn unknown_levels<'f>(
        &'f self,
        filter: &'f Filter,
    ) -> impl Iterator<Item = (&'f str, &'f Level)> {
        let listed = filter.0.iter().flat_map(|(factor, levels)| {
            levels.levels().iter().map(move |level| (factor.as_str(), level))
        });
        listed.filter(|(factor, level)| {
            !self.known.iter().any(|point| point.get(factor) == Some(level))
        })
    }

    /// Returns the numbers that the claim lists, e.g. of lengths, and the run's profile does not contain. Listed names
    /// may be alternatives, e.g. kinds of enclave, of which the experiment need not have all.
    pub(super) fn lacking_levels(&self) -> Vec<(&str, &Level)> {
        let unknown = self.unknown_levels(&self.claim.filter);
        unknown.filter(|(_, level)| level.number().is_some()).collect()
    }

    /// Returns how much of the claim has samples: levels of a factor if one of its levels has none, else points.
    pub(super) fn measured_share(&self) -> Reason {
        let lacking = self.lacking_levels();
        let has_sample = |point: &&Point| self.samples.rounds(point, false).next().is_some();
        let sampled: Vec<_> = self.known.iter().filter(has_sample).collect();
        let factors = lacking.iter().map(|(factor, _)| *factor);
        let partial = factors.chain(self.varying.iter().map(String::as_str)).find_map(|factor| {
            let measured: BTreeSet<_> = sampled.iter().map(|point| point.get(factor)).collect();
            let mut all: BTreeSet<_> = self.known.iter().map(|point| point.get(factor)).collect();
            all.extend(lacking.iter().filter(|(f, _)| *f == factor).map(|(_, level)| Some(*level)));
            let (measured, of) = (measured.len(), all.len());
            (measured < of).then(|| (format!("levels of {factor}"), measured, of))
        });
        let points = || ("points".into(), sampled.len(), self.known.len());
        let (what, measured, of) = partial.unwrap_or_else(points);
        Reason::NotAllMeasured { what, measured, of, command: self.claim.command() }
    }
}
