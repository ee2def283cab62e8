//! When a point has been measured enough.

use crate::experiment::Effort;
use crate::statistics;

/// Whether the interval of the values is as narrow as asked. Never a question of significance.
pub(super) fn narrow(values: &[f64], effort: &Effort) -> bool {
    values.len() >= effort.min_rounds as usize
        && statistics::estimate(values)
            .is_ok_and(|estimate| estimate.relative_half_width() <= effort.resolve)
}

/// How many rounds the asked interval takes, projected from the rounds so far; nothing where they
/// say nothing.
pub(super) fn projected(values: &[f64], effort: &Effort) -> Option<usize> {
    let estimate = statistics::estimate(values).ok()?;
    let needed = statistics::rounds_needed(&estimate, effort.resolve)?;
    Some(needed.max(effort.min_rounds as usize))
}
