//! Contests: which of several points may be the best.
//!
//! Every two points are compared on all of their common rounds, so that no choice precedes the
//! comparisons, and in one state of the core. A point cannot be the best if it is resolved worse than
//! another. Because one of many comparisons of a point looks different by chance, their p-values (sign
//! test) are corrected by Holm's method: the best point is excluded with a probability of at most 5%.

use super::observed::in_state;
use super::{Floors, Pairing, Pairs, Rounds};
use crate::metric::Better;
use crate::point::Point;
use crate::sharing::{Sharing, SharingCounts};
use crate::statistics::{CONFIDENCE, Resolution, StatisticsError, holm, median, resolve};

/// Comparisons of every two of some points.
#[derive(Debug, Clone)]
pub struct Contest<'a> {
    points: Vec<(&'a Point, &'a Rounds)>,
    better: Better,
    /// See [`Contest::state`].
    state: Option<Sharing>,
    /// See [`Contest::fewest`].
    fewest: SharingCounts,
    /// Whether each point is resolved worse than another one.
    is_beaten: Vec<bool>,
    /// Smallest number of rounds that two points have in common.
    rounds: usize,
    /// See [`Contest::lost`].
    lost: (usize, usize),
}

/// Comparison of two points.
#[derive(Debug, Clone, Copy)]
struct Comparison {
    /// Index of the worse point; `None` if the points are not resolved.
    worse: Option<usize>,
    /// P-value of the sign test.
    p: f64,
    /// Number of common rounds.
    rounds: usize,
    /// Number of rounds with two values that are not paired.
    lost: usize,
}

impl<'a> Contest<'a> {
    /// Compares the points of each contest. The correction is for all contests together: the
    /// probability that the best point of any of them is excluded is at most 5%.
    ///
    /// # Errors
    /// Returns an error if the metric has no direction, two points of a contest have no round in
    /// common, or a value is not positive.
    pub fn all(
        contests: &[Vec<(&'a Point, &'a Rounds)>],
        better: Better,
        floors: &Floors,
    ) -> Result<Vec<Self>, StatisticsError> {
        let level = (1.0 - CONFIDENCE) / contests.len() as f64;
        contests.iter().map(|points| Self::new(points, better, floors, level)).collect()
    }

    fn new(
        points: &[(&'a Point, &'a Rounds)],
        better: Better,
        floors: &Floors,
        level: f64,
    ) -> Result<Self, StatisticsError> {
        let every_two = (0..points.len())
            .flat_map(|a| (a + 1..points.len()).map(move |b| (a, b)))
            .map(|(a, b)| ((a, b), Pairing::of(points[a].1, points[b].1)));
        let pairings: Vec<_> = every_two.collect();
        let counts: Vec<SharingCounts> = pairings.iter().map(|(_, both)| both.counts()).collect();
        let state = Sharing::chosen(&counts);
        let fewest = counts.into_iter().min_by_key(SharingCounts::total).unwrap_or_default();
        let mut of_each = vec![Vec::new(); points.len()];
        for ((a, b), pairing) in pairings {
            let both = [(a, points[a].0), (b, points[b].0)];
            let one = compare(both, &pairing.in_state(state), better, floors)?;
            of_each[a].push(one);
            of_each[b].push(one);
        }
        let is_beaten = |(index, comparisons): (usize, &Vec<Comparison>)| {
            let p_values: Vec<f64> = comparisons.iter().map(|one| one.p).collect();
            let rejected = holm(&p_values, level);
            comparisons
                .iter()
                .zip(rejected)
                .any(|(one, rejected)| rejected && one.worse == Some(index))
        };
        let rounds = of_each.iter().flatten().map(|one| one.rounds).min().unwrap_or(0);
        let lost = of_each.iter().flatten().map(|one| (one.lost, one.rounds + one.lost));
        let lost = Self::most_lost(lost);
        let is_beaten = of_each.iter().enumerate().map(is_beaten).collect();
        Ok(Self { points: points.to_vec(), better, state, fewest, is_beaten, rounds, lost })
    }

    /// Returns the points that may be the best: no other one is resolved better.
    pub fn candidates(&self) -> impl Iterator<Item = &'a Point> {
        let points = self.points.iter().zip(&self.is_beaten);
        points.filter(|(_, is_beaten)| !**is_beaten).map(|((point, _), _)| *point)
    }

    /// Returns the only point that may be the best, if there are others.
    pub fn best(&self) -> Option<&'a Point> {
        let mut candidates = self.candidates();
        let best = candidates.next()?;
        (self.points.len() > 1 && candidates.next().is_none()).then_some(best)
    }

    /// Returns the point with the best median, resolved or not, with its rounds in the state of the contest.
    pub fn leader(&self) -> Option<(&'a Point, Rounds)> {
        let of_state = self.points.iter().map(|(point, all)| (*point, in_state(all, self.state)));
        let value = |rounds: &Rounds| {
            let median = median(&rounds.values().map(|one| one.value).collect::<Vec<_>>());
            median.map(|median| if self.better == Better::Lower { -median } else { median })
        };
        let with_values = of_state.filter_map(|(point, rounds)| {
            let value = value(&rounds)?;
            Some(((point, rounds), value))
        });
        with_values.max_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(one, _)| one)
    }

    /// Returns the state of the core in which all points are compared; `None` if it may be any.
    pub fn state(&self) -> Option<Sharing> {
        self.state
    }

    /// Returns the rounds of the two points that have the fewest in common, by the state of the core.
    pub fn fewest(&self) -> SharingCounts {
        self.fewest
    }

    /// Returns the smallest number of rounds that any two points have in common.
    pub fn rounds(&self) -> usize {
        self.rounds
    }

    /// Returns the number of rounds with two values that are not paired, and of all rounds with two values, of the two
    /// points for which the share of the former is largest.
    pub fn lost(&self) -> (usize, usize) {
        self.lost
    }

    /// Returns the numbers of lost and of all rounds with the largest share of lost ones.
    pub(crate) fn most_lost(rounds: impl Iterator<Item = (usize, usize)>) -> (usize, usize) {
        let share = |(lost, all): (usize, usize)| lost as f64 / all.max(1) as f64;
        rounds.max_by(|a, b| share(*a).total_cmp(&share(*b))).unwrap_or_default()
    }
}

/// Compares two points of a contest, each with its index, by their pairs.
fn compare(
    [(a, first), (b, second)]: [(usize, &Point); 2],
    pairs: &Pairs,
    better: Better,
    floors: &Floors,
) -> Result<Comparison, StatisticsError> {
    let ratio = pairs.ratio()?;
    let floor = floors.near(&[first, second], pairs.state);
    let worse = match (resolve(&ratio, floor), better) {
        (_, Better::Neither) => return Err(StatisticsError::NoDirection),
        (Resolution::Unresolved { .. }, _) => None,
        (Resolution::Higher, Better::Higher) | (Resolution::Lower, Better::Lower) => Some(b),
        (Resolution::Higher, Better::Lower) | (Resolution::Lower, Better::Higher) => Some(a),
    };
    let lost = ratio.lost.total() - ratio.lost.missing;
    Ok(Comparison { worse, p: pairs.sign_test()?, rounds: ratio.rounds, lost })
}
