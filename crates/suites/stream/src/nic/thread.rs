//! The NIC's thread.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use machine::Unavailable;
use machine::pin::spawn_pinned;
use machine::tsc::TickRate;

use super::Port;
use super::command_queue::Command;
use super::counters::Counters;
use super::doorbells::DoorbellDelays;
use super::engine::{Engine, EngineContext, PairDoorbells};
use super::pcie::{Link, PcieModel};
use super::placement::PlacementOrder;
use super::region::{ClientId, Regions};
use super::shared::{Served, Shared};
use super::steering::Steering;
use crate::wire::Wire;
use crate::wire::vector::{Avx2, Plain, Vector};

/// Frequency at which the counters are published to other threads.
const UPDATES_PER_SECOND: f64 = 1000.0;

/// Params of the NIC's thread.
#[derive(Debug, Clone, Copy, Default)]
pub struct NicParams {
    /// CPU of the thread.
    pub cpu: usize,
    /// Modelled properties of PCIe.
    pub pcie: PcieModel,
    /// The order in which the packets of a burst are written to memory.
    pub placement: PlacementOrder,
}

/// Why a NIC cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no time-stamp counter.
    #[error(transparent)]
    Time(#[from] Unavailable),
    /// The thread cannot run.
    #[error("run the NIC on CPU {0}: {1}; name an allowed CPU")]
    Thread(usize, io::Error),
}

/// A NIC, which runs until it is dropped.
pub struct Nic<O: Send + 'static> {
    shared: Arc<Shared<O>>,
    thread: Option<JoinHandle<()>>,
    cpu: usize,
}

/// Access to a NIC for a server of other processes.
#[derive(Clone)]
pub struct Access {
    pub(super) nic: Arc<dyn Served>,
    pub(super) cpu: usize,
}

impl<O: Send + 'static> Nic<O> {
    /// Starts a NIC between a wire and the memory of its clients.
    ///
    /// # Errors
    /// Returns why there is no time-stamp counter, or why the CPU cannot be used.
    pub fn start<E: Engine, W: Wire<Command = O>>(
        params: NicParams,
        engine: E,
        wire: W,
    ) -> Result<Self, Error> {
        let rate = TickRate::get()?;
        let ticks = |time: Duration| if time.is_zero() { 0 } else { rate.ticks(time) };
        let delays = DoorbellDelays {
            stamped: !params.pcie.doorbell.is_zero(),
            stall: ticks(params.pcie.mmio),
        };
        let shared = Arc::new(Shared::new(engine.config(), delays));
        let context = EngineContext {
            counters: Counters::default(),
            regions: Regions::default(),
            clients: Vec::new(),
            owners: Arc::clone(&shared.owners),
            refused_at: 0,
            fallback_client: ClientId::default(),
            limit: None,
            steering: Steering::default(),
            placement: params.placement,
            doorbell: ticks(params.pcie.doorbell),
            transfer: ticks(params.pcie.transfer),
            link: Link::new(params.pcie.link, rate.hertz),
            now: 0,
            ticks_per_second: rate.hertz,
        };
        let mut running = Running { engine, wire, context, shared: Arc::clone(&shared) };
        let thread = spawn_pinned(params.cpu, move || running.run())
            .map_err(|why| Error::Thread(params.cpu, why))?;
        Ok(Self { shared, thread: Some(thread), cpu: params.cpu })
    }

    /// Returns the counters as of a millisecond ago.
    pub fn counters(&self) -> Counters {
        self.shared.published.read()
    }

    /// Returns the counters as of now, or as of its end if the NIC has stopped. Waits for an iteration of its loop.
    pub fn current_counters(&self) -> Counters {
        self.shared.ask(Command::Publish);
        self.counters()
    }

    /// Describes the pages of the memory that programs of this process share with the NIC, e.g. `rings 2 MiB, buffers 2 MiB`.
    /// Empty if there is none.
    pub fn pages(&self) -> String {
        self.shared.describe_pages()
    }

    /// Returns the longest iteration since the last call, in ticks. A long one means that the thread lost its CPU.
    pub fn longest_iteration(&self) -> u64 {
        self.shared.longest_iteration.swap(0, Ordering::Relaxed)
    }

    /// Sends a command to the wire.
    pub fn command(&self, command: O) {
        self.shared.commands.send_command(Command::Wire(command));
    }

    /// Returns access for a thread of this process.
    pub fn port(&self) -> Port {
        Port::local(Arc::clone(&self.shared) as Arc<dyn Served>)
    }

    /// Returns whether there is a port or an access.
    pub fn is_used(&self) -> bool {
        // Besides the NIC's and its thread's own references.
        Arc::strong_count(&self.shared) > 2
    }

    /// Returns access for a server of other processes.
    pub fn access(&self) -> Access {
        Access { nic: Arc::clone(&self.shared) as Arc<dyn Served>, cpu: self.cpu }
    }
}

impl<O: Send + 'static> Drop for Nic<O> {
    fn drop(&mut self) {
        self.shared.commands.stop();
        if let Some(thread) = self.thread.take() {
            // A panic has been printed.
            let _ = thread.join();
        }
    }
}

/// The state of the NIC's thread.
struct Running<E, W: Wire> {
    engine: E,
    wire: W,
    context: EngineContext,
    shared: Arc<Shared<W::Command>>,
}

impl<E: Engine, W: Wire> Running<E, W> {
    fn run(&mut self) {
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the CPU has AVX2.
            unsafe { self.run_with_avx2() }
        } else {
            self.run_with::<Plain>();
        }
    }

    #[target_feature(enable = "avx2")]
    unsafe fn run_with_avx2(&mut self) {
        self.run_with::<Avx2>();
    }

    #[inline(always)]
    fn run_with<V: Vector>(&mut self) {
        let interval = (self.context.ticks_per_second / UPDATES_PER_SECOND) as u64;
        let (mut next_update, mut longest) = (0, 0);
        let mut last = ticks();
        while !self.shared.commands.stopped() {
            if let Some(commands) = self.shared.commands.pending_commands() {
                commands.into_iter().for_each(|command| self.execute(command));
                last = ticks();
            }
            let now = ticks();
            longest = longest.max(now - last);
            last = now;
            self.context.now = now;
            self.engine.poll_doorbells(now, &mut self.context);
            self.engine.transmit(now, &mut self.context, &mut self.wire);
            self.engine.receive::<V, W>(now, &mut self.context, &mut self.wire);
            if let Some(flits) = self.engine.unread() {
                self.wire.on_unread(flits);
            }
            self.wire.end_iteration(now);
            if now >= next_update {
                next_update = now + interval;
                self.shared.published.publish(&self.context.counters);
                self.shared.longest_iteration.fetch_max(longest, Ordering::Relaxed);
                longest = 0;
            }
        }
        self.shared.published.publish(&self.context.counters);
    }

    #[cold]
    fn execute(&mut self, command: Command<W::Command>) {
        match command {
            Command::Attach(client, pair, doorbells) => {
                self.context.assign_pair(pair, client);
                self.engine.attach(pair, PairDoorbells(doorbells));
            }
            Command::Detach(pair, done) => {
                self.engine.detach(pair, &mut self.context);
                if let Some(client) = self.context.remove_pair(pair) {
                    self.engine.client_gone(client);
                }
                let _ = done.send(());
            }
            Command::Register(region, done) => {
                self.context.regions.insert(region);
                let _ = done.send(());
            }
            Command::Deregister(bus, done) => {
                if let Some(client) = self.context.regions.client_at(bus) {
                    // Earlier writes may still use the memory.
                    self.engine.drain_doorbells(client, ticks(), &mut self.context);
                }
                if let Some(region) = self.context.regions.remove(bus) {
                    self.engine.remove_region(&region, &mut self.context);
                }
                let _ = done.send(());
            }
            Command::DrainDoorbells(client, done) => {
                self.engine.drain_doorbells(client, ticks(), &mut self.context);
                let _ = done.send(());
            }
            Command::RemovePipe(pipe, done) => {
                self.engine.remove_queue(pipe, ticks(), &mut self.context);
                let _ = done.send(());
            }
            Command::Publish(done) => {
                self.shared.published.publish(&self.context.counters);
                let _ = done.send(());
            }
            Command::Wire(command) => self.wire.command(command),
        }
    }
}

impl<E, W: Wire> Drop for Running<E, W> {
    /// Releases waiting threads, also after a panic.
    fn drop(&mut self) {
        self.shared.commands.end();
    }
}

/// Reads the time-stamp counter without a fence: timed intervals are far longer than what a fence would order.
#[inline(always)]
pub(crate) fn ticks() -> u64 {
    // SAFETY: RDTSC has no side effect.
    unsafe { std::arch::x86_64::_rdtsc() }
}
