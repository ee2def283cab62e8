//! What a sample of the guest counted.

use std::collections::BTreeMap;

use lab::measure::Measurement;
use lab::sample::Failure;

use super::kind::Kind;
use super::proof;
use crate::ticks::Ticks;

/// How many took how long.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Ticks to how many took so long. The guest's last bin holds all that took longer too.
    pub bins: BTreeMap<u32, u64>,
    /// The longest, ticks, where it was beyond the last bin; else 0.
    pub longest: u64,
}

impl Counts {
    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.bins.values().sum()
    }

    /// The least, ticks; 0 where nothing was counted.
    pub fn least(&self) -> u64 {
        self.bins.keys().next().map_or(0, |ticks| u64::from(*ticks))
    }

    /// The median, ticks; 0 where nothing was counted.
    pub fn median(&self) -> u64 {
        let half = self.count().div_ceil(2);
        let mut seen = 0;
        for (ticks, count) in &self.bins {
            seen += count;
            if seen >= half {
                return u64::from(*ticks);
            }
        }
        0
    }

    /// Takes those of another.
    pub fn add(&mut self, other: &Self) {
        for (ticks, count) in &other.bins {
            *self.bins.entry(*ticks).or_default() += count;
        }
        self.longest = self.longest.max(other.longest);
    }

    /// All of them, each less `overhead` ticks. Of those in the last bin one is the longest and the
    /// others count as the bin.
    fn ticks_over(&self, overhead: u64) -> Result<Ticks, Failure> {
        let mut ticks = Ticks::new()?;
        let last = self.bins.keys().next_back().copied();
        for (bin, count) in &self.bins {
            let mut count = *count;
            if self.longest > 0 && Some(*bin) == last {
                ticks.record(self.longest.saturating_sub(overhead));
                count -= 1;
            }
            ticks.record_many(u64::from(*bin).saturating_sub(overhead), count);
        }
        Ok(ticks)
    }
}

/// What a sample of the guest counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Crossings made.
    pub made: u64,
    /// Crossings with the sentinel changed by the handler and four stamps in order.
    pub stamped: u64,
    /// All CS that the handler read, or'ed: its two lowest bits are the ring.
    pub cs: u32,
    /// The least that two rdtsc in a row took where the loop runs, ticks.
    pub floor_user: u32,
    /// The least that two rdtsc in a row took in the handler, ticks; the greatest number where none ran.
    pub floor_handler: u32,
    /// Empty fenced pairs where the loop runs.
    pub empty: Counts,
    /// User to kernel, with the empty pair in it.
    pub u2k: Counts,
    /// Kernel to user, with the empty pair in it.
    pub k2u: Counts,
}

impl Tally {
    /// Takes the counts of another batch of the same kind.
    pub(super) fn add(&mut self, other: &Self) {
        self.made += other.made;
        self.stamped += other.stamped;
        self.cs |= other.cs;
        self.floor_user = self.floor_user.min(other.floor_user);
        self.floor_handler = self.floor_handler.min(other.floor_handler);
        self.empty.add(&other.empty);
        self.u2k.add(&other.u2k);
        self.k2u.add(&other.k2u);
    }

    /// Whether every crossing was stamped and counted.
    ///
    /// # Errors
    /// A failed check, which says how many were not.
    pub fn check(&self, kind: Kind) -> Result<(), Failure> {
        let kind = kind.name();
        if self.made == 0 || self.made != self.stamped {
            return Err(Failure::check(format!(
                "{} of {} crossings by {kind} were stamped",
                self.stamped, self.made
            )));
        }
        for (name, counts) in [("u2k", &self.u2k), ("k2u", &self.k2u)] {
            if counts.count() != self.stamped {
                let counted = counts.count();
                return Err(Failure::check(format!(
                    "{name} of {counted} crossings by {kind} were counted, not of {}",
                    self.stamped
                )));
            }
        }
        Ok(())
    }

    /// The sample's metrics, where each crossing was stamped, and in ring 0 where the kind needs it. The
    /// median of the guest's own empty pairs is subtracted.
    ///
    /// # Errors
    /// A failed check, or 'not ring 0'.
    pub fn measurement(&self, kind: Kind, hertz: f64, step: u64) -> Result<Measurement, Failure> {
        self.check(kind)?;
        proof::ring_0(kind, self, step)?;
        let ns = |ticks: f64| ticks * 1e9 / hertz;
        let overhead = self.empty.median();
        let measurement = Measurement::default()
            .value("step", ns(step as f64))
            .value("crossings_made", self.made as f64)
            .value("crossings_stamped", self.stamped as f64);
        if kind == Kind::None {
            let mut stamps = self.u2k.clone();
            stamps.add(&self.k2u);
            return Ok(measurement.value("stamping", ns(stamps.median() as f64 - overhead as f64)));
        }
        let measurement =
            self.u2k.ticks_over(overhead)?.into_measurement(measurement, "u2k", hertz)?;
        self.k2u.ticks_over(overhead)?.into_measurement(measurement, "k2u", hertz)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(bins: &[(u32, u64)]) -> Counts {
        Counts { bins: bins.iter().copied().collect(), longest: 0 }
    }

    fn tally() -> Tally {
        Tally {
            made: 10,
            stamped: 10,
            cs: 8,
            floor_user: 26,
            floor_handler: 26,
            empty: counts(&[(26, 9), (52, 8)]),
            u2k: counts(&[(126, 4), (226, 6)]),
            k2u: counts(&[(20, 1), (326, 9)]),
        }
    }

    #[test]
    fn the_empty_pair_is_subtracted_and_what_is_less_counts_as_nothing() {
        let told = tally().measurement(Kind::Breakpoint, 1e9, 26).unwrap();
        assert_eq!([told.values["u2k"], told.values["u2k_min"]], [200.0, 100.0]);
        assert_eq!([told.values["k2u"], told.values["step"]], [300.0, 26.0]);
        // The histogram's least is 1.
        assert!(told.values["k2u_min"] <= 1.0);
        assert!(!told.values.contains_key("stamping"));
    }

    #[test]
    fn of_none_only_the_stamps_are_told() {
        let none = Tally { cs: 0, floor_handler: u32::MAX, ..tally() };
        let told = none.measurement(Kind::None, 1e9, 26).unwrap();
        assert_eq!(told.values["stamping"], 226.0 - 26.0);
        assert!(!told.values.contains_key("u2k"));
    }

    #[test]
    fn a_crossing_without_its_stamps_is_no_sample() {
        let lost = Tally { stamped: 9, ..tally() };
        let why = lost.measurement(Kind::Breakpoint, 1e9, 26).unwrap_err().to_string();
        assert_eq!(why, "check: 9 of 10 crossings by breakpoint were stamped");
        let uncounted = Tally { u2k: counts(&[(126, 4)]), ..tally() };
        let why = uncounted.measurement(Kind::Breakpoint, 1e9, 26).unwrap_err().to_string();
        assert_eq!(why, "check: u2k of 4 crossings by breakpoint were counted, not of 10");
    }

    #[test]
    fn the_longest_stays_the_longest() {
        let mut counts = counts(&[(100, 5), (65_535, 2)]);
        counts.longest = 1_000_000;
        let ticks = counts.ticks_over(0).unwrap();
        assert_eq!((ticks.count(), ticks.median()), (7, 100));
        assert_eq!((counts.least(), counts.median()), (100, 100));
    }
}
