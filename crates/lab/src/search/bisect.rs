//! Bisection for the largest or smallest level at which a condition is true.

use super::Values;
use crate::sample::{Failure, MAX_ATTEMPTS, Trial};

/// Parameters of a bisection.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Search {
    /// Smallest level.
    pub low: f64,
    /// Largest level, tried first.
    pub high: f64,
    /// Difference of the bounds at which the search ends.
    pub precision: f64,
    /// Number of further trials that must pass at the level found.
    pub confirmations: u32,
}

/// Verdict of one trial.
#[derive(Debug, Clone, PartialEq)]
pub enum TrialVerdict {
    /// The condition was true.
    Holds,
    /// The condition was false.
    Fails,
    /// The trial is void, with the cause.
    Void(String),
}

/// Result of a search.
#[derive(Debug, Clone, PartialEq)]
pub struct BisectResult {
    /// Confirmed level; `None` if there is none.
    pub level: Option<f64>,
    /// Every trial in order, void ones included.
    pub trials: Vec<Trial>,
}

/// Finds the largest level at which `trial` passes. A void trial is repeated; a level whose third
/// consecutive trial is void fails.
///
/// # Errors
/// Returns those of the trial.
pub fn largest(
    search: &Search,
    mut trial: impl FnMut(f64) -> Result<(TrialVerdict, Values), Failure>,
) -> Result<BisectResult, Failure> {
    let mut trials = Vec::new();
    let mut holds = |level: f64| -> Result<bool, Failure> {
        for _ in 0..MAX_ATTEMPTS {
            let (verdict, values) = trial(level)?;
            let (holds, void) = match verdict {
                TrialVerdict::Holds => (Some(true), None),
                TrialVerdict::Fails => (Some(false), None),
                TrialVerdict::Void(cause) => (None, Some(cause)),
            };
            trials.push(Trial { level, holds, void, values });
            if let Some(holds) = holds {
                return Ok(holds);
            }
        }
        Ok(false)
    };
    let confirmed = |level: f64, holds: &mut dyn FnMut(f64) -> Result<bool, Failure>| {
        for _ in 0..search.confirmations {
            if !holds(level)? {
                return Ok::<_, Failure>(false);
            }
        }
        Ok(true)
    };
    let mut ceiling = search.high;
    let mut level = None;
    if holds(ceiling)? && confirmed(ceiling, &mut holds)? {
        level = Some(ceiling);
    } else {
        // The loop ends because each failed confirmation lowers the ceiling.
        while level.is_none() {
            let (mut low, mut high) = (search.low, ceiling);
            let mut best = None;
            while high - low > search.precision {
                let middle = f64::midpoint(low, high);
                if holds(middle)? {
                    (low, best) = (middle, Some(middle));
                } else {
                    high = middle;
                }
            }
            match best {
                None => break,
                Some(found) if confirmed(found, &mut holds)? => level = Some(found),
                Some(found) => ceiling = found,
            }
        }
    }
    Ok(BisectResult { level, trials })
}

/// Finds the smallest level at which `trial` passes, as [`largest`] on mirrored levels. `low` is
/// tried first.
///
/// # Errors
/// Returns those of the trial.
pub fn smallest(
    search: &Search,
    mut trial: impl FnMut(f64) -> Result<(TrialVerdict, Values), Failure>,
) -> Result<BisectResult, Failure> {
    let mirrored = |level: f64| search.low + search.high - level;
    let mut found = largest(search, |level| trial(mirrored(level)))?;
    found.level = found.level.map(mirrored);
    for trial in &mut found.trials {
        trial.level = mirrored(trial.level);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn search(confirmations: u32) -> Search {
        Search { low: 0.0, high: 100.0, precision: 0.1, confirmations }
    }

    proptest! {
        #[test]
        fn the_edge_is_found_within_the_precision(edge in 0.2f64..120.0, confirmations in 0u32..3) {
            let found = largest(&search(confirmations), |level| {
                Ok((if level <= edge { TrialVerdict::Holds } else { TrialVerdict::Fails }, Values::new()))
            }).unwrap();
            let level = found.level.unwrap();
            prop_assert!(level <= edge && level >= edge.min(100.0) - 0.1, "{level} for {edge}");
            prop_assert!(found.trials.len() < 20);
        }

        #[test]
        fn the_lower_edge_is_found_within_the_precision(edge in -5.0f64..99.8) {
            let found = smallest(&search(2), |level| {
                Ok((if level >= edge { TrialVerdict::Holds } else { TrialVerdict::Fails }, Values::new()))
            }).unwrap();
            let level = found.level.unwrap();
            prop_assert!(level >= edge && level <= edge.max(0.0) + 0.1, "{level} for {edge}");
            prop_assert!(found.trials.iter().all(|t| t.holds == Some(t.level >= edge)));
        }

        #[test]
        fn any_answers_end_the_search(answers in proptest::collection::vec(0u8..3, 1..50)) {
            let mut at = 0;
            let found = largest(&search(2), |_| {
                at += 1;
                let shown = match answers[at % answers.len()] {
                    0 => TrialVerdict::Holds,
                    1 => TrialVerdict::Fails,
                    _ => TrialVerdict::Void("stall".into()),
                };
                Ok((shown, Values::new()))
            }).unwrap();
            if let Some(level) = found.level {
                let held = found.trials.iter().filter(|t| t.level == level && t.holds == Some(true));
                prop_assert!(held.count() >= 3, "the level found was confirmed twice");
            }
        }
    }

    #[test]
    fn a_void_trial_is_kept_and_repeated() {
        let mut first = true;
        let found = largest(&search(0), |_| {
            let void = std::mem::take(&mut first);
            Ok((
                if void {
                    TrialVerdict::Void("the host stalled".into())
                } else {
                    TrialVerdict::Holds
                },
                Values::new(),
            ))
        })
        .unwrap();
        assert_eq!(found.level, Some(100.0));
        assert_eq!(found.trials.len(), 2);
        assert_eq!(found.trials[0].void.as_deref(), Some("the host stalled"));
    }

    #[test]
    fn no_level_is_found_if_none_passes() {
        let found = largest(&search(0), |_| Ok((TrialVerdict::Fails, Values::new()))).unwrap();
        assert_eq!(found.level, None);
    }
}
