//! Counts of one sample of the guest, and their checks.

use std::collections::BTreeMap;

use lab::measure::Measurement;
use lab::sample::Failure;
use machine::kvm::Ring0Observation;

use super::{CrossingKind, GuestCrossing, Stamp};
use crate::ticks::{
    self, CROSSINGS_MADE, CROSSINGS_STAMPED, RESOLUTION_METRIC, STEP_METRIC, Ticks,
};

/// The fix if ring 0 is not real.
pub(super) const REMEDY: &str = "use a machine whose KVM is backed by hardware, or boot the guest on \
                                 bare metal: tollgate crossing guest --write FILE";

/// A histogram of times with bins of one tick.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TickBins {
    /// Count by ticks. The guest's last bin includes all longer times.
    pub bins: BTreeMap<u32, u64>,
    /// Maximum, ticks, if the last bin was used; otherwise 0.
    pub longest: u64,
}

impl TickBins {
    /// Returns the number of times.
    pub fn count(&self) -> u64 {
        self.bins.values().sum()
    }

    /// Returns the minimum, ticks; 0 if empty.
    pub fn min(&self) -> u64 {
        self.bins.keys().next().map_or(0, |ticks| u64::from(*ticks))
    }

    /// Returns the median, ticks; 0 if empty.
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

    /// Returns the trimmed mean, ticks; 0 if empty.
    pub fn trimmed_mean(&self) -> f64 {
        let times = self.bins.iter().map(|(ticks, count)| (u64::from(*ticks), *count));
        ticks::trimmed_mean(self.count(), times)
    }

    /// Adds the times of another histogram.
    pub fn add(&mut self, other: &Self) {
        for (ticks, count) in &other.bins {
            *self.bins.entry(*ticks).or_default() += count;
        }
        self.longest = self.longest.max(other.longest);
    }

    /// Returns all times, each less `overhead` ticks. One time of the last bin is recorded as `longest`, the
    /// others as the bin.
    fn less_overhead(&self, overhead: u64) -> Result<Ticks, Failure> {
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

/// Counts of one sample.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SampleCounts {
    /// Crossings made.
    pub made: u64,
    /// Crossings whose sentinel the handler changed and whose four stamps are in order.
    pub stamped: u64,
    /// Bitwise or of all CS that the handler read: its two lowest bits are the ring.
    pub cs: u32,
    /// Minimum time of two consecutive rdtsc where the loop runs, in ticks.
    pub floor_user: u32,
    /// Minimum time of two consecutive rdtsc in the handler, ticks; `u32::MAX` if no handler ran.
    pub floor_handler: u32,
    /// Empty fenced pairs where the loop runs.
    pub empty: TickBins,
    /// User to kernel, including the empty pair.
    pub u2k: TickBins,
    /// Kernel to user, including the empty pair.
    pub k2u: TickBins,
}

impl SampleCounts {
    /// Adds the counts of another batch of the same kind.
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

    /// Checks that every crossing was stamped and counted.
    ///
    /// # Errors
    /// Returns `check` with the number that was.
    pub fn check(&self, kind: CrossingKind) -> Result<(), Failure> {
        let Self { made, stamped, .. } = self;
        if *made == 0 || made != stamped {
            return Err(Failure::check(format!("{kind}: {stamped} of {made} crossings stamped")));
        }
        for (name, bins) in [("u2k", &self.u2k), ("k2u", &self.k2u)] {
            let count = bins.count();
            if count != *stamped {
                return Err(Failure::check(format!(
                    "{kind}: {name} of {count} of {stamped} crossings counted"
                )));
            }
        }
        Ok(())
    }

    /// Checks that the handler ran in ring 0, if the kind has one. `step` is the step of the counter, in ticks; `None` on
    /// an emulated CPU.
    ///
    /// # Errors
    /// Returns `unavailable` with the observation and the fix.
    pub(super) fn check_ring_0(
        &self,
        kind: CrossingKind,
        step: Option<u64>,
    ) -> Result<(), Failure> {
        if !kind.needs_ring_0() {
            return Ok(());
        }
        let (user, kernel) = (self.floor_user.into(), self.floor_handler.into());
        let observation = Ring0Observation { cs: self.cs, user, kernel };
        machine::kvm::ring_0(observation, step).map_err(|why| {
            let cause = "the guest's kernel does not run on the CPU itself";
            Failure::unavailable(why, REMEDY).with_cause(cause)
        })
    }

    /// Returns the counts of crossings as metrics.
    ///
    /// # Errors
    /// Returns `check` if a crossing was not stamped, `unavailable` if the handler did not run in ring 0.
    pub(super) fn without_times(
        &self,
        kind: CrossingKind,
        step: Option<u64>,
    ) -> Result<Measurement, Failure> {
        self.check(kind)?;
        self.check_ring_0(kind, step)?;
        Ok(Measurement::default()
            .value(CROSSINGS_MADE.name, self.made as f64)
            .value(CROSSINGS_STAMPED.name, self.stamped as f64))
    }

    /// Converts the counts to metrics: times less the guest's empty pairs, or as they are if stamped like xperf.
    ///
    /// # Errors
    /// Returns `check` if a crossing was not stamped, `unavailable` if the handler did not run in ring 0.
    pub fn to_measurement(
        &self,
        crossing: GuestCrossing,
        hertz: f64,
        step: u64,
    ) -> Result<Measurement, Failure> {
        let GuestCrossing { kind, stamp, .. } = crossing;
        let measurement = self.without_times(kind, Some(step))?;
        let ns = |ticks: f64| ticks * 1e9 / hertz;
        let overhead = match stamp {
            Stamp::Lfence | Stamp::Unfenced | Stamp::Mfence => self.empty.trimmed_mean(),
            Stamp::Xperf => 0.0,
        };
        let measurement = measurement
            .value(STEP_METRIC.name, ns(step as f64))
            .value(RESOLUTION_METRIC.name, ns(ticks::resolution(step as f64, self.stamped)));
        if kind == CrossingKind::None {
            let mut stamps = self.u2k.clone();
            stamps.add(&self.k2u);
            let net = |times: &TickBins| ns(times.trimmed_mean() - overhead);
            return Ok(measurement
                .value("stamping", net(&stamps))
                .value("stamping_in", net(&self.u2k))
                .value("stamping_out", net(&self.k2u)));
        }
        let with = |measurement, name, times: &TickBins| {
            let centre = times.trimmed_mean() - overhead;
            let each = times.less_overhead(overhead.round() as u64)?;
            each.into_measurement(measurement, name, centre, hertz)
        };
        with(with(measurement, "u2k", &self.u2k)?, "k2u", &self.k2u)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BREAKPOINT: GuestCrossing =
        GuestCrossing { kind: CrossingKind::Breakpoint, stamp: Stamp::Lfence, isolated: false };
    const NONE: GuestCrossing = GuestCrossing { kind: CrossingKind::None, ..BREAKPOINT };

    fn bins(bins: &[(u32, u64)]) -> TickBins {
        TickBins { bins: bins.iter().copied().collect(), longest: 0 }
    }

    fn counts() -> SampleCounts {
        SampleCounts {
            made: 10,
            stamped: 10,
            cs: 8,
            floor_user: 26,
            floor_handler: 26,
            empty: bins(&[(26, 9), (52, 8)]),
            u2k: bins(&[(126, 4), (226, 6)]),
            k2u: bins(&[(20, 1), (326, 9)]),
        }
    }

    #[test]
    fn the_empty_pair_is_subtracted_and_a_shorter_time_becomes_zero() {
        let measurement = counts().to_measurement(BREAKPOINT, 1e9, 26).unwrap();
        let value = |name| measurement.values[name];
        // The trimmed means are 186.5 and 301.8, and that of the empty pairs is 38.2.
        let close = |name, expected: f64| (value(name) - expected).abs() < 0.1;
        assert!(close("u2k", 148.3) && close("k2u", 263.65), "{measurement:?}");
        assert!(close("u2k_min", 88.0) && close("step", 26.0) && close("resolution", 8.22));
        // The minimum of the histogram is 1.
        assert!(value("k2u_min") <= 1.0);
        assert!(!measurement.values.contains_key("stamping"));
    }

    #[test]
    fn the_kind_none_measures_only_the_stamps() {
        let none = SampleCounts { cs: 0, floor_handler: u32::MAX, ..counts() };
        let measurement = none.to_measurement(NONE, 1e9, 26).unwrap();
        assert!((measurement.values["stamping"] - (244.3 - 38.2)).abs() < 0.1);
        assert!((measurement.values["stamping_in"] - (186.5 - 38.2)).abs() < 0.1);
        assert!((measurement.values["stamping_out"] - (301.8 - 38.2)).abs() < 0.1);
        assert!(!measurement.values.contains_key("u2k"));
    }

    #[test]
    fn nothing_is_subtracted_from_xperfs_stamps() {
        let crossing =
            GuestCrossing { kind: CrossingKind::PageFault, stamp: Stamp::Xperf, isolated: false };
        let measurement = counts().to_measurement(crossing, 1e9, 26).unwrap();
        assert!((measurement.values["u2k"] - 186.5).abs() < 0.1);
        assert!((measurement.values["u2k_min"] - 126.0).abs() < 0.1);
    }

    #[test]
    fn a_crossing_without_stamps_fails_the_sample() {
        let error = |counts: SampleCounts| {
            counts.to_measurement(BREAKPOINT, 1e9, 26).unwrap_err().to_string()
        };
        let unstamped = SampleCounts { stamped: 9, ..counts() };
        assert_eq!(error(unstamped), "check: breakpoint: 9 of 10 crossings stamped");
        let uncounted = SampleCounts { u2k: bins(&[(126, 4)]), ..counts() };
        assert_eq!(error(uncounted), "check: breakpoint: u2k of 4 of 10 crossings counted");
    }

    #[test]
    fn the_maximum_beyond_the_last_bin_is_kept() {
        let mut bins = bins(&[(100, 5), (65_535, 2)]);
        bins.longest = 1_000_000;
        let ticks = bins.less_overhead(0).unwrap();
        assert_eq!((ticks.count(), bins.count()), (7, 7));
        assert_eq!((bins.min(), bins.median()), (100, 100));
    }

    fn ring_0(cs: u32, floor_user: u32, floor_handler: u32) -> Result<(), Failure> {
        let counts = SampleCounts { cs, floor_user, floor_handler, ..SampleCounts::default() };
        counts.check_ring_0(CrossingKind::PageFault, Some(26))
    }

    #[test]
    fn a_handler_outside_ring_0_is_refused_with_a_fix() {
        assert_eq!(ring_0(0x8, 26, 52), Ok(()));
        let why = ring_0(0x8, 26, 14_000).unwrap_err().to_string();
        assert!(why.contains("14000") && why.contains("26"), "{why}");
        assert!(why.contains("tollgate crossing guest --write FILE"), "{why}");
        // No handler ran.
        assert!(ring_0(0, 26, u32::MAX).is_err());
    }

    #[test]
    fn the_kind_none_needs_no_ring_0() {
        let counts = SampleCounts { floor_handler: u32::MAX, ..SampleCounts::default() };
        assert_eq!(counts.check_ring_0(CrossingKind::None, Some(26)), Ok(()));
    }
}
