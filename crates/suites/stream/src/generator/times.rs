//! Round-trip times.

use hdrhistogram::Histogram;

use crate::nic::ticks;

/// Packets sent together for which the time is read once when they come back.
const TIMED_TOGETHER: u64 = 16;
/// The longest round trip that is told from longer ones, ticks.
const LONGEST: u64 = u32::MAX as u64;

/// Round-trip times. Packets that were sent together come back together: for each lot the time is read
/// once.
pub(super) struct Times {
    histogram: Histogram<u64>,
    stamp: u32,
    taken: u64,
    trip: u64,
}

impl Times {
    pub(super) fn new() -> Option<Self> {
        let histogram = Histogram::new_with_bounds(1, LONGEST, 3).ok()?;
        Some(Self { histogram, stamp: 0, taken: 0, trip: 0 })
    }

    /// Forgets all; the histogram's memory is there from now on.
    pub(super) fn begin(&mut self) {
        self.histogram.reset();
        self.taken = 0;
    }

    #[inline(always)]
    pub(super) fn take(&mut self, stamp: u32) {
        if stamp != self.stamp || self.taken == TIMED_TOGETHER || self.taken == 0 {
            self.write();
            self.stamp = stamp;
            self.trip = u64::from((ticks() as u32).wrapping_sub(stamp));
        }
        self.taken += 1;
    }

    fn write(&mut self) {
        if self.taken > 0 {
            self.histogram.saturating_record_n(self.trip.max(1), self.taken);
        }
        self.taken = 0;
    }

    pub(super) fn end(mut self) -> Histogram<u64> {
        self.write();
        self.histogram
    }
}
