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
    /// The clock of its CPUs.
    pub clock: GuestClock,
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
    /// The clock of their CPUs.
    pub clock: GuestClock,
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
    /// The clock of their CPUs.
    pub clock: GuestClock,
}

/// What the clock of a guest's CPUs shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GuestClock {
    /// The CPUs are real: their times are.
    Real,
    /// The CPUs are emulated, so no time is measured.
    None,
    /// The CPUs are emulated, but times are measured nevertheless, to test the instrument.
    Planted,
}

impl GuestClock {
    /// Returns whether the CPUs are emulated.
    pub fn is_emulated(self) -> bool {
        self != Self::Real
    }

    /// Returns its name in exports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Real => "real",
            Self::None => "none",
            Self::Planted => "planted clock",
        }
    }
}

/// The name of QEMU's emulator as an accelerator.
const EMULATOR: &str = "tcg";

impl GuestsRecord {
    /// Returns whether QEMU emulates their CPUs.
    pub(crate) fn is_emulated_by_tcg(&self) -> bool {
        self.accelerator == EMULATOR
    }
}

/// States where a run was measured, e.g. `guest plain, emulated by TCG`.
impl fmt::Display for GuestsRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = match (self.is_emulated_by_tcg(), self.clock) {
            (true, _) => "emulated by TCG",
            (false, GuestClock::Real) => "executed by KVM",
            (false, _) => "executed by KVM on an emulated CPU",
        };
        let clock = if self.clock == GuestClock::Planted { ", with a planted clock" } else { "" };
        write!(f, "guest {}, {how}{clock}", self.name)
    }
}

impl Guests {
    /// Returns their record.
    pub(crate) fn record(&self) -> GuestsRecord {
        let Self { name, declaration, accelerator, clock, .. } = self.clone();
        GuestsRecord { name, declaration, accelerator, clock }
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
