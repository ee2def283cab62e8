//! Guests: a worker in another machine, which the host's worker starts and talks to as to a probe.

use std::process::Command;
use std::sync::Arc;

use machine::memfd::Memfd;

use crate::artefact::{Artefacts, Recipe};
use crate::sample::Failure;

/// What starts a guest, from the artefacts that were made for it; or says why it cannot.
pub type Starting = dyn Fn(&Artefacts) -> Result<Start, Failure>;

/// A guest that points ask for.
#[derive(Clone)]
pub struct Guest {
    /// Tells guests apart: points that follow each other and name the same guest share it.
    pub name: String,
    /// What the host must make before the guest can start.
    pub artefacts: Vec<Recipe>,
    /// How it starts.
    pub start: Arc<Starting>,
}

/// How a guest starts: a command whose standard input and output are those of a worker inside.
///
/// What the command writes to its standard error is the guest's last words when it dies.
pub struct Start {
    /// The command.
    pub command: Command,
    /// What must stay open until the command runs.
    pub held: Vec<Memfd>,
}
