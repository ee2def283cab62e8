//! Effects of the rules for void samples: estimates with void samples, and rates of void samples by
//! level.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;
use statrs::stats_tests::{Alternative, fishers_exact};

use super::Samples;
use crate::format;
use crate::point::{Level, Point};
use crate::sample::Sample;

/// Significance of a difference between levels, for all levels of an experiment together.
const SIGNIFICANCE: f64 = 0.01;

/// Returns the first attempt at each round of one point, in the session whose sample counts: what would
/// have counted if no sample were void. `all` are the samples of the point in the order of the
/// journal, `last` those that count.
pub(super) fn first_attempts<'a>(all: &[&'a Sample], last: &[&Sample]) -> Vec<&'a Sample> {
    let counts: BTreeSet<_> = last.iter().map(|one| (one.round, one.session)).collect();
    let is_first = |one: &&Sample| one.attempt <= 1 && counts.contains(&(one.round, one.session));
    all.iter().copied().filter(is_first).collect()
}

/// Number of void samples among first attempts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct VoidCount {
    /// Void first attempts.
    pub void: u64,
    /// First attempts.
    pub of: u64,
}

impl VoidCount {
    fn add(&mut self, other: Self) {
        self.void += other.void;
        self.of += other.of;
    }

    /// Returns the probability of so few void samples here, or fewer, if the rates are equal.
    fn fewer_than(self, other: Self) -> f64 {
        let table = [self.void, self.of - self.void, other.void, other.of - other.void];
        // The only error is a table without samples.
        fishers_exact(&table, Alternative::Less).unwrap_or(1.0)
    }

    /// Returns the two-sided p-value of Fisher's exact test of equal rates: twice that of the smaller side.
    fn p_value(self, other: Self) -> f64 {
        (2.0 * self.fewer_than(other).min(other.fewer_than(self))).min(1.0)
    }
}

/// A level whose rate of void samples differs from that of the other levels of its factor. Whether
/// a sample is void should not depend on its level: otherwise the estimate of the valid samples is biased.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct VoidDifference {
    /// ID of the experiment.
    pub experiment: String,
    /// The factor.
    pub factor: String,
    /// The level.
    pub level: Level,
    /// Samples at the level.
    pub here: VoidCount,
    /// Samples at the other levels.
    pub elsewhere: VoidCount,
    /// P-value of Fisher's exact test, multiplied by the number of levels compared (Bonferroni).
    pub p: f64,
}

impl VoidDifference {
    /// Finds the most significant difference of an experiment; `None` if none is significant at 1%.
    pub(super) fn of(samples: &Samples) -> Option<Self> {
        let mut all: BTreeMap<&Point, Vec<&Sample>> = BTreeMap::new();
        for sample in samples.all().filter(|sample| !sample.twin) {
            all.entry(&sample.point).or_default().push(sample);
        }
        let mut factors: BTreeMap<&str, BTreeMap<&Level, VoidCount>> = BTreeMap::new();
        for (point, all) in all {
            let last: Vec<_> = samples.rounds(point, false).map(|(_, sample)| sample).collect();
            let first = first_attempts(&all, &last).into_iter().filter(|one| one.error.is_none());
            let mut count = VoidCount::default();
            for sample in first {
                count.add(VoidCount { void: u64::from(sample.void.is_some()), of: 1 });
            }
            for (factor, level) in point.levels() {
                factors.entry(factor).or_default().entry(level).or_default().add(count);
            }
        }
        factors.retain(|_, levels| levels.len() > 1);
        let compared = factors.values().map(BTreeMap::len).sum::<usize>() as f64;
        let differences = factors.iter().flat_map(|(factor, levels)| {
            levels.iter().map(|(level, here)| {
                let mut elsewhere = VoidCount::default();
                levels
                    .iter()
                    .filter(|(other, _)| *other != level)
                    .for_each(|(_, it)| elsewhere.add(*it));
                Self {
                    experiment: samples.experiment.into(),
                    factor: (*factor).into(),
                    level: Level::clone(level),
                    here: *here,
                    elsewhere,
                    p: (here.p_value(elsewhere) * compared).min(1.0),
                }
            })
        });
        differences.filter(|it| it.p < SIGNIFICANCE).min_by(|a, b| a.p.total_cmp(&b.p))
    }
}

impl fmt::Display for VoidDifference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { experiment, factor, level, here, elsewhere, p } = self;
        write!(
            formatter,
            "warning: void rates of {experiment} differ between levels: {} of {} at {factor} {level}, {} of {} \
             at others (Fisher's exact test, p {}); compare the medians with voids",
            here.void,
            format::count(here.of as usize, "sample"),
            elsewhere.void,
            elsewhere.of,
            if *p < 0.001 { "below 0.001".into() } else { format!("{p:.3}") },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_rates_do_not_differ_and_unequal_ones_do() {
        let p = |void, of, others, of_others| {
            VoidCount { void, of }.p_value(VoidCount { void: others, of: of_others })
        };
        assert_eq!(p(5, 20, 5, 20), 1.0);
        assert_eq!((p(0, 20, 0, 60), p(20, 20, 60, 60), p(0, 0, 3, 9)), (1.0, 1.0, 1.0));
        // 6 of 6 against 0 of 6: twice 1 of the 924 ways to choose.
        assert!((p(6, 6, 0, 6) - 2.0 / 924.0).abs() < 1e-9);
        assert!((p(6, 6, 0, 6) - p(0, 6, 6, 6)).abs() < 1e-9);
        // 3 of 3 against 0 of 1: twice 1 of 4.
        assert!((p(3, 3, 0, 1) - 0.5).abs() < 1e-9);
        assert!(p(12, 20, 1, 60) < 1e-6);
    }
}
