//! What a NIC's thread and those who use it share.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use machine::SysError;

use super::control::{Command, Control};
use super::counters::Shown;
use super::form::Form;
use super::layout::{BUFFERS, PIPES};
use super::numbers::Numbers;
use super::owners::Owners;
use super::posted::Arrivals;
use super::region::{Program, Region};

/// How often somebody who waits for the NIC looks whether it is still there.
const LOOK: Duration = Duration::from_millis(50);

/// What a NIC and those who use it share.
pub(super) struct Shared<O> {
    pub(super) control: Control<O>,
    pub(super) shown: Shown,
    pub(super) longest_turn: AtomicU64,
    form: Form,
    stamped: bool,
    pairs: Numbers,
    pipes: Numbers,
    /// Whose each pipe is.
    pub(super) owners: Arc<Owners>,
}

/// What is asked of a NIC for its programs, whatever its wire.
pub(super) trait Served: Send + Sync {
    fn form(&self) -> Form;
    /// Whether doorbells say when they were written.
    fn stamped(&self) -> bool;
    /// A pair of notification buffers that nobody has.
    fn take_pair(&self) -> Result<u32, SysError>;
    fn attach(&self, program: Program, pair: u32, arrivals: Arrivals);
    /// It goes with all its pipes, and is nobody's.
    fn detach(&self, pair: u32);
    fn register(&self, region: Region);
    fn unregister(&self, bus: u64);
    /// All that a program has written to registers so far is taken.
    fn settle(&self, program: Program);
    /// A pipe that nobody has is the program's.
    fn take_pipe(&self, program: Program) -> Result<u32, SysError>;
    /// It is nobody's any more; its ring has gone.
    fn give_pipe(&self, pipe: u32);
    /// Its ring goes, whatever its program has said, and it is nobody's any more.
    fn free_pipe(&self, pipe: u32);
    fn gone(&self) -> bool;
}

impl<O> Shared<O> {
    pub(super) fn new(form: Form, stamped: bool) -> Self {
        Self {
            control: Control::new(),
            shown: Shown::default(),
            longest_turn: AtomicU64::new(0),
            form,
            stamped,
            pairs: Numbers::default(),
            pipes: Numbers::default(),
            owners: Arc::default(),
        }
    }

    /// Says something and waits until it is done, or the NIC has gone.
    fn ask(&self, command: impl FnOnce(SyncSender<()>) -> Command<O>) {
        let (done, answer): (_, Receiver<()>) = sync_channel(1);
        self.control.say(command(done));
        while !self.control.ended() {
            if answer.recv_timeout(LOOK).is_ok() {
                return;
            }
        }
    }
}

impl<O: Send + 'static> Served for Shared<O> {
    fn form(&self) -> Form {
        self.form
    }

    fn stamped(&self) -> bool {
        self.stamped
    }

    fn take_pair(&self) -> Result<u32, SysError> {
        self.pairs.take(BUFFERS, "pairs of notification buffers")
    }

    fn attach(&self, program: Program, pair: u32, arrivals: Arrivals) {
        self.control.say(Command::Attach(program, pair, arrivals));
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

    fn settle(&self, program: Program) {
        self.ask(|done| Command::Settle(program, done));
    }

    fn take_pipe(&self, program: Program) -> Result<u32, SysError> {
        let pipe = self.pipes.take(PIPES, "pipes")?;
        self.owners.set(pipe, Some(program));
        Ok(pipe)
    }

    fn give_pipe(&self, pipe: u32) {
        self.owners.set(pipe, None);
        self.pipes.give(pipe);
    }

    fn free_pipe(&self, pipe: u32) {
        self.owners.set(pipe, None);
        self.ask(|done| Command::FreePipe(pipe, done));
        self.pipes.give(pipe);
    }

    fn gone(&self) -> bool {
        self.control.ended()
    }
}
