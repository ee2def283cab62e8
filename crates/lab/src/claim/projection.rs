//! Which way an inconclusive value leans, how many rounds would decide it, and whether a verdict is precise.

use super::evidence::Evidence;
use super::reason::{Reason, Relation};
use super::verdict::{Judgement, MeasuredValue, Statistic, Verdict};
use super::{Bounds, Claim, VerdictKind};
use crate::metric::Better;
use crate::statistics::{Interval, MAX_PROJECTED_ROUNDS, widening_at_next_look};

/// A value on the scale on which its interval is symmetric: logarithmic for ratios.
struct Scaled {
    centre: f64,
    low: f64,
    high: f64,
    /// Factor by which the part of the half-width that narrows with rounds is wider after another session.
    widening: f64,
    /// Part of the half-width that does not narrow with rounds.
    drift: f64,
    /// Noise floor on the same scale; 0 without one.
    floor: f64,
    bounds: Bounds,
}

impl Evidence<'_> {
    /// Adds to each inconclusive value which way it leans and how many rounds would decide it.
    pub(super) fn project(&self, judgements: &mut [Judgement]) {
        let seconds_per_round = self.seconds_per_round();
        let values = judgements.iter_mut().flat_map(|judgement| &mut judgement.values);
        for value in values.filter(|value| value.kind == VerdictKind::Inconclusive) {
            let projection = self.projection(value, seconds_per_round);
            value.reasons.extend(projection);
        }
    }

    /// Returns which way a value leans; `None` without a value or bounds, or if further rounds would not remove another
    /// reason for its result.
    fn projection(&self, value: &MeasuredValue, seconds_per_round: Option<f64>) -> Option<Reason> {
        let (to, needed) = match (&value.statistic, value.interval) {
            // With a violation it would be contradicted.
            (Some(Statistic::Violations { valid, .. }), _) if valid.count == 0 => {
                (VerdictKind::Reproduced, lacking_rounds(value)?)
            }
            (_, None) => {
                let (bounds, _) = self.bounds(value)?;
                (bounds.leaning(value.value?), lacking_rounds(value)?)
            }
            (_, Some(interval)) => {
                let scaled = self.scaled(value, interval)?;
                let to = scaled.bounds.leaning(scaled.centre);
                if !scaled.can_show(to) {
                    return Some(Reason::NoRoundsDecide);
                }
                if value.reasons.iter().any(hides_number) {
                    return Some(Reason::LeansOnly { to });
                }
                let Some(needed) = scaled.rounds_needed(to, value.rounds) else {
                    return Some(Reason::Leans { to, rounds: None, seconds: None });
                };
                let required = lacking_rounds(value).unwrap_or_default();
                (to, needed.max(self.claim.rounds_needed()).max(required))
            }
        };
        let further = needed.saturating_sub(value.rounds).max(1);
        // As large a share of further rounds will be lost.
        let rounds = (further * (value.rounds + value.lost)).div_ceil(value.rounds.max(1));
        let seconds = seconds_per_round.map(|each| rounds as f64 * each);
        Some(Reason::Leans { to, rounds: Some(rounds), seconds })
    }

    /// Returns the scaled value; `None` without bounds, or if further rounds would not remove another reason for its
    /// result.
    fn scaled(&self, value: &MeasuredValue, interval: Interval) -> Option<Scaled> {
        let centre = value.value?;
        let (bounds, floor) = self.bounds(value)?;
        let is_ratio = value.unit == "1" && (interval.low > 0.0 || interval.low.is_infinite());
        let scale = |value: f64| match value {
            // The open end of an interval.
            f64::NEG_INFINITY => value,
            value if is_ratio => value.ln(),
            value => value,
        };
        Some(Scaled {
            centre: scale(centre),
            low: scale(interval.low),
            high: scale(interval.high),
            widening: value.widening(),
            drift: interval.drift * centre.abs(),
            floor: if is_ratio { floor.ln_1p() } else { floor * centre.abs() },
            bounds: Bounds {
                at_least: bounds.at_least.map(scale),
                at_most: bounds.at_most.map(scale),
            },
        })
    }

    /// Returns the bounds of a value and its noise floor, 0 without one.
    fn bounds(&self, value: &MeasuredValue) -> Option<(Bounds, f64)> {
        let (mut bounds, mut floor) = (None, 0.0);
        for reason in &value.reasons {
            match reason {
                Reason::Claimed { bounds: claimed, unit } if *unit == value.unit => {
                    bounds = Some(*claimed);
                }
                Reason::ClaimedImprovement { bounds: claimed } => {
                    bounds = Some(self.of_ratio(*claimed));
                }
                Reason::ClaimedValue { value, tolerance, .. } => {
                    bounds = Some(Bounds::around(*value, *tolerance));
                }
                Reason::Resolved { relation, floor: noise, .. } => {
                    let above_one = Bounds { at_least: Some(1.0), at_most: None };
                    bounds = Some(match relation {
                        Relation::Higher => above_one,
                        Relation::Lower => above_one.inverted(),
                        Relation::Better => self.of_ratio(above_one),
                    });
                    floor = noise.unwrap_or_default();
                }
                Reason::NearBound { floor: noise } => floor = *noise,
                Reason::TooFewRounds { .. }
                | Reason::RepeatedLooks { .. }
                | Reason::ManyLost { .. }
                | Reason::Limited { .. }
                | Reason::Correlated { .. }
                | Reason::NoFloor { rounds: Some(_), .. } => {}
                _ => return None,
            }
        }
        Some((bounds?, floor))
    }

    /// Returns the bounds of a ratio from those of the ratio taken so that above 1 is better.
    fn of_ratio(&self, improvement: Bounds) -> Bounds {
        match self.record.better {
            Better::Lower => improvement.inverted(),
            Better::Higher | Better::Neither => improvement,
        }
    }
}

/// Returns the number of rounds that a value requires, whatever its width; `None` if it has them.
fn lacking_rounds(value: &MeasuredValue) -> Option<usize> {
    let required = value.reasons.iter().filter_map(|reason| match reason {
        Reason::TooFewRounds { needed, .. } => Some(*needed),
        _ => None,
    });
    required.max()
}

/// Returns whether a reason makes the number of rounds that would decide a value unknown.
fn hides_number(reason: &Reason) -> bool {
    matches!(reason, Reason::Correlated { .. } | Reason::ManyLost { agrees: false, .. })
}

impl Scaled {
    /// Returns whether rounds can show a result: the ends of the interval that it needs are not open.
    fn can_show(&self, to: VerdictKind) -> bool {
        let Bounds { at_least, at_most } = self.bounds;
        let (has_low, has_high) = (self.low.is_finite(), self.high.is_finite());
        match to {
            VerdictKind::Contradicted => {
                at_least.is_some_and(|bound| self.centre < bound && has_high)
                    || at_most.is_some_and(|bound| self.centre > bound && has_low)
            }
            _ => (at_least.is_none() || has_low) && (at_most.is_none() || has_high),
        }
    }

    /// Projects the number of rounds at which the interval and the noise floor are clear of the bounds, if both narrow
    /// with the square root of the rounds; `None` above [`MAX_PROJECTED_ROUNDS`].
    fn rounds_needed(&self, to: VerdictKind, rounds: usize) -> Option<usize> {
        // How much wider than the distance to the bound the interval or the floor is.
        let excess = |bound: f64| {
            let distance = self.centre - bound;
            let width =
                if distance > 0.0 { self.centre - self.low } else { self.high - self.centre };
            if distance.abs() <= self.drift {
                return f64::INFINITY;
            }
            let without_drift = |width: f64| (width.powi(2) - self.drift.powi(2)).max(0.0).sqrt();
            (self.widening * without_drift(width)).max(self.floor) / without_drift(distance)
        };
        let Bounds { at_least, at_most } = self.bounds;
        let bounds = at_least.iter().map(|bound| (self.centre < *bound, *bound));
        let bounds = bounds.chain(at_most.iter().map(|bound| (self.centre > *bound, *bound)));
        let excess = match to {
            // One violated bound is enough.
            VerdictKind::Contradicted => bounds
                .filter(|(is_violated, _)| *is_violated)
                .map(|(_, bound)| excess(bound))
                .fold(f64::INFINITY, f64::min),
            _ => bounds.map(|(_, bound)| excess(bound)).fold(0.0, f64::max),
        };
        let needed = (rounds as f64 * excess.powi(2)).ceil();
        (needed <= MAX_PROJECTED_ROUNDS as f64).then_some(needed as usize)
    }
}

impl Bounds {
    /// Returns the bounds of a published value.
    pub(super) fn around(value: f64, tolerance: Option<f64>) -> Self {
        let difference = tolerance.unwrap_or_default() * value.abs();
        Self { at_least: Some(value - difference), at_most: Some(value + difference) }
    }

    /// Returns the result if a value were exact.
    fn leaning(&self, value: f64) -> VerdictKind {
        let is_inside = self.at_least.is_none_or(|bound| value >= bound)
            && self.at_most.is_none_or(|bound| value <= bound);
        if is_inside { VerdictKind::Reproduced } else { VerdictKind::Contradicted }
    }

    /// Returns the bounds of the inverse of a ratio.
    fn inverted(self) -> Self {
        let inverse = |bound: f64| 1.0 / bound;
        Self { at_least: self.at_most.map(inverse), at_most: self.at_least.map(inverse) }
    }
}

impl Verdict {
    /// Returns whether more rounds are pointless: each measured value has the rounds that the claim requires, and half
    /// of its interval is within `target`, or within half of the published tolerance if that is wider, as a share of
    /// the value; of a spread, within half of its bound. Without a value, more rounds are pointless if none can be
    /// measured here. Depends on widths only, never on the result.
    pub fn is_precise(&self, claim: &Claim, target: f64) -> bool {
        let tolerance = claim.published.as_ref().and_then(|published| published.tolerance);
        let target = target.max(tolerance.unwrap_or_default() / 2.0);
        let mut measured = self.values().filter(|value| value.value.is_some()).peekable();
        if measured.peek().is_none() {
            return self.values().all(MeasuredValue::is_unobtainable);
        }
        measured.all(|value| {
            let is_narrow = value.interval.zip(value.value).is_none_or(|(interval, centre)| {
                let (centre, target) = match value.spread_bound() {
                    Some(bound) => (bound, 0.5),
                    None => (centre, target),
                };
                interval.low == interval.high || interval.half_width_of_rounds(centre) <= target
            });
            value.rounds >= claim.rounds_needed() && is_narrow
        })
    }
}

impl MeasuredValue {
    /// Returns the factor by which its interval is wider after another session with the same rounds.
    fn widening(&self) -> f64 {
        let looks = self.reasons.iter().find_map(|reason| match reason {
            Reason::RepeatedLooks { looks, .. } => Some(*looks),
            _ => None,
        });
        let is_first = self.reasons.iter().any(|one| matches!(one, Reason::TooFewRounds { .. }));
        match self.statistic {
            _ if is_first => 1.0,
            Some(Statistic::Ratio { .. } | Statistic::BetweenBoots) => 1.0,
            _ => widening_at_next_look(looks.unwrap_or(1)),
        }
    }

    /// Returns the claimed upper bound of a spread; `None` for other values.
    fn spread_bound(&self) -> Option<f64> {
        self.statistic.as_ref().filter(|it| matches!(it, Statistic::Spread { .. }))?;
        self.reasons.iter().find_map(|reason| match reason {
            Reason::Claimed { bounds, .. } => bounds.at_most,
            _ => None,
        })
    }

    /// Returns whether further rounds cannot give a value. The cores of the next rounds may be as near as required.
    fn is_unobtainable(&self) -> bool {
        let is_other_class = |reason: &Reason| matches!(reason, Reason::OtherClass { .. });
        matches!(self.kind, VerdictKind::Unmeasurable | VerdictKind::Incomparable)
            && !self.reasons.iter().any(is_other_class)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scaled(low: f64, high: f64, at_least: Option<f64>, at_most: Option<f64>) -> Scaled {
        let bounds = Bounds { at_least, at_most };
        let centre = f64::midpoint(low, high);
        Scaled { centre, low, high, widening: 1.0, drift: 0.0, floor: 0.0, bounds }
    }

    #[test]
    fn an_open_end_decides_nothing() {
        let (reproduced, contradicted) = (VerdictKind::Reproduced, VerdictKind::Contradicted);
        let above = Scaled { high: f64::INFINITY, ..scaled(90.0, 110.0, Some(95.0), None) };
        assert!(above.can_show(reproduced), "the lower end may rise above the bound");
        assert_eq!(above.rounds_needed(reproduced, 10), Some(40));
        let below = Scaled { high: f64::INFINITY, ..scaled(90.0, 110.0, Some(105.0), None) };
        assert!(!below.can_show(contradicted), "the true value may be above the bound");
        let unknown = Scaled { low: f64::NEG_INFINITY, ..above };
        assert!(!unknown.can_show(reproduced) && !unknown.can_show(contradicted));
        let at_most = Scaled { high: f64::INFINITY, ..scaled(90.0, 110.0, None, Some(98.0)) };
        assert!(at_most.can_show(contradicted) && !at_most.can_show(reproduced));
    }

    #[test]
    fn rounds_grow_with_the_square_of_the_missing_width() {
        let inside = scaled(90.0, 110.0, Some(95.0), None);
        assert_eq!(inside.bounds.leaning(inside.centre), VerdictKind::Reproduced);
        assert_eq!(inside.rounds_needed(VerdictKind::Reproduced, 10), Some(40));
        let outside = scaled(90.0, 110.0, None, Some(98.0));
        assert_eq!(outside.bounds.leaning(outside.centre), VerdictKind::Contradicted);
        assert_eq!(outside.rounds_needed(VerdictKind::Contradicted, 10), Some(250));
        let both = scaled(90.0, 110.0, Some(95.0), Some(102.0));
        assert_eq!(both.rounds_needed(VerdictKind::Reproduced, 10), Some(250));
        let at_the_bound = scaled(90.0, 110.0, Some(100.0), None);
        assert_eq!(at_the_bound.rounds_needed(VerdictKind::Reproduced, 10), None);
        // Only the part of the width that is not drift narrows.
        let drifting = Scaled { drift: 4.0, ..scaled(90.0, 110.0, Some(95.0), None) };
        assert_eq!(drifting.rounds_needed(VerdictKind::Reproduced, 10), Some(94));
        let within_the_drift = Scaled { drift: 5.0, ..drifting };
        assert_eq!(within_the_drift.rounds_needed(VerdictKind::Reproduced, 10), None);
        let within_the_floor = Scaled { floor: 20.0, ..inside };
        assert_eq!(within_the_floor.rounds_needed(VerdictKind::Reproduced, 10), Some(160));
    }
}
