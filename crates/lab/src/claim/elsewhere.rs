//! Verdicts from the other environments of a run. A change of a setting, or another build, starts a new environment; it
//! must hide neither failures nor contradicting rounds of the earlier ones.

use schemars::JsonSchema;
use serde::Serialize;

use super::judge::Judge;
use super::reason::Reason;
use super::{Claim, Condition, Verdict, VerdictKind};
use crate::summary::{OtherEnvironment, Samples};

/// Verdict on a claim from the samples of an environment that another one succeeded.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct OtherVerdict {
    /// The environment.
    pub environment: OtherEnvironment,
    /// The verdict from its samples alone.
    pub verdict: Verdict,
    /// Whether so many rounds failed there that the claim cannot be reproduced by later rounds.
    pub fails: bool,
}

impl<'r> Judge<'r> {
    /// Adds the verdicts from the other environments of the run than `newest`, the last measured first. The verdict is
    /// inconclusive if one of them is decided otherwise, or if too many rounds failed there.
    pub(super) fn with_others(
        &self,
        mut verdict: Verdict,
        claim: &Claim,
        newest: &'r str,
    ) -> Verdict {
        let experiment = claim.experiment.as_str();
        let others = || -> Option<Vec<(&'r str, OtherEnvironment)>> {
            let mut samples = self.run?.samples.iter().filter(|one| one.experiment == experiment);
            samples.find(|one| one.environment != newest)?;
            let newest = self.samples(experiment, newest)?;
            let others = newest.other_environments(|point| claim.is_about(point)).into_iter();
            Some(others.filter_map(|one| Some((self.id_of(&one.environment)?, one))).collect())
        };
        if claim.unmeasurable.is_some() {
            return verdict;
        }
        let others = others().unwrap_or_default().into_iter();
        let judged = others.map(|(id, environment)| OtherVerdict {
            environment,
            verdict: self.judge_in(claim, Some(id)),
            fails: self.samples(experiment, id).is_some_and(|samples| claim.fails_in(&samples)),
        });
        verdict.elsewhere = judged.collect();
        let is_violated = claim.is_on_every_sample() && verdict.kind == VerdictKind::Contradicted;
        verdict.doubt = verdict.elsewhere.iter().find_map(|other| {
            let environment = other.environment.clone();
            match other.verdict.kind {
                _ if !verdict.kind.is_decided() => None,
                there if there.is_decided() && there != verdict.kind => {
                    Some(Reason::EnvironmentsDiffer { here: verdict.kind, there, environment })
                }
                _ if other.fails && !is_violated => Some(Reason::FailedElsewhere { environment }),
                _ => None,
            }
        });
        if verdict.doubt.is_some() {
            verdict.kind = VerdictKind::Inconclusive;
        }
        verdict
    }

    /// Returns the ID of an environment as the run's samples state it.
    fn id_of(&self, environment: &str) -> Option<&'r str> {
        let mut samples = self.run?.samples.iter();
        samples.find(|one| one.environment == environment).map(|one| one.environment.as_str())
    }
}

impl VerdictKind {
    /// Returns whether the samples decide the claim.
    fn is_decided(self) -> bool {
        matches!(self, Self::Reproduced | Self::Contradicted)
    }
}

impl Claim {
    /// Returns whether it is about every sample, so that a single failed one leaves it open.
    fn is_on_every_sample(&self) -> bool {
        let condition = self.expect.as_ref().map(|expect| &expect.kind);
        matches!(condition, Some(Condition::EverySample(_)))
    }

    /// Returns whether too many rounds of one of its points failed.
    fn fails_in(&self, samples: &Samples) -> bool {
        let condition = self.expect.as_ref().map(|expect| &expect.kind);
        // One sample with the claimed value suffices, whatever failed.
        if matches!(condition, Some(Condition::SomeSample(_))) {
            return false;
        }
        samples.points().filter(|point| self.is_about(point)).any(|point| {
            let counts = samples.round_counts(&[point], false);
            counts.fails_too_often() || self.is_on_every_sample() && counts.failed > 0
        })
    }
}
