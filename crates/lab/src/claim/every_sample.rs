//! Bounds that the value of every sample must be within, or that of some sample outside of.

use std::collections::{BTreeMap, BTreeSet};

use super::evidence::Evidence;
use super::reason::Reason;
use super::verdict::{Judgement, MeasuredValue, Statistic, Violations};
use super::{Bounds, VerdictKind};
use crate::metric::Better;
use crate::point::Point;
use crate::sample::Sample;
use crate::statistics::{INTERVAL_ROUNDS, rate_upper_limit};
use crate::summary::Limit;

impl Evidence<'_> {
    /// Judges all samples of all points together: one valid sample outside the bounds contradicts.
    /// Void samples are counted separately, because the host may have caused their values. The claim is
    /// about samples with near and with far cores alike, unless it names a class.
    pub(super) fn judge_every_sample(&self, bounds: &Bounds) -> Judgement {
        if self.observed.points.is_empty() {
            return Judgement::missing("", self.lack(|_| true));
        }
        let (valid, void, points) = self.outside(bounds);
        let limited = self.limited_outside(bounds);
        let unit = self.record.unit.clone();
        let mut kind = VerdictKind::Reproduced;
        let mut reasons = vec![Reason::ClaimedAlways { bounds: *bounds, unit }];
        let missing = self.missing(|_| true, |point| self.name(point, &Default::default()));
        let rounds = self.rounds_of_each(bounds);
        let failed = self.failed_samples().count();
        self.require_rounds(&mut kind, rounds, &mut reasons);
        if failed > 0 {
            kind = VerdictKind::Inconclusive;
            reasons.push(Reason::FailuresMayDecide { failed });
        }
        if let Some(lack) = missing.open {
            kind = lack.kind;
            reasons.push(lack.why);
        }
        if limited > 0 {
            kind = VerdictKind::Inconclusive;
            reasons.push(Reason::Limited { limit: Limit::Instrument, above: limited, below: 0 });
        }
        if valid.count > limited {
            kind = VerdictKind::Contradicted;
        }
        // Too few rounds for a rate: the claim is about these samples alone.
        let is_about_rate = self.claim.rounds_needed() >= INTERVAL_ROUNDS;
        let upper_limit = is_about_rate.then(|| self.highest_rate(bounds));
        let value = MeasuredValue {
            label: String::new(),
            value: Some(valid.count as f64 / valid.of.max(1) as f64),
            interval: None,
            unit: "share".into(),
            class: self.class,
            rounds,
            lost: failed,
            statistic: Some(Statistic::Violations { valid, void, upper_limit, points }),
            kind,
            reasons,
        };
        Judgement { left_out: missing.left_out, ..Judgement::of_all(vec![value]) }
    }

    /// Judges all samples of all points together: one valid sample outside the bounds reproduces,
    /// and no number of others contradicts.
    pub(super) fn judge_some_sample(&self, bounds: &Bounds) -> Judgement {
        if self.observed.points.is_empty() {
            return Judgement::missing("", self.lack(|_| true));
        }
        let (valid, _, points) = self.outside(bounds);
        let kind = match valid.count {
            0 => VerdictKind::Inconclusive,
            _ => VerdictKind::Reproduced,
        };
        let upper_limit = rate_upper_limit(valid.count, valid.of);
        let unit = self.record.unit.clone();
        Judgement::of_all(vec![MeasuredValue {
            label: points.into_iter().collect::<Vec<_>>().join("; "),
            value: Some(valid.count as f64 / valid.of.max(1) as f64),
            interval: None,
            unit: "share".into(),
            class: self.class,
            rounds: self.rounds_of_each(bounds),
            lost: 0,
            statistic: Some(Statistic::Occurrences { valid, upper_limit }),
            kind,
            reasons: vec![Reason::ClaimedSometimes { bounds: *bounds, unit }],
        }])
    }

    /// Returns the exact 95% upper limit of the share of rounds with a valid sample outside the bounds, of the point
    /// at which it is highest.
    fn highest_rate(&self, bounds: &Bounds) -> f64 {
        let limit = |rounds: &BTreeMap<_, bool>| {
            rate_upper_limit(
                rounds.values().filter(|is_outside| **is_outside).count(),
                rounds.len(),
            )
        };
        self.outside_by_round(bounds).values().map(limit).fold(0.0, f64::max)
    }

    /// Returns for each point its rounds with a valid sample, by session, and whether one is outside the bounds. The
    /// samples of a round, its twin and attempts, are not independent.
    fn outside_by_round(&self, bounds: &Bounds) -> BTreeMap<&Point, BTreeMap<(u32, u32), bool>> {
        let mut points: BTreeMap<_, BTreeMap<_, bool>> = BTreeMap::new();
        for (sample, value) in self.every_sample().filter(|(sample, _)| sample.void.is_none()) {
            let rounds = points.entry(&sample.point).or_default();
            *rounds.entry((sample.session, sample.round)).or_default() |= !bounds.includes(value);
        }
        points
    }

    /// Counts the samples outside the bounds: the valid and the void ones, and the points of the
    /// valid ones.
    fn outside(&self, bounds: &Bounds) -> (Violations, Violations, BTreeSet<String>) {
        let (mut valid, mut void) = (Violations::default(), Violations::default());
        let mut points = BTreeSet::new();
        for (sample, value) in self.every_sample() {
            let violations = if sample.void.is_some() { &mut void } else { &mut valid };
            violations.add(value, bounds);
            if sample.void.is_none() && !bounds.includes(value) {
                points.insert(self.name(&sample.point, &Default::default()));
            }
        }
        (valid, void, points)
    }

    /// Counts the valid samples outside the bounds of which the true value may be within, because the instrument limited
    /// them.
    fn limited_outside(&self, bounds: &Bounds) -> usize {
        let may_be_within = |value: f64| match self.record.better {
            Better::Higher => bounds.at_least.is_some_and(|bound| value < bound),
            Better::Lower => bounds.at_most.is_some_and(|bound| value > bound),
            Better::Neither => true,
        };
        let is_limited = |(sample, value): &(&Sample, f64)| {
            sample.void.is_none()
                && !bounds.includes(*value)
                && may_be_within(*value)
                && Limit::of(sample, self.metric) == Some(Limit::Instrument)
        };
        self.every_sample().filter(is_limited).count()
    }

    /// Returns the number of rounds with a valid sample that every point with values has.
    fn rounds_of_each(&self, bounds: &Bounds) -> usize {
        self.outside_by_round(bounds).values().map(BTreeMap::len).min().unwrap_or(0)
    }
}

impl Violations {
    /// Counts a sample.
    fn add(&mut self, value: f64, bounds: &Bounds) {
        self.of += 1;
        if bounds.includes(value) {
            return;
        }
        self.count += 1;
        let is_worse = self.worst.is_none_or(|worst| bounds.excess(value) > bounds.excess(worst));
        self.worst = if is_worse { Some(value) } else { self.worst };
    }
}
