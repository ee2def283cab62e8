//! Rounds that failed, which count however often a later session repeats them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::Samples;
use crate::point::Point;
use crate::sample::{FailureKind, Sample};

/// Maximum share of a point's rounds that may have failed if the others are to be judged.
pub(crate) const MAX_FAILED: f64 = 0.1;

/// Number of rounds by result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RoundCounts {
    /// Rounds that neither failed nor are void.
    pub measured: usize,
    /// Rounds that failed, crashed, timed out or gave a wrong result.
    pub failed: usize,
    /// Void rounds.
    pub void: usize,
}

impl RoundCounts {
    /// Returns the number of rounds that are not void.
    pub fn rounds(&self) -> usize {
        self.measured + self.failed
    }

    /// Returns whether so many rounds failed that the others are not judged, because slow rounds may fail more often.
    pub fn fails_too_often(&self) -> bool {
        self.failed as f64 > MAX_FAILED * self.rounds() as f64
    }

    /// Returns the sum of two counts.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            measured: self.measured + other.measured,
            failed: self.failed + other.failed,
            void: self.void + other.void,
        }
    }
}

impl Sample {
    /// Returns whether it failed, crashed, timed out or gave a wrong result. A void sample did not, nor did one of a
    /// point that this machine cannot measure.
    pub(crate) fn has_failed(&self) -> bool {
        let fault = self.error.as_ref().map(|failure| failure.kind);
        fault.is_some_and(|kind| kind.is_fault() && kind != FailureKind::Void)
    }

    /// Returns whether the machine lacks what its point requires, which is a result and not a fault.
    pub(crate) fn is_absence(&self) -> bool {
        self.error.as_ref().is_some_and(|failure| !failure.kind.is_fault())
    }
}

impl Samples<'_> {
    /// Counts rounds by the result at some points, or at their twins. A round in which any of them failed is failed,
    /// even if a later session repeated it: otherwise runs could be repeated until no round fails.
    pub fn round_counts(&self, points: &[&Point], twins: bool) -> RoundCounts {
        let mut rounds: BTreeMap<u32, (bool, bool)> = BTreeMap::new();
        for (round, sample) in points.iter().flat_map(|point| self.rounds(point, twins)) {
            if !sample.is_absence() {
                let (_, void) = rounds.entry(round).or_default();
                let fault = sample.error.as_ref().map(|failure| failure.kind);
                *void |= sample.void.is_some() || fault == Some(FailureKind::Void);
            }
        }
        let is_counted = |sample: &&Sample| sample.twin == twins && points.contains(&&sample.point);
        for sample in self.all().filter(|sample| sample.has_failed()).filter(is_counted) {
            rounds.entry(sample.round).or_default().0 = true;
        }
        let failed = rounds.values().filter(|(failed, _)| *failed).count();
        let void = rounds.values().filter(|(failed, void)| *void && !failed).count();
        RoundCounts { measured: rounds.len() - failed - void, failed, void }
    }
}
