//! Whether a busy SMT sibling shared the core of a sample, by the rate of independent adds before and after it.
//!
//! A sibling of another virtual machine is visible only in this rate, relative to the best that the machine reached in
//! the run. On a machine whose core is always shared, all samples look alone.

use machine::issue_rate::ALONE;
use schemars::JsonSchema;
use serde::Serialize;

use crate::sample::{Clock, Sample};
use crate::statistics::INTERVAL_ROUNDS;

/// State of the core before and after a sample. Only samples of the same state are paired, and a value never mixes
/// states if one of them has enough rounds for an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
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

    /// Returns the state in which some groups of rounds are judged together, e.g. the rounds of a point, or the pairs
    /// of every two levels of a trend: [common](Self::common) to all groups if possible. `None` if each group has enough
    /// rounds only in both states together, whose mixture widens its interval; otherwise the state of which the group with
    /// the fewest rounds has the most. Groups that are too small for an interval do not count; `None`, which then means any
    /// state, if no group counts.
    pub fn chosen(groups: &[SharingCounts]) -> Option<Self> {
        let is_judged = |group: &&SharingCounts| group.total() >= INTERVAL_ROUNDS;
        let judged: Vec<_> = groups.iter().filter(is_judged).copied().collect();
        let fewest = |state: Self| judged.iter().map(|group| group.of(state)).min();
        let by_frequency = || {
            // Of equally frequent ones, the last is the maximum.
            let states = [Self::Changed, Self::Shared, Self::Alone].into_iter();
            states.max_by_key(|state| fewest(*state))
        };
        let common = Self::common(&judged);
        if common.is_some() || judged.iter().all(SharingCounts::needs_both) {
            return common;
        }
        by_frequency()
    }

    /// Returns the state in which each of some groups has enough rounds for an interval, or all of its rounds if it has
    /// fewer: alone if possible, else shared. A sibling is another guest's load, not a property of the machine; so
    /// rounds on a shared core count only where a core is hardly ever alone. `None` if there is no such state, or no
    /// group.
    pub fn common(groups: &[SharingCounts]) -> Option<Self> {
        let has_enough =
            |group: &SharingCounts, state| group.of(state) >= group.total().min(INTERVAL_ROUNDS);
        let mut states = [Self::Alone, Self::Shared].into_iter().filter(|_| !groups.is_empty());
        states.find(|state| groups.iter().all(|group| has_enough(group, *state)))
    }

    /// Returns whether a round counts, given its state and the chosen one. A round of unknown state counts as alone.
    pub fn counts(state: Option<Self>, chosen: Option<Self>) -> bool {
        chosen.is_none_or(|chosen| state.unwrap_or(Self::Alone) == chosen)
    }
}

/// Minimum number of samples, and minimum share of the samples, that must agree on the best rate, and the share by
/// which their rates may differ: a few rates that are too high, e.g. because the core clock was read too low, would
/// turn all other samples into shared ones.
const MIN_AGREEING: usize = 3;
const AGREEING: f64 = 0.01;
const AGREE: f64 = 0.02;

/// Returns the best rate of a machine, in adds per cycle: the lowest of the highest rates of its valid samples on which
/// enough samples agree. The rate of a sample is the higher of its two. If no rates agree, returns the highest; 0
/// without rates.
pub fn best_rate<'a>(samples: impl Iterator<Item = &'a Sample>) -> f64 {
    best_rate_of(samples.filter(|one| one.is_valid()).filter_map(|sample| sample.clock))
}

/// Returns the same from the clocks of valid samples.
pub(crate) fn best_rate_of(clocks: impl Iterator<Item = Clock>) -> f64 {
    let rate =
        |clock: Clock| clock.issue_before.into_iter().chain(clock.issue_after).reduce(f64::max);
    let mut rates: Vec<f64> = clocks.filter_map(rate).collect();
    rates.sort_unstable_by(|a, b| b.total_cmp(a));
    let agreeing = MIN_AGREEING.max((AGREEING * rates.len() as f64).ceil() as usize);
    let few = rates.windows(agreeing).map(|few| (few[0], few[agreeing - 1]));
    let confirmed =
        few.filter(|(high, low)| *low >= (1.0 - AGREE) * high).map(|(_, low)| low).next();
    confirmed.or(rates.first().copied()).unwrap_or(0.0)
}

/// Number of samples, rounds or pairs by the state of their core.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SharingCounts {
    /// On a core that was not shared.
    pub alone: usize,
    /// On a shared core.
    pub shared: usize,
    /// On a core that was shared either before or after.
    pub changed: usize,
}

/// Counts states; an unknown one counts as alone.
impl FromIterator<Option<Sharing>> for SharingCounts {
    fn from_iter<I: IntoIterator<Item = Option<Sharing>>>(states: I) -> Self {
        let mut counts = Self::default();
        for state in states {
            match state.unwrap_or(Sharing::Alone) {
                Sharing::Alone => counts.alone += 1,
                Sharing::Shared => counts.shared += 1,
                Sharing::Changed => counts.changed += 1,
            }
        }
        counts
    }
}

impl SharingCounts {
    /// Counts samples of a machine with this best rate, in adds per cycle; samples without rates do not count.
    pub fn of_samples<'a>(samples: impl Iterator<Item = &'a Sample>, best: f64) -> Self {
        let clocks = samples.filter_map(|sample| sample.clock);
        clocks.map(|clock| Sharing::of(&clock, best)).filter(Option::is_some).collect()
    }

    /// Adds counts.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            alone: self.alone + other.alone,
            shared: self.shared + other.shared,
            changed: self.changed + other.changed,
        }
    }

    /// Returns the number in a state.
    pub fn of(&self, state: Sharing) -> usize {
        match state {
            Sharing::Alone => self.alone,
            Sharing::Shared => self.shared,
            Sharing::Changed => self.changed,
        }
    }

    /// Returns whether both states together have enough rounds for an interval, and neither has.
    fn needs_both(&self) -> bool {
        let each = [self.alone, self.shared];
        each.iter().sum::<usize>() >= INTERVAL_ROUNDS
            && each.iter().all(|rounds| *rounds < INTERVAL_ROUNDS)
    }

    /// Returns the number in any state.
    pub fn total(&self) -> usize {
        self.alone + self.shared + self.changed
    }

    /// Returns the share (0 to 1) of the samples whose core was shared before or after them; `None` without rates.
    pub fn share(&self) -> Option<f64> {
        let all = self.total();
        (all > 0).then(|| (self.shared + self.changed) as f64 / all as f64)
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
        let counts = SharingCounts::of_samples(samples.iter(), 5.1);
        assert_eq!(counts, SharingCounts { alone: 1, shared: 1, changed: 2 });
        assert_eq!(counts.share(), Some(0.75));
        assert_eq!(SharingCounts::of_samples(samples[4..].iter(), 5.1).share(), None);
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

    fn counts(alone: usize, shared: usize, changed: usize) -> SharingCounts {
        SharingCounts { alone, shared, changed }
    }

    #[test]
    fn rounds_alone_are_preferred() {
        use Sharing::{Alone, Changed, Shared};
        let chosen = |alone, shared, changed| Sharing::chosen(&[counts(alone, shared, changed)]);
        assert_eq!([chosen(6, 30, 9), chosen(5, 6, 30)], [Some(Alone), Some(Shared)]);
        assert_eq!([chosen(5, 4, 5), chosen(5, 5, 0)], [None, None], "both states together");
        assert_eq!([chosen(3, 2, 5), chosen(1, 1, 4)], [Some(Changed), Some(Changed)]);
        assert_eq!([chosen(2, 3, 0), chosen(0, 0, 0)], [None, None], "too few for an interval");
        let unknown = [None; 6].into_iter().chain([Some(Shared)]);
        assert_eq!(Sharing::chosen(&[unknown.collect()]), Some(Alone));
        assert!(Sharing::counts(None, Some(Alone)) && Sharing::counts(Some(Changed), None));
        assert!(!Sharing::counts(Some(Shared), Some(Alone)));
    }

    #[test]
    fn all_groups_are_of_one_state() {
        use Sharing::{Alone, Shared};
        let mostly_shared = counts(5, 20, 0);
        assert_eq!(Sharing::chosen(&[counts(20, 6, 0), mostly_shared]), Some(Shared));
        // No state has enough rounds of both: the one of which the smaller group has more. They are not mixed, because the
        // interval of the larger one would exclude its rarer state.
        assert_eq!(Sharing::chosen(&[counts(20, 4, 0), mostly_shared]), Some(Alone));
        assert_eq!(Sharing::chosen(&[counts(20, 5, 0), counts(3, 20, 0)]), Some(Shared));
        assert_eq!(Sharing::chosen(&[counts(5, 4, 0), counts(3, 5, 0)]), None);
        // A group without an interval in any state does not choose.
        assert_eq!(Sharing::chosen(&[counts(20, 6, 0), counts(0, 5, 0)]), Some(Alone));
        assert_eq!(Sharing::common(&[counts(20, 6, 0), counts(0, 5, 0)]), Some(Shared));
        assert_eq!(Sharing::common(&[counts(20, 4, 0), mostly_shared]), None);
        assert_eq!(Sharing::common(&[counts(3, 0, 0), counts(2, 0, 0)]), Some(Alone));
        assert_eq!([Sharing::common(&[]), Sharing::chosen(&[])], [None, None]);
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
