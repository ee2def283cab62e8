//! One core of the application, and the statistics of its loop.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use applications::Application;
use applications::application::Count;
use applications::kv::KeyValue;
use applications::log::LogMonitor;
use lab::sample::Failure;
use machine::SysError;
use machine::pin::spawn_pinned;
use machine::tsc::Tsc;

use super::alone::{Alone, HyperscanAlone, StoreAlone};
use super::params::Interface;
#[cfg(test)]
use super::planted_stall::PlantedStall;
use super::testbed_config::TestbedConfig;
use crate::application::{
    ApplicationKind, ApplicationSpec, CoreNumber, Echo, WithApplication, since,
};
use crate::core_use::CoreStats;
use crate::host;
use crate::host::descriptors::{Driver, WithDriver};
use crate::iterations::{PacketCost, PollingLoop, StallThreshold};
use crate::nic::{Port, ticks};
use crate::serve::{DescriptorsServer, LinkServer, PipesServer, Server};
use crate::steering::CorePipes;
use crate::wire::traffic::Traffic;

/// Request number that ends the loop.
const END: u32 = u32::MAX;

/// The loop's answer to a request.
type Answer = Result<CoreStats, Failure>;

/// One core of the application.
pub(super) struct ApplicationCore {
    requests: Arc<AtomicU32>,
    answers: Receiver<Answer>,
    pub(super) state: Arc<LoopState>,
    thread: Option<JoinHandle<()>>,
}

/// State of a core's loop, on a cache line of its own because the loop writes it often.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct LoopState {
    /// Packets that it has processed.
    processed: AtomicU64,
    #[cfg(test)]
    pub(super) planted_stall: PlantedStall,
}

/// The application of a core.
pub(super) struct CoreApplication {
    pub(super) spec: ApplicationSpec,
    pub(super) number: CoreNumber,
    /// The traffic on which its work alone is measured first, if at all.
    pub(super) alone_on: Option<Arc<Traffic>>,
}

impl CoreApplication {
    /// Returns the application of a core. Its work alone is measured unless it is the echo, which has none, or one of several
    /// cores, which gets only a part of the traffic.
    pub(super) fn new(spec: &ApplicationSpec, number: CoreNumber, traffic: &Arc<Traffic>) -> Self {
        let is_measured = number == CoreNumber::ONLY && spec.kind() != ApplicationKind::Echo;
        let alone_on = is_measured.then(|| Arc::clone(traffic));
        Self { spec: spec.clone(), number, alone_on }
    }
}

/// What a core processes packets of.
pub(super) enum CorePort {
    /// Pipes or queues of a port.
    Nic(Port, CorePipes),
    /// A link.
    Link(Box<LinkServer>),
}

impl ApplicationCore {
    /// Starts a core, and waits until its loop runs.
    ///
    /// # Errors
    /// Returns why the thread, its interface or its application cannot be set up.
    pub(super) fn start(
        cpu: usize,
        config: &TestbedConfig,
        application: CoreApplication,
        port: CorePort,
        threshold: StallThreshold,
    ) -> Result<Self, Failure> {
        let config = config.clone();
        let CoreApplication { spec, number, alone_on } = application;
        Self::start_with(cpu, threshold, move |run| {
            Ok(spec.with(number, RunCore { config: &config, port, alone_on, run })??)
        })
    }

    /// Starts a core that runs its loop, and waits until the loop runs.
    ///
    /// # Errors
    /// Returns why the thread cannot be started, or the error of `set_up_and_run`.
    fn start_with(
        cpu: usize,
        threshold: StallThreshold,
        set_up_and_run: impl FnOnce(Loop) -> Result<(), Failure> + Send + 'static,
    ) -> Result<Self, Failure> {
        let requests = Arc::new(AtomicU32::new(0));
        let (answer, answers) = sync_channel(1);
        let state = Arc::<LoopState>::default();
        let run = Loop {
            requests: Arc::clone(&requests),
            answer: answer.clone(),
            state: Arc::clone(&state),
            threshold,
        };
        let body = move || {
            if let Err(why) = set_up_and_run(run) {
                // `start_with` waits for this.
                let _ = answer.send(Err(why));
            }
        };
        let thread = spawn_pinned(cpu, body).map_err(|why| {
            Failure::failed(format!("run the application on CPU {cpu}: {why}; name an allowed CPU"))
        })?;
        let core = Self { requests, answers, state, thread: Some(thread) };
        core.answer()?;
        Ok(core)
    }

    /// Returns the number of packets that the loop has processed by now.
    pub(super) fn processed(&self) -> u64 {
        self.state.processed.load(Ordering::Relaxed)
    }

    /// Returns the loop's statistics since the last call. The loop answers in an iteration without packets.
    ///
    /// # Errors
    /// Returns `failed` if the loop has stopped.
    pub(super) fn stats(&self) -> Result<CoreStats, Failure> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.answer()
    }

    fn answer(&self) -> Result<CoreStats, Failure> {
        let gone = || Failure::failed("the application stopped early");
        self.answers.recv().map_err(|_| gone())?
    }
}

impl Drop for ApplicationCore {
    fn drop(&mut self) {
        self.requests.store(END, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic has been printed, and shows as a missing answer.
            let _ = thread.join();
        }
    }
}

/// The polling loop of one core.
struct Loop {
    requests: Arc<AtomicU32>,
    answer: SyncSender<Answer>,
    state: Arc<LoopState>,
    threshold: StallThreshold,
}

impl Loop {
    /// Processes packets until the core is dropped or the NIC closes, and measures the application alone at each request. Not
    /// inlined, so that the set-up does not affect the registers of the timed loop.
    #[inline(never)]
    fn run<A: Application>(
        self,
        mut server: impl Server,
        mut application: A,
        mut alone: Option<Alone<A>>,
    ) {
        let Self { requests, answer, state, threshold } = self;
        let (mut answered, mut all) = (0, 0_u64);
        // Reports that the loop runs.
        if answer.send(Ok(CoreStats::default())).is_err() {
            return;
        }
        let mut record = Record::new(threshold);
        // Nothing is timed there.
        let rests = machine::cpu::lacks_time();
        let mut last = ticks();
        loop {
            let request = requests.load(Ordering::Relaxed);
            let Ok(packets) = server.poll(&mut application) else { return };
            #[cfg(test)]
            state.planted_stall.after_poll(packets);
            let now = ticks();
            let elapsed = now - last;
            last = now;
            record.add(elapsed, packets);
            if packets > 0 {
                all += packets;
                state.processed.store(all, Ordering::Relaxed);
            } else if rests {
                rest();
            }
            if request != answered && (packets == 0 || request == END) {
                std::hint::cold_path();
                answered = request;
                let taken = record.take(&mut server, &application).map(|stats| {
                    let Some(alone) = &mut alone else { return stats };
                    let engine = alone.measure_engine(&mut application);
                    CoreStats { alone: alone.measure(&mut application), engine, ..stats }
                });
                // Without those of the measurement.
                record.counts = application.counts();
                let answering = ticks();
                if request == END || answer.send(taken).is_err() {
                    return;
                }
                last = ticks();
                // The thread that waits for the answer may take the CPU, and has started a trial by then.
                record.iterations.record_outside(last - answering);
            }
        }
    }
}

/// Leaves the CPU of the host to others: an emulated CPU that polls keeps it from those that have packets.
#[cold]
fn rest() {
    std::thread::sleep(Duration::from_micros(20));
}

/// Sets up the interface of a core and runs its loop.
struct RunCore<'a> {
    config: &'a TestbedConfig,
    port: CorePort,
    alone_on: Option<Arc<Traffic>>,
    run: Loop,
}

impl WithApplication for RunCore<'_> {
    type Output = Result<(), SysError>;

    fn run<A: Application>(self, application: A) -> Self::Output {
        let alone = self.alone();
        self.run_with(application, alone)
    }

    /// Only the echo is compiled for each driver of descriptors.
    fn run_echo(self, echo: Echo) -> Self::Output {
        match (self.config.interface, self.port) {
            (Interface::Descriptors, CorePort::Nic(port, of_core)) => {
                let Self { config, run, .. } = self;
                config.driver.kind().with(EchoOverDescriptors { config, port, of_core, run, echo })
            }
            (_, port) => Self { port, ..self }.run(echo),
        }
    }

    fn run_key_value(self, store: KeyValue) -> Self::Output {
        let alone = self.alone().map(|alone| alone.with_engine(StoreAlone::default()));
        self.run_with(store, alone)
    }

    fn run_log_monitor(self, monitor: LogMonitor) -> Self::Output {
        let alone = match self.alone() {
            Some(alone) => {
                let engine = HyperscanAlone::new(monitor.rules(), alone.traffic())?;
                Some(alone.with_engine(engine))
            }
            None => None,
        };
        self.run_with(monitor, alone)
    }
}

impl RunCore<'_> {
    /// Returns the measurements of an application alone, if there should be any.
    fn alone<A>(&self) -> Option<Alone<A>> {
        let traffic = self.alone_on.clone()?;
        Some(Alone::new(traffic, Tsc::get().ok()?))
    }

    fn run_with<A: Application>(
        self,
        application: A,
        alone: Option<Alone<A>>,
    ) -> Result<(), SysError> {
        let Self { config, port, run, .. } = self;
        let (port, of_core) = match port {
            CorePort::Nic(port, of_core) => (port, of_core),
            CorePort::Link(server) => {
                run.run(*server, application, alone);
                return Ok(());
            }
        };
        match config.interface {
            Interface::Pipes | Interface::PipesPerPacket | Interface::PipesPrefetch => {
                let sizes = host::Sizes {
                    ring: config.ring,
                    notifications: config.notifications,
                    batch: config.notification_batch,
                };
                let prefetch = config.interface.prefetches();
                let server = PipesServer::new(&port, sizes, &of_core, prefetch)?;
                run.run(server, application, alone);
            }
            Interface::Descriptors => {
                let (sizes, burst) = (config.ring_sizes(), config.burst as usize);
                let server: DescriptorsServer =
                    DescriptorsServer::open(&port, sizes, &of_core, burst)?;
                run.run(server, application, alone);
            }
            // Their application is another process, or has no port.
            Interface::Dpdk | Interface::AfXdp | Interface::AfPacket | Interface::Tap => {}
        }
        Ok(())
    }
}

/// Runs the echo over descriptors with a driver.
struct EchoOverDescriptors<'a> {
    config: &'a TestbedConfig,
    port: Port,
    of_core: CorePipes,
    run: Loop,
    echo: Echo,
}

impl WithDriver for EchoOverDescriptors<'_> {
    type Output = Result<(), SysError>;

    fn run<D: Driver>(self) -> Self::Output {
        let Self { config, port, of_core, run, echo } = self;
        let (sizes, burst) = (config.ring_sizes(), config.burst as usize);
        run.run(DescriptorsServer::<D>::open(&port, sizes, &of_core, burst)?, echo, None);
        Ok(())
    }
}

/// The record of a loop.
struct Record {
    iterations: PollingLoop,
    cost: PacketCost,
    has_learnt: bool,
    /// Counts of the application when they were last taken.
    counts: Vec<Count>,
}

impl Record {
    fn new(threshold: StallThreshold) -> Self {
        let (iterations, cost) = (PollingLoop::new(threshold), PacketCost::learning());
        Self { iterations, cost, has_learnt: false, counts: Vec::new() }
    }

    #[inline(always)]
    fn add(&mut self, elapsed: u64, packets: u64) {
        self.iterations.record(elapsed, packets);
        if packets > 0 {
            self.cost.record(elapsed, packets);
        }
    }

    /// Returns the statistics, with the current core clock, and resets them. The first packets, those of the warm-up,
    /// teach what a packet costs.
    fn take(&mut self, server: &mut impl Server, application: &impl Application) -> Answer {
        // Without a usable counter packets are counted, not timed.
        let core_hertz = Tsc::get().ok().map(|_| machine::core_clock::hertz()).transpose()?;
        let iterations = self.iterations.take();
        if let Some(cost) = self.cost.typical() {
            self.iterations.set_cost(cost);
            self.cost = PacketCost::known();
            self.has_learnt = true;
        }
        let now = application.counts();
        let counts = since(&now, &std::mem::replace(&mut self.counts, now.clone()));
        let (queues, misses, has_learnt) = (server.queues(), server.misses(), self.has_learnt);
        let (alone, engine) = (None, None);
        Ok(CoreStats { iterations, queues, misses, core_hertz, has_learnt, counts, alone, engine })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::host::NicClosed;

    /// An interface with 64 packets per poll that spends 300 ns on each, and stalls when told to.
    struct Slow {
        each: u64,
        polls: u32,
        stall: Arc<AtomicBool>,
    }

    const STALL: Duration = Duration::from_millis(5);

    impl Server for Slow {
        fn poll<A: Application>(&mut self, _: &mut A) -> Result<u64, NicClosed> {
            if self.stall.swap(false, Ordering::Relaxed) {
                std::thread::sleep(STALL);
            }
            self.polls += 1;
            // Requests are answered in polls without packets.
            if self.polls.is_multiple_of(100) {
                return Ok(0);
            }
            let end = ticks() + 64 * self.each;
            while ticks() < end {
                std::hint::spin_loop();
            }
            Ok(64)
        }

        fn unbound(&self) -> usize {
            0
        }
    }

    #[test]
    fn a_loop_learns_what_its_packets_cost_and_finds_stalls() {
        let Some(tsc) = machine::untested::tsc("stream: a slow application") else { return };
        let (requests, stall) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
        let (answer, answers) = sync_channel(1);
        let threshold = StallThreshold::new(tsc.rate());
        let run =
            Loop { requests: Arc::clone(&requests), answer, state: Arc::default(), threshold };
        let each = tsc.ticks(Duration::from_nanos(300));
        let slow = Slow { each, polls: 0, stall: Arc::clone(&stall) };
        let thread = std::thread::spawn(move || run.run(slow, Echo { nops: 0 }, None));
        let next = || {
            std::thread::sleep(Duration::from_millis(20));
            requests.fetch_add(1, Ordering::Relaxed);
            answers.recv().unwrap().map(|stats| stats.iterations)
        };
        let _runs = answers.recv();
        // Fails if the core clock is doubtful.
        let start = std::time::Instant::now();
        let warm_up = std::iter::repeat_with(&next).find_map(Result::ok).unwrap();
        assert_eq!(warm_up.working, 0, "19 us per iteration, before that is known");
        let learnt = loop {
            assert!(start.elapsed() < Duration::from_secs(120), "the core clock stays doubtful");
            if let Ok(learnt) = next() {
                break learnt;
            }
        };
        assert!(learnt.working > 0, "all iterations are alike: {learnt:?}");
        stall.store(true, Ordering::Relaxed);
        let found = std::iter::repeat_with(&next).find_map(Result::ok).unwrap();
        assert!(found.longest_stall >= tsc.ticks(STALL * 9 / 10), "{found:?}");
        requests.store(END, Ordering::Relaxed);
        drop(answers);
        thread.join().unwrap();
    }

    #[test]
    fn a_loop_whose_answer_is_taken_late_has_stalled() {
        let Some(tsc) = machine::untested::tsc("stream: an answer that is taken late") else {
            return;
        };
        let requests = Arc::new(AtomicU32::new(0));
        // Without a buffer: the loop waits until its answer is taken.
        let (answer, answers) = sync_channel(0);
        let run = Loop {
            requests: Arc::clone(&requests),
            answer,
            state: Arc::default(),
            threshold: StallThreshold::new(tsc.rate()),
        };
        let slow =
            Slow { each: tsc.ticks(Duration::from_nanos(10)), polls: 0, stall: Arc::default() };
        let thread = std::thread::spawn(move || run.run(slow, Echo { nops: 0 }, None));
        let next = || {
            requests.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(STALL);
            answers.recv().unwrap().map(|stats| stats.iterations)
        };
        let _runs = answers.recv();
        let _first = next();
        // An answer fails if the core clock is doubtful. On a busy machine the loop may not run while its answer waits.
        let mut taken = std::iter::repeat_with(&next).filter_map(Result::ok).take(50);
        assert!(taken.any(|found| found.longest_stall >= tsc.ticks(STALL / 2)));
        requests.store(END, Ordering::Relaxed);
        drop(answers);
        thread.join().unwrap();
    }
}
