//! Searches for the largest or smallest level at which a condition is true. Results contain every
//! trial, void ones included.
//!
//! [`largest`] and [`smallest`] bisect on any condition. Two searches find loads by packet loss: [`rfc2544`], as in the
//! Ensō evaluation, and [`loss_ratios`], based on MLRsearch (RFC 9971).

mod bisect;
mod loss_ratios;
mod rfc2544;
mod trial_log;

use std::collections::BTreeMap;

pub use bisect::{BisectResult, Search, TrialVerdict, largest, smallest};
pub use loss_ratios::{Goal, GoalResult, LossRatioResult, LossRatios, loss_ratios};
pub use rfc2544::{Rfc2544, Rfc2544Result, rfc2544};
pub(crate) use trial_log::DURATION;

/// Values measured by a trial, in addition to its verdict.
pub type Values = BTreeMap<String, f64>;

/// Result of offering a load for some time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TrialOutcome {
    /// Packets that the load requires in that time.
    pub sent: u64,
    /// Packets that were not returned, including those that could not be sent in time.
    pub lost: u64,
    /// Why the trial is void, e.g. a stall of the host. The cause must not depend on `lost`: otherwise
    /// a system that loses packets is tried again, and one that does not is not.
    pub void: Option<String>,
    /// Other values. The searches add `duration` (s), `sent`, `lost` and `allowed` (the loss ratio
    /// of the goal that requested the trial).
    pub values: Values,
}

impl TrialOutcome {
    /// Returns the loss ratio; 1 without packets, because such a trial shows nothing.
    pub fn ratio(&self) -> f64 {
        if self.sent == 0 { 1.0 } else { self.lost as f64 / self.sent as f64 }
    }
}

/// Bounds of the largest load that passes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LoadInterval {
    /// Largest load that passed below every load that failed; `None` if none did.
    pub lower: Option<f64>,
    /// Smallest load that failed; `None` if none did.
    pub upper: Option<f64>,
}
