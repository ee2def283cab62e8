//! Commands to the NIC's thread that do not come through registers: memory registration, and commands to the wire.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Mutex, PoisonError};

use super::doorbells::DoorbellReceiver;
use super::region::{ClientId, Region};

/// A command to the NIC's thread. The sender, if any, is answered once it is done.
pub(crate) enum Command<O> {
    /// Receives register writes for a pair of notification buffers and its pipes.
    Attach(ClientId, u32, DoorbellReceiver),
    /// Removes a pair and its pipes.
    Detach(u32, SyncSender<()>),
    /// Allows the NIC to access a region.
    Register(Region, SyncSender<()>),
    /// Ends the NIC's access to the region at a bus address.
    Deregister(u64, SyncSender<()>),
    /// Processes all register writes that a client has made so far.
    DrainDoorbells(ClientId, SyncSender<()>),
    /// Removes a pipe that its client has freed.
    RemovePipe(u32, SyncSender<()>),
    /// Publishes the counters.
    Publish(SyncSender<()>),
    /// A command to the wire.
    Wire(O),
}

/// A queue of commands to the NIC's thread.
pub(crate) struct CommandQueue<O> {
    commands: Mutex<Vec<Command<O>>>,
    waiting: AtomicBool,
    stop: AtomicBool,
    ended: AtomicBool,
}

impl<O> CommandQueue<O> {
    pub(crate) fn new() -> Self {
        Self {
            commands: Mutex::new(Vec::new()),
            waiting: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        }
    }

    /// Sends a command. If the NIC has stopped the command is dropped, and with it the sender for its answer.
    pub(crate) fn send_command(&self, command: Command<O>) {
        let mut commands = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
        if self.ended() {
            return;
        }
        commands.push(command);
        drop(commands);
        self.waiting.store(true, Ordering::Release);
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }

    /// Takes all pending commands. Costs one load that hits the cache if there are none.
    #[inline(always)]
    pub(crate) fn pending_commands(&self) -> Option<Vec<Command<O>>> {
        if !self.waiting.load(Ordering::Relaxed) {
            return None;
        }
        self.waiting.store(false, Ordering::Relaxed);
        Some(std::mem::take(&mut *self.commands.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    #[inline(always)]
    pub(crate) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Marks the NIC as stopped and drops all pending commands.
    pub(crate) fn end(&self) {
        let mut commands = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
        self.ended.store(true, Ordering::Release);
        commands.clear();
    }

    pub(crate) fn ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }
}
