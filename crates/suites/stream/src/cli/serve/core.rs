//! One core of an application, and the state that all cores share.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::Duration;

use applications::Application;
use applications::application::Finding;
use machine::SysError;
use machine::tsc::Tsc;

use super::NicInterface;
use crate::application::{WithApplication, sum_findings};
use crate::core_use::{CoreStats, CoreUse};
use crate::host::{self, descriptors};
use crate::iterations::{PollingLoop, StallThreshold};
use crate::nic::{InterfaceConfig, Port, ticks};
use crate::serve::{DescriptorsServer, LinkServer, PipesServer, Server};

/// State that the cores share with the main thread.
pub(super) struct Shared {
    pub(super) stop: AtomicBool,
    /// Packets that each core has processed.
    pub(super) packets: Vec<Count>,
    /// Flows without a rule because the NIC's flow table has no space for it.
    pub(super) unbound: AtomicUsize,
    /// What the application has found on the cores that have ended.
    findings: Mutex<Vec<Finding>>,
    /// Passed by the cores and the main thread once all cores are ready.
    pub(super) ready: Barrier,
    /// Passed by the cores once all have stopped.
    pub(super) end: Barrier,
}

/// A packet counter on separate cache lines, because its core writes it often.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Count(pub(super) AtomicU64);

impl Shared {
    /// Creates the state of `cores` cores.
    pub(super) fn new(cores: usize) -> Self {
        Self {
            stop: AtomicBool::new(false),
            packets: (0..cores).map(|_| Count::default()).collect(),
            unbound: AtomicUsize::new(0),
            findings: Mutex::default(),
            // Plus the main thread.
            ready: Barrier::new(cores.saturating_add(1)),
            end: Barrier::new(cores),
        }
    }

    /// Returns what the application has found, once all cores have ended.
    pub(super) fn findings(&self) -> Vec<Finding> {
        sum_findings(self.findings.lock().unwrap_or_else(PoisonError::into_inner).drain(..))
    }

    /// Returns the number of packets that each core has processed.
    pub(super) fn each(&self) -> Vec<u64> {
        self.packets.iter().map(|count| count.0.load(Ordering::Relaxed)).collect()
    }
}

/// A core's passage through the barriers. It passes both even if it fails or panics, or the other cores would wait
/// forever.
pub(super) struct Barriers<'a> {
    shared: &'a Shared,
    passed_ready: bool,
    passed_end: bool,
}

impl<'a> Barriers<'a> {
    /// Creates it before the first barrier.
    pub(super) fn new(shared: &'a Shared) -> Self {
        Self { shared, passed_ready: false, passed_end: false }
    }

    fn ready(&mut self) {
        self.passed_ready = true;
        self.shared.ready.wait();
    }

    fn end(&mut self) {
        self.passed_end = true;
        self.shared.end.wait();
    }
}

impl Drop for Barriers<'_> {
    fn drop(&mut self) {
        if self.passed_end {
            return;
        }
        self.shared.stop.store(true, Ordering::Relaxed);
        if !self.passed_ready {
            self.ready();
        }
        self.end();
    }
}

/// One core of an application.
pub(super) struct Core<'a> {
    pub(super) count: &'a AtomicU64,
    pub(super) barriers: Barriers<'a>,
    /// Time that no packet's work exceeds.
    pub(super) max_work: Duration,
}

impl Core<'_> {
    /// Processes packets until all cores stop, then calls `last` before the interface is closed. A core that ends early stops
    /// all.
    pub(super) fn run(
        &mut self,
        server: &mut impl Server,
        mut application: impl Application,
        last: impl FnOnce(),
    ) -> CoreRecord {
        let shared = self.barriers.shared;
        shared.unbound.fetch_add(server.unbound(), Ordering::Relaxed);
        let (mut processed, max_work) = (0_u64, self.max_work);
        let of_lost_cpu = |tsc| StallThreshold::of_lost_cpu(tsc, max_work);
        let threshold = Tsc::get().map_or(StallThreshold::NEVER, of_lost_cpu);
        self.barriers.ready();
        let mut record = CoreRecord::new(threshold);
        let mut start = ticks();
        while !shared.stop.load(Ordering::Relaxed) {
            // The main thread notices a closed NIC too.
            let Ok(packets) = server.poll(&mut application) else { break };
            let now = ticks();
            record.add(start, now, packets);
            start = now;
            if packets > 0 {
                processed = processed.wrapping_add(packets);
                self.count.store(processed, Ordering::Relaxed);
            }
        }
        self.barriers.end();
        last();
        let mut findings = shared.findings.lock().unwrap_or_else(PoisonError::into_inner);
        findings.extend(application.findings());
        record.end(server, &application)
    }
}

/// Runs an application over the interface of a NIC.
pub(super) struct OverPort<'a, F> {
    pub(super) core: Core<'a>,
    pub(super) port: &'a Port,
    pub(super) interface: &'a NicInterface,
    /// Called before the interface is closed.
    pub(super) last: F,
}

impl<F: FnOnce()> WithApplication for OverPort<'_, F> {
    type Output = Result<CoreRecord, SysError>;

    fn run<A: Application>(self, application: A) -> Self::Output {
        let Self { mut core, port, interface, last } = self;
        let NicInterface { config, of_core, prefetch } = interface;
        Ok(match *config {
            InterfaceConfig::Pipes { ring, notifications, .. } => {
                let sizes = host::Sizes { ring, notifications, ..host::Sizes::default() };
                let mut server = PipesServer::new(port, sizes, of_core, *prefetch)?;
                core.run(&mut server, application, last)
            }
            InterfaceConfig::Descriptors { rx, tx, .. } => {
                let sizes = descriptors::Sizes { rx, tx };
                core.run(&mut DescriptorsServer::new(port, sizes, of_core)?, application, last)
            }
            // Programs attach to such a NIC by vhost-user, or not at all.
            InterfaceConfig::Virtio { .. } | InterfaceConfig::Link(_) => {
                CoreRecord::new(StallThreshold::NEVER)
            }
        })
    }
}

/// Runs an application over an interface of Linux.
pub(super) struct OverLink<'a> {
    pub(super) core: Core<'a>,
    pub(super) server: LinkServer,
}

impl WithApplication for OverLink<'_> {
    type Output = CoreRecord;

    fn run<A: Application>(self, application: A) -> CoreRecord {
        let Self { mut core, mut server } = self;
        core.run(&mut server, application, || {})
    }
}

/// Work of a core from its first packet to its last one.
#[derive(Debug, Clone)]
pub(super) struct CoreRecord {
    pub(super) stats: CoreStats,
    /// The iterations until they are in the statistics.
    iterations: PollingLoop,
    /// Start of the first iteration with packets and end of the last one, in ticks; 0 without packets.
    first: u64,
    last: u64,
}

impl CoreRecord {
    fn new(threshold: StallThreshold) -> Self {
        let iterations = PollingLoop::new(threshold);
        Self { stats: CoreStats::default(), iterations, first: 0, last: 0 }
    }

    #[inline(always)]
    fn add(&mut self, start: u64, end: u64, packets: u64) {
        if packets > 0 {
            if self.first == 0 {
                std::hint::cold_path();
                self.first = start;
                self.iterations.forget_stalls();
            }
            self.last = end;
        }
        self.iterations.record(end.saturating_sub(start), packets);
    }

    /// Adds what is read at the end.
    fn end(mut self, server: &mut impl Server, application: &impl Application) -> Self {
        let iterations = self.iterations.take();
        let core_hertz = machine::core_clock::hertz().ok();
        let (queues, misses, counts) = (server.queues(), server.misses(), application.counts());
        let stats = CoreStats { iterations, queues, misses, core_hertz, counts, ..self.stats };
        Self { stats, ..self }
    }

    /// Returns how the core spent its time.
    pub(super) fn core_use(&self) -> CoreUse {
        let iterations = &self.stats.iterations;
        CoreUse::of(iterations, self.last.saturating_sub(self.first), iterations.empty_iteration())
    }

    /// Returns the core cycles per packet, without polling in vain; `None` without packets, or if a clock is doubtful.
    pub(super) fn cycles_per_packet(&self) -> Option<f64> {
        let packets = self.stats.iterations.packets;
        let cycles = self.stats.work() / Tsc::get().ok()?.hertz * self.stats.core_hertz?;
        (packets > 0).then(|| cycles / packets as f64)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    use super::*;
    use crate::application::Echo;
    use crate::host::NicClosed;

    /// An interface that panics at a given step.
    #[derive(Clone, Copy, PartialEq)]
    enum Panics {
        Nowhere,
        BeforeReady,
        BeforeEnd,
    }

    impl Panics {
        fn here(self, at: Self) {
            if self == at {
                std::panic::resume_unwind(Box::new("planted"));
            }
        }
    }

    impl Server for Panics {
        fn poll<A: Application>(&mut self, _: &mut A) -> Result<u64, NicClosed> {
            self.here(Self::BeforeEnd);
            Ok(0)
        }

        fn unbound(&self) -> usize {
            self.here(Self::BeforeReady);
            0
        }
    }

    #[test]
    fn time_without_a_cpu_is_neither_work_nor_polling() {
        let mut record = CoreRecord::new(StallThreshold::of_ticks(1000, 10));
        // Stalls before the first packet, between two iterations with packets, and after the last one.
        for (start, end, packets) in [
            (0, 5000, 0),
            (5000, 5010, 0),
            (5010, 5510, 64),
            (5510, 9500, 0),
            (9500, 9510, 0),
            (9510, 10_010, 64),
            (10_010, 19_010, 0),
        ] {
            record.add(start, end, packets);
        }
        record.stats.iterations = record.iterations.take();
        assert_eq!(record.stats.iterations.interrupted, 3990);
        let used = record.core_use();
        assert!(used.is_saturated() && used.busy > 0.98, "{used:?}");
    }

    #[test]
    fn a_stall_of_an_idle_application_is_part_of_the_time_without_packets() {
        let mut record = CoreRecord::new(StallThreshold::of_ticks(1000, 10));
        record.add(0, 500, 64);
        record.add(500, 5500, 0);
        let polls = (0..20).map(|at| 5500 + 1000 * at);
        polls.for_each(|start| record.add(start, start + 1000, 0));
        record.add(25_500, 26_000, 64);
        assert_eq!(record.iterations.take().interrupted, 0, "20,000 ticks before packets came");
    }

    #[test]
    fn no_core_waits_for_one_that_panicked() {
        for panics in [Panics::BeforeReady, Panics::BeforeEnd] {
            let shared = Arc::new(Shared::new(3));
            let (ended, ends) = channel();
            for core in 0..3 {
                let (shared, ended) = (Arc::clone(&shared), ended.clone());
                let mut interface = if core == 1 { panics } else { Panics::Nowhere };
                std::thread::spawn(move || {
                    let ended_well = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                        let barriers = Barriers::new(&shared);
                        let count = &shared.packets[core].0;
                        let echo = Echo { nops: 0 };
                        let mut core = Core { count, barriers, max_work: Duration::ZERO };
                        core.run(&mut interface, echo, || {});
                    }));
                    ended.send((core, ended_well.is_ok())).unwrap();
                });
            }
            // Stands in for the main thread; a hang must fail the test.
            let main = Arc::clone(&shared);
            std::thread::spawn(move || main.ready.wait());
            let mut all: Vec<_> =
                (0..3).map(|_| ends.recv_timeout(Duration::from_secs(60)).unwrap()).collect();
            all.sort_unstable();
            assert_eq!(all, [(0, true), (1, false), (2, true)]);
            assert!(shared.stop.load(Ordering::Relaxed));
        }
    }
}
