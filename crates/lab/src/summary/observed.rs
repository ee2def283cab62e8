//! Values by point and round, ratios within rounds, and noise floors.

use std::collections::{BTreeMap, BTreeSet};

use machine::proximity::Class;
use schemars::JsonSchema;
use serde::Serialize;

use crate::point::Point;
use crate::sharing::{Sharing, SharingCounts};
use crate::statistics::{
    CONFIDENCE, Censored, Estimate, INTERVAL_ROUNDS, IntervalKind, LostRound, LostRounds,
    NoiseFloor, Ratio, StatisticsError, estimate, paired_ratio_at, sign_test,
};

/// Value of one point in one round.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    /// The value, in the requested unit.
    pub value: f64,
    /// Resolution of the value, in its unit; 0 if it is not limited.
    pub resolution: f64,
    /// Proximity of the cores, if the point uses two.
    pub class: Option<Class>,
    /// Number of the session that measured it, from 1.
    pub session: u32,
    /// Whether a busy SMT sibling shared the core, if known.
    pub sharing: Option<Sharing>,
    /// How the true value may differ: the value is the limit of its search, or the instrument limited it.
    pub censored: Censored,
}

/// Observations of one point by round.
pub type Rounds = BTreeMap<u32, Observation>;

/// All values of one metric of an experiment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Observed {
    /// Points with values.
    pub points: BTreeMap<Point, Rounds>,
    /// Twins of points, with values.
    pub twins: BTreeMap<Point, Rounds>,
    /// The values of each boot, if factors are chosen at boot and several boots measured the experiment.
    pub boots: BTreeMap<Point, Vec<Rounds>>,
    /// Share by which the core clocks of two moments of the run differ at most in 95% of cases, if the values depend on
    /// the clock; else 0.
    pub drift: f64,
}

impl Observed {
    /// Keeps the observations that match a predicate, and the points with observations left.
    pub(crate) fn keep(&mut self, matches: impl Fn(&Observation) -> bool) {
        for side in [&mut self.points, &mut self.twins] {
            side.values_mut().for_each(|rounds| rounds.retain(|_, one| matches(one)));
            side.retain(|_, rounds| !rounds.is_empty());
        }
        for boots in self.boots.values_mut() {
            boots.iter_mut().for_each(|rounds| rounds.retain(|_, one| matches(one)));
            boots.retain(|rounds| !rounds.is_empty());
        }
        self.boots.retain(|_, boots| !boots.is_empty());
    }

    /// Estimates a point from some rounds; `None` without any.
    pub(crate) fn estimate(&self, rounds: &Rounds) -> Option<Estimate> {
        let values: Vec<f64> = rounds.values().map(|one| one.value).collect();
        let estimate = estimate(&values).ok()?;
        let estimate = estimate.with_resolution(resolution(rounds)).with_drift(self.drift);
        Some(estimate.with_censored(&values, &censored(rounds), CONFIDENCE))
    }

    /// Returns the recorded ratio of each point to its twin, if all their values are positive.
    pub fn twin_ratios(&self) -> Vec<(Point, Ratio)> {
        let ratio = |(point, twin)| {
            let rounds = self.points.get(point)?;
            Some((Point::clone(point), pairs(rounds, twin).as_recorded().ratio().ok()?))
        };
        self.twins.iter().filter_map(ratio).collect()
    }

    /// Returns each point that differs from its twin: the 95% interval of their ratio excludes 1.
    pub(crate) fn differing_twins(&self) -> impl Iterator<Item = (Point, Ratio)> {
        let differs = |(_, ratio): &(Point, Ratio)| {
            ratio.interval.kind == IntervalKind::Confidence && !ratio.interval.includes(1.0)
        };
        self.twin_ratios().into_iter().filter(differs)
    }

    /// Counts the rounds that each point and its twin have in common, by the state of the core.
    pub(crate) fn twin_counts(&self) -> Vec<SharingCounts> {
        let counts = |(point, twin)| Some(Pairing::of(self.points.get(point)?, twin).counts());
        self.twins.iter().filter_map(counts).collect()
    }
}

/// Returns the state of the core in whose rounds a point is judged.
pub(crate) fn chosen_state(rounds: &Rounds) -> Option<Sharing> {
    Sharing::chosen(&[state_counts(rounds)])
}

/// Counts rounds by the state of their core.
pub(crate) fn state_counts(rounds: &Rounds) -> SharingCounts {
    rounds.values().map(|one| one.sharing).collect()
}

/// Returns the rounds whose core was in a state. Without one, returns those in which the state did not change, if they are
/// enough for an interval, else all.
pub(crate) fn in_state(rounds: &Rounds, state: Option<Sharing>) -> Rounds {
    let counts = state_counts(rounds);
    let is_mixed = state.is_none() && counts.alone + counts.shared >= INTERVAL_ROUNDS;
    let counting = rounds.iter().filter(|(_, one)| {
        Sharing::counts(one.sharing, state) && !(is_mixed && one.sharing == Some(Sharing::Changed))
    });
    counting.map(|(round, one)| (*round, one.clone())).collect()
}

/// Returns the rounds that give a value of their point: those whose core was in the [chosen](Sharing::chosen) state.
pub fn alike(rounds: &Rounds) -> Rounds {
    in_state(rounds, chosen_state(rounds))
}

/// Returns the same values without what keeps two of a round from being paired: class, session and sharing of the core,
/// which is taken to be in one state.
pub(crate) fn without_conditions(rounds: &Rounds, state: Option<Sharing>) -> Rounds {
    let bare =
        |one: &Observation| Observation { class: None, session: 0, sharing: state, ..one.clone() };
    rounds.iter().map(|(round, one)| (*round, bare(one))).collect()
}

/// Pair of values of a round.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Pair {
    /// State of the core; `None` if unknown.
    pub(crate) sharing: Option<Sharing>,
    /// Value of the numerator.
    pub(crate) above: f64,
    /// Value of the denominator.
    pub(crate) below: f64,
    /// How the true ratio may differ.
    pub(crate) censored: Censored,
}

impl Pair {
    /// Returns the pair of two observations of a round, or why they are not compared. An observation without a class
    /// pairs with any.
    pub(crate) fn of(
        above: Option<&Observation>,
        below: Option<&Observation>,
    ) -> Result<Self, LostRound> {
        let (Some(above), Some(below)) = (above, below) else { return Err(LostRound::Missing) };
        if above.session != below.session {
            return Err(LostRound::OtherSession);
        }
        if above.class.zip(below.class).is_some_and(|(above, below)| above != below) {
            return Err(LostRound::OtherClass);
        }
        if !Sharing::allows_pair(above.sharing, below.sharing) {
            return Err(LostRound::OtherSharing);
        }
        let sharing = above.sharing.or(below.sharing);
        let censored = Censored::ratio(above.censored, below.censored);
        Ok(Self { sharing, above: above.value, below: below.value, censored })
    }
}

/// The rounds of two points, paired if one session measured both with the same class and sharing of the core. A point
/// without a class pairs with any.
#[derive(Debug, Clone)]
pub struct Pairing {
    /// The pair of every round in which a point has a value.
    rounds: Vec<Result<Pair, LostRound>>,
    /// Resolution of the ratio of a pair, as a share of it.
    resolution: f64,
}

/// The pairs of two points in one state of the core.
#[derive(Debug, Clone, PartialEq)]
pub struct Pairs {
    /// State of the core; `None` if it may be any.
    pub state: Option<Sharing>,
    /// Number of pairs by the state of their core.
    pub counts: SharingCounts,
    /// Values of the numerator and the denominator, in the order of the rounds.
    pub pairs: Vec<(f64, f64)>,
    /// How the true ratio of each pair may differ.
    pub censored: Vec<Censored>,
    /// Rounds without such a pair.
    pub lost: LostRounds,
    resolution: f64,
}

impl Pairing {
    /// Pairs the rounds of two points.
    pub fn of(numerator: &Rounds, denominator: &Rounds) -> Self {
        let rounds: BTreeSet<u32> = numerator.keys().chain(denominator.keys()).copied().collect();
        let pair = |round| Pair::of(numerator.get(&round), denominator.get(&round));
        Self {
            rounds: rounds.into_iter().map(pair).collect(),
            resolution: relative_resolution(numerator).hypot(relative_resolution(denominator)),
        }
    }

    /// Counts the pairs by the state of their core.
    pub fn counts(&self) -> SharingCounts {
        self.rounds.iter().flatten().map(|pair| pair.sharing).collect()
    }

    /// Returns the pairs whose core was in a state, any without one.
    pub fn in_state(&self, state: Option<Sharing>) -> Pairs {
        let (mut pairs, mut censored) = (Vec::new(), Vec::new());
        let (mut lost, mut states) = (LostRounds::default(), Vec::new());
        for pair in &self.rounds {
            match pair {
                Ok(pair) if Sharing::counts(pair.sharing, state) => {
                    states.push(pair.sharing);
                    pairs.push((pair.above, pair.below));
                    censored.push(pair.censored);
                }
                Ok(_) => lost.add(LostRound::OtherSharing),
                Err(cause) => lost.add(*cause),
            }
        }
        let counts = states.into_iter().collect();
        Pairs { state, counts, pairs, censored, lost, resolution: self.resolution }
    }
}

impl Pairs {
    /// Returns the ratio within rounds.
    ///
    /// # Errors
    /// Returns an error if no round has a pair, or if a value is not positive.
    pub fn ratio(&self) -> Result<Ratio, StatisticsError> {
        self.ratio_at(CONFIDENCE)
    }

    /// Returns the ratio with an interval of `confidence`.
    ///
    /// # Errors
    /// See [`Pairs::ratio`].
    pub fn ratio_at(&self, confidence: f64) -> Result<Ratio, StatisticsError> {
        let ratio = paired_ratio_at(confidence, &self.pairs, self.lost)?;
        Ok(self.limited(ratio, confidence))
    }

    /// Returns the ratio with an interval of `confidence` that decides a claim: a
    /// [wide](Ratio::widened_if_correlated) one if the rounds are too correlated for another.
    ///
    /// # Errors
    /// See [`Pairs::ratio`].
    pub(crate) fn wide_ratio_at(&self, confidence: f64) -> Result<Ratio, StatisticsError> {
        let ratio = paired_ratio_at(confidence, &self.pairs, self.lost)?;
        Ok(self.limited(ratio.widened_if_correlated(confidence), confidence))
    }

    /// Returns a ratio of the pairs with their resolution and limits.
    fn limited(&self, ratio: Ratio, confidence: f64) -> Ratio {
        let ratio = ratio.with_resolution(self.resolution);
        ratio.with_censored(&self.pairs, &self.censored, confidence)
    }

    /// Returns the pairs without regard to how the true ratios may differ: twins differ by noise, whatever limits them.
    #[must_use]
    pub fn as_recorded(self) -> Self {
        Self { censored: vec![Censored::default(); self.pairs.len()], ..self }
    }

    /// Returns the pairs with exact ratios if both values are limited: what limits them is compared.
    #[must_use]
    pub(crate) fn with_common_limits(mut self) -> Self {
        for one in &mut self.censored {
            if one.may_be_higher && one.may_be_lower {
                *one = Censored::default();
            }
        }
        self
    }

    /// Returns the two-sided p-value of the sign test that the ratio is 1.
    ///
    /// # Errors
    /// See [`Pairs::ratio`].
    pub fn sign_test(&self) -> Result<f64, StatisticsError> {
        // A pair whose true ratio may be on the other side of 1 counts against a difference.
        let sure = |(pair, censored): (&(f64, f64), &Censored)| {
            let may_cross = match pair.0 > pair.1 {
                true => censored.may_be_lower,
                false => censored.may_be_higher,
            };
            if may_cross { (1.0, 1.0) } else { *pair }
        };
        sign_test(&self.pairs.iter().zip(&self.censored).map(sure).collect::<Vec<_>>())
    }
}

/// Returns the pairs of two points in the [chosen](Sharing::chosen) state of the core.
pub fn pairs(numerator: &Rounds, denominator: &Rounds) -> Pairs {
    let pairing = Pairing::of(numerator, denominator);
    pairing.in_state(Sharing::chosen(&[pairing.counts()]))
}

/// Returns the ratio of two points, paired within rounds.
///
/// # Errors
/// See [`Pairs::ratio`].
pub fn paired(numerator: &Rounds, denominator: &Rounds) -> Result<Ratio, StatisticsError> {
    pairs(numerator, denominator).ratio()
}

/// Returns the quotient of two observations, if the denominator is not 0. Its resolution follows from those of both
/// values.
pub(crate) fn quotient(above: &Observation, below: &Observation) -> Option<Observation> {
    let value = above.value / below.value;
    let quotient = Observation {
        value,
        resolution: value.abs() * share(above).hypot(share(below)),
        censored: Censored::ratio(above.censored, below.censored),
        class: above.class.or(below.class),
        session: above.session,
        sharing: above.sharing.or(below.sharing),
    };
    value.is_finite().then_some(quotient)
}

/// Returns the resolution of a value as a share of it.
fn share(one: &Observation) -> f64 {
    if one.resolution > 0.0 { one.resolution / one.value.abs() } else { 0.0 }
}

/// Returns how the true value of each round may differ.
pub(crate) fn censored(rounds: &Rounds) -> Vec<Censored> {
    rounds.values().map(|one| one.censored).collect()
}

/// Returns the coarsest resolution of some values, in their unit.
pub(crate) fn resolution(rounds: &Rounds) -> f64 {
    rounds.values().map(|one| one.resolution).fold(0.0, f64::max)
}

/// Returns the coarsest resolution of some values as a share of each.
pub(crate) fn relative_resolution(rounds: &Rounds) -> f64 {
    rounds.values().map(share).fold(0.0, f64::max)
}

/// Noise floors of an experiment. Each pair of twins has one of all rounds, and one per state of the core in which it has
/// enough rounds. They differ: a copy of 16 B varies by another share than one of 256 MiB.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct Floors(Vec<TwinFloor>);

/// Noise floor of a pair of twins.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct TwinFloor {
    /// The point.
    pub point: Point,
    /// State of the core in the rounds of the floor; `None` if it may be any.
    pub state: Option<Sharing>,
    /// The floor.
    #[serde(flatten)]
    pub floor: NoiseFloor,
}

impl Floors {
    /// Returns the floors of all twins with enough rounds.
    pub fn of(observed: &Observed) -> Self {
        let floors = |(point, twin): (&Point, &Rounds)| {
            let pairing = observed.points.get(point).map(|rounds| Pairing::of(rounds, twin));
            let floor = |state| {
                let pairs = pairing.as_ref()?.in_state(state).as_recorded();
                let ratio = pairs.ratio().ok()?;
                let floor = NoiseFloor::from_twins(&[ratio])?;
                Some(TwinFloor { point: point.clone(), state, floor })
            };
            let states = [None, Some(Sharing::Alone), Some(Sharing::Shared)];
            states.into_iter().filter_map(floor).collect::<Vec<_>>()
        };
        Self(observed.twins.iter().flat_map(floors).collect())
    }

    /// Returns the floors of comparisons in a state of the core. A comparison in any state is subject to all of them.
    fn of_state(&self, state: Option<Sharing>) -> impl Iterator<Item = &TwinFloor> {
        self.0.iter().filter(move |one| state.is_none() || one.state == state)
    }

    /// Keeps the floors of the twins that match a predicate.
    pub(crate) fn retain(&mut self, matches: impl Fn(&Point) -> bool) {
        self.0.retain(|one| matches(&one.point));
    }

    /// Returns the floor for a comparison of some points in a state of the core: the highest of the floors of each
    /// point. That of a point is the floor of its nearest twins, which differ from it in the fewest factors; of equally
    /// near ones, the highest. `None` without twins in this state.
    pub fn near(&self, points: &[&Point], state: Option<Sharing>) -> Option<&NoiseFloor> {
        let highest = |a: &&NoiseFloor, b: &&NoiseFloor| a.floor.total_cmp(&b.floor);
        let of_state = || self.of_state(state);
        let near = |point: &&Point| {
            let nearest = of_state().map(|one| one.point.differing(point)).min()?;
            let near = of_state().filter(|one| one.point.differing(point) == nearest);
            near.map(|one| &one.floor).max_by(highest)
        };
        points.iter().filter_map(near).max_by(highest)
    }

    /// Returns the floor of the twins of a point in a state of the core, if it has twins.
    pub fn of_point(&self, point: &Point, state: Option<Sharing>) -> Option<&NoiseFloor> {
        let of_point = self.of_state(state).filter(|one| one.point == *point);
        of_point.map(|one| &one.floor).max_by(|a, b| a.floor.total_cmp(&b.floor))
    }

    /// Returns the lowest and the highest floor.
    pub fn span(&self) -> Option<(&NoiseFloor, &NoiseFloor)> {
        let floors = || self.0.iter().map(|one| &one.floor);
        let lowest = floors().min_by(|a, b| a.floor.total_cmp(&b.floor))?;
        Some((lowest, floors().max_by(|a, b| a.floor.total_cmp(&b.floor))?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::paired_ratio;

    fn floor(share: f64) -> NoiseFloor {
        let pairs: Vec<_> = (0..20).map(|_| (1.0 + share, 1.0)).collect();
        NoiseFloor::from_twins(&[paired_ratio(&pairs, LostRounds::default()).unwrap()]).unwrap()
    }

    fn observation(value: f64, sharing: Sharing) -> Observation {
        Observation {
            value,
            resolution: 0.0,
            class: None,
            session: 1,
            sharing: Some(sharing),
            censored: Censored::default(),
        }
    }

    #[test]
    fn a_ratio_is_of_one_state_of_the_core() {
        let rounds = |value: f64, on_shared: f64| -> Rounds {
            let of = |round, value, sharing| (round, observation(value, sharing));
            let alone = (0..6).map(|round| of(round, value, Sharing::Alone));
            alone.chain((6..26).map(|round| of(round, on_shared, Sharing::Shared))).collect()
        };
        let (above, below) = (rounds(2.0, 6.0), rounds(1.0, 2.0));
        let is_near = |ratio: &Ratio, value: f64| (ratio.ratio - value).abs() < 1e-9;
        let ratio = paired(&above, &below).unwrap();
        assert!(is_near(&ratio, 2.0), "{ratio:?}");
        assert_eq!((ratio.rounds, ratio.lost.other_sharing), (6, 20));
        assert_eq!(alike(&above).len(), 6);
        // With 5 rounds alone, those on a shared core.
        let mut without_first: Rounds = above.into_iter().skip(1).collect();
        assert!(is_near(&paired(&without_first, &below).unwrap(), 3.0));
        assert_eq!(alike(&without_first).len(), 20);
        // With 5 of each, all, and the interval includes the ratios of both states.
        without_first.retain(|round, _| *round < 11);
        let Ratio { rounds, interval, .. } = paired(&without_first, &below).unwrap();
        assert_eq!((rounds, alike(&without_first).len()), (10, 10));
        assert!(interval.low < 2.01 && interval.high > 2.99, "{interval:?}");
    }

    #[test]
    fn a_quotient_has_the_resolution_of_both_values() {
        let of = |value, resolution| Observation {
            value,
            resolution,
            class: None,
            session: 1,
            sharing: None,
            censored: Censored::default(),
        };
        let both = quotient(&of(200.0, 6.0), &of(100.0, 4.0)).unwrap();
        assert_eq!(both.value, 2.0);
        // 3% and 4% of the values are 5% of the quotient.
        assert!((both.resolution - 0.1).abs() < 1e-12, "{both:?}");
        assert_eq!(quotient(&of(200.0, 0.0), &of(100.0, 0.0)).unwrap().resolution, 0.0);
        assert_eq!(quotient(&of(200.0, 0.0), &of(0.0, 0.0)), None);
        // A baseline on one core has no class.
        let near = Observation { class: Some(Class::Near), ..of(1.0, 0.0) };
        assert_eq!(quotient(&of(1.0, 0.0), &near).unwrap().class, Some(Class::Near));
    }

    #[test]
    fn the_nearest_twins_give_the_floor() {
        let at = |length: &str, function: &str| {
            Point::from([("length", length), ("function", function)])
        };
        let twins = |length, share| TwinFloor {
            point: at(length, "glibc"),
            state: Some(Sharing::Alone),
            floor: floor(share),
        };
        let floors = Floors(vec![twins("16 B", 0.01), twins("1 MiB", 0.5)]);
        let near = |point: &Point| floors.near(&[point], Some(Sharing::Alone)).unwrap().floor;
        assert!(near(&at("16 B", "ours")) < 0.02);
        assert!(near(&at("1 MiB", "ours")) > 0.3);
        // Equally far from both: the higher.
        assert!(near(&at("4 KiB", "glibc")) > 0.3);
        // Each side has its own nearest twins, and the higher floor counts.
        let (short, long) = (at("16 B", "glibc"), at("1 MiB", "ours"));
        assert!(floors.near(&[&short, &long], Some(Sharing::Alone)).unwrap().floor > 0.3);
        assert_eq!(Floors::default().near(&[&short], None), None);
        assert_eq!(floors.near(&[&short], Some(Sharing::Shared)), None);
    }

    #[test]
    fn a_floor_is_of_the_state_of_its_comparison() {
        // Twins differ by 1% alone and by 20% on a shared core.
        let rounds = |alone: f64, shared: f64| -> Rounds {
            let of = |round| match round % 2 {
                0 => observation(alone, Sharing::Alone),
                _ => observation(shared, Sharing::Shared),
            };
            (0..20).map(|round| (round, of(round))).collect()
        };
        let point = Point::from([("length", "16 B")]);
        let observed = Observed {
            points: [(point.clone(), rounds(1.0, 1.0))].into(),
            twins: [(point.clone(), rounds(1.01, 1.2))].into(),
            ..Observed::default()
        };
        let floors = Floors::of(&observed);
        for (state, share) in
            [(Some(Sharing::Alone), 1.01_f64), (Some(Sharing::Shared), 1.2), (None, 1.2)]
        {
            for floor in [floors.near(&[&point], state), floors.of_point(&point, state)] {
                assert!((floor.unwrap().floor - share.ln()).abs() < 1e-9, "{state:?}: {floor:?}");
            }
        }
    }
}
