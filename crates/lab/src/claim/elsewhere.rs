//! Verdicts from the other environments of a run. A change of a setting, or another build, starts a new environment; it must
//! hide neither failures nor contradicting rounds of the earlier ones.

use serde::Serialize;

use super::judge::judge_in;
use super::reason::Reason;
use super::{Claim, Condition, Verdict, VerdictKind};
use crate::journal::Run;
use crate::summary::{OtherEnvironment, Samples};

/// Verdict on a claim from the samples of an environment that another one succeeded.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OtherVerdict {
    /// The environment.
    pub environment: OtherEnvironment,
    /// The verdict from its samples alone.
    pub verdict: Verdict,
    /// Whether so many rounds failed there that the claim cannot be reproduced by later rounds.
    pub fails: bool,
}

impl Verdict {
    /// Adds the verdicts from the other environments of a run than `newest`, the last measured first. The verdict is
    /// inconclusive if one of them is decided otherwise, or if too many rounds failed there.
    pub(super) fn with_others(
        mut self,
        claim: &Claim,
        run: &Run,
        newest: &str,
        cores: usize,
    ) -> Self {
        let experiment = claim.experiment.as_str();
        let is_other = |id: &str| id != newest;
        let mut samples = run.samples.iter().filter(|one| one.experiment == experiment);
        if claim.unmeasurable.is_some() || !samples.any(|one| is_other(&one.environment)) {
            return self;
        }
        let newest = Samples::in_environment(run, experiment, newest);
        let others = newest.other_environments(|point| claim.is_about(point)).into_iter();
        self.elsewhere = others
            .map(|environment| {
                let id = environment.environment.as_str();
                let verdict = judge_in(claim, Some(run), Some(id), cores);
                let fails = claim.fails_in(&Samples::in_environment(run, experiment, id));
                OtherVerdict { environment, verdict, fails }
            })
            .collect();
        let is_violated = claim.is_on_every_sample() && self.kind == VerdictKind::Contradicted;
        self.doubt = self.elsewhere.iter().find_map(|other| {
            let environment = other.environment.clone();
            match other.verdict.kind {
                _ if !self.kind.is_decided() => None,
                there if there.is_decided() && there != self.kind => {
                    Some(Reason::EnvironmentsDiffer { here: self.kind, there, environment })
                }
                _ if other.fails && !is_violated => Some(Reason::FailedElsewhere { environment }),
                _ => None,
            }
        });
        if self.doubt.is_some() {
            self.kind = VerdictKind::Inconclusive;
        }
        self
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
