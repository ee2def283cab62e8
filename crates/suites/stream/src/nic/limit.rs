//! How fast packets may leave.

use super::layout::FLITS_A_SECOND;

/// Of what a limited core sends late, because the NIC was busy, so many seconds are made up for.
const MADE_UP: f64 = 100e-6;

/// How fast packets may leave.
#[derive(Debug)]
pub(crate) struct Limit {
    ticks_a_flit: f64,
    made_up: f64,
    /// When the next may leave, ticks.
    next: f64,
}

impl Limit {
    /// So many flits in so many cycles of the hardware.
    pub(super) fn new(numerator: u16, denominator: u16, ticks_a_second: f64) -> Self {
        let share = f64::from(numerator) / f64::from(denominator);
        Self {
            ticks_a_flit: ticks_a_second / (FLITS_A_SECOND * share),
            made_up: ticks_a_second * MADE_UP,
            next: 0.0,
        }
    }

    /// Whether nothing may leave yet.
    pub(super) fn holds(&self, now: u64) -> bool {
        self.next > now as f64
    }

    /// So many flits leave.
    pub(super) fn leave(&mut self, flits: u64, now: u64) {
        let begins = self.next.max(now as f64 - self.made_up);
        self.next = begins + self.ticks_a_flit * flits as f64;
    }
}
