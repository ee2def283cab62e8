//! What an experiment may ask for at most: a typing error must not cost memory, days or a panic.

use std::time::Duration;

use super::Experiment;

/// Points that the sweeps of one file's experiments make together, before any is excluded.
pub const MAX_POINTS: usize = 100_000;
/// Levels of one factor.
pub const MAX_LEVELS: usize = 10_000;
/// Sweeps of an experiment; filters of `exclude`; filters of `twins`.
pub const MAX_LISTED: usize = 100;
/// Comparisons of a point's level with one of a filter's, in one experiment.
pub(super) const MAX_COMPARISONS: usize = 100_000_000;
/// Rounds.
pub const MAX_ROUNDS: u32 = 10_000;
/// Time measured in a sample.
const MAX_BUDGET: Duration = Duration::from_secs(3600);
/// Time after which a sample's process is killed.
const MAX_LIMIT: Duration = Duration::from_secs(7 * 24 * 3600);
/// Points of an order.
const MAX_BATCH: usize = 4096;

impl Experiment {
    /// Whether what it asks for can be done.
    ///
    /// # Errors
    /// One line: which number, and what it may be.
    pub fn within_limits(&self) -> Result<(), String> {
        let effort = &self.effort;
        count("points", self.points.len(), 1, MAX_POINTS)?;
        count("twins", self.twins.len(), 0, MAX_POINTS)?;
        count("rounds", effort.rounds as usize, 1, MAX_ROUNDS as usize)?;
        count("min_rounds", effort.min_rounds as usize, 0, effort.rounds as usize)?;
        count("batch", self.batch, 1, MAX_BATCH)?;
        time("budget", effort.budget, MAX_BUDGET)?;
        self.limit.map_or(Ok(()), |limit| time("limit", limit, MAX_LIMIT))?;
        match (0.0..1.0).contains(&effort.resolve) {
            true => Ok(()),
            false => Err(format!(
                "resolve: {} is not a share from 0 to below 1, as '2%'",
                effort.resolve
            )),
        }
    }
}

/// Whether a number lies within what is allowed.
pub(super) fn count(what: &str, number: usize, least: usize, most: usize) -> Result<(), String> {
    if (least..=most).contains(&number) {
        return Ok(());
    }
    Err(format!("{what}: {number} is not from {least} to {most}; choose a number in between"))
}

fn time(what: &str, time: Duration, most: Duration) -> Result<(), String> {
    if !time.is_zero() && time <= most {
        return Ok(());
    }
    let (time, most) = (time.as_secs_f64(), most.as_secs());
    Err(format!("{what}: {time} s is not above 0 s and at most {most} s; choose a time in between"))
}
