//! How a core spends the time in which packets are sent: its work, its polling, and whether it is saturated.

use applications::application::Count;

use crate::iterations::LoopTimes;

/// Statistics of one application core.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CoreStats {
    /// Iterations of its loop; see [`PollingLoop`](crate::iterations::PollingLoop) for which stalls count.
    pub iterations: LoopTimes,
    /// Queues that each iteration polls.
    pub queues: u64,
    /// Queues that iterations with packets have polled in vain.
    pub misses: u64,
    /// Core clock, in Hz; `None` if it is doubtful, or if there is no usable time-stamp counter.
    pub core_hertz: Option<f64>,
    /// Whether the loop has learnt what its packets cost.
    pub has_learnt: bool,
    /// Counts of the application.
    pub counts: Vec<Count>,
    /// Ticks per packet that the application needs alone, on packets in memory: the lower of the measurements at the last two
    /// requests, before and after a trial. `None` if that was not measured.
    pub alone: Option<f64>,
    /// The same of the application's engine, called in a loop without packets. `None` if it has none, or if that was not
    /// measured.
    pub engine: Option<(Engine, f64)>,
}

/// Component that an application calls for the content of its packets, and that can work without them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// The partition of the key-value store.
    Store,
    /// Hyperscan, with the rules of the log monitor.
    Hyperscan,
}

impl CoreStats {
    /// Returns the time of the iterations with packets, in ticks, without the queues that they polled in vain. These cost
    /// as much as those of iterations without packets.
    pub fn work(&self) -> f64 {
        let busy = self.iterations.busy as f64;
        let each = self.iterations.empty_iteration().unwrap_or(0.0) / self.queues.max(1) as f64;
        (busy - self.misses as f64 * each).max(0.0)
    }

    /// Returns the ticks per packet of an engine without packets; `None` if that was not measured.
    pub fn ticks_of(&self, engine: Engine) -> Option<f64> {
        self.engine.filter(|(measured, _)| *measured == engine).map(|(_, ticks)| ticks)
    }
}

/// A loop is saturated if it looks for packets for less than this share of its time. A loop with more load than it can
/// process has long iterations, one after another; one with less looks in vain, or often.
const SATURATED: f64 = 0.05;

/// How one core's loop spent the time in which packets were sent, without stalls.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CoreUse {
    /// Share of the time in iterations with packets.
    pub busy: f64,
    /// Share of the time in which the loop looked for packets: the iterations without packets, and as much of each
    /// other iteration as one without packets takes.
    pub polling: f64,
    /// Packets per iteration with packets; `None` if there was none.
    pub packets_per_iteration: Option<f64>,
}

impl CoreUse {
    /// Returns the use of `elapsed` ticks, given the mean duration of an iteration without packets.
    pub fn of(iterations: &LoopTimes, elapsed: u64, empty_iteration: Option<f64>) -> Self {
        let LoopTimes { working, packets, busy, interrupted, .. } = *iterations;
        // Packets left in the queues at the end are work that belongs to the time before.
        let available = elapsed.saturating_sub(interrupted).max(busy).max(1) as f64;
        let looks = working as f64 * empty_iteration.unwrap_or(0.0);
        let busy = busy as f64;
        Self {
            busy: busy / available,
            polling: (1.0 - (busy - looks) / available).clamp(0.0, 1.0),
            packets_per_iteration: (working > 0).then(|| packets as f64 / working as f64),
        }
    }

    /// Returns whether a loop of which only the busy share is known may be saturated: it looks for packets in the remaining
    /// time, and for an unknown part of its iterations with packets.
    pub fn may_be_saturated(busy: f64) -> bool {
        1.0 - busy < SATURATED
    }

    /// Describes it, e.g. `busy 42%, looked for packets for 60% of the time`.
    pub fn describe(&self) -> String {
        let [busy, polling] = [self.busy, self.polling].map(|share| 100.0 * share);
        format!("busy {busy:.0}%, looked for packets for {polling:.0}% of the time")
    }

    /// Returns whether the loop had at least as much work as it can do.
    pub fn is_saturated(&self) -> bool {
        self.polling < SATURATED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Iterations of 1000 ticks with packets, and iterations of 20 ticks without.
    fn iterations(working: u64, polls: u64) -> LoopTimes {
        LoopTimes {
            working,
            packets: 100 * working,
            busy: 1000 * working,
            polls,
            polling: 20 * polls,
            ..LoopTimes::default()
        }
    }

    fn use_of(iterations: &LoopTimes, elapsed: u64) -> CoreUse {
        CoreUse::of(iterations, elapsed, iterations.empty_iteration())
    }

    #[test]
    fn a_loop_with_long_iterations_one_after_another_is_saturated() {
        let full = use_of(&iterations(100, 10), 100_200);
        assert!(full.is_saturated() && full.busy > 0.99, "{full:?}");
        assert_eq!(full.packets_per_iteration, Some(100.0));
        // 10% of the time without packets.
        let idle = use_of(&iterations(90, 500), 100_000);
        assert!(!idle.is_saturated() && (idle.busy - 0.9).abs() < 1e-9, "{idle:?}");
        // A wait that the loop did not record, e.g. before the trial, is not work.
        assert!(!use_of(&iterations(50, 0), 100_000).is_saturated());
    }

    #[test]
    fn a_loop_that_looks_often_is_not_saturated() {
        // Every iteration finds a packet, and a quarter of each is looking for it.
        let short = LoopTimes { busy: 80_000, working: 1000, packets: 1000, ..iterations(0, 10) };
        let short = use_of(&short, 80_000);
        assert!(short.busy == 1.0 && (short.polling - 0.25).abs() < 1e-9, "{short:?}");
        assert!(!short.is_saturated());
    }

    #[test]
    fn a_loop_with_idle_time_is_not_saturated_whatever_its_iterations() {
        assert!(!CoreUse::may_be_saturated(0.9));
        assert!(CoreUse::may_be_saturated(0.97));
    }

    #[test]
    fn stalls_are_no_part_of_the_time() {
        let stalled = LoopTimes { interrupted: 50_000, ..iterations(100, 10) };
        let with = use_of(&stalled, 150_200);
        assert_eq!(with, use_of(&iterations(100, 10), 100_200));
        // Packets left in the queues at the end are processed later.
        assert_eq!(use_of(&iterations(100, 10), 90_000).busy, 1.0);
        assert_eq!(CoreUse::of(&LoopTimes::default(), 0, None).packets_per_iteration, None);
    }

    #[test]
    fn queues_polled_in_vain_are_no_work() {
        let core = |misses| CoreStats {
            iterations: LoopTimes { working: 10, packets: 320, busy: 10_000, ..iterations(0, 100) },
            queues: 4,
            misses,
            ..CoreStats::default()
        };
        // 20 ticks for 4 queues.
        assert_eq!((core(0).work(), core(30).work()), (10_000.0, 9_850.0));
        assert_eq!(core(1_000_000).work(), 0.0);
    }
}
