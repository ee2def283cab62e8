//! Ratios inside rounds: against bounds, and between the neighbours of a ranking.

use super::evidence::{Evidence, Missing};
use super::verdict::{Judgement, LeftOut, MeasuredValue, NoVerdict, join};
use super::words;
use super::{Bounds, VerdictKind};
use crate::metric::Better;
use crate::point::{Filter, Point};
use crate::statistics::{
    Interval, NoiseFloor, Ratio, Resolution, choose_and_judge, paired_ratio, resolve,
};
use crate::summary::{Rounds, pairs};

/// Points with values.
pub(super) type Points<'a> = [(&'a Point, &'a Rounds)];

/// The ratio of two sides.
pub(super) struct Paired<'a> {
    pub(super) above: &'a Point,
    pub(super) below: &'a Point,
    pub(super) ratio: Ratio,
    chosen: bool,
}

impl Evidence<'_> {
    /// A ratio against bounds, for one combination of levels.
    pub(super) fn judge_ratio(
        &self,
        of: &Filter,
        to: &Filter,
        bounds: &Bounds,
        limit: Option<&Filter>,
        combination: &Point,
    ) -> Judgement {
        let (paired, missing) = match self.paired_sides(of, to, combination) {
            Ok(sides) => sides,
            Err(lack) => {
                return Judgement::of_all(vec![MeasuredValue::nothing(
                    combination.to_string(),
                    lack,
                )]);
            }
        };
        let (kind, unresolved) = within_bounds(&paired.ratio, bounds, self.floor(&paired));
        let why = format!("{}, claimed {}{unresolved}", paired.told(), bounds.told("1"));
        let part = self.ratio_part(&paired, combination, kind, why);
        // Whether it also holds of a better `of`.
        let holds_of_better = match self.record.better {
            Better::Higher => bounds.at_most.is_none(),
            Better::Lower => bounds.at_least.is_none(),
            Better::Neither => false,
        };
        let part = missing.weaken(part, holds_of_better);
        let part = match limit {
            Some(limit) if part.kind != VerdictKind::Reproduced => {
                self.limited(part, limit, to, bounds, combination)
            }
            _ => part,
        };
        Judgement { left_out: missing.left_out, ..Judgement::of_all(vec![part]) }
    }

    /// A part that does not hold, where the machine's own limit does not allow it to.
    fn limited(
        &self,
        part: MeasuredValue,
        limit: &Filter,
        to: &Filter,
        bounds: &Bounds,
        combination: &Point,
    ) -> MeasuredValue {
        let Ok((highest, missing)) = self.paired_sides(limit, to, combination) else { return part };
        let least = Bounds { at_most: None, ..*bounds };
        let (kind, why) = within_bounds(&highest.ratio, &least, self.floor(&highest));
        let points = [highest.above, highest.below];
        let (kind, _) = self.comparable(kind, highest.ratio.rounds, &points, why);
        if kind != VerdictKind::Contradicted || missing.open.is_some() {
            return part;
        }
        let why = format!("{}; this machine's own limit is {}", part.why, highest.told());
        MeasuredValue { kind: VerdictKind::Unmeasurable, why, ..part }
    }

    /// Whether each filter's best is resolved better than the next one's.
    pub(super) fn judge_ranking(&self, ranking: &[Filter], combination: &Point) -> Judgement {
        let mut left_out = LeftOut::new();
        let neighbours = ranking.windows(2).map(|pair| {
            let sides = self.paired_sides(&pair[0], &pair[1], combination);
            let part = sides.and_then(|(paired, missing)| {
                let better = self.improvement(&paired.ratio)?;
                let (kind, word) = resolved_higher(&better, self.floor(&paired), "better");
                let why = format!("{}, {word}", paired.told());
                let part = missing.weaken(self.ratio_part(&paired, combination, kind, why), true);
                join(&mut left_out, missing.left_out);
                Ok(part)
            });
            part.unwrap_or_else(|lack| MeasuredValue::nothing(combination.to_string(), lack))
        });
        let outcome = Judgement::of_all(neighbours.collect());
        Judgement { left_out, ..outcome }
    }

    /// What the machine makes of no difference, near the two points of a ratio.
    pub(super) fn floor(&self, paired: &Paired) -> Option<&NoiseFloor> {
        self.floors.near(&[paired.above, paired.below])
    }

    /// The ratio of two sides, and what is missing of `of`; what this machine lacks of either is left
    /// out. Nothing is compared with a `to` that is not whole: its best may be what is missing.
    fn paired_sides(
        &self,
        of: &Filter,
        to: &Filter,
        combination: &Point,
    ) -> Result<(Paired<'_>, Missing), NoVerdict> {
        let (above, below) = (self.side(of, combination)?, self.side(to, combination)?);
        if let Some(lack) = below.missing.open {
            return Err(lack);
        }
        let mut missing = above.missing;
        join(&mut missing.left_out, below.missing.left_out);
        Ok((self.paired(&above.points, &below.points)?, missing))
    }

    /// The ratio of two sides. Where one has several points, the best of each is chosen on one half
    /// of the rounds, the same for both, and the ratio is taken on the other half.
    pub(super) fn paired<'s>(
        &self,
        above: &Points<'s>,
        below: &Points<'s>,
    ) -> Result<Paired<'s>, NoVerdict> {
        if let ([(above, own)], [(below, other)]) = (above, below) {
            return Ok(Paired { above, below, ratio: ratio(own, other)?, chosen: false });
        }
        let (above, own) = self.best(above)?;
        let (below, other) = self.best(below)?;
        Ok(Paired { above, below, ratio: ratio(&own, &other)?, chosen: true })
    }

    /// The best of some points, and its values in the judging half of the rounds.
    pub(super) fn best<'s>(&self, side: &Points<'s>) -> Result<(&'s Point, Rounds), NoVerdict> {
        let by_round = |rounds: &Rounds| -> Vec<Option<f64>> {
            self.rounds.iter().map(|round| rounds.get(round).map(|o| o.value)).collect()
        };
        let candidates: Vec<_> = side.iter().map(|(_, rounds)| by_round(rounds)).collect();
        let choose = |candidates: &[_]| {
            choose_and_judge(candidates, self.record.better, self.seed)
                .map_err(|error| NoVerdict::inconclusive(format!("no best can be chosen: {error}")))
        };
        // One with too few rounds to take part in the choice is not left out unsaid.
        for candidate in &candidates {
            choose(std::slice::from_ref(candidate))?;
        }
        let choice = choose(&candidates)?;
        let (point, rounds) = side[choice.index];
        let judged = choice.judged_rounds.iter().filter_map(|index| {
            let round = self.rounds[*index];
            Some((round, rounds.get(&round)?.clone()))
        });
        Ok((point, judged.collect()))
    }

    /// The ratio as "how many times better", by the metric's direction.
    pub(super) fn improvement(&self, ratio: &Ratio) -> Result<Ratio, NoVerdict> {
        match self.record.better {
            Better::Higher => Ok(*ratio),
            Better::Lower => Ok(inverted(ratio)),
            Better::Neither => {
                Err(NoVerdict::inconclusive("the metric has no better direction, so nothing ranks"))
            }
        }
    }

    pub(super) fn ratio_part(
        &self,
        paired: &Paired,
        combination: &Point,
        kind: VerdictKind,
        why: String,
    ) -> MeasuredValue {
        let points = [paired.above, paired.below];
        let (kind, why) = self.comparable(kind, paired.ratio.rounds, &points, why);
        let several = self.claim.expect.as_ref().is_some_and(|e| !e.each.is_empty());
        let names = paired.names();
        MeasuredValue {
            label: if several { format!("{combination}: {names}") } else { names },
            value: Some(paired.ratio.ratio),
            interval: (paired.ratio.rounds > 1).then_some(paired.ratio.interval),
            unit: "1".into(),
            rounds: paired.ratio.rounds,
            lost: paired.ratio.lost,
            kind,
            why,
        }
    }
}

impl Missing {
    /// A part about a side of which something is missing, which may be better than the rest: it can
    /// hold if it holds of a better one too, and is never contradicted.
    fn weaken(&self, part: MeasuredValue, holds_of_better: bool) -> MeasuredValue {
        let Some(lack) = &self.open else { return part };
        let holds = part.kind == VerdictKind::Reproduced && holds_of_better;
        let kind = if holds { part.kind } else { lack.kind };
        MeasuredValue { kind, why: format!("{}; {}", part.why, lack.why), ..part }
    }
}

impl Paired<'_> {
    /// The two points by the factors in which they differ.
    fn names(&self) -> String {
        let differing = |own: &Point, other: &Point| {
            let levels = own.0.iter().filter(|(factor, level)| other.get(factor) != Some(level));
            levels.map(|(factor, level)| (factor.clone(), level.clone())).collect::<Point>()
        };
        let above = differing(self.above, self.below);
        format!("{above} over {}", differing(self.below, self.above))
    }

    /// `1.02 (1.01 to 1.03) over 20 rounds`
    pub(super) fn told(&self) -> String {
        let Ratio { ratio, interval, rounds, lost } = &self.ratio;
        let figure = words::with_interval(*ratio, interval, "1");
        let chosen = if self.chosen { "the best chosen on the other rounds, " } else { "" };
        let lost = if *lost > 0 { format!(" ({lost} lost)") } else { String::new() };
        format!("{figure}, {chosen}{rounds} rounds{lost}")
    }
}

impl Bounds {
    /// `at least 0.97`
    pub(super) fn told(&self, unit: &str) -> String {
        let bound = |word: &str, bound: Option<f64>| {
            bound.map(|bound| format!("{word} {}", words::value(bound, unit)))
        };
        let both = [bound("at least", self.at_least), bound("at most", self.at_most)];
        both.into_iter().flatten().collect::<Vec<_>>().join(" and ")
    }

    /// Whether an interval lies on the right side of the bounds.
    pub(super) fn judge(&self, interval: &Interval) -> VerdictKind {
        let Interval { low, high, .. } = *interval;
        let least = self.at_least.map(|bound| side(low >= bound, high < bound));
        let most = self.at_most.map(|bound| side(high <= bound, low > bound));
        both(least, most)
    }
}

/// Whether a ratio lies on the right side of bounds with its whole interval, and further from each
/// than the noise floor; the words say so where only the floor leaves it open.
pub(super) fn within_bounds(
    ratio: &Ratio,
    bounds: &Bounds,
    floor: Option<&NoiseFloor>,
) -> (VerdictKind, String) {
    let by_interval = bounds.judge(&ratio.interval);
    let Some(NoiseFloor { floor, .. }) = floor else { return (by_interval, String::new()) };
    let clear = |bound: f64| (ratio.ratio / bound).ln().abs() >= *floor;
    let Interval { low, high, .. } = ratio.interval;
    let least = bounds.at_least.map(|b| side(low >= b && clear(b), high < b && clear(b)));
    let most = bounds.at_most.map(|b| side(high <= b && clear(b), low > b && clear(b)));
    let kind = both(least, most);
    if kind == by_interval {
        return (kind, String::new());
    }
    let share = words::percent(*floor);
    (kind, format!(", unresolved: as near to the bound as the noise floor of {share}"))
}

fn side(holds: bool, fails: bool) -> VerdictKind {
    match (holds, fails) {
        (true, _) => VerdictKind::Reproduced,
        (_, true) => VerdictKind::Contradicted,
        _ => VerdictKind::Inconclusive,
    }
}

fn both(least: Option<VerdictKind>, most: Option<VerdictKind>) -> VerdictKind {
    let judged = [least, most].into_iter().flatten();
    judged.reduce(VerdictKind::and).unwrap_or(VerdictKind::Inconclusive)
}

/// Whether a ratio is resolved above 1; the word says so, or why not.
pub(super) fn resolved_higher(
    ratio: &Ratio,
    floor: Option<&NoiseFloor>,
    higher: &str,
) -> (VerdictKind, String) {
    match resolve(ratio, floor) {
        Resolution::Higher => (VerdictKind::Reproduced, format!("resolved {higher}")),
        Resolution::Lower => (VerdictKind::Contradicted, format!("resolved not {higher}")),
        Resolution::Unresolved { why } => {
            let floor = floor.map(|noise| format!(" of {}", words::percent(noise.floor)));
            let floor = floor.filter(|_| why == crate::statistics::Unresolved::BelowFloor);
            let words = format!("unresolved: {why}{}", floor.unwrap_or_default());
            (VerdictKind::Inconclusive, words)
        }
    }
}

/// The ratio turned over.
pub(super) fn inverted(ratio: &Ratio) -> Ratio {
    let Interval { low, high, .. } = ratio.interval;
    Ratio {
        ratio: 1.0 / ratio.ratio,
        interval: Interval { low: 1.0 / high, high: 1.0 / low, ..ratio.interval },
        ..*ratio
    }
}

pub(super) fn ratio(above: &Rounds, below: &Rounds) -> Result<Ratio, NoVerdict> {
    let (pairs, lost) = pairs(above, below);
    if pairs.is_empty() {
        let why = format!("no round has both in one class: {lost} rounds lost");
        return Err(NoVerdict::inconclusive(why));
    }
    paired_ratio(&pairs, lost).map_err(|error| NoVerdict::inconclusive(error.to_string()))
}
