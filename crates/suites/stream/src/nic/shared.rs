//! State that a NIC's thread shares with its users.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use machine::SysError;

use super::command_queue::{Command, CommandQueue};
use super::counters::PublishedCounters;
use super::doorbells::{DoorbellDelays, DoorbellReceiver};
use super::interface_config::InterfaceConfig;
use super::layout::{BUFFERS, PIPES};
use super::memory::{MemoryLayout, Pages};
use super::pipe_ids::IdAllocator;
use super::pipe_ids::Owners;
use super::region::{ClientId, Region};

/// Interval at which a waiting thread checks whether the NIC has stopped.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// State that a NIC's thread shares with its users.
pub(super) struct Shared<O> {
    pub(super) commands: CommandQueue<O>,
    pub(super) published: PublishedCounters,
    pub(super) longest_iteration: AtomicU64,
    config: InterfaceConfig,
    delays: DoorbellDelays,
    pairs: IdAllocator,
    pipes: IdAllocator,
    /// Client of each pipe.
    pub(super) owners: Arc<Owners>,
    /// Kinds of memory of this process that were registered, with their pages.
    pages: Mutex<BTreeSet<(&'static str, Pages)>>,
}

/// Operations of a NIC for its clients, independent of its wire.
pub(super) trait Served: Send + Sync {
    fn config(&self) -> InterfaceConfig;
    /// Returns what is modelled of doorbells.
    fn delays(&self) -> DoorbellDelays;
    /// Allocates a pair of notification buffers.
    fn alloc_pair(&self) -> Result<u32, SysError>;
    fn attach(&self, client: ClientId, pair: u32, doorbells: DoorbellReceiver);
    /// Removes and frees a pair with all its pipes.
    fn detach(&self, pair: u32);
    fn register(&self, region: Region);
    /// Records the pages of memory of this process.
    fn record_pages(&self, layout: MemoryLayout, pages: Pages);
    fn deregister(&self, bus: u64);
    /// Waits until all register writes of a client are processed.
    fn drain_doorbells(&self, client: ClientId);
    /// Allocates a pipe ID for a client.
    fn alloc_pipe(&self, client: ClientId) -> Result<u32, SysError>;
    /// Frees the ID of a pipe whose ring the client has removed.
    fn free_pipe(&self, pipe: u32);
    /// Removes a pipe's ring, regardless of the state in which its client left it, and frees the ID.
    fn remove_pipe(&self, pipe: u32);
    fn is_closed(&self) -> bool;
}

impl<O> Shared<O> {
    pub(super) fn new(config: InterfaceConfig, delays: DoorbellDelays) -> Self {
        Self {
            commands: CommandQueue::new(),
            published: PublishedCounters::default(),
            longest_iteration: AtomicU64::new(0),
            config,
            delays,
            pairs: IdAllocator::default(),
            pipes: IdAllocator::default(),
            owners: Arc::default(),
            pages: Mutex::default(),
        }
    }

    /// Describes the pages of the memory that this process has registered, e.g. `rings 2 MiB, buffers 2 MiB`.
    pub(super) fn describe_pages(&self) -> String {
        let pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        let each = pages.iter().rev().map(|(what, pages)| format!("{what} {}", pages.name()));
        each.collect::<Vec<_>>().join(", ")
    }

    /// Sends a command and waits until it is done or the NIC has stopped.
    pub(super) fn ask(&self, command: impl FnOnce(SyncSender<()>) -> Command<O>) {
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

    fn delays(&self) -> DoorbellDelays {
        self.delays
    }

    fn alloc_pair(&self) -> Result<u32, SysError> {
        self.pairs.alloc(BUFFERS, "pairs of notification buffers")
    }

    fn attach(&self, client: ClientId, pair: u32, doorbells: DoorbellReceiver) {
        self.commands.send_command(Command::Attach(client, pair, doorbells));
    }

    fn detach(&self, pair: u32) {
        self.ask(|done| Command::Detach(pair, done));
        self.pairs.free(pair);
    }

    fn register(&self, region: Region) {
        // Waits, because a later register write may refer to the region.
        self.ask(|done| Command::Register(region, done));
    }

    fn record_pages(&self, layout: MemoryLayout, pages: Pages) {
        let what = match layout {
            MemoryLayout::Rings { .. } => "rings",
            MemoryLayout::Plain(_) => "buffers",
        };
        self.pages.lock().unwrap_or_else(PoisonError::into_inner).insert((what, pages));
    }

    fn deregister(&self, bus: u64) {
        self.ask(|done| Command::Deregister(bus, done));
    }

    fn drain_doorbells(&self, client: ClientId) {
        self.ask(|done| Command::DrainDoorbells(client, done));
    }

    fn alloc_pipe(&self, client: ClientId) -> Result<u32, SysError> {
        let pipe = self.pipes.alloc(PIPES, "pipes")?;
        self.owners.set(pipe, Some(client));
        Ok(pipe)
    }

    fn free_pipe(&self, pipe: u32) {
        self.owners.set(pipe, None);
        self.pipes.free(pipe);
    }

    fn remove_pipe(&self, pipe: u32) {
        self.owners.set(pipe, None);
        self.ask(|done| Command::RemovePipe(pipe, done));
        self.pipes.free(pipe);
    }

    fn is_closed(&self) -> bool {
        self.commands.ended()
    }
}
