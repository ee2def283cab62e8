//! Whether the best level of a factor changes along another factor.

use std::collections::BTreeSet;

use super::VerdictKind;
use super::evidence::{Evidence, Side, includes};
use super::reason::{LeftOut, NoVerdict, Reason, leave_out};
use super::shape::number;
use super::verdict::{Judgement, MeasuredValue, Statistic};
use crate::point::{Filter, Level, Point};
use crate::statistics::{StatisticsError, estimate};
use crate::summary::{Contest, Rounds, alike};

/// Levels that may be the best at one level of the other factor.
struct LevelContest<'a> {
    at: &'a Level,
    /// Level with the best median.
    leader: &'a Level,
    /// Levels that are not resolved worse than another one.
    candidates: BTreeSet<&'a Level>,
    /// Rounds of the leader.
    rounds: &'a Rounds,
    /// Smallest number of rounds that two levels have in common.
    common: usize,
}

impl Evidence<'_> {
    /// Judges whether no level of `factor` is the best at all levels of `along`.
    ///
    /// At each level of `along`, every two levels are compared, corrected for the number of
    /// comparisons: a level that is resolved worse than another cannot be the best there. The
    /// winner changes if no level can be the best at all levels; it does not change if one level is
    /// resolved best at all levels.
    pub(super) fn judge_winner(&self, factor: &str, along: &str, combination: &Point) -> Judgement {
        let (contests, left_out) = match self.contests(factor, along, combination) {
            Ok(contests) => contests,
            Err(lack) => return Judgement::missing(combination.to_string(), lack),
        };
        let rounds = contests.iter().map(|contest| contest.common).min().unwrap_or(0);
        let sets = contests.iter().map(|contest| contest.candidates.clone());
        let everywhere =
            sets.reduce(|a, b| a.intersection(&b).copied().collect()).unwrap_or_default();
        let resolved = contests.iter().all(|contest| contest.candidates.len() == 1);
        let level = everywhere.first();
        let mut kind = match level {
            None => VerdictKind::Reproduced,
            Some(_) if resolved => VerdictKind::Contradicted,
            Some(_) => VerdictKind::Inconclusive,
        };
        let level = level.map(|level| level.to_string());
        let mut reasons = vec![Reason::BestEverywhere { level, resolved, rounds }];
        let points: Vec<_> =
            self.known.iter().filter(|point| includes(point, combination)).collect();
        self.require_comparable(&mut kind, rounds, &points, &mut reasons);
        let values = contests.iter().map(|contest| self.contest_value(contest, factor, along));
        Judgement { kind, values: values.collect(), reasons, left_out }
    }

    fn contests(
        &self,
        factor: &str,
        along: &str,
        combination: &Point,
    ) -> Result<(Vec<LevelContest<'_>>, Vec<LeftOut>), NoVerdict> {
        self.require_fixed(combination, &[factor, along])?;
        let Side { points: side, missing } = self.side(&Filter::default(), combination)?;
        if let Some(lack) = missing.open {
            return Err(lack);
        }
        let mut levels: Vec<&Level> = Vec::new();
        let mut sorted: Vec<_> =
            side.iter().filter(|(point, _)| point.get(factor).is_some()).collect();
        sorted.sort_by(|(a, _), (b, _)| number(a, along).total_cmp(&number(b, along)));
        for level in sorted.iter().filter_map(|(point, _)| point.get(along)) {
            if !levels.contains(&level) {
                levels.push(level);
            }
        }
        // Only a level that was measured at every level of `along` can be the best at all of them.
        let at = |level: &Level| -> BTreeSet<&Level> {
            let there = sorted.iter().filter(|(point, _)| point.get(along) == Some(level));
            there.filter_map(|(point, _)| point.get(factor)).collect()
        };
        let sets: Vec<BTreeSet<&Level>> = levels.iter().map(|level| at(level)).collect();
        let common: BTreeSet<&Level> = sets
            .iter()
            .cloned()
            .reduce(|a, b| a.intersection(&b).copied().collect())
            .unwrap_or_default();
        let mut left_out = missing.left_out;
        let dropped: BTreeSet<_> = sets.iter().flatten().filter(|l| !common.contains(*l)).collect();
        if !dropped.is_empty() {
            let names = dropped.into_iter().map(|level| format!("{factor}={level}"));
            leave_out(&mut left_out, Reason::NotAtEveryLevel { along: along.into() }, names);
        }
        if levels.len() < 2 || common.len() < 2 {
            let incomplete = self.lack(|point| includes(point, combination));
            let is_unmeasurable = incomplete.kind == VerdictKind::Unmeasurable;
            return Err(if is_unmeasurable { incomplete } else { no_contest(factor, along) });
        }
        let sides: Vec<Vec<_>> = levels
            .iter()
            .map(|level| {
                let there = side.iter().copied().filter(|(point, _)| {
                    point.get(along) == Some(*level)
                        && point.get(factor).is_some_and(|level| common.contains(level))
                });
                there.collect()
            })
            .collect();
        let contests = Contest::all(&sides, self.record.better, &self.floors);
        let contests = contests.map_err(|error| match error {
            StatisticsError::NoDirection => NoVerdict::from(Reason::NoDirection),
            error => Reason::NotSummarised { error }.into(),
        })?;
        let contests = levels.iter().zip(&contests).map(|(at, contest)| {
            let (leader, rounds) = contest.leader()?;
            let candidates = contest.candidates().filter_map(|point| point.get(factor)).collect();
            let (leader, common) = (leader.get(factor)?, contest.rounds());
            Some(LevelContest { at, leader, candidates, rounds, common })
        });
        let contests: Option<Vec<_>> = contests.collect();
        Ok((contests.ok_or_else(|| no_contest(factor, along))?, left_out))
    }

    fn contest_value(&self, contest: &LevelContest, factor: &str, along: &str) -> MeasuredValue {
        let values: Vec<f64> = alike(contest.rounds).values().map(|o| o.value).collect();
        let estimate = estimate(&values).ok();
        MeasuredValue {
            label: format!("{along}={}: {factor}={}", contest.at, contest.leader),
            value: estimate.map(|e| e.median),
            interval: estimate.filter(|e| e.rounds > 1).map(|e| e.interval),
            unit: self.record.unit.clone(),
            class: self.class_of([contest.rounds]),
            rounds: values.len(),
            lost: 0,
            statistic: Some(Statistic::Best {
                at: contest.at.to_string(),
                candidates: contest.candidates.iter().map(|level| level.to_string()).collect(),
            }),
            kind: match contest.candidates.len() {
                1 => VerdictKind::Reproduced,
                _ => VerdictKind::Inconclusive,
            },
            reasons: Vec::new(),
        }
    }
}

fn no_contest(factor: &str, along: &str) -> NoVerdict {
    Reason::NoContest { factor: factor.into(), along: along.into() }.into()
}
