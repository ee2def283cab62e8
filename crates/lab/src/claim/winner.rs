//! Whether the best level of a factor is not the same everywhere.

use std::collections::BTreeSet;

use super::evidence::{Evidence, Side, includes};
use super::ratio::{ratio, resolved_higher};
use super::shape::{left_open, number};
use super::verdict::{Judgement, LeftOut, MeasuredValue, NoVerdict};
use super::{VerdictKind, words};
use crate::point::{Level, Point};
use crate::statistics::estimate;
use crate::summary::Rounds;

/// Who may be the best at one level.
struct Contest<'a> {
    at: &'a Level,
    best: &'a Level,
    /// Those that are not resolved worse than the best.
    may_be_best: BTreeSet<&'a Level>,
    judged: Rounds,
}

impl Evidence<'_> {
    /// At each level of `along` the best level of the factor is chosen on half of the rounds, and
    /// each other is held against it on the other half: what is resolved worse cannot be the best
    /// there. The winner changes if nothing can be the best at all levels; it does not if one and
    /// the same is resolved best at each.
    pub(super) fn judge_winner(&self, factor: &str, along: &str, combination: &Point) -> Judgement {
        let (contests, left_out) = match self.contests(factor, along, combination) {
            Ok(contests) => contests,
            Err(lack) => {
                return Judgement::of_all(vec![MeasuredValue::nothing(
                    combination.to_string(),
                    lack,
                )]);
            }
        };
        let rounds = contests.iter().map(|contest| contest.judged.len()).min().unwrap_or(0);
        let sets = contests.iter().map(|contest| contest.may_be_best.clone());
        let everywhere =
            sets.reduce(|a, b| a.intersection(&b).copied().collect()).unwrap_or_default();
        let decided = contests.iter().all(|contest| contest.may_be_best.len() == 1);
        let (kind, said) = match everywhere.first() {
            None => (VerdictKind::Reproduced, "no one is the best at all".to_string()),
            Some(one) if decided => {
                (VerdictKind::Contradicted, format!("{one} is the best at all"))
            }
            Some(one) => (VerdictKind::Inconclusive, format!("{one} may be the best at all")),
        };
        let places: Vec<_> = contests.iter().map(Contest::told).collect();
        let why = format!("{said}: {}, {rounds} judged rounds", places.join("; "));
        let points: Vec<_> =
            self.known.iter().filter(|point| includes(point, combination)).collect();
        let (kind, why) = self.comparable(kind, rounds, &points, why);
        let ours =
            contests.iter().map(|contest| self.contest_part(contest, factor, along)).collect();
        Judgement { kind, why, ours, left_out }
    }

    fn contests(
        &self,
        factor: &str,
        along: &str,
        combination: &Point,
    ) -> Result<(Vec<Contest<'_>>, LeftOut), NoVerdict> {
        let open = self.open_factors(combination, &[factor, along]);
        if !open.is_empty() {
            return Err(left_open(&open));
        }
        let Side { points: side, missing } =
            self.side(&crate::point::Filter::default(), combination)?;
        if let Some(lack) = missing.open {
            return Err(lack);
        }
        let mut places: Vec<&Level> = Vec::new();
        let mut sorted: Vec<_> =
            side.iter().filter(|(point, _)| point.get(factor).is_some()).collect();
        sorted.sort_by(|(a, _), (b, _)| number(a, along).total_cmp(&number(b, along)));
        for level in sorted.iter().filter_map(|(point, _)| point.get(along)) {
            if !places.contains(&level) {
                places.push(level);
            }
        }
        // Only what was measured at every level can be the best at all of them.
        let at = |level: &Level| -> BTreeSet<&Level> {
            let there = sorted.iter().filter(|(point, _)| point.get(along) == Some(level));
            there.filter_map(|(point, _)| point.get(factor)).collect()
        };
        let sets: Vec<BTreeSet<&Level>> = places.iter().map(|level| at(level)).collect();
        let common: BTreeSet<&Level> = sets
            .iter()
            .cloned()
            .reduce(|a, b| a.intersection(&b).copied().collect())
            .unwrap_or_default();
        let mut left_out = missing.left_out;
        let dropped: BTreeSet<_> = sets.iter().flatten().filter(|l| !common.contains(*l)).collect();
        if !dropped.is_empty() {
            let names = dropped.into_iter().map(|level| format!("{factor}={level}")).collect();
            left_out.insert(format!("not measured at every '{along}'"), names);
        }
        if places.len() < 2 || common.len() < 2 {
            let why = format!("it needs two levels of '{factor}' at two levels of '{along}'");
            let incomplete = self.lack(|point| includes(point, combination));
            let unmeasurable = incomplete.kind == VerdictKind::Unmeasurable;
            return Err(if unmeasurable { incomplete } else { NoVerdict::inconclusive(why) });
        }
        let contest = |level: &&'_ Level| {
            let there = side.iter().copied().filter(|(point, _)| {
                point.get(along) == Some(*level)
                    && point.get(factor).is_some_and(|level| common.contains(level))
            });
            self.contest(&there.collect::<Vec<_>>(), factor, along)
        };
        Ok((places.iter().map(contest).collect::<Result<_, NoVerdict>>()?, left_out))
    }

    fn contest<'s>(
        &self,
        side: &[(&'s Point, &'s Rounds)],
        factor: &str,
        along: &str,
    ) -> Result<Contest<'s>, NoVerdict> {
        let (best, judged) = self.best(side)?;
        let (Some(at), Some(winner)) = (best.get(along), best.get(factor)) else {
            return Err(NoVerdict::inconclusive(format!("no point has '{factor}' and '{along}'")));
        };
        let mut may_be_best = BTreeSet::new();
        for (point, rounds) in side {
            let in_half = rounds.iter().filter(|(round, _)| judged.contains_key(round));
            let in_half: Rounds = in_half.map(|(round, o)| (*round, o.clone())).collect();
            let worse = *point != best && {
                let better = self.improvement(&ratio(&judged, &in_half)?)?;
                better.rounds >= self.claim.rounds_needed()
                    && resolved_higher(&better, self.floors.near(&[best, *point]), "").0
                        == VerdictKind::Reproduced
            };
            if let (false, Some(level)) = (worse, point.get(factor)) {
                may_be_best.insert(level);
            }
        }
        Ok(Contest { at, best: winner, may_be_best, judged })
    }

    fn contest_part(&self, contest: &Contest, factor: &str, along: &str) -> MeasuredValue {
        let values: Vec<f64> = contest.judged.values().map(|o| o.value).collect();
        let estimate = estimate(&values).ok();
        let unit = &self.record.unit;
        let figure = estimate.map(|e| words::with_interval(e.median, &e.interval, unit));
        MeasuredValue {
            label: format!("{along}={}: {factor}={}", contest.at, contest.best),
            value: estimate.map(|e| e.median),
            interval: estimate.filter(|e| e.rounds > 1).map(|e| e.interval),
            unit: unit.clone(),
            rounds: values.len(),
            lost: 0,
            kind: match contest.may_be_best.len() {
                1 => VerdictKind::Reproduced,
                _ => VerdictKind::Inconclusive,
            },
            why: format!("{}, {}", contest.told(), figure.unwrap_or_default()),
        }
    }
}

impl Contest<'_> {
    /// `64 KiB: apex`, or all that may be the best there.
    fn told(&self) -> String {
        let names: Vec<_> = self.may_be_best.iter().map(|level| level.as_str()).collect();
        format!("{}: {}", self.at, names.join(" or "))
    }
}
