//! The verdict on a claim from a run.

use std::iter::repeat_n;

use super::evidence::Evidence;
use super::verdict::{Judgement, MeasuredValue, NoVerdict, combine};
use super::{Bounds, Claim, Condition, Published, Quantifier, Verdict, VerdictKind, words};
use crate::journal::Run;
use crate::statistics::{Estimate, Interval, estimate};
use crate::summary::newest_environment;

/// Beyond every value, and far enough from the end of the range that sums of two are finite.
const HIGHEST: f64 = f64::MAX / 4.0;
const LOWEST: f64 = -HIGHEST;

/// Judges a claim by a run, or says that it is not measured yet. `cores` is how many physical cores
/// this machine has; where the run knows the machine that measured, that one's count is used.
pub fn judge(claim: &Claim, run: Option<&Run>, cores: usize) -> Verdict {
    let judged = lacking_cores(claim, run, cores)
        .or_else(|| wrong_profile(claim, run))
        .map_or_else(|| run.ok_or_else(|| claim.not_measured()), Err)
        .and_then(|run| Evidence::gather(claim, run));
    let (kind, why, ours) = match judged {
        Ok(evidence) => evidence.judge(),
        Err(lack) => combine(
            vec![Judgement::of_all(vec![MeasuredValue::nothing("", lack)])],
            Quantifier::All,
        ),
    };
    Verdict { kind, why, ours, published: claim.published.clone() }
}

/// With fewer physical cores than it needs, a claim on scaling is not even wrong.
fn lacking_cores(claim: &Claim, run: Option<&Run>, cores: usize) -> Option<NoVerdict> {
    let needed = claim.cores?;
    let environment = run
        .and_then(|run| run.record.environments.get(newest_environment(run, &claim.experiment)?));
    let topology = environment.map(|environment| &environment.topology);
    let cores = topology.map_or(cores, |topology| topology.physical_cores());
    let threads = topology.map(|topology| {
        let each = topology.online.len() as f64 / cores.max(1) as f64;
        let threads = if each == 1.0 { "thread" } else { "threads" };
        format!(" with {} {threads} each", words::value(each, "1"))
    });
    let threads = threads.unwrap_or_default();
    (cores < needed).then(|| {
        NoVerdict::unmeasurable(format!(
            "it needs {needed} physical cores and this machine has {cores}{threads}; \
             measure on a larger machine"
        ))
    })
}

fn wrong_profile(claim: &Claim, run: Option<&Run>) -> Option<NoVerdict> {
    let (wanted, run) = (claim.profile?, run?);
    (run.record.profile != wanted).then(|| {
        NoVerdict::inconclusive(format!(
            "only a {} run counts and this one is {}: tollgate run --claim {} --profile {0}",
            wanted.name(),
            run.record.profile.name(),
            claim.id
        ))
    })
}

impl Evidence<'_> {
    fn judge(&self) -> (VerdictKind, String, Vec<MeasuredValue>) {
        if self.known.is_empty() {
            let nothing = MeasuredValue::nothing("", self.claim.not_measured());
            return combine(vec![Judgement::of_all(vec![nothing])], Quantifier::All);
        }
        match (&self.claim.expect, &self.claim.published) {
            (Some(expect), _) => combine(self.outcomes(&expect.kind, &expect.each), expect.hold),
            (None, Some(published)) => self.judge_published(published),
            (None, None) => combine(Vec::new(), Quantifier::All),
        }
    }

    fn outcomes(&self, kind: &Condition, each: &[String]) -> Vec<Judgement> {
        let combinations = |filters: &[_]| {
            let all = self.combinations(each, filters);
            if !all.is_empty() {
                return Ok(all);
            }
            let why = format!("no points to judge at any level of {}", each.join(", "));
            let lack = NoVerdict::inconclusive(why);
            Err(vec![Judgement::of_all(vec![MeasuredValue::nothing("", lack)])])
        };
        let all = match kind {
            Condition::Value(bounds) => {
                return self
                    .judge_values(|interval| bounds.judge(interval), &|unit| bounds.told(unit));
            }
            Condition::TwinsDifferAtMost(most) => return self.judge_twins(*most),
            Condition::RoundsDifferAtMostSteps(most) => return self.judge_steps(*most),
            Condition::RoundsDifferAtMost(share) => return self.judge_repeats(*share),
            Condition::Ratio { of, to, bounds, limit } => combinations(&[of, to]).map(|all| {
                let judged = |at| self.judge_ratio(of, to, bounds, limit.as_ref(), at);
                all.iter().map(judged).collect()
            }),
            Condition::Ranking(ranking) => combinations(&ranking.iter().collect::<Vec<_>>())
                .map(|all| all.iter().map(|at| self.judge_ranking(ranking, at)).collect()),
            Condition::WinnerChanges { factor, along } => combinations(&[])
                .map(|all| all.iter().map(|at| self.judge_winner(factor, along, at)).collect()),
            Condition::Shape { form, along, beyond, within } => combinations(&[]).map(|all| {
                let judged = |at| self.judge_shape(*form, along, beyond.as_ref(), *within, at);
                all.iter().map(judged).collect()
            }),
        };
        all.unwrap_or_else(|nothing| nothing)
    }

    /// The published value against ours: judged where it carries over, else only shown.
    fn judge_published(&self, published: &Published) -> (VerdictKind, String, Vec<MeasuredValue>) {
        let figure = words::value(published.value, &published.unit);
        let tolerance = published.tolerance.unwrap_or_default() * published.value.abs();
        let (low, high) = (published.value - tolerance, published.value + tolerance);
        let bounds = Bounds { at_least: Some(low), at_most: Some(high) };
        let told = |_: &str| match published.tolerance {
            Some(tolerance) => format!("{figure} within {}", words::percent(tolerance)),
            None => figure.clone(),
        };
        let (kind, why, mut ours) =
            combine(self.judge_values(|it| bounds.judge(it), &told), Quantifier::All);
        if self.claim.carries_over || self.observed.points.is_empty() {
            return (kind, why, ours);
        }
        for part in ours.iter_mut().filter(|part| part.value.is_some()) {
            part.kind = VerdictKind::Incomparable;
        }
        let on = published.on.as_deref().unwrap_or("other hardware");
        let own = ours.iter().find(|part| part.value.is_some());
        let own = own.map(|part| part.figure()).unwrap_or_default();
        let why = format!("{figure} on {on}, here {own}; absolute values do not carry over");
        (VerdictKind::Incomparable, why, ours)
    }

    /// The estimate of each point, judged by its interval.
    fn judge_values(
        &self,
        judge: impl Fn(&Interval) -> VerdictKind,
        claimed: &dyn Fn(&str) -> String,
    ) -> Vec<Judgement> {
        let part = |point| {
            let values = self.observed.points.get(point);
            let values = values.into_iter().flat_map(|rounds| rounds.values().map(|o| o.value));
            let values: Vec<f64> = values.collect();
            let Ok(own) = estimate(&values) else {
                return MeasuredValue::nothing(self.label(point), self.lack_of(point));
            };
            let lost = self.lost(&[point]);
            let kind = judge(&own.interval);
            let mut part = value_part(self.label(point), &own, &self.record.unit);
            let why = format!(
                "{} over {}{}, claimed {}",
                part.figure(),
                words::rounds(own.rounds),
                lost.told(),
                claimed(&self.record.unit)
            );
            // What failed may have been as slow, or as fast, as can be.
            let differs = |extreme: f64| {
                let all = values.iter().copied().chain(repeat_n(extreme, lost.failed));
                let worst = estimate(&all.collect::<Vec<_>>());
                worst.is_ok_and(|worst| judge(&worst.interval) != kind)
            };
            let (kind, why) = match lost.failed > 0 && (differs(LOWEST) || differs(HIGHEST)) {
                true => {
                    (VerdictKind::Inconclusive, format!("{why}; the failed rounds may change it"))
                }
                false => (kind, why),
            };
            let (kind, why) = Self::weakened_by(&lost, kind, why);
            part.lost = lost.failed + lost.void;
            (part.kind, part.why) = self.enough(kind, own.rounds, why);
            part
        };
        self.known.iter().map(|point| Judgement::of_all(vec![part(point)])).collect()
    }
}

/// An estimate before it is judged.
fn value_part(label: String, estimate: &Estimate, unit: &str) -> MeasuredValue {
    MeasuredValue {
        label,
        value: Some(estimate.median),
        interval: (estimate.rounds > 1).then_some(estimate.interval),
        unit: unit.into(),
        rounds: estimate.rounds,
        lost: 0,
        kind: VerdictKind::Inconclusive,
        why: String::new(),
    }
}

impl MeasuredValue {
    /// `107 ns (106 ns to 109 ns)`
    fn figure(&self) -> String {
        match (self.value, &self.interval) {
            (Some(value), Some(interval)) => words::with_interval(value, interval, &self.unit),
            (Some(value), None) => words::value(value, &self.unit),
            (None, _) => "no value".into(),
        }
    }
}
