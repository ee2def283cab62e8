//! View of the samples that a claim is judged by, and the reasons for missing values.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use machine::environment::Environment;
use machine::proximity::Class;

use super::reason::{LeftOut, NoVerdict, Reason, leave_out};
use super::{Claim, VerdictKind};
use crate::metric::MetricRecord;
use crate::point::{Filter, Point};
use crate::run::{OUTSIDE_SAMPLES, is_lab_experiment};
use crate::sample::Sample;
use crate::sharing::{Sharing, SharingCounts};
use crate::statistics::{
    INTERVAL_ROUNDS, Interval, IntervalKind, confidence_of_look, lacks_interval,
};
use crate::summary::{
    Floors, MAX_FAILED, Observed, RoundCounts, Rounds, Samples, TwinAlarm, Unit, metric_record,
    recorded,
};

/// Points on one side of a ratio.
pub(super) struct Side<'a> {
    /// Points with values.
    pub(super) points: Vec<(&'a Point, &'a Rounds)>,
    /// Points without values.
    pub(super) missing: Missing,
}

/// Points without values, if others have one.
#[derive(Default)]
pub(super) struct Missing {
    /// Why a point that this machine may be able to measure has no value: a fault, or it is not
    /// measured yet.
    pub(super) open: Option<NoVerdict>,
    /// Points that this machine cannot measure.
    pub(super) left_out: Vec<LeftOut>,
}

/// Samples that a claim is judged by, in one environment of its experiment.
#[derive(Clone)]
pub(super) struct Evidence<'a> {
    pub(super) claim: &'a Claim,
    pub(super) samples: Rc<Samples<'a>>,
    pub(super) metric: &'a str,
    unit: Unit,
    /// Unit and direction of the metric; the unit is that of the published value.
    pub(super) record: MetricRecord,
    /// Class of all values, except those of a single core; `None` if they may be of several.
    pub(super) class: Option<Class>,
    /// Rounds with values of other classes.
    pub(super) others: BTreeMap<Point, BTreeSet<u32>>,
    /// The evidence of each class; empty if the claim names a class or no value has one.
    pub(super) parts: Vec<Self>,
    /// Values of the points that the claim matches, and of their twins.
    pub(super) observed: Observed,
    /// Noise floors of every twin of the experiment.
    pub(super) floors: Floors,
    /// Twins of the experiment that differ.
    pub(super) alarms: Vec<TwinAlarm>,
    /// Number of rounds that each point and its twin have in common, by the state of the core.
    twin_counts: Vec<SharingCounts>,
    /// Every point that the claim is about, measured or not: all of the experiment in the run's profile.
    pub(super) known: BTreeSet<Point>,
    /// Factors with several levels among the known points.
    pub(super) varying: Vec<String>,
}

impl<'a> Evidence<'a> {
    /// Collects the values that a claim is judged by from samples of its experiment.
    pub(super) fn gather(claim: &'a Claim, samples: Rc<Samples<'a>>) -> Result<Self, NoVerdict> {
        let experiment = claim.experiment.as_str();
        let declared = samples.declared();
        let metric = claim.metric.as_deref().or(declared.map(|e| e.metric.as_str()));
        let metric = metric.ok_or_else(|| Reason::NoMetric { experiment: experiment.into() })?;
        let summary = |error| Reason::Summary { error };
        let record = metric_record(&samples, metric).map_err(summary)?;
        let published = claim.published.as_ref();
        let unit = published.map_or(Unit::Own, |it| Unit::of(&it.unit, &record.unit));
        let record = unit.applied(metric, record).map_err(summary)?;
        let planned = declared.into_iter().flat_map(|one| one.points.iter().chain(&one.skipped));
        let known: BTreeSet<Point> = planned
            .chain(samples.points())
            .filter(|point| claim.is_about(point))
            .cloned()
            .collect();
        let all = samples.observed(metric, unit);
        let empty = Self {
            claim,
            record,
            class: None,
            others: BTreeMap::new(),
            parts: Vec::new(),
            observed: Observed::default(),
            floors: Floors::default(),
            alarms: Vec::new(),
            twin_counts: Vec::new(),
            varying: open_factors(known.iter(), &[]),
            known,
            samples,
            metric,
            unit,
        };
        if let Some(class) = claim.class {
            return Ok(empty.of_class(class, all));
        }
        let whole = empty.clone().with_values(all.clone());
        let parts = whole.classes().into_iter().map(|class| empty.of_class(class, all.clone()));
        Ok(Self { parts: parts.collect(), ..whole })
    }

    /// Sets the values, given those of all points of the experiment.
    pub(super) fn with_values(self, mut all: Observed) -> Self {
        let (mut floors, twin_counts) = (Floors::of(&all), all.twin_counts());
        floors.retain(|twin| !self.samples.round_counts(&[twin], true).fails_too_often());
        let alarms = TwinAlarm::all(&self.samples, self.metric, &all);
        all.points.retain(|point, _| self.claim.filter.matches(point));
        all.twins.retain(|point, _| self.claim.filter.matches(point));
        Self { observed: all, floors, alarms, twin_counts, ..self }
    }

    /// Returns the points that match a filter and a combination of levels, at least one of them
    /// with values.
    pub(super) fn side(&self, filter: &Filter, combination: &Point) -> Result<Side<'_>, NoVerdict> {
        let free = free(combination, filter);
        let matches = |point: &Point| filter.matches(point) && includes(point, &free);
        let points = self.observed.points.iter();
        let points: Vec<_> = points.filter(|(point, _)| matches(point)).collect();
        if points.is_empty() {
            return Err(self.lack(matches));
        }
        let missing = self.missing(matches, |point| self.name(point, combination));
        let open = missing.open.or_else(|| self.lacks_listed_level(filter));
        Ok(Side { points, missing: Missing { open, ..missing } })
    }

    /// Returns why none of the matching points has a value. Unmeasurable only if this machine lacks
    /// what each requires.
    pub(super) fn lack(&self, matches: impl Fn(&Point) -> bool) -> NoVerdict {
        let samples: Vec<_> = self.without_values(matches).map(|(_, sample)| sample).collect();
        // That a claimed class does not occur is a property of the machine.
        let is_claimed_class = |one| self.claim.class.is_some() && self.is_of_other_class(one);
        let mut faults =
            samples.iter().flatten().filter(|one| !one.is_absence() && !is_claimed_class(one));
        match (faults.next(), samples.first()) {
            (Some(fault), _) => self.reason(fault, None).into(),
            (None, Some(Some(absent))) if samples.iter().all(Option::is_some) => {
                NoVerdict::unmeasurable(self.reason(absent, None))
            }
            _ => self.claim.not_measured(),
        }
    }

    /// Returns which of the matching points have no value, if others have one. `name` returns the
    /// name of a point.
    pub(super) fn missing(
        &self,
        matches: impl Fn(&Point) -> bool,
        name: impl Fn(&Point) -> String,
    ) -> Missing {
        let mut missing = Missing::default();
        for (point, sample) in self.without_values(matches) {
            let why = match sample {
                Some(sample) if sample.is_absence() => {
                    let why = self.reason(sample, None);
                    leave_out(&mut missing.left_out, why, [name(point)]);
                    continue;
                }
                Some(sample) => self.reason(sample, Some(self.claim.command())),
                None => self.claim.not_measured().why,
            };
            let label = self.name(point, &Point::default());
            missing.open.get_or_insert_with(|| Reason::At { label, why: Box::new(why) }.into());
        }
        missing
    }

    /// Returns the matching points without values, each with its last sample.
    fn without_values(
        &self,
        matches: impl Fn(&Point) -> bool,
    ) -> impl Iterator<Item = (&Point, Option<&'a Sample>)> {
        let without = |point: &&Point| !self.observed.points.contains_key(*point);
        let points = self.known.iter().filter(without).filter(move |point| matches(point));
        let last = |point| self.samples.rounds(point, false).next_back().map(|(_, sample)| sample);
        points.map(move |point| (point, last(point)))
    }

    /// Returns the levels of a point that differ among the known points, without those of a
    /// combination.
    pub(super) fn name(&self, point: &Point, combination: &Point) -> String {
        let levels = point.levels().filter(|(factor, _)| {
            self.varying.iter().any(|one| one == factor) && combination.get(factor).is_none()
        });
        let name: Point = levels.map(|(factor, level)| (factor, level.clone())).collect();
        if name.is_empty() { self.label(point) } else { name.to_string() }
    }

    /// Returns the label of a point in verdicts: its levels of the factors that vary between the
    /// points of the claim, or all if none does.
    pub(super) fn label(&self, point: &Point) -> String {
        if let Some(varying) = levels(point, &self.varying).filter(|it| !it.is_empty()) {
            return varying.to_string();
        }
        let declared = self.samples.declared();
        declared.map_or_else(|| point.to_string(), |one| one.brief(point).to_string())
    }

    /// Returns whether a sample is valid, and its point has values of other classes only.
    fn is_of_other_class(&self, sample: &Sample) -> bool {
        let point = &sample.point;
        let has_others = self.others.get(point).is_some_and(|rounds| !rounds.is_empty());
        sample.is_valid() && has_others && !self.observed.points.contains_key(point)
    }

    /// Returns why the point of its last sample has no value.
    fn reason(&self, sample: &Sample, command: Option<String>) -> Reason {
        if let Some(class) = self.class.filter(|_| self.is_of_other_class(sample)) {
            let last = self.samples.class(sample);
            return Reason::OtherClass { class, last, command };
        }
        match (&sample.error, &sample.void) {
            (Some(failure), _) => Reason::Failed { failure: failure.clone(), command },
            (None, Some(cause)) => Reason::Void { cause: cause.clone(), command },
            (None, None) => Reason::NoValue { command },
        }
    }

    /// Returns the machine and program that measured, if the run records it.
    pub(super) fn machine(&self) -> Option<&'a Environment> {
        self.samples.machine()
    }

    /// Returns every sample with a value of the claimed points, with that value: twins, every
    /// attempt, and void samples. A void sample counts for any class if its class is unknown.
    pub(super) fn every_sample(&self) -> impl Iterator<Item = (&'a Sample, f64)> {
        let of_class = |sample: &Sample| {
            let class = self.samples.class(sample);
            let is_unknown = class.is_none() && sample.void.is_some();
            self.claim.class.is_none_or(|claimed| class == Some(claimed) || is_unknown)
        };
        let samples = self.samples.all().filter(|sample| sample.error.is_none());
        let claimed = samples.filter(|sample| self.claim.filter.matches(&sample.point));
        claimed
            .filter(move |sample| of_class(sample))
            .filter_map(|sample| Some((sample, recorded(sample, self.metric, self.unit)?)))
    }

    /// Returns the mean wall time of one round of the claim's points and their twins, s: that of their samples, and the
    /// time outside of samples, e.g. for starting processes, as the sessions recorded it. `None` if one did not.
    pub(super) fn seconds_per_round(&self) -> Option<f64> {
        let sessions =
            self.samples.run.samples.iter().filter(|it| is_lab_experiment(&it.experiment));
        let outside: BTreeMap<u32, f64> = sessions
            .filter_map(|it| Some((it.session, *it.values.get(OUTSIDE_SAMPLES)?)))
            .collect();
        let (mut seconds, mut rounds) = (0.0, BTreeSet::new());
        for sample in self.samples.all().filter(|sample| self.known.contains(&sample.point)) {
            seconds += sample.seconds / (1.0 - outside.get(&sample.session)?);
            rounds.insert((sample.session, sample.round));
        }
        Some(seconds / rounds.len().max(1) as f64).filter(|seconds| seconds.is_finite())
    }

    /// Returns the sample that counts for a point and round.
    pub(super) fn sample(&self, point: &Point, round: u32) -> Option<&Sample> {
        self.samples.sample(point, round)
    }

    /// Returns why one point has no value.
    pub(super) fn lack_of(&self, point: &Point) -> NoVerdict {
        self.lack(|other| other == point)
    }

    /// Returns every combination of the levels of some factors at which each filter matches a known
    /// point; a single empty combination if there are no factors. A filter that fixes a factor
    /// matches at its level, whichever level the combination has.
    pub(super) fn combinations(&self, each: &[String], filters: &[&Filter]) -> Vec<Point> {
        if each.is_empty() {
            return vec![Point::default()];
        }
        let of = |filter: &Filter| -> BTreeSet<Point> {
            let points = self.known.iter().filter(|point| filter.matches(point));
            points.filter_map(|point| Some(free(&levels(point, each)?, filter))).collect()
        };
        let sets: Vec<_> = filters.iter().map(|filter| (*filter, of(filter))).collect();
        let is_in_all = |combination: &Point| {
            sets.iter().all(|(filter, set)| set.contains(&free(combination, filter)))
        };
        let all = match sets.iter().find(|(filter, _)| !each.iter().any(|one| filter.fixes(one))) {
            Some((_, set)) => set.clone(),
            None => of(&Filter::default()),
        };
        all.into_iter().filter(is_in_all).collect()
    }

    /// Returns the factors with several levels among the known points of a combination, except
    /// `named`.
    pub(super) fn open_factors(&self, combination: &Point, named: &[&str]) -> Vec<String> {
        let points = self.known.iter().filter(|point| includes(point, combination));
        open_factors(points, named)
    }

    /// Returns the coverage of the interval of a value, and a reason if several sessions could have decided it.
    ///
    /// After each session with more rounds the user may look, and measure more only if the verdict is inconclusive.
    /// Sessions after which the rounds were fewer than required do not count. Another environment with enough rounds
    /// was one look or more.
    pub(super) fn confidence(&self, rounds: &Rounds) -> (f64, Option<Reason>) {
        let mut sessions: Vec<u32> = rounds.values().map(|one| one.session).collect();
        sessions.sort_unstable();
        let deciding = sessions.iter().skip(self.claim.rounds_needed().saturating_sub(1));
        let others = self.samples.other_environments(|point| self.known.contains(point));
        let elsewhere = others.iter().filter(|one| one.rounds >= self.claim.rounds_needed());
        let looks = deciding.collect::<BTreeSet<_>>().len().max(1) + elsewhere.count();
        let confidence = confidence_of_look(looks);
        (confidence, (looks > 1).then_some(Reason::RepeatedLooks { looks, confidence }))
    }

    /// Weakens a result that too few rounds judged.
    pub(super) fn require_rounds(
        &self,
        kind: &mut VerdictKind,
        rounds: usize,
        reasons: &mut Vec<Reason>,
    ) {
        let needed = self.claim.rounds_needed();
        if rounds < needed {
            *kind = VerdictKind::Inconclusive;
            reasons.push(Reason::TooFewRounds { rounds, needed });
        }
    }

    /// States that rounds, although enough, are so correlated that the interval is wide, and weakens a result without one.
    pub(super) fn require_interval(
        &self,
        kind: &mut VerdictKind,
        interval: &Interval,
        (lag_1, rounds): (Option<f64>, usize),
        reasons: &mut Vec<Reason>,
    ) {
        let is_judged = self.claim.rounds_needed() >= INTERVAL_ROUNDS;
        let Some(lag_1) = lag_1.filter(|_| is_judged) else { return };
        if interval.kind == IntervalKind::Range {
            *kind = VerdictKind::Inconclusive;
        }
        if lacks_interval(rounds, Some(lag_1)) {
            reasons.push(Reason::Correlated { lag_1, command: self.claim.command() });
        }
    }

    /// Weakens the result of comparisons in some states of the core: by too few rounds, by failed rounds of its points,
    /// and without a noise floor.
    pub(super) fn require_comparable(
        &self,
        kind: &mut VerdictKind,
        rounds: usize,
        points: &[&Point],
        states: &[Option<Sharing>],
        reasons: &mut Vec<Reason>,
    ) {
        self.require_rounds(kind, rounds, reasons);
        for point in points {
            self.limit_failures_of(point, kind, reasons);
        }
        if let Some(why) = states.iter().find_map(|state| self.no_floor(points, *state)) {
            *kind = VerdictKind::Inconclusive;
            reasons.push(why);
        }
    }

    /// Weakens a result if more than a small share of the rounds of a point or of its twin failed, because slow rounds
    /// may fail more often.
    pub(super) fn limit_failures_of(
        &self,
        point: &Point,
        kind: &mut VerdictKind,
        reasons: &mut Vec<Reason>,
    ) {
        let counts = self.round_counts(&[point]);
        let of_point = counts.fails_too_often().then(|| too_many_failed(&counts));
        if let Some(why) = of_point.or_else(|| self.failing_twin(|twin| twin == point)) {
            *kind = VerdictKind::Inconclusive;
            if !reasons.contains(&why) {
                reasons.push(why);
            }
        }
    }

    /// Returns a reason if too many rounds of one of some twins failed.
    fn failing_twin(&self, is_wanted: impl Fn(&Point) -> bool) -> Option<Reason> {
        let twins = self.samples.declared()?.twins.iter().filter(|twin| is_wanted(twin));
        let mut counts = twins.map(|twin| (twin, self.samples.round_counts(&[twin], true)));
        let (twin, counts) = counts.find(|(_, counts)| counts.fails_too_often())?;
        let why = Box::new(too_many_failed(&counts));
        Some(Reason::At { label: format!("the twin of {}", self.label(twin)), why })
    }

    /// Counts rounds by the result at some points.
    pub(super) fn round_counts(&self, points: &[&Point]) -> RoundCounts {
        self.samples.round_counts(points, false)
    }

    /// Returns every sample of the claim's points and their twins that failed, crashed, timed out or gave a wrong
    /// result, in any session.
    pub(super) fn failed_samples(&self) -> impl Iterator<Item = &'a Sample> {
        let is_claimed = |sample: &&Sample| self.known.contains(&sample.point);
        self.samples.all().filter(|sample| sample.has_failed()).filter(is_claimed)
    }

    /// Returns a reason if no twins near some points have enough rounds in a state of the core for a noise floor. A
    /// promise that requires fewer rounds than a floor does needs none.
    fn no_floor(&self, points: &[&Point], state: Option<Sharing>) -> Option<Reason> {
        let needed = INTERVAL_ROUNDS;
        if self.claim.rounds_needed() < needed {
            return None;
        }
        // The floor of other twins may be lower.
        if let Some(why) = self.failing_twin(|_| true) {
            return Some(why);
        }
        if self.floors.near(points, state).is_some() {
            return None;
        }
        let declared = self.samples.declared();
        let has_twins = declared.is_none_or(|one| !one.twins.is_empty());
        let of_state = |twins: &SharingCounts| state.map_or(twins.total(), |it| twins.of(it));
        let rounds = self.twin_counts.iter().map(of_state).max().unwrap_or_default();
        let rounds = has_twins.then_some(rounds);
        Some(Reason::NoFloor { rounds, needed, command: self.claim.command(), state })
    }
}

fn too_many_failed(counts: &RoundCounts) -> Reason {
    Reason::TooManyFailed { failed: counts.failed, rounds: counts.rounds(), max: MAX_FAILED }
}

impl Claim {
    /// Returns the verdict without samples.
    pub(super) fn not_measured(&self) -> NoVerdict {
        Reason::NotMeasured { command: self.command() }.into()
    }

    /// Returns the command that measures the points of the claim.
    pub fn command(&self) -> String {
        let profile = self.profile.map(|p| format!(" --profile {}", p.name())).unwrap_or_default();
        format!("tollgate run --claim {}{profile}{}", self.id, self.arguments)
    }
}

/// Returns whether a point has all levels of a combination.
pub(super) fn includes(point: &Point, combination: &Point) -> bool {
    combination.levels().all(|(factor, level)| point.get(factor) == Some(level))
}

/// Returns a combination without the factors that a filter fixes.
fn free(combination: &Point, filter: &Filter) -> Point {
    combination.without(filter.0.keys().map(String::as_str).filter(|factor| filter.fixes(factor)))
}

/// Returns the levels of some factors; `None` if the point lacks one of them.
fn levels(point: &Point, factors: &[String]) -> Option<Point> {
    factors.iter().map(|factor| Some((factor.as_str(), point.get(factor)?.clone()))).collect()
}

/// Returns the factors with several levels among points, except `named`.
pub(super) fn open_factors<'p>(
    points: impl Iterator<Item = &'p Point>,
    named: &[&str],
) -> Vec<String> {
    let mut seen: BTreeMap<&str, BTreeSet<_>> = BTreeMap::new();
    for (factor, level) in points.flat_map(Point::levels) {
        seen.entry(factor).or_default().insert(level);
    }
    let open = |(factor, levels): &(&str, BTreeSet<_>)| levels.len() > 1 && !named.contains(factor);
    seen.into_iter().filter(open).map(|(factor, _)| factor.to_string()).collect()
}
