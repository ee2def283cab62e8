//! Environments of a run that count together, and those that are left out.

use std::collections::BTreeMap;

use machine::environment::Environment;
use schemars::JsonSchema;
use serde::Serialize;

use super::Samples;
use crate::journal::Run;
use crate::sample::Sample;

/// An environment whose samples are not used, because the experiment was measured in another one later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct OtherEnvironment {
    /// ID of the environment.
    pub environment: String,
    /// Number of rounds with a valid or a failed sample.
    pub rounds: usize,
    /// Number of rounds with a failed sample.
    pub failed: usize,
    /// Names of the recorded properties that differ from those of the environment in use.
    pub differences: Vec<String>,
}

impl OtherEnvironment {
    /// Returns the environments of samples that are not used, the last measured first, unless all of their samples are
    /// void or of points that they cannot measure.
    pub(super) fn of<'a>(
        unused: impl Iterator<Item = &'a Sample>,
        in_use: &Samples<'a>,
    ) -> Vec<Self> {
        let mut rounds: BTreeMap<&str, BTreeMap<u32, bool>> = BTreeMap::new();
        let mut order: Vec<&str> = Vec::new();
        for sample in unused.filter(|sample| sample.is_valid() || sample.has_failed()) {
            let environment = sample.environment.as_str();
            let has_failed = rounds.entry(environment).or_default().entry(sample.round);
            *has_failed.or_default() |= sample.has_failed();
            if order.last() != Some(&environment) {
                order.retain(|earlier| *earlier != environment);
                order.push(environment);
            }
        }
        let recorded = &in_use.run.record.environments;
        let differences = |other: &str| {
            let both = in_use.machine().zip(recorded.get(other));
            both.map(|(this, other)| this.differences(other)).unwrap_or_default()
        };
        let other = |environment: &str| Self {
            environment: environment.into(),
            rounds: rounds[environment].len(),
            failed: rounds[environment].values().filter(|failed| **failed).count(),
            differences: differences(environment),
        };
        order.into_iter().rev().map(other).collect()
    }
}

/// Returns the environments that count together for an experiment, each with the ID of its boot: one; if factors of the
/// experiment are chosen at boot, those that differ from it in the boot only; of a comparison within the run, those of
/// both sides in one boot.
pub(super) fn boots<'a>(
    run: &'a Run,
    experiment: &str,
    environment: &'a str,
) -> BTreeMap<&'a str, &'a str> {
    let record = &run.record;
    let Some(this) = record.environments.get(environment) else {
        return BTreeMap::from([(environment, environment)]);
    };
    let declared = record.experiments.get(experiment);
    let chosen_at_boot = declared.is_some_and(|one| !one.blocking.is_empty());
    let counts = |other: &Environment| match record.sides.is_empty() {
        true => chosen_at_boot && this.is_another_boot(other),
        false => this.is_same_machine(other),
    };
    let others = record.environments.iter().filter(|(_, other)| counts(other));
    let mut boots = BTreeMap::from([(environment, this.boot_id.as_str())]);
    boots.extend(others.map(|(id, other)| (id.as_str(), other.boot_id.as_str())));
    boots
}
