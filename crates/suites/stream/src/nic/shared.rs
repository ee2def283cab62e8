//! What a NIC's thread and those who use it share.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use machine::SysError;

use super::command_queue::{Command, CommandQueue};
use super::counters::Shown;
use super::doorbells::DoorbellReceiver;
use super::interface_config::InterfaceConfig;
use super::layout::{BUFFERS, PIPES};
use super::pipe_ids::IdAllocator;
use super::pipe_ids::Owners;
use super::region::{ClientId, Region};

/// How often somebody who waits for the NIC looks whether it is still there.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// What a NIC and those who use it share.
pub(super) struct Shared<O> {
    pub(super) commands: CommandQueue<O>,
    pub(super) shown: Shown,
    pub(super) longest_iteration: AtomicU64,
    config: InterfaceConfig,
    stamped: bool,
    pairs: IdAllocator,
    pipes: IdAllocator,
    /// Whose each pipe is.
    pub(super) owners: Arc<Owners>,
}

/// What is asked of a NIC for its programs, whatever its wire.
pub(super) trait Served: Send + Sync {
    fn config(&self) -> InterfaceConfig;
    /// Whether doorbells say when they were written.
    fn stamped(&self) -> bool;
    /// A pair of notification buffers that nobody has.
    fn take_pair(&self) -> Result<u32, SysError>;
    fn attach(&self, client: ClientId, pair: u32, arrivals: DoorbellReceiver);
    /// It goes with all its pipes, and is nobody's.
    fn detach(&self, pair: u32);
    fn register(&self, region: Region);
    fn unregister(&self, bus: u64);
    /// All that a program has written to registers so far is taken.
    fn drain_doorbells(&self, client: ClientId);
    /// A pipe that nobody has is the program's.
    fn alloc_pipe(&self, client: ClientId) -> Result<u32, SysError>;
    /// It is nobody's any more; its ring has gone.
    fn free_pipe(&self, pipe: u32);
    /// Its ring goes, whatever its program has said, and it is nobody's any more.
    fn remove_pipe(&self, pipe: u32);
    fn is_closed(&self) -> bool;
}

impl<O> Shared<O> {
    pub(super) fn new(config: InterfaceConfig, stamped: bool) -> Self {
        Self {
            commands: CommandQueue::new(),
            shown: Shown::default(),
            longest_iteration: AtomicU64::new(0),
            config,
            stamped,
            pairs: IdAllocator::default(),
            pipes: IdAllocator::default(),
            owners: Arc::default(),
        }
    }

    /// Says something and waits until it is done, or the NIC has gone.
    fn ask(&self, command: impl FnOnce(SyncSender<()>) -> Command<O>) {
        let (done, answer): (_, Receiver<()>) = sync_channel(1);
        self.commands.send_command(command(done));
        while !self.commands.ended() {
            if answer.recv_timeout(POLL_INTERVAL).is_ok() {
                return;
            }
        }
    }
}

impl<O: Send + 'static> Served for Shared<O> {
    fn config(&self) -> InterfaceConfig {
        self.config
    }

    fn stamped(&self) -> bool {
        self.stamped
    }

    fn take_pair(&self) -> Result<u32, SysError> {
        self.pairs.take(BUFFERS, "pairs of notification buffers")
    }

    fn attach(&self, client: ClientId, pair: u32, arrivals: DoorbellReceiver) {
        self.commands.send_command(Command::Attach(client, pair, arrivals));
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

    fn drain_doorbells(&self, client: ClientId) {
        self.ask(|done| Command::DrainDoorbells(client, done));
    }

    fn alloc_pipe(&self, client: ClientId) -> Result<u32, SysError> {
        let pipe = self.pipes.take(PIPES, "pipes")?;
        self.owners.set(pipe, Some(client));
        Ok(pipe)
    }

    fn free_pipe(&self, pipe: u32) {
        self.owners.set(pipe, None);
        self.pipes.give(pipe);
    }

    fn remove_pipe(&self, pipe: u32) {
        self.owners.set(pipe, None);
        self.ask(|done| Command::RemovePipe(pipe, done));
        self.pipes.give(pipe);
    }

    fn is_closed(&self) -> bool {
        self.commands.ended()
    }
}
