//! Ratios within rounds: against bounds, and between the neighbours of a ranking.

use super::evidence::{Evidence, Missing};
use super::measured::WithLost;
use super::reason::{LeftOut, NoVerdict, Reason, Relation, leave_out};
use super::states::States;
use super::verdict::{Judgement, MeasuredValue, Statistic};
use super::{Bounds, VerdictKind};
use crate::metric::Better;
use crate::point::{Filter, Point};
use crate::sharing::{Sharing, SharingCounts};
use crate::statistics::{
    CONFIDENCE, INTERVAL_ROUNDS, Interval, IntervalKind, LostRounds, NoiseFloor, Ratio, Resolution,
    StatisticsError, paired_ratio_at, resolve,
};
use crate::summary::{Pairing, Pairs, Rounds};

/// A point with its values.
pub(super) type Step<'a> = (&'a Point, &'a Rounds);
/// Points with values.
pub(super) type Points<'a> = [Step<'a>];

/// Ratio of two sides.
pub(super) struct Paired<'a> {
    pub(super) above: &'a Point,
    pub(super) below: &'a Point,
    /// The points by which the two are divided, if the ratio is one of overheads.
    pub(super) baselines: Option<[&'a Point; 2]>,
    pub(super) ratio: Ratio,
    /// All points of both sides; those of overheads without their baselines.
    pub(super) sides: [Vec<&'a Point>; 2],
    /// State of the core in its rounds; `None` if it may be any.
    pub(super) state: Option<Sharing>,
    /// Number of its rounds by state of the core.
    pub(super) counts: SharingCounts,
    /// Number of rounds that an interval requires if a side has several points, of which `above` and `below` look best.
    pub(super) rounds_needed: Option<usize>,
    /// Whether different boots measured the two sides, so that each boot counts as one value.
    pub(super) is_between_boots: bool,
    /// Numbers of lost and of all rounds, of the pair of points that lost the largest share.
    pub(super) lost: (usize, usize),
    /// Ratio of every round in which both points have a value, whatever their sessions and the state of the core;
    /// `None` between boots.
    pub(super) with_lost: Option<Ratio>,
}

impl Evidence<'_> {
    /// Judges a ratio against bounds, for one combination of levels.
    pub(super) fn judge_ratio(
        &self,
        of: &Filter,
        to: &Filter,
        bounds: &Bounds,
        limit: Option<&Filter>,
        combination: &Point,
    ) -> Judgement {
        let (paired, missing) = match self.paired_sides(of, to, None, combination) {
            Ok(sides) => sides,
            Err(lack) => return Judgement::missing(combination.to_string(), lack),
        };
        let claimed = Reason::Claimed { bounds: *bounds, unit: "1".into() };
        let mut value = self.bounded(&paired, &paired.ratio, bounds, claimed, combination);
        // Whether the result would also apply to a better `of`.
        let holds_if_better = match self.record.better {
            Better::Higher => bounds.at_most.is_none(),
            Better::Lower => bounds.at_least.is_none(),
            Better::Neither => false,
        };
        missing.weaken(&mut value, holds_if_better);
        if let (Some(limit), true) = (limit, value.kind != VerdictKind::Reproduced) {
            self.apply_limit(&mut value, limit, to, bounds, combination);
        }
        Judgement { left_out: missing.left_out, ..Judgement::of_all(vec![value]) }
    }

    /// Makes a value unmeasurable if the machine's limit does not permit the claimed ratio.
    fn apply_limit(
        &self,
        value: &mut MeasuredValue,
        limit: &Filter,
        to: &Filter,
        bounds: &Bounds,
        combination: &Point,
    ) {
        let Ok((highest, missing)) = self.paired_sides(limit, to, None, combination) else {
            return;
        };
        let lower = Bounds { at_most: None, ..*bounds };
        let (mut kind, _) =
            within_bounds(ends(&highest.ratio), &lower, self.floor(&highest).as_ref());
        self.require_sides(&highest, &mut kind, &mut Vec::new());
        if kind == VerdictKind::Contradicted && missing.open.is_none() {
            value.kind = VerdictKind::Unmeasurable;
            let of_best = highest.is_of_best();
            value.reasons.push(Reason::MachineLimit { ratio: highest.ratio, of_best });
        }
    }

    /// Judges whether the best point of each filter is resolved better than that of the next.
    pub(super) fn judge_ranking(&self, ranking: &[Filter], combination: &Point) -> Judgement {
        let mut left_out = Vec::new();
        let sides: Vec<_> =
            ranking.iter().filter_map(|it| self.side(it, combination).ok()).collect();
        let every_two = sides.windows(2).flat_map(|it| every_two(&it[0].points, &it[1].points));
        let states = self.states(&every_two.collect::<Vec<_>>());
        let neighbours = ranking.windows(2).map(|pair| {
            let sides = self.paired_sides(&pair[0], &pair[1], Some(states), combination);
            let value = sides.and_then(|(paired, missing)| {
                let better = self.improvement(&paired.ratio)?;
                let mut value = self.resolved(&paired, &better, Relation::Better, combination);
                missing.weaken(&mut value, true);
                join(&mut left_out, missing.left_out);
                Ok(value)
            });
            value.unwrap_or_else(|lack| MeasuredValue::missing(combination.to_string(), lack))
        });
        let judgement = Judgement::of_all(neighbours.collect());
        Judgement { left_out, ..judgement }
    }

    /// Returns the noise floor of a ratio. That of a ratio of overheads is the product of the ratio of its points and
    /// of that of its baselines, each of which has a floor; a common baseline adds none.
    pub(super) fn floor(&self, paired: &Paired) -> Option<NoiseFloor> {
        let floor = *self.floors.near(&paired.sides.concat(), paired.state)?;
        match paired.baselines {
            Some([above, below]) if above != below => {
                Some(floor.and(self.floors.near(&[above, below], paired.state)?))
            }
            _ => Some(floor),
        }
    }

    /// Returns the ratio of two sides, and the missing points of `of`: by default in the state of the core that all of
    /// their pairs have in common. If a side has several points, it is the ratio of the best ones. Fails if a point of
    /// `to` is missing, because it may be the best of its side.
    fn paired_sides(
        &self,
        of: &Filter,
        to: &Filter,
        states: Option<States>,
        combination: &Point,
    ) -> Result<(Paired<'_>, Missing), NoVerdict> {
        let (above, below) = (self.side(of, combination)?, self.side(to, combination)?);
        if let Some(lack) = below.missing.open {
            return Err(lack);
        }
        let mut missing = above.missing;
        join(&mut missing.left_out, below.missing.left_out);
        let (above, below) = (&above.points, &below.points);
        let states = states.unwrap_or_else(|| self.states(&every_two(above, below)));
        let paired = match (&above[..], &below[..]) {
            ([above], [below]) => self.paired_points(*above, *below, states)?,
            _ => self.best_ratio(above, below, states.within_rounds)?,
        };
        Ok((paired, missing))
    }

    /// Returns the ratio of two points in a state of the core.
    pub(super) fn paired_points<'s>(
        &self,
        above: (&'s Point, &Rounds),
        below: (&'s Point, &Rounds),
        states: States,
    ) -> Result<Paired<'s>, NoVerdict> {
        let by_boot = self.between_boots(above, below, states.between_boots)?;
        let (state, counts, ratio, with_lost) = match by_boot {
            Some(ratio) => (Some(states.between_boots), SharingCounts::default(), ratio, None),
            None => {
                let pairs = Pairing::of(above.1, below.1).in_state(states.within_rounds);
                let ratio = self.ratio(above, below, &pairs, CONFIDENCE)?;
                (pairs.state, pairs.counts, ratio, ratio_of_all(above.1, below.1, CONFIDENCE))
            }
        };
        Ok(Paired {
            above: above.0,
            below: below.0,
            baselines: None,
            sides: [vec![above.0], vec![below.0]],
            state,
            counts,
            ratio,
            rounds_needed: None,
            is_between_boots: by_boot.is_some(),
            lost: lost_of(&ratio),
            with_lost,
        })
    }

    /// Returns the ratio so that above 1 is better, by the direction of the metric.
    pub(super) fn improvement(&self, ratio: &Ratio) -> Result<Ratio, NoVerdict> {
        match self.record.better {
            Better::Higher => Ok(*ratio),
            Better::Lower => Ok(inverted(ratio)),
            Better::Neither => Err(Reason::NoDirection.into()),
        }
    }

    /// Judges `judged`, which is the ratio of two sides or its inverse, against bounds.
    pub(super) fn bounded(
        &self,
        paired: &Paired,
        judged: &Ratio,
        bounds: &Bounds,
        claimed: Reason,
        combination: &Point,
    ) -> MeasuredValue {
        let floor = self.floor(paired);
        let (mut kind, unresolved) = within_bounds(ends(judged), bounds, floor.as_ref());
        let mut reasons: Vec<_> = std::iter::once(claimed).chain(unresolved).collect();
        if is_tie(judged, bounds) {
            kind = VerdictKind::Inconclusive;
            reasons.push(Reason::Tie);
        }
        let judge = |ratio: &Ratio| within_bounds(ends(ratio), bounds, floor.as_ref()).0;
        paired.weigh_lost(judged, judge, &mut kind, &mut reasons);
        self.ratio_value(paired, combination, kind, reasons)
    }

    /// Judges whether `judged`, which is the ratio of two sides or its inverse, is resolved above
    /// 1.
    pub(super) fn resolved(
        &self,
        paired: &Paired,
        judged: &Ratio,
        relation: Relation,
        combination: &Point,
    ) -> MeasuredValue {
        let floor = self.floor(paired);
        let floor = floor.as_ref();
        let resolution = resolve(judged, floor);
        let mut kind = verdict_of(resolution);
        let share = floor.map(NoiseFloor::share);
        let mut reasons = vec![Reason::Resolved { relation, resolution, floor: share }];
        paired.weigh_lost(
            judged,
            |ratio| verdict_of(resolve(ratio, floor)),
            &mut kind,
            &mut reasons,
        );
        self.ratio_value(paired, combination, kind, reasons)
    }

    /// Returns the ratio of the pairs of two points, with an interval of `confidence`.
    pub(super) fn ratio(
        &self,
        above: Step,
        below: Step,
        pairs: &Pairs,
        confidence: f64,
    ) -> Result<Ratio, NoVerdict> {
        let lost = self.with_other_class(pairs.lost, above, below);
        let lost = self.without_unrequested(lost, above, below);
        match pairs.wide_ratio_at(confidence) {
            Ok(ratio) => Ok(Ratio { lost, ..ratio }),
            Err(StatisticsError::Empty) => {
                Err(Reason::NoCommonRound { lost, command: self.claim.command() }.into())
            }
            Err(error) => Err(Reason::NotSummarised { error }.into()),
        }
    }

    /// Weakens the result of a ratio: by too few rounds, by failed rounds of any point of its sides, and without an
    /// interval or a noise floor.
    fn require_sides(&self, paired: &Paired, kind: &mut VerdictKind, reasons: &mut Vec<Reason>) {
        let Ratio { interval, lag_1, rounds, .. } = &paired.ratio;
        let mut points = paired.points();
        let others = paired.sides.iter().flatten().filter(|one| !points.contains(one)).copied();
        points.extend(others.collect::<Vec<_>>());
        self.require_comparable(kind, *rounds, &points, &[paired.state], reasons);
        let is_judged = self.claim.rounds_needed() >= INTERVAL_ROUNDS;
        let Some(needed) = paired.rounds_needed.filter(|needed| is_judged && rounds < needed)
        else {
            return self.require_interval(kind, interval, (*lag_1, *rounds), reasons);
        };
        // One end may decide without the other.
        if interval.kind == IntervalKind::Range {
            *kind = VerdictKind::Inconclusive;
        }
        if *kind == VerdictKind::Inconclusive && *rounds >= self.claim.rounds_needed() {
            reasons.push(Reason::TooFewRounds { rounds: *rounds, needed });
        }
    }

    fn ratio_value(
        &self,
        paired: &Paired,
        combination: &Point,
        mut kind: VerdictKind,
        mut reasons: Vec<Reason>,
    ) -> MeasuredValue {
        let points = paired.points();
        self.require_sides(paired, &mut kind, &mut reasons);
        self.add_limits(paired.sides.each_ref().map(Vec::as_slice), kind, &mut reasons);
        reasons.extend(Reason::both_states(paired.state, paired.counts));
        let has_combinations = self.claim.expect.as_ref().is_some_and(|e| !e.each.is_empty());
        let names = paired.names();
        MeasuredValue {
            label: if has_combinations { format!("{combination}: {names}") } else { names },
            value: Some(paired.ratio.ratio),
            interval: (paired.ratio.rounds > 1).then_some(paired.ratio.interval),
            unit: "1".into(),
            class: self
                .class_of(points.iter().filter_map(|point| self.observed.points.get(*point))),
            rounds: paired.ratio.rounds,
            lost: paired.ratio.lost.total(),
            statistic: Some(match paired.is_between_boots {
                true => Statistic::BetweenBoots,
                false => Statistic::Ratio { of_best: paired.is_of_best(), lost: paired.ratio.lost },
            }),
            kind,
            reasons,
        }
    }
}

impl Missing {
    /// Weakens a value if points of its side are missing, which may be better: it can be reproduced
    /// only if the result would also apply to a better point, and is never contradicted.
    fn weaken(&self, value: &mut MeasuredValue, holds_if_better: bool) {
        let Some(lack) = &self.open else { return };
        if value.kind != VerdictKind::Reproduced || !holds_if_better {
            value.kind = lack.kind;
        }
        value.reasons.push(lack.why.clone());
    }
}

impl<'a> Paired<'a> {
    /// Returns every point whose values the ratio depends on.
    fn points(&self) -> Vec<&'a Point> {
        [self.above, self.below].into_iter().chain(self.baselines.into_iter().flatten()).collect()
    }

    /// States that many rounds are lost, because the loss may depend on the values; weakens a result that would be
    /// another with those lost rounds that have two values.
    fn weigh_lost(
        &self,
        judged: &Ratio,
        judge: impl Fn(&Ratio) -> VerdictKind,
        kind: &mut VerdictKind,
        reasons: &mut Vec<Reason>,
    ) {
        let with_lost = || {
            let all = self.with_lost?;
            let directed = if *judged == self.ratio { all } else { inverted(&all) };
            Some(WithLost { value: Some((all.ratio, "1".into())), kind: judge(&directed) })
        };
        let (lost, rounds) = self.lost;
        kind.weigh_lost(lost, rounds, with_lost, reasons);
    }

    /// Returns whether a side has several points.
    pub(super) fn is_of_best(&self) -> bool {
        self.rounds_needed.is_some()
    }

    /// Returns the names of the two points by the factors in which they differ.
    fn names(&self) -> String {
        let (above, below) = (self.above, self.below);
        if above == below {
            return format!("the best of both sides is the same point: {above}");
        }
        format!("{} over {}", above.without_levels(below), below.without_levels(above))
    }
}

impl Bounds {
    /// Returns whether an interval is inside the bounds, outside, or neither.
    pub(super) fn judge(&self, interval: &Interval) -> VerdictKind {
        let Interval { low, high, .. } = *interval;
        let lower = self.at_least.map(|bound| side(low >= bound, high < bound));
        let upper = self.at_most.map(|bound| side(high <= bound, low > bound));
        both(lower, upper)
    }
}

/// Returns every pair of a point of one side and a point of the other.
fn every_two<'a>(above: &Points<'a>, below: &Points<'a>) -> Vec<(Step<'a>, Step<'a>)> {
    above.iter().flat_map(|a| below.iter().map(|b| (*a, *b))).collect()
}

/// Returns the ratio of every round in which both points have a value, with an interval of `confidence`.
pub(super) fn ratio_of_all(
    numerator: &Rounds,
    denominator: &Rounds,
    confidence: f64,
) -> Option<Ratio> {
    let both = numerator.iter().filter_map(|(round, above)| Some((above, denominator.get(round)?)));
    let all: Vec<_> = both.map(|(above, below)| (above.value, below.value)).collect();
    let ratio = paired_ratio_at(confidence, &all, LostRounds::default()).ok()?;
    Some(ratio.widened_if_correlated(confidence))
}

/// Returns the numbers of lost and of all rounds of a ratio.
pub(super) fn lost_of(ratio: &Ratio) -> (usize, usize) {
    let lost = ratio.lost.total();
    (lost, ratio.rounds + lost)
}

/// Returns whether two sides are equal in all rounds and a bound is that neither is better. Equal steps of a search or a
/// counter show neither that one side is better nor that it is not.
fn is_tie(ratio: &Ratio, bounds: &Bounds) -> bool {
    let Interval { low, high, .. } = ratio.interval;
    low == 1.0 && high == 1.0 && [bounds.at_least, bounds.at_most].contains(&Some(1.0))
}

/// Returns the verdict on a claimed direction, which is resolved if the ratio is higher than 1.
fn verdict_of(resolution: Resolution) -> VerdictKind {
    match resolution {
        Resolution::Higher => VerdictKind::Reproduced,
        Resolution::Lower => VerdictKind::Contradicted,
        Resolution::Unresolved { .. } => VerdictKind::Inconclusive,
    }
}

/// Returns whether the interval of a value is inside or outside bounds and further from each than the noise floor; with
/// a reason if only the floor leaves it open.
pub(super) fn within_bounds(
    (value, interval): (f64, Interval),
    bounds: &Bounds,
    floor: Option<&NoiseFloor>,
) -> (VerdictKind, Option<Reason>) {
    let by_interval = bounds.judge(&interval);
    let Some(noise) = floor else { return (by_interval, None) };
    let clear = |bound: f64| value / bound <= 0.0 || (value / bound).ln().abs() >= noise.floor;
    let Interval { low, high, .. } = interval;
    let lower = bounds.at_least.map(|b| side(low >= b && clear(b), high < b && clear(b)));
    let upper = bounds.at_most.map(|b| side(high <= b && clear(b), low > b && clear(b)));
    let kind = both(lower, upper);
    (kind, (kind != by_interval).then_some(Reason::NearBound { floor: noise.share() }))
}

fn side(inside: bool, outside: bool) -> VerdictKind {
    match (inside, outside) {
        (true, _) => VerdictKind::Reproduced,
        (_, true) => VerdictKind::Contradicted,
        _ => VerdictKind::Inconclusive,
    }
}

fn both(lower: Option<VerdictKind>, upper: Option<VerdictKind>) -> VerdictKind {
    let judged = [lower, upper].into_iter().flatten();
    judged.reduce(VerdictKind::and).unwrap_or(VerdictKind::Inconclusive)
}

/// Returns the value of a ratio with its interval.
fn ends(ratio: &Ratio) -> (f64, Interval) {
    (ratio.ratio, ratio.interval)
}

/// Returns the inverse of a ratio.
pub(super) fn inverted(ratio: &Ratio) -> Ratio {
    let Interval { low, high, .. } = ratio.interval;
    // An open end remains one.
    let inverse = |end: f64| if end.is_finite() { 1.0 / end } else { -end };
    Ratio {
        ratio: 1.0 / ratio.ratio,
        interval: Interval { low: inverse(high), high: inverse(low), ..ratio.interval },
        ..*ratio
    }
}

fn join(left_out: &mut Vec<LeftOut>, more: Vec<LeftOut>) {
    for LeftOut { why, names } in more {
        leave_out(left_out, why, names);
    }
}
