//! What a run holds on a claim: values by point and round, and why other points have none.

use std::collections::{BTreeMap, BTreeSet};

use super::verdict::{LeftOut, NoVerdict};
use super::{Claim, VerdictKind, words};
use crate::experiment::Experiment;
use crate::journal::Run;
use crate::metric::MetricRecord;
use crate::plan::seed_of;
use crate::point::{Filter, Level, Point};
use crate::proximity::name;
use crate::sample::{FailureKind, Sample};
use crate::statistics::ORDER_STATISTIC_ROUNDS;
use crate::summary::{
    CLASS, Floors, Observed, Rounds, Unit, last_samples, metric_record, newest_environment,
};

/// The share of a point's rounds that may have failed where the others are judged.
const MAX_FAILED: f64 = 0.1;

/// The rounds of points that have no value.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Lost {
    /// Rounds that count.
    pub(super) measured: usize,
    /// Rounds in which something failed, crashed, timed out or gave a wrong result.
    pub(super) failed: usize,
    /// Rounds that stand as void.
    pub(super) void: usize,
}

impl Lost {
    /// ` (3 lost: 2 failed, 1 void)`; nothing if no round is lost.
    pub(super) fn told(self) -> String {
        let Self { failed, void, .. } = self;
        match failed + void {
            0 => String::new(),
            lost => format!(" ({lost} lost: {failed} failed, {void} void)"),
        }
    }
}

/// The points on one side of a ratio.
pub(super) struct Side<'a> {
    /// Those with values.
    pub(super) points: Vec<(&'a Point, &'a Rounds)>,
    /// The others.
    pub(super) missing: Missing,
}

/// The points without values, where others have one.
#[derive(Default)]
pub(super) struct Missing {
    /// Why one that this machine may have measured has none: a fault, or it is not measured yet.
    pub(super) open: Option<NoVerdict>,
    /// Those that this machine cannot measure.
    pub(super) left_out: LeftOut,
}

/// What a run holds on a claim, in the newest environment of its experiment.
pub(super) struct Evidence<'a> {
    pub(super) claim: &'a Claim,
    /// The experiment as the run declares it.
    experiment: Option<&'a Experiment>,
    /// Unit and direction of the metric, in the unit in which the claim was published.
    pub(super) record: MetricRecord,
    /// The points that the claim looks at and that have values, and their twins.
    pub(super) observed: Observed,
    /// What the machine makes of no difference, from every twin of the experiment.
    pub(super) floors: Floors,
    /// The most rounds that any twins have in common.
    twin_rounds: usize,
    /// Every point that the claim looks at: measured or planned.
    pub(super) known: BTreeSet<Point>,
    /// The factors that take several levels among the known points.
    varying: Vec<String>,
    /// Every round with a value, so that halves of rounds are the same for all that is judged.
    pub(super) rounds: Vec<u32>,
    pub(super) seed: u64,
    /// The last sample of each point that has no value.
    without: BTreeMap<&'a Point, &'a Sample>,
    /// The sample that counts for each point and round.
    samples: BTreeMap<(&'a Point, u32), &'a Sample>,
}

impl<'a> Evidence<'a> {
    /// What the run holds, or what a verdict must say where it holds nothing to judge by.
    pub(super) fn gather(claim: &'a Claim, run: &'a Run) -> Result<Self, NoVerdict> {
        let experiment = claim.experiment.as_str();
        let environment =
            newest_environment(run, experiment).ok_or_else(|| claim.not_measured())?;
        let declared = run.record.experiments.get(experiment);
        let metric = claim.metric.as_deref().or(declared.map(|e| e.metric.as_str()));
        let metric = metric.ok_or_else(|| {
            NoVerdict::inconclusive(format!("the run does not name the metric of '{experiment}'"))
        })?;
        let record = metric_record(run, experiment, metric)
            .map_err(|error| NoVerdict::inconclusive(error.to_string()))?;
        let published = claim.published.as_ref();
        let unit = published.map_or(Unit::Own, |it| Unit::of(&it.unit, &record.unit));
        let record = unit
            .applied(metric, record)
            .map_err(|error| NoVerdict::inconclusive(error.to_string()))?;
        let mut observed = crate::summary::rounds(run, experiment, metric, environment, unit);
        if let Some(class) = claim.class {
            observed.keep(|one| one.class.as_ref().is_some_and(|of| of.as_str() == name(class)));
        }
        let floors = Floors::of(&observed);
        let twin_rounds = observed.twin_rounds();
        observed.points.retain(|point, _| claim.filter.matches(point));
        observed.twins.retain(|point, _| claim.filter.matches(point));
        let samples: BTreeMap<(&Point, u32), &Sample> = last_samples(run, experiment, environment)
            .into_iter()
            .filter(|((point, twin, _), _)| !twin && claim.filter.matches(point))
            .map(|((point, _, round), sample)| ((point, round), sample))
            .collect();
        let last: BTreeMap<&Point, &Sample> =
            samples.iter().map(|((point, _), sample)| (*point, *sample)).collect();
        let planned = declared.into_iter().flat_map(|experiment| &experiment.points);
        let planned = planned.filter(|point| claim.filter.matches(point));
        let known: BTreeSet<Point> = planned.chain(last.keys().copied()).cloned().collect();
        let rounds: BTreeSet<u32> =
            observed.points.values().flat_map(|rounds| rounds.keys().copied()).collect();
        let without = last.into_iter().filter(|(point, _)| !observed.points.contains_key(*point));
        Ok(Self {
            claim,
            experiment: declared,
            record,
            floors,
            twin_rounds,
            varying: open_factors(known.iter(), &[]),
            known,
            rounds: rounds.into_iter().collect(),
            seed: seed_of(&claim.id, run.record.seed),
            without: without.collect(),
            samples,
            observed,
        })
    }

    /// The points that a filter and a combination of levels pick, at least one with values.
    pub(super) fn side(&self, filter: &Filter, combination: &Point) -> Result<Side<'_>, NoVerdict> {
        let picked = |point: &Point| filter.matches(point) && includes(point, combination);
        let points = self.observed.points.iter();
        let points: Vec<_> = points.filter(|(point, _)| picked(point)).collect();
        if points.is_empty() {
            return Err(self.lack(picked));
        }
        let missing = self.missing(picked, |point| self.name(point, combination));
        let open = missing.open.or_else(|| self.never_asked(filter));
        Ok(Side { points, missing: Missing { open, ..missing } })
    }

    /// Why none of the points has a value. Unmeasurable only if this machine lacks what each needs.
    pub(super) fn lack(&self, picked: impl Fn(&Point) -> bool) -> NoVerdict {
        let samples: Vec<_> = self.without(picked).map(|(_, sample)| sample).collect();
        let mut faults =
            samples.iter().flatten().filter(|one| !is_absence(one) && !self.elsewhere(one));
        match (faults.next(), samples.first()) {
            (Some(fault), _) => NoVerdict::inconclusive(self.told(fault)),
            (None, Some(Some(absent))) if samples.iter().all(Option::is_some) => {
                NoVerdict::unmeasurable(self.told(absent))
            }
            _ => self.claim.not_measured(),
        }
    }

    /// Which of the points have no value, and why, where others of them have one. `name` is what
    /// the verdict calls a point.
    pub(super) fn missing(
        &self,
        picked: impl Fn(&Point) -> bool,
        name: impl Fn(&Point) -> String,
    ) -> Missing {
        let mut missing = Missing::default();
        for (point, sample) in self.without(picked) {
            let lack = match sample {
                Some(sample) if is_absence(sample) => {
                    missing.left_out.entry(told(sample)).or_default().insert(name(point));
                    continue;
                }
                Some(sample) => format!("{}; {}", self.told(sample), self.claim.command()),
                None => self.claim.not_measured().why,
            };
            let open = || {
                NoVerdict::inconclusive(format!("{}: {lack}", self.name(point, &Point::default())))
            };
            missing.open.get_or_insert_with(open);
        }
        missing
    }

    /// The known points without values that are picked, each with its last sample.
    fn without(
        &self,
        picked: impl Fn(&Point) -> bool,
    ) -> impl Iterator<Item = (&Point, Option<&'a Sample>)> {
        let without = |point: &&Point| !self.observed.points.contains_key(*point);
        let points = self.known.iter().filter(without).filter(move |point| picked(point));
        points.map(|point| (point, self.without.get(point).copied()))
    }

    /// A level that a filter lists and that the claim's points may have, but that none of the known
    /// ones has: the run was not asked for it.
    fn never_asked(&self, filter: &Filter) -> Option<NoVerdict> {
        let listed = filter.0.iter().flat_map(|(factor, levels)| {
            levels.levels().iter().map(move |level| (factor.as_str(), level))
        });
        let looked_at = |factor: &str, level: &Level| {
            self.claim.filter.0.get(factor).is_none_or(|levels| levels.levels().contains(level))
        };
        let known = |factor: &str, level: &Level| {
            self.known.iter().any(|point| point.get(factor) == Some(level))
        };
        let mut unasked =
            listed.filter(|(factor, level)| looked_at(factor, level) && !known(factor, level));
        let (factor, level) = unasked.next()?;
        Some(NoVerdict::inconclusive(format!(
            "{factor}={level}: {}",
            self.claim.not_measured().why
        )))
    }

    /// A point by the levels that differ among the known points, without those of a combination.
    pub(super) fn name(&self, point: &Point, combination: &Point) -> String {
        let levels = point.0.iter().filter(|(factor, _)| {
            self.varying.contains(factor) && combination.get(factor).is_none()
        });
        let name: Point = levels.map(|(factor, level)| (factor.clone(), level.clone())).collect();
        if name.0.is_empty() { self.label(point) } else { name.to_string() }
    }

    /// A point as verdicts name it.
    pub(super) fn label(&self, point: &Point) -> String {
        self.experiment.map_or_else(|| point.to_string(), |one| one.brief(point).to_string())
    }

    /// Whether a sample has values, and none of its point's rounds is of the class that is asked for.
    fn elsewhere(&self, sample: &Sample) -> bool {
        self.claim.class.is_some()
            && sample.is_valid()
            && !self.observed.points.contains_key(&sample.point)
    }

    fn told(&self, sample: &Sample) -> String {
        match self.claim.class.filter(|_| self.elsewhere(sample)) {
            None => told(sample),
            Some(class) => {
                let was = sample.covariates.get(CLASS).map_or("of no class", Level::as_str);
                let class = name(class);
                format!(
                    "in no round were the cores {class}, in the last they were {was}; measure again"
                )
            }
        }
    }

    /// The sample that counts for a point and round.
    pub(super) fn sample(&self, point: &Point, round: u32) -> Option<&Sample> {
        self.samples.get(&(point, round)).copied()
    }

    /// Why one point has no value.
    pub(super) fn lack_of(&self, point: &Point) -> NoVerdict {
        self.lack(|other| other == point)
    }

    /// Every combination of the levels of some factors at which each filter picks a known point;
    /// one combination of nothing where no factor is named.
    pub(super) fn combinations(&self, each: &[String], filters: &[&Filter]) -> Vec<Point> {
        let of = |filter: &Filter| -> BTreeSet<Point> {
            self.known
                .iter()
                .filter(|point| filter.matches(point))
                .filter_map(|point| levels(point, each))
                .collect()
        };
        if each.is_empty() {
            return vec![Point::default()];
        }
        let sets = filters.iter().map(|filter| of(filter));
        let all = sets.reduce(|a, b| a.intersection(&b).cloned().collect());
        all.unwrap_or_else(|| of(&Filter::default())).into_iter().collect()
    }

    /// The factors that take several levels among the known points of a combination, beyond those
    /// that are named.
    pub(super) fn open_factors(&self, combination: &Point, named: &[&str]) -> Vec<String> {
        let points = self.known.iter().filter(|point| includes(point, combination));
        open_factors(points, named)
    }

    /// How a kind is weakened when too few rounds judged it.
    pub(super) fn enough(
        &self,
        kind: VerdictKind,
        rounds: usize,
        why: String,
    ) -> (VerdictKind, String) {
        let needed = self.claim.rounds_needed();
        if rounds >= needed {
            return (kind, why);
        }
        let words = format!("{why}; {rounds} judged rounds of the {needed} that it needs");
        (VerdictKind::Inconclusive, words)
    }

    /// How a kind is weakened where points are compared: by too few rounds, by rounds of these points
    /// that failed, and where no twins say what the machine makes of no difference.
    pub(super) fn comparable(
        &self,
        kind: VerdictKind,
        rounds: usize,
        points: &[&Point],
        why: String,
    ) -> (VerdictKind, String) {
        let (kind, why) = self.enough(kind, rounds, why);
        let (kind, why) = Self::weakened_by(&self.lost(points), kind, why);
        match self.no_floor() {
            Some(lack) => (VerdictKind::Inconclusive, format!("{why}; {lack}")),
            None => (kind, why),
        }
    }

    /// How a kind is weakened when more than a small share of the rounds failed: what fails may be
    /// what is slow.
    pub(super) fn weakened_by(
        lost: &Lost,
        kind: VerdictKind,
        why: String,
    ) -> (VerdictKind, String) {
        let all = lost.measured + lost.failed;
        if lost.failed as f64 <= MAX_FAILED * all as f64 {
            return (kind, why);
        }
        let (failed, most) = (lost.failed, words::percent(MAX_FAILED));
        let words = format!("{why}; {failed} of {all} rounds failed, more than {most}");
        (VerdictKind::Inconclusive, words)
    }

    /// The rounds of points by what stands for them; one in which any of the points failed is failed.
    pub(super) fn lost(&self, points: &[&Point]) -> Lost {
        let mut rounds: BTreeMap<u32, (bool, bool)> = BTreeMap::new();
        for ((point, round), sample) in &self.samples {
            if points.contains(point) && !is_absence(sample) {
                let (failed, void) = rounds.entry(*round).or_default();
                let fault = sample.error.as_ref().map(|failure| failure.kind);
                *failed |= fault.is_some_and(|kind| kind != FailureKind::Void);
                *void |= sample.void.is_some() || fault == Some(FailureKind::Void);
            }
        }
        let failed = rounds.values().filter(|(failed, _)| *failed).count();
        let void = rounds.values().filter(|(failed, void)| *void && !failed).count();
        Lost { measured: rounds.len() - failed - void, failed, void }
    }

    /// Why there is no noise floor, where the experiment has twins to make one. A promise on what is
    /// the same in each round asks for fewer rounds than a floor takes, and needs none.
    fn no_floor(&self) -> Option<String> {
        let twins = self.experiment.is_some_and(|experiment| !experiment.twins.is_empty());
        let needed = ORDER_STATISTIC_ROUNDS;
        let lacks = twins && self.twin_rounds < needed && self.claim.rounds_needed() >= needed;
        lacks.then(|| {
            let (rounds, command) = (words::rounds(self.twin_rounds), self.claim.command());
            format!("no noise floor: twins have {rounds} in common and need {needed}: {command}")
        })
    }
}

impl Claim {
    /// What to do when there are no samples.
    pub(super) fn not_measured(&self) -> NoVerdict {
        NoVerdict::inconclusive(format!("not measured yet: {}", self.command()))
    }

    /// The command that measures what the claim needs.
    fn command(&self) -> String {
        let profile = self.profile.map(|p| format!(" --profile {}", p.name())).unwrap_or_default();
        format!("tollgate run --claim {}{profile}", self.id)
    }
}

/// Whether a point has all levels of a combination.
pub(super) fn includes(point: &Point, combination: &Point) -> bool {
    combination.0.iter().all(|(factor, level)| point.get(factor) == Some(level))
}

/// The levels of some factors; nothing where the point lacks one of them.
fn levels(point: &Point, factors: &[String]) -> Option<Point> {
    let level = |factor: &String| Some((factor.clone(), point.get(factor)?.clone()));
    factors.iter().map(level).collect()
}

/// The factors that take several levels among points, beyond those that are named.
pub(super) fn open_factors<'p>(
    points: impl Iterator<Item = &'p Point>,
    named: &[&str],
) -> Vec<String> {
    let mut seen: BTreeMap<&str, BTreeSet<_>> = BTreeMap::new();
    for (factor, level) in points.flat_map(|point| point.0.iter()) {
        seen.entry(factor).or_default().insert(level);
    }
    let open = |(factor, levels): &(&str, BTreeSet<_>)| levels.len() > 1 && !named.contains(factor);
    seen.into_iter().filter(open).map(|(factor, _)| factor.to_string()).collect()
}

/// Whether the machine lacks what the point needs: a result, not a fault.
fn is_absence(sample: &Sample) -> bool {
    sample.error.as_ref().is_some_and(|failure| !failure.kind.is_fault())
}

fn told(sample: &Sample) -> String {
    match (&sample.error, &sample.void) {
        (Some(failure), _) => failure.to_string(),
        (None, Some(cause)) => format!("every round stands as void: {cause}"),
        (None, None) => "the samples have no value of this metric".into(),
    }
}
