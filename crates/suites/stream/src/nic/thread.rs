//! The thread that is the NIC.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use machine::pin::spawn_pinned;
use machine::tsc::{Tsc, Unavailable};

use super::Port;
use super::command_queue::Command;
use super::counters::Counters;
use super::engine::{Engine, EngineContext, PairDoorbells};
use super::region::{ClientId, Regions};
use super::shared::{Served, Shared};
use super::steering::Steering;
use crate::wire::Wire;
use crate::wire::vector::{Avx2, Plain, Vector};

/// How often other threads see the counters, ticks a second over this.
const UPDATES_PER_SECOND: f64 = 1000.0;

/// How the NIC is set up.
#[derive(Debug, Clone, Copy, Default)]
pub struct NicParams {
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
    cpu: usize,
}

/// A NIC that other processes may be given.
#[derive(Clone)]
pub struct Access {
    pub(super) nic: Arc<dyn Served>,
    pub(super) cpu: usize,
}

impl<O: Send + 'static> Nic<O> {
    /// Starts one between a wire and the memory of programs.
    ///
    /// # Errors
    /// Where it can tell no time, or its thread cannot run there.
    pub fn start<E: Engine, W: Wire<Command = O>>(
        params: NicParams,
        engine: E,
        wire: W,
    ) -> Result<Self, Error> {
        let tsc = Tsc::get()?;
        let ticks = |time: Duration| if time.is_zero() { 0 } else { tsc.ticks(time) };
        let shared = Arc::new(Shared::new(engine.config(), !params.doorbell.is_zero()));
        let context = EngineContext {
            counters: Counters::default(),
            regions: Regions::default(),
            clients: Vec::new(),
            owners: Arc::clone(&shared.owners),
            refused_at: 0,
            falls_back: ClientId::default(),
            limit: None,
            steering: Steering::default(),
            doorbell: ticks(params.doorbell),
            transfer: ticks(params.transfer),
            ticks_per_second: tsc.hertz,
        };
        let mut running = Running { engine, wire, context, shared: Arc::clone(&shared) };
        let thread = spawn_pinned(params.cpu, move || running.run())
            .map_err(|why| Error::Thread(params.cpu, why))?;
        Ok(Self { shared, thread: Some(thread), cpu: params.cpu })
    }

    /// What it counted, as of a millisecond ago.
    pub fn counters(&self) -> Counters {
        self.shared.shown.read()
    }

    /// The longest turn since this was last asked, ticks: where it is long, others had the CPU.
    pub fn longest_iteration(&self) -> u64 {
        self.shared.longest_iteration.swap(0, Ordering::Relaxed)
    }

    /// Tells the wire something.
    pub fn command(&self, order: O) {
        self.shared.commands.send_command(Command::Wire(order));
    }

    /// What a core needs to use it.
    pub fn port(&self) -> Port {
        Port::local(Arc::clone(&self.shared) as Arc<dyn Served>)
    }

    /// Whether a port or an access is somewhere.
    pub fn is_used(&self) -> bool {
        // Its own, and its thread's.
        Arc::strong_count(&self.shared) > 2
    }

    /// What a server needs to give it to other processes.
    pub fn access(&self) -> Access {
        Access { nic: Arc::clone(&self.shared) as Arc<dyn Served>, cpu: self.cpu }
    }
}

impl<O: Send + 'static> Drop for Nic<O> {
    fn drop(&mut self) {
        self.shared.commands.stop();
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed, and there is nothing more to do about it.
            let _ = thread.join();
        }
    }
}

/// What runs.
struct Running<E, W: Wire> {
    engine: E,
    wire: W,
    context: EngineContext,
    shared: Arc<Shared<W::Command>>,
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
        let showing = (self.context.ticks_per_second / UPDATES_PER_SECOND) as u64;
        let (mut show, mut longest) = (0, 0);
        let mut last = ticks();
        while !self.shared.commands.stopped() {
            if let Some(commands) = self.shared.commands.pending_commands() {
                commands.into_iter().for_each(|command| self.obey(command));
                last = ticks();
            }
            let now = ticks();
            longest = longest.max(now - last);
            last = now;
            self.engine.doorbells(now, &mut self.context);
            self.engine.transmit(now, &mut self.context, &mut self.wire);
            self.engine.receive::<V, W>(now, &mut self.context, &mut self.wire);
            self.wire.end_iteration(now);
            if now >= show {
                show = now + showing;
                self.shared.shown.show(&self.context.counters);
                self.shared.longest_iteration.fetch_max(longest, Ordering::Relaxed);
                longest = 0;
            }
        }
        self.shared.shown.show(&self.context.counters);
    }

    #[cold]
    fn obey(&mut self, command: Command<W::Command>) {
        match command {
            Command::Attach(client, pair, arrivals) => {
                self.context.belongs(pair, client);
                self.engine.attach(pair, PairDoorbells(arrivals));
            }
            Command::Detach(pair, done) => {
                self.engine.detach(pair, &mut self.context);
                if let Some(client) = self.context.left(pair) {
                    self.engine.left(client);
                }
                let _ = done.send(());
            }
            Command::Register(region, done) => {
                self.context.regions.insert(region);
                let _ = done.send(());
            }
            Command::Unregister(bus, done) => {
                if let Some(client) = self.context.regions.client_at(bus) {
                    // What it has written before may still use the memory.
                    self.engine.drain_doorbells(client, ticks(), &mut self.context);
                }
                if let Some(region) = self.context.regions.remove(bus) {
                    self.engine.forget(&region, &mut self.context);
                }
                let _ = done.send(());
            }
            Command::DrainDoorbells(client, done) => {
                self.engine.drain_doorbells(client, ticks(), &mut self.context);
                let _ = done.send(());
            }
            Command::RemovePipe(pipe, done) => {
                self.engine.free(pipe, ticks(), &mut self.context);
                let _ = done.send(());
            }
            Command::Wire(order) => self.wire.command(order),
        }
    }
}

impl<E, W: Wire> Drop for Running<E, W> {
    /// Nobody waits for it any more, also where it panicked.
    fn drop(&mut self) {
        self.shared.commands.end();
    }
}

/// The counter as it is, unfenced: what is timed here is far longer than what a fence would order.
#[inline(always)]
pub(crate) fn ticks() -> u64 {
    // SAFETY: the counter may be read; it has no effect.
    unsafe { std::arch::x86_64::_rdtsc() }
}
