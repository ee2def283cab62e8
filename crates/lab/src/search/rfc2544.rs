//! Binary search of RFC 2544, as in the Ensō evaluation.

use std::time::Duration;

use super::trial_log::{Counted, Criterion, TrialLog};
use super::{LoadInterval, TrialOutcome};
use crate::sample::{Failure, Trial};

/// Parameters of a binary search for the largest load without packet loss.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rfc2544 {
    /// Largest load, tried first. The lower bound starts at 0, which is not tried.
    pub maximum: f64,
    /// Difference of the bounds at which the search ends, in the unit of `maximum`.
    pub precision: f64,
    /// Duration of each trial.
    pub duration: Duration,
}

/// Result of a search.
#[derive(Debug, Clone, PartialEq)]
pub struct Rfc2544Result {
    /// Bounds of the largest load.
    pub bounds: LoadInterval,
    /// Every trial in order.
    pub trials: Vec<Trial>,
}

/// Bisects from the maximum with one trial per load, void or not; any lost packet fails the load, and no
/// load is confirmed. The number of trials is at most `2 + log2(maximum / precision)`. Ensō's search
/// first offers the maximum for 5 s as a warm-up, which is left to the caller.
///
/// # Errors
/// Returns an error for inconsistent parameters, and those of the trial.
pub fn rfc2544(
    search: &Rfc2544,
    mut trial: impl FnMut(f64, Duration) -> Result<TrialOutcome, Failure>,
) -> Result<Rfc2544Result, Failure> {
    let Rfc2544 { maximum, precision, duration } = *search;
    // A smaller precision would approach that of `f64`.
    if !(maximum.is_finite() && precision >= maximum * 1e-9 && precision < maximum) {
        let why =
            format!("precision {precision} is not from 1e-9 of the maximum {maximum} to below it");
        return Err(Failure::failed(why));
    }
    let criterion = Criterion { allowed: 0.0, duration, trials: 1 };
    let mut log = TrialLog::default();
    let (mut low, mut high, mut load) = (0.0, maximum, maximum);
    while high - low > precision {
        if log.try_load(load, &criterion, Counted::All, &mut trial)? {
            low = load;
        } else {
            high = load;
        }
        load = f64::midpoint(low, high);
    }
    Ok(Rfc2544Result { bounds: log.bounds(&criterion, Counted::All), trials: log.trials })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ENSO: Rfc2544 =
        Rfc2544 { maximum: 100e9, precision: 0.1e9, duration: Duration::from_secs(1) };

    fn lost(lost: u64) -> TrialOutcome {
        TrialOutcome { sent: 1000, lost, ..TrialOutcome::default() }
    }

    fn stalled(lost: u64) -> TrialOutcome {
        TrialOutcome {
            sent: 1000,
            lost,
            void: Some("the host stalled".into()),
            ..TrialOutcome::default()
        }
    }

    /// Runs a search with outcomes from a list; the last one repeats.
    fn answers(list: &[TrialOutcome]) -> Rfc2544Result {
        let mut at = 0;
        rfc2544(&ENSO, |_, duration| {
            assert_eq!(duration, ENSO.duration);
            at += 1;
            Ok(list[(at - 1).min(list.len() - 1)].clone())
        })
        .unwrap()
    }

    #[test]
    fn a_maximum_that_passes_takes_one_trial() {
        let edge = answers(&[lost(0)]);
        assert_eq!(edge.bounds.lower, Some(100e9));
        assert_eq!(edge.bounds.upper, None);
        assert_eq!(edge.trials.len(), 1);
    }

    #[test]
    fn it_bisects_like_the_enso_evaluation() {
        // Down, up, down, and then up to the end.
        let edge = answers(&[lost(1), lost(0), lost(3), lost(0)]);
        let loads: Vec<f64> = edge.trials.iter().map(|trial| trial.level / 1e9).collect();
        assert_eq!(loads[..5], [100.0, 50.0, 75.0, 62.5, 68.75]);
        assert_eq!(loads.len(), 11, "the maximum, and ten halves of 100 to below 0.1");
        assert_eq!(edge.bounds.upper, Some(75e9));
        assert_eq!(edge.bounds.lower, edge.trials.last().map(|trial| trial.level));
    }

    #[test]
    fn no_lower_bound_is_found_if_every_load_loses() {
        let edge = answers(&[lost(1)]);
        assert_eq!(edge.bounds.lower, None);
        assert!(edge.bounds.upper.unwrap() <= 0.1e9);
    }

    #[test]
    fn void_trials_count_like_others() {
        let edge = answers(&[lost(9), stalled(4), stalled(0), lost(9)]);
        assert_eq!(edge.bounds.lower, Some(25e9));
        let loads: Vec<f64> = edge.trials.iter().map(|trial| trial.level / 1e9).collect();
        assert_eq!(loads[..4], [100.0, 50.0, 25.0, 37.5]);
        let trials = &edge.trials[1..3];
        assert_eq!((trials[0].holds, trials[1].holds), (Some(false), Some(true)));
        assert!(trials.iter().all(|trial| trial.void.as_deref() == Some("the host stalled")));
    }

    #[test]
    fn errors_are_returned_and_a_bad_precision_is_an_error() {
        let error = rfc2544(&ENSO, |_, _| Err(Failure::failed("no generator"))).unwrap_err();
        assert_eq!(error.why, "no generator");
        for precision in [0.0, 100e9, f64::NAN] {
            assert!(rfc2544(&Rfc2544 { precision, ..ENSO }, |_, _| Ok(lost(0))).is_err());
        }
    }

    proptest! {
        #[test]
        fn the_edge_is_found_within_the_precision(edge in 0.2e9f64..120e9) {
            let found = rfc2544(&ENSO, |load, _| Ok(lost(u64::from(load > edge)))).unwrap();
            let lower = found.bounds.lower.unwrap();
            prop_assert!(lower <= edge && lower >= edge.min(100e9) - 0.1e9);
            prop_assert!(found.trials.len() <= 11);
        }

        #[test]
        fn any_answers_end_the_search(list in proptest::collection::vec((0u64..2, any::<bool>()), 1..40)) {
            let list: Vec<TrialOutcome> =
                list.into_iter().map(|(l, void)| if void { stalled(l) } else { lost(l) }).collect();
            let found = answers(&list);
            prop_assert!(found.trials.len() <= 11);
            prop_assert!(found.trials.iter().all(|trial| trial.holds.is_some()));
        }
    }
}
