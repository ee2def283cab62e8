//! How accesses came out.

use lab::sample::Failure;

/// Accesses by what the rules say and what happened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Allowed accesses that came through.
    pub allowed: u64,
    /// Forbidden accesses and attempts to get round the rules that were stopped.
    pub stopped: u64,
    /// Forbidden ones that came through.
    pub leaked: u64,
    /// Allowed ones that were stopped, or found other contents.
    pub refused: u64,
}

impl Tally {
    pub(super) fn add(&mut self, allowed: bool, came_through: bool) {
        let count = match (allowed, came_through) {
            (true, true) => &mut self.allowed,
            (true, false) => &mut self.refused,
            (false, true) => &mut self.leaked,
            (false, false) => &mut self.stopped,
        };
        *count += 1;
    }

    /// A word that no access has stored before.
    pub(super) fn mark(&self, host: usize) -> u64 {
        let count = self.allowed + self.stopped + self.leaked + self.refused;
        (count * 2 + host as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    /// All that was allowed came through, and nothing else.
    ///
    /// # Errors
    /// Says how much was not so.
    pub fn enforced(&self) -> Result<(), Failure> {
        if self.leaked == 0 && self.refused == 0 {
            return Ok(());
        }
        let Self { leaked, refused, .. } = self;
        Err(Failure::check(format!(
            "{leaked} forbidden accesses came through and {refused} allowed ones did not"
        )))
    }
}
