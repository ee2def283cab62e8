//! Whether the best level of a factor changes along another factor.

use std::collections::BTreeSet;

use super::VerdictKind;
use super::evidence::{Evidence, Side, includes};
use super::measured::WithLost;
use super::reason::{LeftOut, NoVerdict, Reason, leave_out};
use super::shape::number;
use super::verdict::{Judgement, MeasuredValue, Statistic};
use crate::point::{Filter, Level, Point};
use crate::sharing::{Sharing, SharingCounts};
use crate::statistics::StatisticsError;
use crate::summary::{Contest, Rounds, without_conditions};

/// Levels that may be the best at one level of the other factor.
struct LevelContest<'a> {
    at: &'a Level,
    /// Level with the best median.
    leader: &'a Level,
    /// See [`Contest::state`].
    state: Option<Sharing>,
    /// See [`Contest::fewest`].
    fewest: SharingCounts,
    /// Levels that are not resolved worse than another one.
    candidates: BTreeSet<&'a Level>,
    /// Rounds of the leader in the state of the contest.
    rounds: Rounds,
    /// Smallest number of rounds that two levels have in common.
    common: usize,
    /// See [`Contest::lost`].
    lost: (usize, usize),
}

/// Contests at every level of the other factor.
struct Contests<'a> {
    levels: Vec<LevelContest<'a>>,
    /// Result with the rounds with two values that are not paired.
    with_lost: VerdictKind,
    left_out: Vec<LeftOut>,
}

impl Evidence<'_> {
    /// Judges whether no level of `factor` is the best at all levels of `along`.
    ///
    /// At each level of `along`, every two levels are compared, corrected for the number of
    /// comparisons: a level that is resolved worse than another cannot be the best there. The
    /// winner changes if no level can be the best at all levels; it does not change if one level is
    /// resolved best at all levels and no level is left out.
    pub(super) fn judge_winner(&self, factor: &str, along: &str, combination: &Point) -> Judgement {
        let contests = match self.contests(factor, along, combination) {
            Ok(contests) => contests,
            Err(lack) => return Judgement::missing(combination.to_string(), lack),
        };
        let Contests { levels: contests, with_lost, left_out } = contests;
        let rounds = contests.iter().map(|contest| contest.common).min().unwrap_or(0);
        let sets: Vec<_> = contests.iter().map(|contest| contest.candidates.clone()).collect();
        let resolved = sets.iter().all(|candidates| candidates.len() == 1);
        let (mut kind, level) = result(&sets);
        if kind == VerdictKind::Contradicted && !left_out.is_empty() {
            // A level that this machine cannot measure may be the best at some level.
            kind = VerdictKind::Inconclusive;
        }
        let level = level.map(Level::to_string);
        let mut reasons = vec![Reason::BestEverywhere { level, resolved, rounds }];
        let (lost, all) = Contest::most_lost(contests.iter().map(|contest| contest.lost));
        let with_lost = || Some(WithLost { value: None, kind: with_lost });
        kind.weigh_lost(lost, all, with_lost, &mut reasons);
        let points: Vec<_> =
            self.known.iter().filter(|point| includes(point, combination)).collect();
        let states: Vec<_> = contests.iter().map(|contest| contest.state).collect();
        self.require_comparable(&mut kind, rounds, &points, &states, &mut reasons);
        let values = contests.iter().map(|contest| self.contest_value(contest, factor, along));
        Judgement { kind, values: values.collect(), reasons, left_out }
    }

    fn contests(
        &self,
        factor: &str,
        along: &str,
        combination: &Point,
    ) -> Result<Contests<'_>, NoVerdict> {
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
        let contests = self.contests_of(&sides)?;
        let with_lost = self.with_lost(&sides, &contests, factor)?;
        let contests = levels.iter().zip(&contests).map(|(at, contest)| {
            let (leader, rounds) = contest.leader()?;
            let (leader, common) = (leader.get(factor)?, contest.rounds());
            let candidates = contest.candidates().filter_map(|point| point.get(factor)).collect();
            let (state, fewest, lost) = (contest.state(), contest.fewest(), contest.lost());
            Some(LevelContest { at, leader, state, fewest, candidates, rounds, common, lost })
        });
        let contests: Option<Vec<_>> = contests.collect();
        let levels = contests.ok_or_else(|| no_contest(factor, along))?;
        Ok(Contests { levels, with_lost, left_out })
    }

    /// Returns the result with the rounds with two values that are not paired.
    fn with_lost(
        &self,
        sides: &[Vec<(&Point, &Rounds)>],
        contests: &[Contest],
        factor: &str,
    ) -> Result<VerdictKind, NoVerdict> {
        let bare = sides.iter().zip(contests).map(|(side, contest)| {
            let of_state = |rounds: &Rounds| without_conditions(rounds, contest.state());
            side.iter().map(|(point, rounds)| (*point, of_state(rounds))).collect::<Vec<_>>()
        });
        let bare: Vec<Vec<(&Point, Rounds)>> = bare.collect();
        let sides = bare.iter().map(|side| side.iter().map(|(point, it)| (*point, it)).collect());
        let sides: Vec<Vec<_>> = sides.collect();
        let contests = self.contests_of(&sides)?;
        let sets = contests
            .iter()
            .map(|contest| contest.candidates().filter_map(|point| point.get(factor)).collect());
        Ok(result(&sets.collect::<Vec<_>>()).0)
    }

    /// Compares the points of each contest.
    fn contests_of<'s>(
        &self,
        sides: &[Vec<(&'s Point, &'s Rounds)>],
    ) -> Result<Vec<Contest<'s>>, NoVerdict> {
        let contests = Contest::all(sides, self.record.better, &self.floors);
        contests.map_err(|error| match error {
            StatisticsError::NoDirection => NoVerdict::from(Reason::NoDirection),
            error => Reason::NotSummarised { error }.into(),
        })
    }

    fn contest_value(&self, contest: &LevelContest, factor: &str, along: &str) -> MeasuredValue {
        let estimate = self.observed.estimate(&contest.rounds);
        MeasuredValue {
            label: format!("{along}={}: {factor}={}", contest.at, contest.leader),
            value: estimate.map(|e| e.median),
            interval: estimate.filter(|e| e.rounds > 1).map(|e| e.interval),
            unit: self.record.unit.clone(),
            class: self.class_of([&contest.rounds]),
            rounds: contest.rounds.len(),
            lost: contest.lost.0,
            statistic: Some(Statistic::Best {
                at: contest.at.to_string(),
                candidates: contest.candidates.iter().map(|level| level.to_string()).collect(),
            }),
            kind: match contest.candidates.len() {
                1 => VerdictKind::Reproduced,
                _ => VerdictKind::Inconclusive,
            },
            reasons: Reason::both_states(contest.state, contest.fewest).into_iter().collect(),
        }
    }
}

/// Returns the result of contests from the levels that may be the best in each, and a level that may be in all.
fn result<'a>(candidates: &[BTreeSet<&'a Level>]) -> (VerdictKind, Option<&'a Level>) {
    let common = |a: BTreeSet<&'a Level>, b| a.intersection(&b).copied().collect();
    let everywhere = candidates.iter().cloned().reduce(common).unwrap_or_default();
    let level = everywhere.first().copied();
    let kind = match level {
        None => VerdictKind::Reproduced,
        Some(_) if candidates.iter().all(|one| one.len() == 1) => VerdictKind::Contradicted,
        Some(_) => VerdictKind::Inconclusive,
    };
    (kind, level)
}

fn no_contest(factor: &str, along: &str) -> NoVerdict {
    Reason::NoContest { factor: factor.into(), along: along.into() }.into()
}
