//! A NIC, a generator on the wire and an echo.

pub(crate) mod cable;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use machine::pin::spawn_pinned;
use machine::tsc::Tsc;
use stream::application::Echo;
use stream::generator::{
    Check, Generator, GeneratorCommand, LiveCounters, Pace, Report, TOUCHED, Trial,
};
use stream::host::Sizes;
use stream::nic::flow_table::looked_up;
use stream::nic::pcie::{LinkRate, PcieModel};
use stream::nic::pipes::{Notify, Pipes};
use stream::nic::{Counters, Nic, NicParams, PlacementOrder, Port};
use stream::serve::{PipesServer, Server};
use stream::steering::CorePipes;
use stream::wire::Flow;
use stream::wire::sample::{SampleTraffic, Sizes as PacketSizes};
use stream::wire::traffic::Traffic;

/// The time limit of anything that takes a moment on an idle machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// Reserves the CPUs for a test, since its threads never sleep.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The CPUs of the NIC and of the application: the first and the last allowed ones.
pub(crate) fn cpus() -> (usize, usize) {
    let set = rustix::thread::sched_getaffinity(None).unwrap();
    let mut allowed = (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu));
    let first = allowed.next().unwrap();
    (first, allowed.next_back().unwrap_or(first))
}

/// Converts a time to ticks.
pub(crate) fn ticks(time: Duration) -> u64 {
    Tsc::get().unwrap().ticks(time)
}

/// Returns the current time, in ticks.
pub(crate) fn now() -> u64 {
    machine::tsc::start()
}

/// The parameters of the NIC and the programs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TestParams {
    pub(crate) notify: Notify,
    pub(crate) prefetch: bool,
    pub(crate) sizes: Sizes,
    pub(crate) doorbell: Duration,
    pub(crate) transfer: Duration,
    pub(crate) mmio: Duration,
    pub(crate) link: LinkRate,
    pub(crate) placement: PlacementOrder,
}

impl Default for TestParams {
    fn default() -> Self {
        Self {
            notify: Notify::Reactively,
            prefetch: false,
            sizes: Sizes::default(),
            doorbell: Duration::ZERO,
            transfer: Duration::ZERO,
            mmio: Duration::ZERO,
            link: LinkRate::None,
            placement: PlacementOrder::default(),
        }
    }
}

impl TestParams {
    /// Returns parameters with rings of this many flits.
    pub(crate) fn ring(flits: usize) -> Self {
        let sizes = Sizes { ring: flits * 64, ..Sizes::default() };
        Self { sizes, ..Self::default() }
    }

    pub(crate) fn engine(&self) -> Pipes {
        Pipes::new(self.notify, (self.sizes.ring / 64) as u32, self.sizes.notifications)
    }

    pub(crate) fn params(&self) -> NicParams {
        let Self { doorbell, transfer, mmio, link, placement, .. } = *self;
        let pcie = PcieModel { doorbell, transfer, mmio, link };
        NicParams { cpu: cpus().0, pcie, placement }
    }
}

/// Returns the echo whose change the generator expects.
pub(crate) fn echo(nops: u32) -> Echo {
    Echo { nops }
}

/// Changes a packet as the echo does.
pub(crate) fn touch(packet: &mut [u8]) {
    packet[TOUCHED] = packet[TOUCHED].wrapping_add(1);
}

/// Returns packets to a number of destinations.
pub(crate) fn traffic(packets: u32, size: PacketSizes, destinations: u32) -> Arc<Traffic> {
    Arc::new(SampleTraffic { packets, size, sources: 1, destinations }.traffic().unwrap())
}

/// Returns the flows of traffic as rules, each once, in the order of their first packets.
pub(crate) fn flows(traffic: &Traffic) -> Vec<Flow> {
    let mut flows = Vec::new();
    for packet in traffic.packets() {
        let flow = looked_up(&packet.flow, packet.syn);
        if !flows.contains(&flow) {
            flows.push(flow);
        }
    }
    flows
}

/// A NIC with a generator on the wire.
pub(crate) struct Testbed {
    pub(crate) nic: Nic<GeneratorCommand>,
    pub(crate) params: TestParams,
    pub(crate) traffic: Arc<Traffic>,
}

impl Testbed {
    pub(crate) fn new(params: TestParams, traffic: &Arc<Traffic>) -> Self {
        let generator =
            Generator::new(Arc::clone(traffic), Arc::new(LiveCounters::default())).unwrap();
        let nic = Nic::start(params.params(), params.engine(), generator).unwrap();
        Self { nic, params, traffic: Arc::clone(traffic) }
    }

    /// Starts a trial; its report is available at the end.
    pub(crate) fn begin(&self, trial: Trial) -> Receiver<Report> {
        let (answer, report) = sync_channel(1);
        self.nic.command(GeneratorCommand::Start(trial, answer));
        report
    }

    /// Runs a trial.
    pub(crate) fn run(&self, trial: Trial) -> Report {
        self.begin(trial).recv().unwrap()
    }

    /// Starts an echo with one pipe per flow of the traffic.
    pub(crate) fn echo(&self) -> Program<u64> {
        let (params, flows) = (self.params, flows(&self.traffic));
        let of_core = CorePipes::per_flow(&flows);
        self.program(move |port, goes_on, ready| {
            let mut server =
                PipesServer::new(&port, params.sizes, &of_core, params.prefetch).unwrap();
            ready();
            let mut packets = 0;
            while goes_on() {
                packets += server.poll(&mut echo(0)).unwrap();
            }
            packets
        })
    }

    /// Starts a program on its own core and waits until it is ready.
    pub(crate) fn program<T: Send + 'static>(
        &self,
        body: impl FnOnce(Port, &dyn Fn() -> bool, &dyn Fn()) -> T + Send + 'static,
    ) -> Program<T> {
        Program::new(self.nic.port(), body)
    }
}

/// Waits until the counters are as expected and stable, and returns them.
pub(crate) fn counters<O: Send>(nic: &Nic<O>, expected: impl Fn(&Counters) -> bool) -> Counters {
    let start = Instant::now();
    loop {
        let before = nic.counters();
        std::thread::sleep(Duration::from_millis(5));
        let now = nic.counters();
        if now == before && expected(&now) {
            return now;
        }
        assert!(start.elapsed() < TIMEOUT, "{now:?}");
    }
}

/// A program on its own core.
pub(crate) struct Program<T> {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<T>>,
}

impl<T: Send + 'static> Program<T> {
    /// Starts a program and waits until it calls its last argument. The second argument tells whether to continue.
    pub(crate) fn new(
        port: Port,
        body: impl FnOnce(Port, &dyn Fn() -> bool, &dyn Fn()) -> T + Send + 'static,
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let (ready, is_ready) = sync_channel(1);
        let thread = spawn_pinned(cpus().1, move || {
            body(port, &|| !stopped.load(Ordering::Relaxed), &|| ready.send(()).unwrap())
        });
        is_ready.recv().unwrap();
        Self { stop, thread: Some(thread.unwrap()) }
    }

    /// Stops the program and returns its result.
    pub(crate) fn end(mut self) -> T {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

impl<T> Drop for Program<T> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Returns a trial with these numbers of packets and packets in flight; every byte is checked.
pub(crate) fn closed(count: u64, window: u64) -> Trial {
    Trial {
        pace: Pace::Closed { window },
        count,
        duration: ticks(Duration::from_secs(3600)),
        drain: ticks(TIMEOUT),
        check: Check::All,
        ..Trial::default()
    }
}

/// Asserts that all packets were echoed once, in order and intact.
pub(crate) fn nothing_is_lost(report: &Report, count: u64) {
    let Report { sent, dropped, received, corrupted, late, .. } = *report;
    assert_eq!((sent, dropped, received, corrupted, late), (count, 0, count, 0, 0));
}
