//! Guests: virtual machines with a worker inside, which the host's worker treats as a probe.

use std::fmt;
use std::os::fd::OwnedFd;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::artefact::{Artefacts, Recipe};
use crate::sample::Failure;

pub use crate::link::start_of_line;

/// Environment variable of the worker in a guest. Each start of a guest is a boot, but not another environment: a guest
/// that died and was started again continues its run.
pub const IN_GUEST: &str = "TOLLGATE_IN_GUEST";

/// Environment variable in a guest that sees the host's files: the ID of the user who started it.
pub const HOST_USER: &str = "TOLLGATE_HOST_USER";

/// Prefix of the line in which a Linux guest reports why it stops.
pub const KERNEL_PANIC: &str = "Kernel panic";
/// Prefix of QEMU's line if KVM cannot execute a guest; QEMU then waits forever.
pub const KVM_ERROR: &str = "KVM internal error";
/// Maximum time of a guest's boot, which takes seconds on an idle machine.
pub const MAX_BOOT_TIME: Duration = Duration::from_secs(300);
/// How often a guest is started until its boot succeeds. Emulated CPUs race in ways that real ones do not: on a busy
/// host a boot in some dozens panics.
pub const MAX_STARTS: u32 = 3;

/// Describes a guest that KVM cannot execute, given QEMU's line.
pub fn kvm_failure(line: &str) -> String {
    format!("{line}: this host's KVM does not run the guest's Linux; use --accelerator tcg")
}

/// A function that prepares the start of a guest from its artefacts.
pub type Starting = dyn Fn(&Artefacts) -> Result<Start, Failure>;

/// A guest inside which points are measured.
#[derive(Clone)]
pub struct Guest {
    /// The identity: consecutive points with the same guest name share a guest.
    pub name: String,
    /// The artefacts that the start needs.
    pub artefacts: Vec<Recipe>,
    /// Whether no time is measured in it, because its CPU is emulated.
    pub lacks_time: bool,
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
    pub held: Vec<OwnedFd>,
}

impl From<Command> for Start {
    fn from(command: Command) -> Self {
        Self { command, held: Vec::new() }
    }
}

/// Guests in which a whole run is measured, instead of on this host.
#[derive(Clone)]
pub struct Guests {
    /// The name of their declaration, which is the run's host.
    pub name: String,
    /// The declaration.
    pub declaration: String,
    /// Accelerator: `kvm` or `tcg`.
    pub accelerator: String,
    /// Whether times are measured although their CPUs are emulated, to test the clock.
    pub planted_clock: bool,
    /// One or more. The roles of an experiment run on one each, in this order.
    pub hosts: Vec<GuestHost>,
}

/// A guest of a run.
#[derive(Clone)]
pub struct GuestHost {
    /// Its host name.
    pub name: String,
    /// The guest.
    pub guest: Guest,
}

/// The guests of a run as `run.json` records them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestsRecord {
    /// The name of their declaration.
    pub name: String,
    /// The declaration in TOML.
    pub declaration: String,
    /// Accelerator: `kvm` or `tcg`.
    pub accelerator: String,
    /// Whether times were measured although their CPUs are emulated, to test the clock. They are not real.
    pub planted_clock: bool,
}

/// The name of QEMU's emulator as an accelerator.
const EMULATOR: &str = "tcg";

impl GuestsRecord {
    /// Returns whether their CPUs are emulated.
    pub fn is_emulated(&self) -> bool {
        self.accelerator == EMULATOR
    }
}

/// States where a run was measured, e.g. `guest plain, emulated by TCG`.
impl fmt::Display for GuestsRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.is_emulated() { "emulated by TCG" } else { "executed by KVM" };
        let clock = if self.planted_clock { ", with a planted clock" } else { "" };
        write!(f, "guest {}, {how}{clock}", self.name)
    }
}

impl Guests {
    /// Returns their record.
    pub(crate) fn record(&self) -> GuestsRecord {
        let Self { name, declaration, accelerator, planted_clock, .. } = self.clone();
        GuestsRecord { name, declaration, accelerator, planted_clock }
    }
}

/// Returns how the guests of two sessions of a run differ; `None` if they are equal.
pub(crate) fn difference(
    before: Option<&GuestsRecord>,
    now: Option<&GuestsRecord>,
) -> Option<String> {
    let name = |record: Option<&GuestsRecord>| match record {
        Some(record) => format!("guest '{}' by {}", record.name, record.accelerator),
        None => "this host".to_owned(),
    };
    if name(before) != name(now) {
        return Some(format!(
            "location: the run is on {}, now it would be on {}",
            name(before),
            name(now)
        ));
    }
    (before != now).then(|| format!("{}: its declaration changed since the run began", name(now)))
}
