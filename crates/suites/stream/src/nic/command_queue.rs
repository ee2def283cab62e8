//! What is said to the NIC's thread outside of its registers: which memory it may touch, what the wire does.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Mutex, PoisonError};

use super::doorbells::DoorbellReceiver;
use super::region::{ClientId, Region};

/// What is said.
pub(crate) enum Command<O> {
    /// A core of a program will write to the registers of this pair of notification buffers and of its pipes.
    Attach(ClientId, u32, DoorbellReceiver),
    /// It will not any more, and its pipes go.
    Detach(u32, SyncSender<()>),
    /// The NIC may touch this memory.
    Register(Region, SyncSender<()>),
    /// It may not any more: what it holds no longer is used once the answer comes.
    Unregister(u64, SyncSender<()>),
    /// All that a program has written to registers so far is to be taken.
    DrainDoorbells(ClientId, SyncSender<()>),
    /// A pipe goes, whose program has given it back.
    RemovePipe(u32, SyncSender<()>),
    /// The wire has an order.
    Wire(O),
}

/// Where it is said.
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

    /// Says something. A NIC that has ended hears nothing: the command goes, and with it what waits for it.
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

    /// What was said since; looked at by the NIC in every turn, so it costs one load that hits.
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

    /// The NIC has ended, and obeys no more; not what was said and not heard either.
    pub(crate) fn end(&self) {
        let mut commands = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
        self.ended.store(true, Ordering::Release);
        commands.clear();
    }

    pub(crate) fn ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }
}
