//! Reasons of a verdict as data.

use std::collections::BTreeSet;

use machine::proximity::Class;
use schemars::JsonSchema;
use serde::Serialize;

use super::{Bounds, ClassResult, Unmet, VerdictKind};
use crate::experiment::Profile;
use crate::sample::Failure;
use crate::sharing::{Sharing, SharingCounts};
use crate::statistics::{LostRounds, Ratio, Resolution, StatisticsError};
use crate::summary::{Limit, OtherEnvironment, SummaryError};

/// Direction of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Relation {
    /// Higher value.
    Higher,
    /// Lower value.
    Lower,
    /// Better value, by the direction of the metric.
    Better,
}

/// Part of the reason for a result, with its numbers.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "reason", rename_all = "kebab-case")]
pub enum Reason {
    /// The claimed bounds of a value.
    Claimed {
        /// Bounds in `unit`.
        bounds: Bounds,
        /// Unit of the metric, `1` for a ratio, or `steps` of the time-stamp counter.
        unit: String,
    },
    /// The claimed bounds of the value of every sample.
    ClaimedAlways {
        /// Bounds in `unit`.
        bounds: Bounds,
        /// Unit of the metric.
        unit: String,
    },
    /// The bounds outside of which the value of some sample is claimed to be.
    ClaimedSometimes {
        /// Bounds in `unit`.
        bounds: Bounds,
        /// Unit of the metric.
        unit: String,
    },
    /// The claimed bounds of a ratio taken so that above 1 is better.
    ClaimedImprovement {
        /// Bounds of the ratio.
        bounds: Bounds,
    },
    /// The published value.
    ClaimedValue {
        /// Value in `unit`.
        value: f64,
        /// Its unit.
        unit: String,
        /// Permitted difference, as a share of the value.
        tolerance: Option<f64>,
    },
    /// The published value does not apply to this machine or point.
    NotComparable {
        /// What the machine or point lacks.
        unmet: Vec<Unmet>,
    },
    /// The two sides of a ratio are equal in all rounds, and the bound is 1.
    Tie,
    /// The result is contrary to the claim, and no evidence against it.
    NoEvidenceAgainst {
        /// Why.
        why: String,
    },
    /// This machine lacks what the claim requires.
    OtherMachine {
        /// What it lacks.
        unmet: Vec<Unmet>,
    },
    /// Whether a ratio is resolved in the claimed direction.
    Resolved {
        /// Claimed direction.
        relation: Relation,
        /// Result, where `Higher` means that the claimed direction is resolved.
        resolution: Resolution,
        /// Noise floor, as a share.
        floor: Option<f64>,
    },
    /// Two levels of a trend are resolved in the other direction, but among several pairs chance may explain it.
    OneOfPairs {
        /// Number of pairs of levels.
        pairs: usize,
    },
    /// The ratio is closer to the bound than the noise floor.
    NearBound {
        /// Noise floor, as a share; `null` in JSON if it is infinite.
        #[schemars(with = "Option<f64>")]
        floor: f64,
    },
    /// The search or the instrument limited values, so that the true ones may be better.
    Limited {
        /// What limited them.
        limit: Limit,
        /// Number of rounds of the value, or of the numerator.
        above: usize,
        /// Number of rounds of the denominator.
        below: usize,
    },
    /// Which level is best at all levels of the other factor.
    BestEverywhere {
        /// The level; `None` if no level is.
        level: Option<String>,
        /// Whether it is resolved best everywhere, or only may be.
        resolved: bool,
        /// Minimum number of rounds that judged.
        rounds: usize,
    },
    /// Which way an inconclusive value leans, and what would decide it if its interval and noise floor narrow with the
    /// square root of the rounds.
    Leans {
        /// Result if the value were exact.
        to: VerdictKind,
        /// Further rounds; `None` if more than
        /// [`MAX_PROJECTED_ROUNDS`](crate::statistics::MAX_PROJECTED_ROUNDS) would be needed.
        rounds: Option<usize>,
        /// Wall time of these rounds, s; `None` if unknown.
        seconds: Option<f64>,
    },
    /// Which way an inconclusive value leans if the number of rounds that would decide it is unknown: its rounds are
    /// correlated, or those that are lost would decide otherwise.
    LeansOnly {
        /// Result if the value were exact.
        to: VerdictKind,
    },
    /// The search or the instrument limited the value on the side that would decide, so no number of rounds does.
    NoRoundsDecide,
    /// The rounds are of both states of the core, because neither has enough.
    BothStates {
        /// Number of rounds by state.
        counts: SharingCounts,
    },
    /// A factor is chosen at boot, and too few boots measured a level.
    TooFewBoots {
        /// Boots that measured each side.
        boots: [usize; 2],
        /// Number required of each.
        needed: usize,
    },
    /// More than a fifth of the rounds are lost.
    ManyLost {
        /// Number of lost rounds.
        lost: usize,
        /// Number of rounds, lost or not.
        rounds: usize,
        /// Value with those lost rounds that have values; `None` if none has, or for a result without a value.
        value: Option<f64>,
        /// Unit of the value, `1` for a ratio.
        unit: Option<String>,
        /// Whether the result with them is the same; always if they cannot make it less certain.
        agrees: bool,
    },
    /// Several sessions could have decided the value, so its interval is wider.
    RepeatedLooks {
        /// Number of sessions after which a value of enough rounds could be looked at.
        looks: usize,
        /// Coverage of the interval.
        confidence: f64,
    },
    /// The claim requires more rounds.
    TooFewRounds {
        /// Number of rounds that judged.
        rounds: usize,
        /// Number required.
        needed: usize,
    },
    /// Too large a share of the rounds failed.
    TooManyFailed {
        /// Number of failed rounds.
        failed: usize,
        /// Number of failed and valid rounds.
        rounds: usize,
        /// Maximum share.
        max: f64,
    },
    /// The values of the failed rounds, if known, might change the result.
    FailuresMayDecide {
        /// Number of failed rounds of a value, or of failed samples.
        failed: usize,
    },
    /// The rounds are too few for a 95% interval of order statistics, given their correlation: it is wide instead.
    Correlated {
        /// Lag-1 correlation of the rounds.
        lag_1: f64,
        /// Command that measures more.
        command: String,
    },
    /// No twins have enough rounds for a noise floor.
    NoFloor {
        /// Rounds that twins have in common; `None` if the experiment has no twins.
        rounds: Option<usize>,
        /// Number required.
        needed: usize,
        /// Command that measures them.
        command: String,
        /// State of the core in the rounds compared; `None` if it may be any.
        state: Option<Sharing>,
    },
    /// The ratio that this machine can reach at most.
    MachineLimit {
        /// The limit.
        ratio: Ratio,
        /// Whether a side has several points, of which the best counts.
        of_best: bool,
    },
    /// A reason that concerns one point or level.
    At {
        /// The point or level.
        label: String,
        /// The reason.
        why: Box<Reason>,
    },
    /// There are no samples.
    NotMeasured {
        /// Command that measures them.
        command: String,
    },
    /// Some of the levels or points that the claim is about have no sample.
    NotAllMeasured {
        /// What is counted: `levels of length`, or `points`.
        what: String,
        /// Number of those with a sample.
        measured: usize,
        /// Number that the claim is about.
        of: usize,
        /// Command that measures all.
        command: String,
    },
    /// No method can measure the claim.
    NoMethod {
        /// The reason, as the claim declares it.
        why: String,
    },
    /// The last sample failed.
    Failed {
        /// The failure.
        failure: Failure,
        /// Command that measures again, if another point has a value.
        command: Option<String>,
    },
    /// Every round is void.
    Void {
        /// Cause of the last one.
        cause: String,
        /// Command that measures again, if another point has a value.
        command: Option<String>,
    },
    /// The samples have no value of the metric.
    NoValue {
        /// Command that measures again, if another point has a value.
        command: Option<String>,
    },
    /// The results with near and with far cores differ.
    ClassesDiffer {
        /// Result of each class with enough rounds.
        results: Vec<ClassResult>,
    },
    /// The samples of another environment of the run decide the claim otherwise.
    EnvironmentsDiffer {
        /// Result in the environment that is judged.
        here: VerdictKind,
        /// Result in the other one.
        there: VerdictKind,
        /// The other environment.
        environment: OtherEnvironment,
    },
    /// Too many rounds failed in another environment of the run.
    FailedElsewhere {
        /// The other environment.
        environment: OtherEnvironment,
    },
    /// A class has too few rounds to count.
    ClassNotJudged {
        /// Proximity of the cores.
        class: Class,
        /// Number of rounds.
        rounds: usize,
    },
    /// No round has the claimed or the judged proximity of the cores.
    OtherClass {
        /// Claimed or judged proximity.
        class: Class,
        /// Proximity in the last round.
        last: Option<Class>,
        /// Command that measures again, if another point has a value.
        command: Option<String>,
    },
    /// No round has both sides of a ratio in one session and class.
    NoCommonRound {
        /// Rounds without a pair.
        lost: LostRounds,
        /// Command that measures both sides in one session.
        command: String,
    },
    /// The metric has no better direction.
    NoDirection,
    /// The values cannot be summarised.
    NotSummarised {
        /// The error.
        error: StatisticsError,
    },
    /// The run cannot be summarised by the metric.
    Summary {
        /// The error.
        error: SummaryError,
    },
    /// The run does not record the experiment's metric.
    NoMetric {
        /// ID of the experiment.
        experiment: String,
    },
    /// No points match at any level of the `each` factors.
    NoCombination {
        /// The factors.
        factors: Vec<String>,
    },
    /// Factors vary that the claim does not mention.
    OpenFactors {
        /// The factors.
        factors: Vec<String>,
    },
    /// A factor has too few levels on one side of a level.
    TooFewLevels {
        /// The factor.
        factor: String,
        /// Number of levels required.
        needed: usize,
        /// Whether they must be above `level`, or not above it.
        above: bool,
        /// The level.
        level: f64,
    },
    /// A comparison of winners requires two levels of each factor.
    NoContest {
        /// Factor whose levels compete.
        factor: String,
        /// Factor along which the winner changes.
        along: String,
    },
    /// A level was not measured at every level of another factor.
    NotAtEveryLevel {
        /// The other factor.
        along: String,
    },
    /// No point has a twin with values.
    NoTwins,
    /// No round ran on a core known to be idle.
    NeverIdle,
    /// The median is 0, so that no share of it can be computed.
    ZeroMedian,
    /// This machine has too few cores.
    TooFewCores {
        /// Physical cores required.
        needed: usize,
        /// Physical cores of the machine.
        cores: usize,
        /// Hardware threads per core, if recorded.
        threads_per_core: Option<f64>,
    },
    /// The run used another profile.
    OtherProfile {
        /// Profile required.
        needed: Profile,
        /// Profile of the run.
        profile: Profile,
        /// Command that measures with the required one.
        command: String,
    },
}

/// Points or levels that this machine cannot measure.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct LeftOut {
    /// The reason.
    pub why: Reason,
    /// Their names.
    pub names: BTreeSet<String>,
}

/// Adds points or levels that are left out for a reason.
pub(super) fn leave_out(
    left_out: &mut Vec<LeftOut>,
    why: Reason,
    names: impl IntoIterator<Item = String>,
) {
    match left_out.iter_mut().find(|one| one.why == why) {
        Some(one) => one.names.extend(names),
        None => left_out.push(LeftOut { why, names: names.into_iter().collect() }),
    }
}

/// Result without a measured value, and its reason.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct NoVerdict {
    /// Unmeasurable, incomparable or inconclusive.
    pub(super) kind: VerdictKind,
    pub(super) why: Reason,
}

impl Reason {
    /// Returns [`BothStates`](Self::BothStates) if no state was chosen and both have rounds.
    pub(super) fn both_states(state: Option<Sharing>, counts: SharingCounts) -> Option<Self> {
        let is_mixed = state.is_none() && counts.alone.min(counts.shared) > 0;
        is_mixed.then_some(Self::BothStates { counts })
    }
}

impl From<Reason> for NoVerdict {
    fn from(why: Reason) -> Self {
        Self { kind: VerdictKind::Inconclusive, why }
    }
}

impl NoVerdict {
    pub(super) fn unmeasurable(why: Reason) -> Self {
        Self { kind: VerdictKind::Unmeasurable, why }
    }

    pub(super) fn incomparable(why: Reason) -> Self {
        Self { kind: VerdictKind::Incomparable, why }
    }
}
