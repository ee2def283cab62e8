//! When a point has been measured enough.

use crate::experiment::Effort;
use crate::statistics::{self, ORDER_STATISTIC_ROUNDS};

/// Whether the interval of the values is as narrow as asked. Never a question of significance, and
/// asked after few fixed numbers of values alone: an interval that is looked at after every round is
/// sooner or later narrow by luck, and then covers less than it says.
pub fn narrow(values: &[f64], effort: &Effort) -> bool {
    is_look(values.len(), effort) && statistics::stopping_half_width(values) <= effort.resolve
}

/// The first rounds after which the width is looked at: enough for an interval of 95%.
fn first_look(effort: &Effort) -> usize {
    (effort.min_rounds as usize).max(ORDER_STATISTIC_ROUNDS)
}

/// Whether the width is looked at after so many rounds: the first, twice as many, four times.
fn is_look(rounds: usize, effort: &Effort) -> bool {
    let first = first_look(effort);
    rounds.is_multiple_of(first) && (rounds / first).is_power_of_two()
}

/// How many rounds the asked interval takes, projected from the rounds so far to the next at which
/// the width is looked at; nothing where they say nothing.
pub(super) fn projected(values: &[f64], effort: &Effort) -> Option<usize> {
    let estimate = statistics::estimate(values).ok()?;
    let needed = statistics::rounds_needed(&estimate, effort.resolve)?;
    let first = first_look(effort);
    Some(first * needed.div_ceil(first).next_power_of_two())
}
