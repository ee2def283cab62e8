//! Checks of claims against the suites, and the points that a claim requires.

use std::collections::BTreeSet;

use super::{CarriesOver, Claim, Condition, SpreadUnit, Trend};
use crate::data::DataError;
use crate::experiment::Experiment;
use crate::metric::{Better, Metric, MetricRecord};
use crate::point::{Filter, Level, Point};
use crate::run::{METRICS, SESSION};
use crate::statistics::INTERVAL_ROUNDS;
use crate::subject::Subject;
use crate::suite::Suite;
use crate::summary::Unit;

/// Returns a claim with its metric named and its levels in canonical spelling. `experiments` are
/// those of a profile that skips none.
///
/// # Errors
/// Returns an error for an unknown experiment, metric, factor or level, and for a condition that
/// does not fit the metric.
pub fn check(
    claim: &Claim,
    suites: &[&Suite],
    experiments: &[Experiment],
) -> Result<Claim, DataError> {
    if claim.experiment == SESSION {
        let metric = METRICS.iter().find(|one| Some(one.name) == claim.metric.as_deref());
        return match metric {
            Some(metric) => Ok(Claim { unit: Some(metric.unit.into()), ..claim.clone() }),
            None => Err(claim.error("'metric' must name a metric of the lab itself")),
        };
    }
    Subject::find(suites, experiments, &claim.experiment)
        .and_then(|subject| fit(claim, &subject))
        .map_err(|what| claim.error(&what))
}

/// Returns the points of an experiment that a claim requires; none if it is about another
/// experiment or cannot be measured. If none of them has a twin, a point with a twin is added for the noise floor.
pub fn needs(claim: &Claim, experiment: &Experiment) -> BTreeSet<Point> {
    if experiment.id() != claim.experiment || claim.unmeasurable.is_some() {
        return BTreeSet::new();
    }
    let mut points: BTreeSet<Point> =
        experiment.points.iter().filter(|point| claim.is_about(point)).cloned().collect();
    if !points.is_empty() && !experiment.twins.iter().any(|twin| points.contains(twin)) {
        let distance = |twin: &&Point| points.iter().map(|point| twin.differing(point)).min();
        points.extend(experiment.twins.iter().min_by_key(distance).cloned());
    }
    points
}

impl Claim {
    /// Returns whether a point is one of the claim's, and of one of its sides if it compares points.
    pub(super) fn is_about(&self, point: &Point) -> bool {
        let sides = self.sides();
        self.filter.matches(point)
            && (sides.is_empty() || sides.iter().any(|side| side.matches(point)))
    }

    /// Returns the levels that a point has in common with those with which the claim compares it; `None` if it compares
    /// the point with no other. A factor of `each` is not among them if a side names its level, which is compared with
    /// every level of the other side.
    pub(crate) fn comparison_of(&self, point: &Point) -> Option<Point> {
        let expect = self.expect.as_ref().filter(|expect| expect.kind.compares_points())?;
        if self.unmeasurable.is_some() || !self.is_about(point) {
            return None;
        }
        let sides = self.sides();
        let is_free = |factor: &&String| !sides.iter().any(|side| side.fixes(factor));
        let along = match &expect.kind {
            Condition::WinnerChanges { along, .. } => Some(along),
            _ => None,
        };
        let common = expect.each.iter().filter(is_free).chain(along);
        common.map(|factor| Some((factor.clone(), point.get(factor)?.clone()))).collect()
    }

    /// Returns the filters of the points that it compares; none if it compares no sides.
    fn sides(&self) -> Vec<Filter> {
        match self.expect.as_ref().map(|expect| &expect.kind) {
            Some(Condition::Ratio { of, to, limit, baselines, .. }) => {
                let baselines = baselines.iter().flat_map(|[a, b]| [of.with(a), to.with(b)]);
                [of, to].into_iter().chain(limit).cloned().chain(baselines).collect()
            }
            Some(Condition::Ranking(ranking)) => ranking.clone(),
            Some(
                Condition::Value(_)
                | Condition::EverySample(_)
                | Condition::SomeSample(_)
                | Condition::WinnerChanges { .. }
                | Condition::Shape { .. }
                | Condition::TwinsDifferAtMost(_)
                | Condition::RoundsDifferAtMost(..),
            )
            | None => Vec::new(),
        }
    }

    /// Returns its filters: of its points, and of the sides that it compares.
    pub(crate) fn filters(&self) -> Vec<Filter> {
        self.sides().into_iter().chain([self.filter.clone()]).collect()
    }
}

/// Returns the points that a claim requires, given its experiment in several profiles: those of the first and, for
/// levels that the claim names and the first profile lacks, those of the next ones.
pub fn needs_of_profiles(claim: &Claim, profiles: &[&Experiment]) -> BTreeSet<Point> {
    let mut points = BTreeSet::new();
    for experiment in profiles {
        let found = needs(claim, experiment);
        let lacks = |factor: &str, level: &Level| {
            !points.iter().any(|point: &Point| point.get(factor) == Some(level))
        };
        let lacking: Vec<_> = named_levels(claim)
            .into_iter()
            .filter(|(factor, level)| lacks(factor, level))
            .collect();
        let levels_of = |factor: &str| -> BTreeSet<_> {
            points.iter().filter_map(|point| point.get(factor)).collect()
        };
        let compares_too_few = compared_factors(claim).iter().any(|it| levels_of(it).len() < 2);
        let is_new =
            |point: &Point| lacking.iter().any(|(factor, level)| point.get(factor) == Some(level));
        let takes_all = points.is_empty() || compares_too_few;
        points.extend(found.into_iter().filter(|point| takes_all || is_new(point)));
    }
    points
}

/// Returns the levels that a claim names, with their factors.
fn named_levels(claim: &Claim) -> Vec<(&str, &Level)> {
    let condition = claim.expect.as_ref().map(|expect| &expect.kind);
    let sides: Vec<&Filter> = match condition {
        Some(Condition::Ratio { of, to, limit, .. }) => [of, to].into_iter().chain(limit).collect(),
        Some(Condition::Ranking(ranking)) => ranking.iter().collect(),
        _ => Vec::new(),
    };
    let filters = sides.into_iter().chain([&claim.filter]);
    let levels = filters
        .flat_map(|filter| &filter.0)
        .flat_map(|(factor, levels)| levels.levels().iter().map(|level| (factor.as_str(), level)));
    let knee = match condition {
        Some(Condition::Shape { along, beyond: Some(level), .. }) => Some((along.as_str(), level)),
        _ => None,
    };
    levels.chain(knee).collect()
}

/// Returns the factors of which a claim compares several levels that it does not name.
fn compared_factors(claim: &Claim) -> Vec<&str> {
    match claim.expect.as_ref().map(|expect| &expect.kind) {
        Some(Condition::Shape { along, .. }) => vec![along],
        Some(Condition::WinnerChanges { factor, along }) => vec![factor, along],
        _ => Vec::new(),
    }
}

fn fit(claim: &Claim, subject: &Subject) -> Result<Claim, String> {
    // A promise on an experiment of few rounds is about values that do not vary.
    let few = |rounds: usize| rounds < INTERVAL_ROUNDS;
    let exempt = claim.is_promise() && few(subject.experiment.effort.rounds as usize);
    if claim.rounds.is_some_and(few) && !exempt {
        return Err(format!(
            "rounds: fewer than {INTERVAL_ROUNDS} have no 95% interval; \
             set {INTERVAL_ROUNDS} or more, or leave it out"
        ));
    }
    let metric = subject.metric(claim.metric.as_deref())?;
    let name = metric.name;
    let mut fitted = claim.clone();
    fitted.metric = Some(name.into());
    let published = claim.published.as_ref().map(|published| published.unit.clone());
    fitted.unit = published.or_else(|| Some(metric.unit.into()));
    fitted.filter = subject.filter("where", &claim.filter)?;
    let prefer = claim.prefer.as_ref().map(|prefer| subject.filter("prefer", prefer));
    fitted.prefer = prefer.transpose()?;
    if let Some(published) = &claim.published {
        let (unit, mut measured) = (&published.unit, MetricRecord::from(metric));
        let condition = claim.expect.as_ref().map(|expect| &expect.kind);
        if matches!(condition, Some(Condition::Ratio { .. })) {
            measured.unit = "1".into();
        }
        let converted = Unit::of(unit, &measured.unit).applied(name, &measured);
        if !converted.is_ok_and(|converted| converted.unit == *unit) {
            let what =
                if measured.unit == metric.unit { format!("'{name}'") } else { "a ratio".into() };
            return Err(format!("published in {unit}, but {what} is in {}", measured.unit));
        }
    }
    if let Some(CarriesOver::To(setup)) = &mut fitted.carries_over {
        setup.filter = subject.filter("carries_over: where", &setup.filter)?;
    }
    if let Some(expect) = &mut fitted.expect {
        if matches!(expect.kind, Condition::RoundsDifferAtMost(_, SpreadUnit::Steps))
            && metric.unit != "ns"
        {
            return Err(format!("steps of the counter apply to times in ns, not to '{name}'"));
        }
        for factor in &expect.each {
            subject.factor("each", factor)?;
        }
        fit_condition(&mut expect.kind, subject, metric)?;
        if expect.kind.compares_points() && subject.experiment.twins.is_empty() && !exempt {
            return Err(format!(
                "{} has no twins, which measure the noise floor of a comparison; add 'twins' to it",
                subject.experiment.id()
            ));
        }
    }
    Ok(fitted)
}

fn fit_condition(
    condition: &mut Condition,
    subject: &Subject,
    metric: &Metric,
) -> Result<(), String> {
    let ranks = match condition {
        Condition::Ratio { of, to, limit, baselines, .. } => {
            *of = subject.filter("ratio_of", of)?;
            *to = subject.filter("to", to)?;
            for baseline in baselines.iter_mut().flatten() {
                *baseline = subject.filter("baselines", baseline)?;
            }
            if let Some(limit) = limit {
                *limit = subject.filter("limit", limit)?;
            }
            let relative_to = baselines.as_ref().map(|[a, b]| (a, b));
            if of == to && relative_to.is_none_or(|(a, b)| a == b) {
                return Err(
                    "'ratio_of' and 'to' are the same points, whose ratio is 1; change one".into(),
                );
            }
            false
        }
        Condition::Ranking(ranking) => {
            for filter in ranking.iter_mut() {
                *filter = subject.filter("ranking", filter)?;
            }
            if ranking.windows(2).any(|pair| pair[0] == pair[1]) {
                return Err("'ranking' has the same points twice in succession; change one".into());
            }
            true
        }
        Condition::WinnerChanges { factor, along } => {
            subject.factor("winner_changes", factor)?;
            subject.factor("along", along)?;
            true
        }
        Condition::Shape { form, along, .. } => {
            subject.factor("along", along)?;
            *form == Trend::Saturates
        }
        Condition::Value(_)
        | Condition::EverySample(_)
        | Condition::SomeSample(_)
        | Condition::TwinsDifferAtMost(_)
        | Condition::RoundsDifferAtMost(..) => false,
    };
    if ranks && metric.better == Better::Neither {
        return Err(format!("metric '{}' has no better direction", metric.name));
    }
    Ok(())
}
