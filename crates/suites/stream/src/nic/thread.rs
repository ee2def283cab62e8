//! The thread that is the NIC.

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use machine::Refusal;
use machine::pin::spawn_pinned;
use machine::tsc::{Tsc, Unavailable};

use super::control::{Command, Control};
use super::counters::{Counters, Shown};
use super::engine::{ArrivalsOf, Common, Engine};
use super::held::Held;
use super::layout::{BUFFERS, PIPES};
use super::memory::Region;
use super::posted::{self, Doorbells};
use super::steering::Steering;
use crate::wire::Wire;
use crate::wire::vector::{Avx2, Plain, Vector};

/// How often other threads see the counters, ticks a second over this.
const SHOWN_A_SECOND: f64 = 1000.0;

/// How the NIC is set up.
#[derive(Debug, Clone, Copy, Default)]
pub struct Settings {
    /// The CPU on which its thread runs.
    pub cpu: usize,
    /// How long a write to a register is modelled to take; zero where nothing is.
    ///
    /// A packet that comes alone waits for one, that by which it is sent. One that finds its pipe notified, as
    /// each does that is sent when the last has come back, waits for two where the NIC notifies reactively: it
    /// learns only by a write to the pipe's head, after the last has left, that the program may be told of more.
    pub doorbell: Duration,
    /// How long a transfer is modelled to take; zero where nothing is.
    pub transfer: Duration,
}

/// Why there is no NIC.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its time cannot be told.
    #[error(transparent)]
    Time(#[from] Unavailable),
    /// Its thread cannot run.
    #[error("run the NIC on CPU {0}: {1}; name an allowed CPU")]
    Thread(usize, io::Error),
}

/// A NIC, which runs until this is dropped.
pub struct Nic<O: Send + 'static> {
    shared: Arc<Shared<O>>,
    thread: Option<JoinHandle<()>>,
}

/// What a NIC and those who use it share.
struct Shared<O> {
    control: Control<O>,
    shown: Shown,
    longest_turn: AtomicU64,
    pairs: Taken,
    pipes: Taken,
    stamped: bool,
}

impl<O: Send + 'static> Nic<O> {
    /// Starts one between a wire and the memory of programs.
    ///
    /// # Errors
    /// Where it can tell no time, or its thread cannot run there.
    pub fn start<E: Engine, W: Wire<Order = O>>(
        settings: Settings,
        engine: E,
        wire: W,
    ) -> Result<Self, Error> {
        let tsc = Tsc::get()?;
        let ticks = |time: Duration| if time.is_zero() { 0 } else { tsc.ticks(time) };
        let shared = Arc::new(Shared {
            control: Control::new(),
            shown: Shown::default(),
            longest_turn: AtomicU64::new(0),
            pairs: Taken::default(),
            pipes: Taken::default(),
            stamped: !settings.doorbell.is_zero(),
        });
        let common = Common {
            counters: Counters::default(),
            regions: Vec::new(),
            steering: Steering::default(),
            doorbell: ticks(settings.doorbell),
            transfer: ticks(settings.transfer),
            ticks_a_second: tsc.hertz,
        };
        let mut running = Running { engine, wire, common, shared: Arc::clone(&shared) };
        let thread = spawn_pinned(settings.cpu, move || running.run())
            .map_err(|why| Error::Thread(settings.cpu, why))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// What it counted, as of a millisecond ago.
    pub fn counters(&self) -> Counters {
        self.shared.shown.read()
    }

    /// The longest turn since this was last asked, ticks: where it is long, others had the CPU.
    pub fn longest_turn(&self) -> u64 {
        self.shared.longest_turn.swap(0, Ordering::Relaxed)
    }

    /// Tells the wire something.
    pub fn order(&self, order: O) {
        self.shared.control.say(Command::Order(order));
    }

    /// What a core needs to use it.
    pub fn port(&self) -> Port {
        Port(Arc::clone(&self.shared) as Arc<dyn Asked>)
    }
}

impl<O: Send + 'static> Drop for Nic<O> {
    fn drop(&mut self) {
        self.shared.control.stop();
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed, and there is nothing more to do about it.
            let _ = thread.join();
        }
    }
}

/// The way to a NIC for the programs that use it.
#[derive(Clone)]
pub struct Port(Arc<dyn Asked>);

impl Port {
    /// Registers for one more core: its number and its doorbells.
    pub(crate) fn attach(&self) -> Result<(u32, Doorbells), Refusal> {
        self.0.attach()
    }

    pub(crate) fn detach(&self, pair: u32) {
        self.0.detach(pair);
    }

    pub(crate) fn register(&self, region: Region) {
        self.0.register(region);
    }

    pub(crate) fn unregister(&self, bus: u64) {
        self.0.unregister(bus);
    }

    /// A pipe that nobody has.
    pub(crate) fn take_pipe(&self) -> Result<u32, Refusal> {
        self.0.take_pipe()
    }

    /// Nobody has it any more.
    pub(crate) fn give_pipe(&self, pipe: u32) {
        self.0.give_pipe(pipe);
    }

    /// Whether the NIC has ended.
    pub(crate) fn gone(&self) -> bool {
        self.0.gone()
    }
}

/// Numbers that somebody has.
#[derive(Default)]
struct Taken(Mutex<BTreeSet<u32>>);

impl Taken {
    /// The lowest number below `all` that nobody has.
    fn take(&self, all: u32, what: &str) -> Result<u32, Refusal> {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let free = (0..all).find(|number| !taken.contains(number)).ok_or_else(|| Refusal {
            attempt: format!("take one more than {all} {what}"),
            source: io::ErrorKind::QuotaExceeded.into(),
            remedy: "free those that are no longer used".into(),
        })?;
        taken.insert(free);
        Ok(free)
    }

    fn give(&self, number: u32) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
    }
}

/// What programs ask of a NIC, whatever its wire.
trait Asked: Send + Sync {
    fn attach(&self) -> Result<(u32, Doorbells), Refusal>;
    fn detach(&self, pair: u32);
    fn register(&self, region: Region);
    fn unregister(&self, bus: u64);
    fn take_pipe(&self) -> Result<u32, Refusal>;
    fn give_pipe(&self, pipe: u32);
    fn gone(&self) -> bool;
}

impl<O> Shared<O> {
    /// Says something and waits until it is done, or the NIC has gone.
    fn ask(&self, command: impl FnOnce(SyncSender<()>) -> Command<O>) {
        let (done, answer): (_, Receiver<()>) = sync_channel(1);
        self.control.say(command(done));
        while !self.control.ended() {
            if answer.recv_timeout(Duration::from_millis(50)).is_ok() {
                return;
            }
        }
    }
}

impl<O: Send + 'static> Asked for Shared<O> {
    fn attach(&self) -> Result<(u32, Doorbells), Refusal> {
        let posted = Held::new()?;
        let pair = self.pairs.take(BUFFERS, "pairs of notification buffers")?;
        let (doorbells, arrivals) = posted::ends(posted, self.stamped);
        self.control.say(Command::Attach(pair, arrivals));
        Ok((pair, doorbells))
    }

    fn detach(&self, pair: u32) {
        self.ask(|done| Command::Detach(pair, done));
        self.pairs.give(pair);
    }

    fn register(&self, region: Region) {
        // A write to a register that needs the region must not overtake it.
        self.ask(|done| Command::Register(region, done));
    }

    fn unregister(&self, bus: u64) {
        self.ask(|done| Command::Unregister(bus, done));
    }

    fn take_pipe(&self) -> Result<u32, Refusal> {
        self.pipes.take(PIPES, "pipes")
    }

    fn give_pipe(&self, pipe: u32) {
        self.pipes.give(pipe);
    }

    fn gone(&self) -> bool {
        self.control.ended()
    }
}

/// What runs.
struct Running<E, W: Wire> {
    engine: E,
    wire: W,
    common: Common,
    shared: Arc<Shared<W::Order>>,
}

impl<E: Engine, W: Wire> Running<E, W> {
    fn run(&mut self) {
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has it.
            unsafe { self.run_by_avx2() }
        } else {
            self.run_by::<Plain>();
        }
    }

    #[target_feature(enable = "avx2")]
    unsafe fn run_by_avx2(&mut self) {
        self.run_by::<Avx2>();
    }

    #[inline(always)]
    fn run_by<V: Vector>(&mut self) {
        let showing = (self.common.ticks_a_second / SHOWN_A_SECOND) as u64;
        let (mut show, mut longest) = (0, 0);
        let mut last = ticks();
        while !self.shared.control.stopped() {
            if let Some(commands) = self.shared.control.heard() {
                commands.into_iter().for_each(|command| self.obey(command));
                last = ticks();
            }
            let now = ticks();
            longest = longest.max(now - last);
            last = now;
            self.engine.doorbells(now, &mut self.common);
            self.engine.transmit(now, &mut self.common, &mut self.wire);
            self.engine.receive::<V, W>(now, &mut self.common, &mut self.wire);
            self.wire.turned(now);
            if now >= show {
                show = now + showing;
                self.shared.shown.show(&self.common.counters);
                self.shared.longest_turn.fetch_max(longest, Ordering::Relaxed);
                longest = 0;
            }
        }
        self.shared.shown.show(&self.common.counters);
    }

    #[cold]
    fn obey(&mut self, command: Command<W::Order>) {
        match command {
            Command::Attach(pair, arrivals) => self.engine.attach(pair, ArrivalsOf(arrivals)),
            Command::Detach(pair, done) => {
                self.engine.detach(pair, &mut self.common);
                let _ = done.send(());
            }
            Command::Register(region, done) => {
                self.common.regions.push(region);
                let _ = done.send(());
            }
            Command::Unregister(bus, done) => {
                self.engine.settle(ticks(), &mut self.common);
                self.common.regions.retain(|region| region.bus() != bus);
                let _ = done.send(());
            }
            Command::Order(order) => self.wire.order(order),
        }
    }
}

impl<E, W: Wire> Drop for Running<E, W> {
    /// Nobody waits for it any more, also where it panicked.
    fn drop(&mut self) {
        self.shared.control.end();
    }
}

/// The counter as it is, unfenced: what is timed here is far longer than what a fence would order.
#[inline(always)]
pub(crate) fn ticks() -> u64 {
    // SAFETY: the counter may be read; it has no effect.
    unsafe { std::arch::x86_64::_rdtsc() }
}
