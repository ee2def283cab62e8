//! Searches: the largest or smallest level at which a condition holds, with every trial kept, void ones too.
//!
//! [`largest`] and [`smallest`] bisect on any condition. Two more search for loads on the loss of packets:
//! [`rfc2544`] as the Ensō evaluation does, and [`loss_ratios`] as MLRsearch (RFC 9971) does.

mod bisect;
mod ladder;
mod ledger;
mod loss_ratios;
mod rfc2544;

use std::collections::BTreeMap;

pub use bisect::{BisectResult, Search, TrialVerdict, largest, smallest};
pub use loss_ratios::{Goal, LossRatioResult, LossRatios, loss_ratios};
pub use rfc2544::{Rfc2544, Rfc2544Result, rfc2544};

/// The values that a trial measured beside its verdict.
pub type Values = BTreeMap<String, f64>;

/// What became of a load that was offered for a while.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TrialOutcome {
    /// The packets that the load asks for in that time.
    pub sent: u64,
    /// Those that did not come back; those that could not be sent in time are lost too.
    pub lost: u64,
    /// Why the loss may be the host's: it stalled. A trial that lost no more than a goal allows holds
    /// in spite of it; one that lost more is void.
    pub void: Option<String>,
    /// What else was measured. The searches add `duration` (s), `sent`, `lost` and `allowed` (the loss
    /// ratio of the goal for which it was tried).
    pub values: Values,
}

impl TrialOutcome {
    /// The share that was lost. Of nothing, all: it shows nothing.
    pub fn ratio(&self) -> f64 {
        if self.sent == 0 { 1.0 } else { self.lost as f64 / self.sent as f64 }
    }
}

/// Between which loads the edge lies.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LoadInterval {
    /// The largest load that held, below every load that failed; nothing where none did.
    pub lower: Option<f64>,
    /// The smallest load that failed; nothing where none did.
    pub upper: Option<f64>,
    /// `lower` with voids counted as loss: the largest load that was tried as often as a lower bound
    /// must be, at and below which no trial, void or not, short or long, lost more than is allowed.
    /// Never above `lower`; nothing where no load that was tried is such.
    pub strict: Option<f64>,
}

impl LoadInterval {
    /// Whether the largest load that was offered held, so that the edge may lie above it.
    pub fn at_maximum(&self) -> bool {
        self.lower.is_some() && self.upper.is_none()
    }
}
