//! The values of an experiment by point and round: what ratios inside rounds are made of.

use std::collections::{BTreeMap, BTreeSet};

use super::Unit;
use crate::journal::Run;
use crate::point::{Level, Point};
use crate::sample::Sample;
use crate::statistics::{Ratio, StatisticsError, paired_ratio};

/// The covariate that splits rounds into classes that are not compared: how near two cores are.
pub const CLASS: &str = "proximity";

/// What one point gave in one round.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    /// In the unit that was asked for.
    pub value: f64,
    /// Near or far, where the sample says so.
    pub class: Option<Level>,
}

/// The observations of one point by round.
pub type Rounds = BTreeMap<u32, Observation>;

/// Every value of one metric of an experiment in one environment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Observed {
    /// The points that have values.
    pub points: BTreeMap<Point, Rounds>,
    /// The second samples of the points that have twins.
    pub twins: BTreeMap<Point, Rounds>,
}

impl Observed {
    /// Keeps some observations only; points that have none left go.
    pub(crate) fn keep(&mut self, wanted: impl Fn(&Observation) -> bool) {
        for side in [&mut self.points, &mut self.twins] {
            side.values_mut().for_each(|rounds| rounds.retain(|_, one| wanted(one)));
            side.retain(|_, rounds| !rounds.is_empty());
        }
    }

    /// The ratio of each point to its twin; one that has no logarithm is left out.
    pub fn twin_ratios(&self) -> Vec<(Point, Ratio)> {
        let ratio = |(point, twin)| {
            let own = self.points.get(point)?;
            Some((Point::clone(point), paired(own, twin).ok()?))
        };
        self.twins.iter().filter_map(ratio).collect()
    }

    /// The most rounds that a point and its twin have in common; 0 without twins.
    pub(crate) fn twin_rounds(&self) -> usize {
        let common = |(point, twin)| Some(pairs(self.points.get(point)?, twin).0.len());
        self.twins.iter().filter_map(common).max().unwrap_or(0)
    }
}

/// The environment of the sample of an experiment that was written last.
pub fn newest_environment<'a>(run: &'a Run, experiment: &str) -> Option<&'a str> {
    let last = run.samples.iter().rev().find(|s| s.experiment == experiment);
    last.map(|sample| sample.environment.as_str())
}

/// The samples of an experiment that belong together: those of one environment, and where the
/// experiment has factors that are chosen at boot, those of its other boots too. What one boot could
/// not measure does not stand in the way of what another did.
pub fn samples<'a>(run: &'a Run, experiment: &str, environment: &str) -> Vec<&'a Sample> {
    let boots = boots(run, experiment, environment);
    let own = |s: &&Sample| s.experiment == experiment && boots.contains(s.environment.as_str());
    let all: Vec<_> = run.samples.iter().filter(own).collect();
    if boots.len() == 1 {
        return all;
    }
    let measured: BTreeSet<_> = all.iter().filter(|s| s.is_valid()).map(|s| &s.point).collect();
    let stands = |s: &&Sample| s.error.is_none() || !measured.contains(&s.point);
    all.into_iter().filter(stands).collect()
}

/// The environments of a run that count as one for an experiment.
pub(super) fn boots<'a>(run: &'a Run, experiment: &str, environment: &'a str) -> BTreeSet<&'a str> {
    let mut boots = BTreeSet::from([environment]);
    let chosen_at_boot =
        run.record.experiments.get(experiment).is_some_and(|one| !one.blocking.is_empty());
    let known = run.record.environments.get(environment).filter(|_| chosen_at_boot);
    if let Some(own) = known {
        let others = run.record.environments.iter().filter(|(_, other)| own.is_another_boot(other));
        boots.extend(others.map(|(id, _)| id.as_str()));
    }
    boots
}

/// What a sample stands for in its experiment and environment: point, twin, round.
pub(crate) type Key<'a> = (&'a Point, bool, u32);

/// The sample that counts for each key: the last one written.
pub(crate) fn last_samples<'a>(
    run: &'a Run,
    experiment: &str,
    environment: &str,
) -> BTreeMap<Key<'a>, &'a Sample> {
    let all = samples(run, experiment, environment).into_iter();
    all.map(|s| ((&s.point, s.twin, s.round), s)).collect()
}

/// The values of one metric by point and round. A key whose last sample is void or an error, and a
/// sample with no clock to convert it by, give none.
pub fn rounds(
    run: &Run,
    experiment: &str,
    metric: &str,
    environment: &str,
    unit: Unit,
) -> Observed {
    let mut observed = Observed::default();
    for ((point, twin, round), sample) in last_samples(run, experiment, environment) {
        let Some(value) = value(sample, metric, unit) else {
            continue;
        };
        let class = sample.covariates.get(CLASS).cloned();
        let side = match twin {
            false => &mut observed.points,
            true => &mut observed.twins,
        };
        let rounds = side.entry(point.clone()).or_default();
        rounds.insert(round, Observation { value, class });
    }
    observed
}

/// A sample's finite value of a metric, where it counts.
pub(super) fn value(sample: &Sample, metric: &str, unit: Unit) -> Option<f64> {
    let value = sample.is_valid().then(|| sample.values.get(metric))??;
    unit.convert(*value, sample).filter(|v| v.is_finite())
}

/// The pairs of values of the rounds that both have in the same class, and how many rounds that
/// either has were lost. A point with no class (it crosses no cores) is paired with any.
pub fn pairs(numerator: &Rounds, denominator: &Rounds) -> (Vec<(f64, f64)>, usize) {
    let all: BTreeSet<_> = numerator.keys().chain(denominator.keys()).collect();
    let pair = |round| {
        let (above, below) = (numerator.get(round)?, denominator.get(round)?);
        let differ = matches!((&above.class, &below.class), (Some(a), Some(b)) if a != b);
        (!differ).then_some((above.value, below.value))
    };
    let pairs: Vec<_> = all.iter().filter_map(|round| pair(*round)).collect();
    let lost = all.len() - pairs.len();
    (pairs, lost)
}

/// How many times larger one point is than another, paired inside rounds.
///
/// # Errors
/// When no round has a pair, or a value is not above zero.
pub fn paired(numerator: &Rounds, denominator: &Rounds) -> Result<Ratio, StatisticsError> {
    let (pairs, lost) = pairs(numerator, denominator);
    paired_ratio(&pairs, lost)
}
