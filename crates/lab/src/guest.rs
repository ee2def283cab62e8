//! Guests: virtual machines with a worker inside, which the host's worker treats as a probe.

use std::process::Command;
use std::sync::Arc;

use machine::memfd::Memfd;

use crate::artefact::{Artefacts, Recipe};
use crate::sample::Failure;

/// A function that prepares the start of a guest from its artefacts.
pub type Starting = dyn Fn(&Artefacts) -> Result<Start, Failure>;

/// A guest inside which points are measured.
#[derive(Clone)]
pub struct Guest {
    /// The identity: consecutive points with the same guest name share a guest.
    pub name: String,
    /// The artefacts that the start needs.
    pub artefacts: Vec<Recipe>,
    /// Prepares the start.
    pub start: Arc<Starting>,
}

/// The command of a guest, whose standard input and output are those of the worker inside.
///
/// If the guest dies, the last line of the command's standard error is reported as the cause.
pub struct Start {
    /// The command.
    pub command: Command,
    /// Files that must stay open until the command has started.
    pub held: Vec<Memfd>,
}
