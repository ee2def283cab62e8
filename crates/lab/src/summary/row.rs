//! Rows: the summary of one point.

use std::collections::BTreeMap;

use machine::proximity::Class;
use schemars::JsonSchema;
use serde::Serialize;

use super::observed::{alike, chosen_state, resolution};
use super::samples::{recorded, value};
use super::voids::first_attempts;
use super::{Limit, Observed, RoundCounts, Rounds, Samples, Unit};
use crate::measure::{BUSY_CORES, CAPPED, LIMITED};
use crate::metric::STEP;
use crate::point::{Level, Point};
use crate::proximity::ROUND_TRIP;
use crate::sample::{FailureKind, Sample};
use crate::sharing::Sharing;
use crate::statistics::{Estimate, estimate, mad, median};

/// Name of the class of a sample among its covariates.
pub const CLASS: &str = "proximity";

/// Summary of one point.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Row {
    /// One level for every factor.
    pub point: Point,
    /// Median over rounds with its interval; `None` if no round has a value.
    pub estimate: Option<Estimate>,
    /// The same of the first attempt at each round, void or not: the estimate without the rules for void
    /// samples. `None` if no first attempt is void or has a value.
    pub with_voids: Option<Estimate>,
    /// Number of rounds that gave the estimate.
    pub rounds: usize,
    /// Number of rounds with a value that is not part of the estimate, because a busy SMT sibling shared the core.
    pub other_sharing: usize,
    /// Number of void samples, repeated attempts included.
    pub voids: usize,
    /// Number of rounds that are void after the last attempt.
    pub void_rounds: usize,
    /// Number of void samples by cause.
    pub void_causes: BTreeMap<String, usize>,
    /// Number of rounds by result.
    pub counts: RoundCounts,
    /// Failures by kind. A round that failed counts even if a later session repeated it.
    pub errors: BTreeMap<FailureKind, FailureCount>,
    /// Number of valid rounds by level of each covariate. The class of the cores replaces the time of their round trip;
    /// limits are in [`limited`](Self::limited).
    pub covariates: BTreeMap<String, Vec<(Level, usize)>>,
    /// Estimates by proximity of the cores, if there are rounds of several classes: one median
    /// would hide two costs.
    pub by_class: BTreeMap<Class, Estimate>,
    /// Number of valid rounds whose value is limited, by what limited it. If there are enough, an end of the interval is
    /// open.
    pub limited: BTreeMap<Limit, usize>,
    /// Outliers, which stay in the estimate.
    pub outliers: Vec<Outlier>,
    /// Median core clock, Hz.
    pub core_hertz: Option<f64>,
    /// Median frequency of the time-stamp counter, Hz.
    pub tsc_hertz: Option<f64>,
    /// Step of the time-stamp counter in the row's unit, if values are multiples of it.
    pub step: Option<f64>,
    /// Start of the first and end of the last sample with a value, s since 1970: the time that the estimate
    /// describes. `None` without one.
    pub span: Option<(f64, f64)>,
    /// Time of all samples of the point, s: void and failed ones included, twins excluded.
    pub seconds: f64,
}

/// Failures of one kind at one point.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FailureCount {
    /// Number of rounds.
    pub count: usize,
    /// Last cause.
    pub why: String,
    /// Last remedy, if any.
    pub remedy: Option<String>,
}

/// An outlier.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Outlier {
    /// Round of the value.
    pub round: u32,
    /// Value in the row's unit.
    pub value: f64,
}

/// Samples of one point.
struct PointSamples<'a> {
    samples: &'a Samples<'a>,
    point: &'a Point,
    /// Every sample, in the order of the journal.
    all: Vec<&'a Sample>,
    /// The sample that counts for each round.
    last: Vec<&'a Sample>,
    /// Values of all points.
    values: &'a Observed,
    /// Values of all rounds.
    observed: &'a Rounds,
    /// Values of the rounds that give the estimate.
    alike: Rounds,
    metric: &'a str,
    unit: Unit,
}

/// Summarises every point except twins, in the order of the declaration.
pub(super) fn rows(samples: &Samples, observed: &Observed, metric: &str, unit: Unit) -> Vec<Row> {
    let none = Rounds::new();
    let mut all: BTreeMap<&Point, Vec<&Sample>> = BTreeMap::new();
    for sample in samples.all().filter(|sample| !sample.twin) {
        all.entry(&sample.point).or_default().push(sample);
    }
    let declared = samples.declared().map_or(&[][..], |experiment| &experiment.points);
    let positions: BTreeMap<_, _> = declared.iter().enumerate().map(|(at, p)| (p, at)).collect();
    let mut rows: Vec<_> = all.into_iter().collect();
    rows.sort_by_key(|(point, _)| positions.get(point).copied().unwrap_or(usize::MAX));
    let row = |(point, all): (_, Vec<&Sample>)| {
        let last = samples.rounds(point, false).map(|(_, sample)| sample).collect();
        let (values, observed) = (observed, observed.points.get(point).unwrap_or(&none));
        let alike = alike(observed);
        PointSamples { samples, point, all, last, values, observed, alike, metric, unit }
            .summarise()
    };
    rows.into_iter().map(row).collect()
}

impl PointSamples<'_> {
    fn summarise(&self) -> Row {
        let values: Vec<f64> = self.alike.values().map(|one| one.value).collect();
        let estimated = |sample: &&&Sample| self.alike.contains_key(&sample.round);
        let step = |sample: &&Sample| value(sample, STEP, self.unit);
        let valid: Vec<_> = self.last.iter().copied().filter(|s| s.is_valid()).collect();
        let clocks = || valid.iter().filter_map(|one| Some(one.clock_of(self.metric)?.0));
        Row {
            point: self.point.clone(),
            estimate: self.values.estimate(&self.alike),
            with_voids: self.with_voids(),
            rounds: values.len(),
            other_sharing: self.observed.len() - values.len(),
            voids: self.all.iter().filter(|s| s.void.is_some()).count(),
            void_rounds: self.last.iter().filter(|s| s.void.is_some()).count(),
            void_causes: counted(self.all.iter().filter_map(|s| s.void.clone())),
            counts: self.samples.round_counts(&[self.point], false),
            errors: self.errors(),
            covariates: self.covariates(&valid),
            by_class: self.by_class(),
            limited: self.limited(&valid),
            outliers: self.outliers(&values),
            core_hertz: median(&clocks().map(|c| c.core_hertz()).collect::<Vec<_>>()),
            step: median(&self.last.iter().filter_map(step).collect::<Vec<_>>()),
            span: span(self.last.iter().filter(estimated)),
            tsc_hertz: median(&clocks().map(|c| c.tsc_hertz).collect::<Vec<_>>()),
            seconds: self.all.iter().map(|sample| sample.seconds).sum(),
        }
    }

    fn with_voids(&self) -> Option<Estimate> {
        let first = first_attempts(&self.all, &self.last);
        first.iter().find(|sample| sample.void.is_some())?;
        let state = chosen_state(self.observed);
        let is_alike = |sample: &&&Sample| {
            Sharing::counts(self.samples.sharing_of(sample, self.metric), state)
        };
        let values =
            first.iter().filter(is_alike).filter_map(|one| recorded(one, self.metric, self.unit));
        let estimate = estimate(&values.collect::<Vec<_>>()).ok()?;
        Some(estimate.with_resolution(resolution(self.observed)).with_drift(self.values.drift))
    }

    fn errors(&self) -> BTreeMap<FailureKind, FailureCount> {
        let last = self.last.iter().map(|sample| (sample.round, *sample));
        let failed = self.all.iter().map(|sample| (sample.round, *sample));
        let by_round: BTreeMap<u32, &Sample> =
            last.chain(failed.filter(|(_, sample)| sample.has_failed())).collect();
        let mut errors: BTreeMap<_, FailureCount> = BTreeMap::new();
        for failure in by_round.values().filter_map(|sample| sample.error.as_ref()) {
            let count = errors.get(&failure.kind).map_or(0, |earlier| earlier.count);
            let latest = FailureCount {
                count: count + 1,
                why: failure.why.clone(),
                remedy: failure.remedy.clone(),
            };
            errors.insert(failure.kind, latest);
        }
        errors
    }

    fn covariates(&self, valid: &[&Sample]) -> BTreeMap<String, Vec<(Level, usize)>> {
        let mut seen: BTreeMap<&str, BTreeMap<Level, usize>> = BTreeMap::new();
        for sample in valid {
            let class = self.samples.class(sample).map(|class| (CLASS, Level::from(class.name())));
            // Limits are counted by metric.
            let is_shown = |name: &str| ![ROUND_TRIP, CAPPED, LIMITED, BUSY_CORES].contains(&name);
            let others = sample.covariates.iter().filter(|(name, _)| is_shown(name));
            let others = others.map(|(name, level)| (name.as_str(), level.clone()));
            for (name, level) in others.chain(class) {
                *seen.entry(name).or_default().entry(level).or_default() += 1;
            }
        }
        let listed =
            |(name, levels): (&str, BTreeMap<_, _>)| (name.into(), levels.into_iter().collect());
        seen.into_iter().map(listed).collect()
    }

    fn limited(&self, valid: &[&Sample]) -> BTreeMap<Limit, usize> {
        let mut counts = BTreeMap::new();
        for limit in valid.iter().filter_map(|sample| Limit::of(sample, self.metric)) {
            *counts.entry(limit).or_default() += 1;
        }
        counts
    }

    fn by_class(&self) -> BTreeMap<Class, Estimate> {
        let mut classes: BTreeMap<Class, Rounds> = BTreeMap::new();
        for (round, one) in self.observed {
            if let Some(class) = one.class {
                classes.entry(class).or_default().insert(*round, one.clone());
            }
        }
        if classes.len() < 2 {
            return BTreeMap::new();
        }
        let estimated = |(class, rounds)| Some((class, self.values.estimate(&alike(&rounds))?));
        classes.into_iter().filter_map(estimated).collect()
    }

    /// Returns the values with a modified z-score over 3.5 (Iglewicz and Hoaglin, 1993). If more
    /// than half of the values are equal, the spread is 0 and no value is an outlier.
    fn outliers(&self, values: &[f64]) -> Vec<Outlier> {
        let (Some(centre), Some(mad)) = (median(values), mad(values)) else {
            return Vec::new();
        };
        let far = |value: f64| mad > 0.0 && 0.6745 * (value - centre).abs() / mad > 3.5;
        let flagged = self.alike.iter().filter(|(_, one)| far(one.value));
        flagged.map(|(round, one)| Outlier { round: *round, value: one.value }).collect()
    }
}

/// Returns the start of the first and the end of the last of some samples, s since 1970.
fn span<'a>(samples: impl Iterator<Item = &'a &'a Sample>) -> Option<(f64, f64)> {
    let times = samples.map(|sample| (sample.at, sample.at + sample.seconds));
    times.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
}

fn counted(causes: impl Iterator<Item = String>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for cause in causes {
        *counts.entry(cause).or_default() += 1;
    }
    counts
}
