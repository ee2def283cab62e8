//! Whether a busy SMT sibling shared the core of a sample, by the rate of independent adds before and after it.
//!
//! A sibling of another virtual machine is visible only in this rate, relative to the best that the machine reached in
//! the run. On a machine whose core is always shared, all samples look alone.

use machine::issue_rate::ALONE;
use serde::Serialize;

use crate::sample::{Clock, Sample};
use crate::statistics::INTERVAL_ROUNDS;

/// State of the core before and after a sample. Only samples of the same state are paired, and a value never mixes
/// states if one of them has enough rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sharing {
    /// Not shared, before and after.
    Alone,
    /// Shared, before and after.
    Shared,
    /// Shared either before or after, so that the state during the sample is unknown. Such samples are not paired.
    Changed,
}

impl Sharing {
    /// Returns the state for the best rate of the machine, in adds per cycle; `None` without rates.
    pub fn of(clock: &Clock, best: f64) -> Option<Self> {
        let is_alone = |rate: f64| rate >= ALONE * best;
        Some(match (is_alone(clock.issue_before?), is_alone(clock.issue_after?)) {
            (true, true) => Self::Alone,
            (false, false) => Self::Shared,
            (true, false) | (false, true) => Self::Changed,
        })
    }

    /// Returns whether two samples of a round are comparable. A sample without rates is comparable with any.
    pub fn allows_pair(one: Option<Self>, other: Option<Self>) -> bool {
        match (one, other) {
            (Some(Self::Changed), _) | (_, Some(Self::Changed)) => false,
            (Some(one), Some(other)) => one == other,
            (None, _) | (_, None) => true,
        }
    }

    /// Returns which of some rounds give a value, by their states: those alone if they are enough for an interval, else
    /// those on a shared core if they are, else the most frequent ones; `None`, which means all, if they are too few for an
    /// interval anyway. A sibling is another guest's load, not a property of the machine; so rounds on a shared core
    /// count only where a core is hardly ever alone. A round of unknown state counts as alone.
    pub fn chosen(states: impl Iterator<Item = Option<Self>> + Clone) -> Option<Self> {
        let count = |of| states.clone().filter(|state| state.unwrap_or(Self::Alone) == of).count();
        if states.clone().count() < INTERVAL_ROUNDS {
            return None;
        }
        let enough =
            [Self::Alone, Self::Shared].into_iter().find(|of| count(*of) >= INTERVAL_ROUNDS);
        // Of equally frequent ones, the last is the maximum.
        let by_frequency =
            [Self::Changed, Self::Shared, Self::Alone].into_iter().max_by_key(|of| count(*of));
        enough.or(by_frequency)
    }

    /// Returns whether a round counts, given its state and the chosen one.
    pub fn counts(state: Option<Self>, chosen: Option<Self>) -> bool {
        chosen.is_none_or(|chosen| state.unwrap_or(Self::Alone) == chosen)
    }
}

/// Minimum number of samples, and minimum share of the samples, that must agree on the best rate, and the share by which
/// their rates may differ: a few rates that are too high, e.g. because the core clock was read too low, would turn all
/// other samples into shared ones.
const MIN_AGREEING: usize = 3;
const AGREEING: f64 = 0.01;
const AGREE: f64 = 0.02;

/// Returns the best rate of a machine, in adds per cycle: the lowest of the highest rates of its valid samples on which
/// enough samples agree. The rate of a sample is the higher of its two. If no rates agree, returns the highest; 0
/// without rates.
pub fn best_rate<'a>(samples: impl Iterator<Item = &'a Sample>) -> f64 {
    let rate = |sample: &Sample| {
        let clock = sample.clock?;
        clock.issue_before.into_iter().chain(clock.issue_after).reduce(f64::max)
    };
    let mut rates: Vec<f64> = samples.filter(|one| one.is_valid()).filter_map(rate).collect();
    rates.sort_unstable_by(|a, b| b.total_cmp(a));
    let agreeing = MIN_AGREEING.max((AGREEING * rates.len() as f64).ceil() as usize);
    let few = rates.windows(agreeing).map(|few| (few[0], few[agreeing - 1]));
    let confirmed =
        few.filter(|(high, low)| *low >= (1.0 - AGREE) * high).map(|(_, low)| low).next();
    confirmed.or(rates.first().copied()).unwrap_or(0.0)
}

/// Number of samples by the state of their core.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct SharingCounts {
    /// Samples on a core that was not shared.
    pub alone: usize,
    /// Samples on a shared core.
    pub shared: usize,
    /// Samples whose core was shared before or after them.
    pub changed: usize,
}

impl SharingCounts {
    /// Counts samples of a machine with this best rate, in adds per cycle.
    pub fn of<'a>(samples: impl Iterator<Item = &'a Sample>, best: f64) -> Self {
        let mut counts = Self::default();
        for clock in samples.filter_map(|sample| sample.clock) {
            match Sharing::of(&clock, best) {
                Some(Sharing::Alone) => counts.alone += 1,
                Some(Sharing::Shared) => counts.shared += 1,
                Some(Sharing::Changed) => counts.changed += 1,
                None => {}
            }
        }
        counts
    }

    /// Returns the share (0 to 1) of the samples whose core was shared before or after them; `None` without rates.
    pub fn share(&self) -> Option<f64> {
        let Self { alone, shared, changed } = *self;
        let all = alone + shared + changed;
        (all > 0).then(|| (shared + changed) as f64 / all as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(before: f64, after: f64) -> Sample {
        let clock = Clock {
            tsc_hertz: 1e9,
            core_before: 1e9,
            core_after: 1e9,
            issue_before: Some(before),
            issue_after: Some(after),
            ..Clock::default()
        };
        Sample { clock: Some(clock), ..Sample::default() }
    }

    #[test]
    fn samples_are_counted_by_the_state_of_their_core() {
        let without = Sample::default();
        let samples =
            [sample(5.1, 5.0), sample(3.9, 4.4), sample(5.0, 4.4), sample(4.4, 5.1), without];
        let counts = SharingCounts::of(samples.iter(), 5.1);
        assert_eq!(counts, SharingCounts { alone: 1, shared: 1, changed: 2 });
        assert_eq!(counts.share(), Some(0.75));
        assert_eq!(SharingCounts::of(samples[4..].iter(), 5.1).share(), None);
    }

    #[test]
    fn a_few_samples_do_not_set_the_best_rate() {
        let best = |samples: &[Sample]| best_rate(samples.iter());
        let few = [sample(5.1, 5.0), sample(3.9, 4.4), sample(5.0, 4.4), sample(4.4, 5.05)];
        assert_eq!(best(&few), 5.0, "the lowest of three that agree");
        assert_eq!(best(&few[1..2]), 4.4, "too few rates");
        assert_eq!(best(&[]), 0.0);
        // Two samples have four rates that are too high.
        let wrong = vec![sample(5.5, 5.5); 2];
        assert_eq!(best(&[&few[..], &wrong].concat()), 5.0);
        // Of 500 samples, 5 must agree.
        let many = vec![sample(5.1, 5.1); 496];
        assert_eq!(best(&[many.clone(), vec![sample(5.5, 5.5); 4]].concat()), 5.1);
        assert_eq!(best(&[many.clone(), vec![sample(5.5, 5.5); 6]].concat()), 5.5);
        // The clock of a void sample may be wrong.
        let void = Sample { void: Some("the core clock moved".into()), ..sample(5.5, 5.5) };
        assert_eq!(best(&[many, vec![void; 50]].concat()), 5.1);
    }

    #[test]
    fn rounds_alone_are_preferred() {
        use Sharing::{Alone, Changed, Shared};
        let chosen = |alone, shared, changed| {
            let states = [(Alone, alone), (Shared, shared), (Changed, changed)];
            Sharing::chosen(
                states.into_iter().flat_map(|(state, n)| std::iter::repeat_n(Some(state), n)),
            )
        };
        assert_eq!([chosen(6, 30, 9), chosen(5, 6, 30)], [Some(Alone), Some(Shared)]);
        assert_eq!([chosen(5, 4, 5), chosen(1, 1, 4)], [Some(Alone), Some(Changed)]);
        assert_eq!([chosen(2, 3, 0), chosen(0, 0, 0)], [None, None], "too few for an interval");
        let unknown = [None; 6].into_iter().chain([Some(Shared)]);
        assert_eq!(Sharing::chosen(unknown), Some(Alone));
        assert!(Sharing::counts(None, Some(Alone)) && Sharing::counts(Some(Changed), None));
        assert!(!Sharing::counts(Some(Shared), Some(Alone)));
    }

    #[test]
    fn only_samples_of_the_same_known_state_are_paired() {
        use Sharing::{Alone, Changed, Shared};
        let pairs = |one, other| Sharing::allows_pair(one, other);
        assert!(pairs(Some(Alone), Some(Alone)) && pairs(Some(Shared), Some(Shared)));
        assert!(!pairs(Some(Alone), Some(Shared)) && !pairs(Some(Changed), Some(Changed)));
        assert!(pairs(None, Some(Alone)) && pairs(None, None) && !pairs(None, Some(Changed)));
    }
}
