//! A row: what is known of one point.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{CLASS, Unit, last_samples, rounds, samples};
use crate::journal::Run;
use crate::metric::STEP;
use crate::point::{Level, Point};
use crate::sample::{FailureKind, Sample};
use crate::statistics::{Estimate, estimate, mad, median};

/// What is known of one point.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// One level for every factor.
    pub point: Point,
    /// The median over rounds with its interval; nothing where no round has a value.
    pub estimate: Option<Estimate>,
    /// How many rounds have a value.
    pub rounds: usize,
    /// How many samples are void, tries that were repeated included.
    pub voids: usize,
    /// How many rounds stand as void after the last try.
    pub void_rounds: usize,
    /// How often each cause made a sample void.
    pub void_causes: BTreeMap<String, usize>,
    /// What stands in the place of values.
    pub errors: BTreeMap<FailureKind, FailureCount>,
    /// For each covariate how often each level was observed in rounds with a value.
    pub covariates: BTreeMap<String, Vec<(Level, usize)>>,
    /// Near and far apart, where rounds of both were seen: a median over both hides two costs.
    pub by_class: BTreeMap<String, Estimate>,
    /// Values far from the others; flagged, never dropped.
    pub outliers: Vec<Outlier>,
    /// The median core clock, in Hz.
    pub core_hertz: Option<f64>,
    /// The median frequency of the time-stamp counter, in Hz.
    pub tsc_hertz: Option<f64>,
    /// What one step of the time-stamp counter amounts to, in the row's unit, where values come in
    /// such steps.
    pub step: Option<f64>,
    /// How long all samples of the point took, void ones and failures included, twins not.
    pub seconds: f64,
}

/// Failures of one kind at one point.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FailureCount {
    /// How many rounds.
    pub count: usize,
    /// The last reason.
    pub why: String,
    /// The last remedy, where there is one.
    pub remedy: Option<String>,
}

/// A value far from the others.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Outlier {
    /// Its round.
    pub round: u32,
    /// In the unit of the row.
    pub value: f64,
}

/// The samples of one point.
pub(super) struct Samples<'a> {
    point: &'a Point,
    /// Every sample, in the order of the journal.
    all: Vec<&'a Sample>,
    /// The one that counts for each round.
    last: Vec<&'a Sample>,
}

/// The samples of every point but not its twins, in the order of the declaration.
pub(super) fn rows<'a>(run: &'a Run, experiment: &str, environment: &str) -> Vec<Samples<'a>> {
    let mut rows: BTreeMap<&Point, Samples> = BTreeMap::new();
    let all = samples(run, experiment, environment).into_iter();
    for sample in all.filter(|sample| !sample.twin) {
        let new = || Samples { point: &sample.point, all: Vec::new(), last: Vec::new() };
        rows.entry(&sample.point).or_insert_with(new).all.push(sample);
    }
    for ((point, twin, _), sample) in last_samples(run, experiment, environment) {
        if let (false, Some(row)) = (twin, rows.get_mut(point)) {
            row.last.push(sample);
        }
    }
    let declared = run.record.experiments.get(experiment);
    let declared = declared.map_or(&[][..], |experiment| &experiment.points);
    let places: BTreeMap<_, _> = declared.iter().enumerate().map(|(at, p)| (p, at)).collect();
    let mut rows: Vec<_> = rows.into_values().collect();
    rows.sort_by_key(|row| places.get(row.point).copied().unwrap_or(usize::MAX));
    rows
}

impl Samples<'_> {
    pub(super) fn summarise(&self, metric: &str, unit: Unit) -> Row {
        let with_value = |sample: &&Sample| rounds::value(sample, metric, unit);
        let step = |sample: &&Sample| rounds::value(sample, STEP, unit);
        let values: Vec<f64> = self.last.iter().filter_map(with_value).collect();
        let counting: Vec<_> = self.last.iter().copied().filter(|s| s.is_valid()).collect();
        let clocks = || counting.iter().filter_map(|sample| sample.clock);
        Row {
            point: self.point.clone(),
            estimate: estimate(&values).ok(),
            rounds: values.len(),
            voids: self.all.iter().filter(|s| s.void.is_some()).count(),
            void_rounds: self.last.iter().filter(|s| s.void.is_some()).count(),
            void_causes: counted(self.all.iter().filter_map(|s| s.void.clone())),
            errors: self.errors(),
            covariates: covariates(&counting),
            by_class: self.by_class(metric, unit),
            outliers: self.outliers(metric, unit, &values),
            core_hertz: median(&clocks().map(|c| c.core_hertz()).collect::<Vec<_>>()),
            step: median(&self.last.iter().filter_map(step).collect::<Vec<_>>()),
            tsc_hertz: median(&clocks().map(|c| c.tsc_hertz).collect::<Vec<_>>()),
            seconds: self.all.iter().map(|sample| sample.seconds).sum(),
        }
    }

    fn errors(&self) -> BTreeMap<FailureKind, FailureCount> {
        let mut errors: BTreeMap<_, FailureCount> = BTreeMap::new();
        for failure in self.last.iter().filter_map(|sample| sample.error.as_ref()) {
            let count = errors.get(&failure.kind).map_or(0, |fault| fault.count);
            let fault = FailureCount {
                count: count + 1,
                why: failure.why.clone(),
                remedy: failure.remedy.clone(),
            };
            errors.insert(failure.kind, fault);
        }
        errors
    }

    fn by_class(&self, metric: &str, unit: Unit) -> BTreeMap<String, Estimate> {
        let mut classes: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for sample in &self.last {
            let class = sample.covariates.get(CLASS);
            if let (Some(class), Some(value)) = (class, rounds::value(sample, metric, unit)) {
                classes.entry(class.to_string()).or_default().push(value);
            }
        }
        if classes.len() < 2 {
            return BTreeMap::new();
        }
        let estimated = |(class, values): (_, Vec<_>)| Some((class, estimate(&values).ok()?));
        classes.into_iter().filter_map(estimated).collect()
    }

    /// Values whose modified z-score is over 3.5 (Iglewicz and Hoaglin, 1993). Where more than half
    /// of the values are equal there is no spread to measure by, and nothing is flagged.
    fn outliers(&self, metric: &str, unit: Unit, values: &[f64]) -> Vec<Outlier> {
        let (Some(centre), Some(mad)) = (median(values), mad(values)) else {
            return Vec::new();
        };
        let far = |value: f64| mad > 0.0 && 0.6745 * (value - centre).abs() / mad > 3.5;
        let flagged = |sample: &&Sample| {
            let value = rounds::value(sample, metric, unit).filter(|value| far(*value))?;
            Some(Outlier { round: sample.round, value })
        };
        self.last.iter().filter_map(flagged).collect()
    }
}

fn counted(things: impl Iterator<Item = String>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for thing in things {
        *counts.entry(thing).or_default() += 1;
    }
    counts
}

fn covariates(samples: &[&Sample]) -> BTreeMap<String, Vec<(Level, usize)>> {
    let mut seen: BTreeMap<String, BTreeMap<Level, usize>> = BTreeMap::new();
    for (name, level) in samples.iter().flat_map(|sample| &sample.covariates) {
        let levels = seen.entry(name.clone()).or_default();
        *levels.entry(level.clone()).or_default() += 1;
    }
    let listed = |(name, levels): (_, BTreeMap<_, _>)| (name, levels.into_iter().collect());
    seen.into_iter().map(listed).collect()
}
