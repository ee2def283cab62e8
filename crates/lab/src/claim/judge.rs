//! The verdict on a claim from a run.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::iter::{self, repeat_n};
use std::rc::Rc;

use machine::cpu::CpuClock;
use machine::environment::Environment;

use super::evidence::Evidence;
use super::measured::WithLost;
use super::ratio::within_bounds;
use super::reason::{NoVerdict, Reason};
use super::verdict::{Judgement, MeasuredValue, Statistic, combine, of_open};
use super::{
    Bounds, CarriesOver, Claim, Condition, Published, Quantifier, Setup, Unmet, Verdict,
    VerdictKind,
};
use crate::guest::EMULATOR;
use crate::journal::Run;
use crate::measure::EXECUTED_BY;
use crate::point::{Filter, Level, Point};
use crate::sample::{Part, Sample};
use crate::statistics::{Censored, EXTREME, Estimate, estimate_at};
use crate::summary::{Rounds, Samples, censored, chosen_state, in_state, resolution, state_counts};

/// What claims need unless they are about what an emulator can show.
const REAL_CPU: &str = "a real CPU";

/// Judges a claim by a run, like [`Judge::judge`].
pub fn judge(claim: &Claim, run: Option<&Run>, cores: usize) -> Verdict {
    Judge::new(run, cores).judge(claim)
}

/// Judges claims by one run.
pub struct Judge<'r> {
    pub(super) run: Option<&'r Run>,
    /// Number of physical cores of this machine; if the run records the machine that measured, its number applies.
    cores: usize,
    /// The samples by experiment and environment, because many claims are about the same.
    samples: RefCell<BTreeMap<(&'r str, &'r str), Rc<Samples<'r>>>>,
}

impl<'r> Judge<'r> {
    /// Creates a judge of claims by a run, or without samples. `cores` is the number of physical cores of this machine.
    pub fn new(run: Option<&'r Run>, cores: usize) -> Self {
        Self { run, cores, samples: RefCell::default() }
    }

    /// Judges a claim.
    pub fn judge(&self, claim: &Claim) -> Verdict {
        let newest = self.run.and_then(|run| Samples::newest_environment(run, &claim.experiment));
        let verdict = self.judge_in(claim, newest);
        match newest {
            Some(newest) => self.with_others(verdict, claim, newest),
            None => verdict,
        }
    }

    /// Returns the samples of an experiment in an environment; `None` without a run.
    pub(super) fn samples(
        &self,
        experiment: &str,
        environment: &'r str,
    ) -> Option<Rc<Samples<'r>>> {
        let run = self.run?;
        let experiment = run.samples.iter().find(|one| one.experiment == experiment)?;
        let experiment = experiment.experiment.as_str();
        let mut all = self.samples.borrow_mut();
        let samples = all
            .entry((experiment, environment))
            .or_insert_with(|| Rc::new(Samples::in_environment(run, experiment, environment)));
        Some(Rc::clone(samples))
    }

    /// Judges a claim by the samples of one environment; `None` if no environment has any.
    pub(super) fn judge_in(&self, claim: &Claim, environment: Option<&'r str>) -> Verdict {
        let samples = || self.samples(&claim.experiment, environment?);
        let run = self.run;
        let machine = run.zip(environment).and_then(|(run, id)| run.record.environments.get(id));
        let preferred = preferred(claim, samples);
        let claim = preferred.as_ref().unwrap_or(claim);
        let unmeasurable = claim.unmeasurable.clone();
        let evidence = unmeasurable
            .map(|why| NoVerdict::unmeasurable(Reason::NoMethod { why }))
            .or_else(|| emulated(claim, run, machine))
            .or_else(|| emulated_samples(claim, samples()?.as_ref()))
            .or_else(|| lacking_cores(claim, machine, self.cores))
            .or_else(|| other_machine(claim, machine))
            .or_else(|| other_profile(claim, run, machine))
            .map_or_else(|| samples().ok_or_else(|| claim.not_measured()), Err)
            .and_then(|samples| Evidence::gather(claim, samples));
        let mut judgements = match &evidence {
            Ok(evidence) => evidence.judge(),
            Err(lack) => vec![Judgement::missing("", lack.clone())],
        };
        let alarms = evidence.as_ref().map(|evidence| evidence.alarms.clone()).unwrap_or_default();
        let quantifier = claim.expect.as_ref().map_or(Quantifier::All, |expect| expect.hold);
        let mut kind = combine(&judgements, quantifier);
        if let (Ok(evidence), false) = (&evidence, kind == VerdictKind::Incomparable) {
            let lacks_levels = !evidence.lacking_levels().is_empty();
            if lacks_levels {
                kind = kind.without_all(quantifier);
            }
            join_unmeasured(&mut judgements, lacks_levels, evidence);
        }
        if let (Some(why), VerdictKind::Contradicted) = (&claim.one_sided, kind) {
            kind = VerdictKind::Incomparable;
            judgements.iter_mut().for_each(|one| one.disregard_contradiction(why));
        }
        if let (Ok(evidence), VerdictKind::Inconclusive) = (&evidence, kind) {
            evidence.project(&mut judgements);
        }
        if kind == VerdictKind::Inconclusive {
            kind = of_open(&mut judgements);
        }
        let published = claim.published.clone();
        let (elsewhere, doubt) = (Vec::new(), None);
        Verdict { kind, quantifier, judgements, published, alarms, elsewhere, doubt }
    }
}

/// Replaces the judgements of points without samples by one that counts them; by the first if no point has a sample.
fn join_unmeasured(judgements: &mut Vec<Judgement>, lacks_levels: bool, evidence: &Evidence) {
    let (unmeasured, others): (Vec<_>, Vec<_>) =
        judgements.drain(..).partition(Judgement::is_not_measured);
    let counted = || Judgement::missing("", evidence.measured_share().into());
    let joined = match others.is_empty() {
        true => unmeasured.into_iter().next(),
        false => (lacks_levels || !unmeasured.is_empty()).then(counted),
    };
    judgements.extend(joined.into_iter().chain(others));
}

/// Returns the claim about its preferred points only, if the samples have a value of one of them.
pub(super) fn preferred<'a>(
    claim: &Claim,
    samples: impl Fn() -> Option<Rc<Samples<'a>>>,
) -> Option<Claim> {
    let filter = claim.filter.with(claim.prefer.as_ref()?);
    let is_measured = samples()?.all().any(|one| one.is_valid() && filter.matches(&one.point));
    is_measured.then(|| Claim { filter, ..claim.clone() })
}

/// Returns a reason if an emulated CPU measured, which shows nothing about a real one, unless the claim is about what an
/// emulator can show. Values of a planted clock are never judged.
fn emulated(claim: &Claim, run: Option<&Run>, machine: Option<&Environment>) -> Option<NoVerdict> {
    let guests = run.and_then(|run| run.record.guests.as_ref());
    let has_no_clock = guests.is_some_and(|guests| guests.clock == CpuClock::Untimed);
    let is_emulated = has_no_clock || machine.is_some_and(|machine| machine.emulated);
    let unmet = |needed: &str, found: &str| {
        let unmet = vec![Unmet { needed: needed.into(), found: found.into() }];
        Some(NoVerdict::unmeasurable(Reason::OtherMachine { unmet }))
    };
    match guests {
        Some(guests) if guests.clock == CpuClock::Planted => {
            unmet("a real clock", "a planted clock")
        }
        _ if claim.emulated => None,
        Some(guests) if guests.is_emulated_by_tcg() => unmet(REAL_CPU, "one emulated by TCG"),
        _ if is_emulated => unmet(REAL_CPU, "an emulated one"),
        _ => None,
    }
}

/// Returns a reason if an emulator executed what a selected sample measured on a real CPU: in a guest of a single point, as a
/// role, or within the probe.
fn emulated_samples(claim: &Claim, samples: &Samples) -> Option<NoVerdict> {
    let environments = &samples.run.record.environments;
    let is_emulator = |level: &Level| level.as_str() == EMULATOR;
    let in_probe =
        |covariates: &BTreeMap<String, Level>| covariates.get(EXECUTED_BY).is_some_and(is_emulator);
    let in_part = |part: &Part| {
        let machine = environments.get(&part.environment);
        machine.is_some_and(|machine| machine.emulated) || in_probe(&part.covariates)
    };
    let is_emulated =
        |sample: &Sample| in_probe(&sample.covariates) || sample.parts.values().any(in_part);
    let mut selected = samples.all().filter(|one| one.is_valid() && claim.is_about(&one.point));
    if claim.emulated || !selected.any(is_emulated) {
        return None;
    }
    let unmet = vec![Unmet { needed: REAL_CPU.into(), found: "one emulated by TCG".into() }];
    Some(NoVerdict::unmeasurable(Reason::OtherMachine { unmet }))
}

/// Returns a reason if the machine that measured has fewer physical cores than the claim requires.
fn lacking_cores(claim: &Claim, machine: Option<&Environment>, cores: usize) -> Option<NoVerdict> {
    let needed = claim.cores?;
    let topology = machine.map(|environment| &environment.topology);
    let cores = topology.map_or(cores, |topology| topology.physical_cores());
    let threads_per_core =
        topology.map(|topology| topology.online.len() as f64 / cores.max(1) as f64);
    let reason = Reason::TooFewCores { needed, cores, threads_per_core };
    (cores < needed).then(|| NoVerdict::unmeasurable(reason))
}

/// Returns a reason if the machine that measured lacks what the claim requires.
fn other_machine(claim: &Claim, machine: Option<&Environment>) -> Option<NoVerdict> {
    let unmet = claim.requires.as_ref()?.unmet(Some(machine?));
    (!unmet.is_empty()).then(|| NoVerdict::unmeasurable(Reason::OtherMachine { unmet }))
}

/// Returns a reason if the claim requires another profile. A value that does not apply needs none.
fn other_profile(
    claim: &Claim,
    run: Option<&Run>,
    machine: Option<&Environment>,
) -> Option<NoVerdict> {
    let (needed, profile) = (claim.profile?, run?.record.profile);
    if profile == needed {
        return None;
    }
    let (_, unmet) = applies_to(claim, machine);
    Some(match unmet.is_empty() {
        true => Reason::OtherProfile { needed, profile, command: claim.command() }.into(),
        false => NoVerdict::incomparable(Reason::NotComparable { unmet }),
    })
}

/// Returns the machines and points to which the published value of a claim applies, and what a machine lacks
/// of it.
fn applies_to(claim: &Claim, machine: Option<&Environment>) -> (Setup, Vec<Unmet>) {
    match &claim.carries_over {
        Some(CarriesOver::To(setup)) => (setup.clone(), setup.unmet(machine)),
        Some(CarriesOver::Nowhere) => (Setup::default(), vec![Unmet::source_itself()]),
        Some(CarriesOver::Anywhere) | None => Default::default(),
    }
}

impl Evidence<'_> {
    fn judge(&self) -> Vec<Judgement> {
        match (&self.claim.expect, &self.claim.published) {
            (Some(_), _) if self.known.is_empty() => {
                vec![Judgement::missing("", self.claim.not_measured())]
            }
            (Some(expect), _) => self.judge_condition(&expect.kind, &expect.each),
            (None, Some(published)) => self.judge_published(published),
            (None, None) => Vec::new(),
        }
    }

    fn judge_condition(&self, condition: &Condition, each: &[String]) -> Vec<Judgement> {
        let for_each = |filters: &[&Filter], judge: &dyn Fn(&Self, &Point) -> Judgement| {
            let is_absent =
                |filter: &&Filter| !self.known.iter().any(|point| filter.matches(point));
            if filters.iter().any(is_absent) {
                return vec![Judgement::missing("", self.claim.not_measured())];
            }
            let combinations = self.combinations(each, filters);
            if combinations.is_empty() {
                let lack = Reason::NoCombination { factors: each.to_vec() };
                return vec![Judgement::missing("", lack.into())];
            }
            let of = |combination| self.by_class(|part| judge(part, combination));
            combinations.iter().map(of).collect()
        };
        match condition {
            Condition::Value(bounds) => {
                let unit = self.record.unit.clone();
                self.judge_values(bounds, &Reason::Claimed { bounds: *bounds, unit })
            }
            Condition::EverySample(bounds) => vec![self.judge_every_sample(bounds)],
            Condition::SomeSample(bounds) => vec![self.judge_some_sample(bounds)],
            Condition::TwinsDifferAtMost(max) => self.judge_twins(*max),
            Condition::RoundsDifferAtMost(max, unit) => self.judge_spreads(*max, *unit),
            Condition::Ratio { of, to, bounds, limit, baselines } => {
                for_each(&[of, to], &|part, combination| match baselines {
                    None => part.judge_ratio(of, to, bounds, limit.as_ref(), combination),
                    Some(baselines) => {
                        part.judge_relative([of, to], baselines, bounds, combination)
                    }
                })
            }
            Condition::Ranking(ranking) => {
                let filters: Vec<_> = ranking.iter().collect();
                for_each(&filters, &|part, combination| part.judge_ranking(ranking, combination))
            }
            Condition::WinnerChanges { factor, along } => {
                for_each(&[], &|part, combination| part.judge_winner(factor, along, combination))
            }
            Condition::Shape { form, along, beyond, within } => {
                for_each(&[], &|part, combination| {
                    part.judge_shape(*form, along, beyond.as_ref(), *within, combination)
                })
            }
        }
    }

    /// Judges the value of each point against the published one. Where the value does not apply, it needs
    /// no measured one.
    fn judge_published(&self, published: &Published) -> Vec<Judgement> {
        let Published { value, unit, tolerance, .. } = published;
        let bounds = Bounds::around(*value, *tolerance);
        let claimed =
            Reason::ClaimedValue { value: *value, unit: unit.clone(), tolerance: *tolerance };
        let (setup, elsewhere) = applies_to(self.claim, self.machine());
        if self.known.is_empty() {
            let lack = match elsewhere.is_empty() {
                true => self.claim.not_measured(),
                false => NoVerdict::incomparable(Reason::NotComparable { unmet: elsewhere }),
            };
            return vec![Judgement::missing("", lack)];
        }
        let judged = |part: &Self, point: &Point| {
            let mut value = part.point_value(point, &bounds, &claimed);
            let unmet: Vec<_> = elsewhere.iter().cloned().chain(setup.unmet_by(point)).collect();
            let is_open = value.kind == VerdictKind::Inconclusive && !elsewhere.is_empty();
            if !unmet.is_empty() && (value.value.is_some() || is_open) {
                value.kind = VerdictKind::Incomparable;
                value.reasons = vec![claimed.clone(), Reason::NotComparable { unmet }];
            }
            Judgement::of_all(vec![value])
        };
        // If no point can be judged, those without a value do not matter.
        let is_shown = |point: &&Point| {
            let points = &self.observed.points;
            elsewhere.is_empty() || points.is_empty() || points.contains_key(*point)
        };
        let shown = self.known.iter().filter(is_shown);
        shown.map(|point| self.by_class(|part| judged(part, point))).collect()
    }

    /// Judges the estimate of each point by its interval.
    fn judge_values(&self, bounds: &Bounds, claimed: &Reason) -> Vec<Judgement> {
        let judged =
            |part: &Self, point| Judgement::of_all(vec![part.point_value(point, bounds, claimed)]);
        self.known.iter().map(|point| self.by_class(|part| judged(part, point))).collect()
    }

    fn point_value(&self, point: &Point, bounds: &Bounds, claimed: &Reason) -> MeasuredValue {
        let no_rounds = Rounds::new();
        let all_rounds = self.observed.points.get(point).unwrap_or(&no_rounds);
        let state = chosen_state(all_rounds);
        let rounds = &in_state(all_rounds, state);
        let values_of = |rounds: &Rounds| rounds.values().map(|one| one.value).collect();
        let values: Vec<f64> = values_of(rounds);
        let resolution = resolution(rounds);
        let drift = self.observed.drift;
        let (confidence, looks) = self.confidence(rounds);
        let estimate = |values: &[f64], rounds: &Rounds| {
            let estimated = estimate_at(values, confidence).ok()?;
            let estimated = estimated.widened_if_correlated(confidence);
            let mut censored = censored(rounds);
            censored.resize(values.len(), Censored::default());
            let estimated = estimated.with_resolution(resolution).with_drift(drift);
            Some(estimated.with_censored(values, &censored, confidence))
        };
        let Some(estimated) = estimate(&values, rounds) else {
            return MeasuredValue::missing(self.label(point), self.lack_of(point));
        };
        let counts = self.round_counts(&[point]);
        let other_sharing = all_rounds.len() - rounds.len();
        let lost = counts.failed + counts.void + other_sharing;
        let floor = self.floors.of_point(point, state);
        let judge = |one: &Estimate| within_bounds((one.median, one.interval), bounds, floor);
        let (mut kind, unresolved) = judge(&estimated);
        let mut reasons: Vec<_> =
            iter::once(claimed.clone()).chain(unresolved).chain(looks).collect();
        // A failed round may have had any value.
        let differs = |extreme: f64| {
            let all = values.iter().copied().chain(repeat_n(extreme, counts.failed));
            let worst = estimate(&all.collect::<Vec<_>>(), rounds);
            worst.is_some_and(|worst| judge(&worst).0 != kind)
        };
        if counts.failed > 0 && (differs(-EXTREME) || differs(EXTREME)) {
            kind = VerdictKind::Inconclusive;
            reasons.push(Reason::FailuresMayDecide { failed: counts.failed });
        }
        let with_lost = || {
            let all = estimate(&values_of(all_rounds), all_rounds)?;
            let value = (other_sharing > 0).then(|| (all.median, self.record.unit.clone()));
            Some(WithLost { value, kind: judge(&all).0 })
        };
        kind.weigh_lost(lost, values.len() + lost, with_lost, &mut reasons);
        self.limit_failures_of(point, &mut kind, &mut reasons);
        self.require_rounds(&mut kind, estimated.rounds, &mut reasons);
        let correlation = (estimated.lag_1, estimated.rounds);
        self.require_interval(&mut kind, &estimated.interval, correlation, &mut reasons);
        self.add_limits([&[point], &[]], kind, &mut reasons);
        reasons.extend(Reason::both_states(state, state_counts(rounds)));
        MeasuredValue {
            label: self.label(point),
            value: Some(estimated.median),
            interval: (estimated.rounds > 1).then_some(estimated.interval),
            unit: self.record.unit.clone(),
            class: self.class_of([rounds]),
            rounds: estimated.rounds,
            lost,
            statistic: Some(Statistic::Median {
                failed: counts.failed,
                void: counts.void,
                other_sharing,
            }),
            kind,
            reasons,
        }
    }
}
