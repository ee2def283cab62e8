//! The thread that is the NIC.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use machine::pin::spawn_pinned;
use machine::tsc::{Tsc, Unavailable};

use super::Port;
use super::control::Command;
use super::counters::Counters;
use super::engine::{ArrivalsOf, Common, Engine};
use super::region::{Program, Regions};
use super::shared::{Served, Shared};
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
    pub fn start<E: Engine, W: Wire<Order = O>>(
        settings: Settings,
        engine: E,
        wire: W,
    ) -> Result<Self, Error> {
        let tsc = Tsc::get()?;
        let ticks = |time: Duration| if time.is_zero() { 0 } else { tsc.ticks(time) };
        let shared = Arc::new(Shared::new(engine.form(), !settings.doorbell.is_zero()));
        let common = Common {
            counters: Counters::default(),
            regions: Regions::default(),
            programs: Vec::new(),
            owners: Arc::clone(&shared.owners),
            refused_at: 0,
            falls_back: Program::default(),
            limit: None,
            steering: Steering::default(),
            doorbell: ticks(settings.doorbell),
            transfer: ticks(settings.transfer),
            ticks_a_second: tsc.hertz,
        };
        let mut running = Running { engine, wire, common, shared: Arc::clone(&shared) };
        let thread = spawn_pinned(settings.cpu, move || running.run())
            .map_err(|why| Error::Thread(settings.cpu, why))?;
        Ok(Self { shared, thread: Some(thread), cpu: settings.cpu })
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
        Port::here(Arc::clone(&self.shared) as Arc<dyn Served>)
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
        self.shared.control.stop();
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
            Command::Attach(program, pair, arrivals) => {
                self.common.belongs(pair, program);
                self.engine.attach(pair, ArrivalsOf(arrivals));
            }
            Command::Detach(pair, done) => {
                self.engine.detach(pair, &mut self.common);
                if let Some(program) = self.common.left(pair) {
                    self.engine.left(program);
                }
                let _ = done.send(());
            }
            Command::Register(region, done) => {
                self.common.regions.insert(region);
                let _ = done.send(());
            }
            Command::Unregister(bus, done) => {
                if let Some(program) = self.common.regions.program_at(bus) {
                    // What it has written before may still use the memory.
                    self.engine.settle(program, ticks(), &mut self.common);
                }
                if let Some(region) = self.common.regions.remove(bus) {
                    self.engine.forget(&region, &mut self.common);
                }
                let _ = done.send(());
            }
            Command::Settle(program, done) => {
                self.engine.settle(program, ticks(), &mut self.common);
                let _ = done.send(());
            }
            Command::FreePipe(pipe, done) => {
                self.engine.free(pipe, ticks(), &mut self.common);
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
