//! Guests: virtual machines with a worker inside, which the host's worker treats as a probe.

use std::fmt;
use std::os::fd::OwnedFd;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use machine::cpu::CpuClock;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::artefact::{Artefacts, Recipe};
use crate::format::count;
use crate::host::HostLog;
use crate::sample::Failure;

/// Environment variable of the worker in a guest. Each start of a guest is a boot, but not another environment: a guest
/// that died and was started again continues its run.
pub const IN_GUEST: &str = "TOLLGATE_IN_GUEST";

/// Environment variable in a guest that sees the host's files: the ID of the user who started it.
pub const HOST_USER: &str = "TOLLGATE_HOST_USER";

/// Maximum time of a guest's boot, which takes seconds on an idle machine.
pub const MAX_BOOT_TIME: Duration = Duration::from_secs(300);
/// Maximum number of starts of a guest until its boot succeeds. Emulated CPUs race in ways that real ones do not: on a busy
/// host a boot in some dozens panics.
pub const MAX_STARTS: u32 = 3;

/// Error of a guest that did not boot.
#[derive(Debug)]
pub struct BootFailure<E> {
    /// The error.
    pub error: E,
    /// Whether its kernel panicked.
    pub is_panic: bool,
}

/// Starts a guest. If its kernel panics, starts it again, at most [`MAX_STARTS`] times, because nothing depends on it yet;
/// before that, reports the panic.
///
/// # Errors
/// Returns the error of the last start, or that of `report`.
pub fn boot<T, E>(
    mut start: impl FnMut() -> Result<T, BootFailure<E>>,
    mut report: impl FnMut(&E) -> Result<(), E>,
) -> Result<T, E> {
    for _ in 1..MAX_STARTS {
        match start() {
            Err(BootFailure { error, is_panic: true }) => report(&error)?,
            ended => return ended.map_err(|failure| failure.error),
        }
    }
    start().map_err(|failure| failure.error)
}

/// A function that prepares the start of a guest from its artefacts.
pub type Starting = dyn Fn(&Artefacts) -> Result<BootCommand, Failure>;
/// A function that checks the processes outside of a guest that it depends on.
pub type Checking = dyn Fn() -> Result<(), Failure>;

/// A guest inside which points are measured.
#[derive(Clone)]
pub struct Guest {
    /// The identity: consecutive points with the same guest name share a guest.
    pub name: String,
    /// The artefacts that the start needs.
    pub artefacts: Vec<Recipe>,
    /// The clock of its CPUs.
    pub clock: CpuClock,
    /// The number of its CPUs.
    pub cpus: u32,
    /// Prepares the start.
    pub start: Arc<Starting>,
    /// Checks processes and threads outside of the guest that it depends on, e.g. the forwarder of its stores. The error
    /// explains a failed sample.
    pub check: Arc<Checking>,
}

/// The command of a guest or of a connection to a host, whose standard input and output are those of the worker there; or
/// of a process of this host.
///
/// If it ends unexpectedly, a line of its standard error is reported as the cause.
#[derive(Debug)]
pub struct BootCommand {
    /// The command.
    pub command: Command,
    /// Files that must stay open until the command has started.
    pub held: Vec<OwnedFd>,
    /// Remedy if KVM cannot execute the guest; `None` for a process of this host.
    pub kvm_remedy: Option<&'static str>,
    /// The log of its standard error, if it is the connection to a worker on another host.
    pub log: Option<Arc<HostLog>>,
}

impl BootCommand {
    /// Creates the command of a guest, which ends with the thread that starts it.
    pub fn of_guest(mut command: Command, held: Vec<OwnedFd>, kvm_remedy: &'static str) -> Self {
        machine::child::die_with_parent(&mut command);
        Self { command, held, kvm_remedy: Some(kvm_remedy), log: None }
    }

    /// Creates the command that connects to a worker on another host.
    pub fn of_host(command: Command, log: Arc<HostLog>) -> Self {
        Self { log: Some(log), ..command.into() }
    }
}

impl From<Command> for BootCommand {
    fn from(command: Command) -> Self {
        Self { command, held: Vec::new(), kvm_remedy: None, log: None }
    }
}

/// Guests in which a whole run is measured, instead of on this host.
#[derive(Clone)]
pub struct Guests {
    /// The name of their declaration, which is the run's host.
    pub name: String,
    /// The declaration.
    pub declaration: String,
    /// Name of the accelerator: `kvm`, or [`EMULATOR`].
    pub accelerator: String,
    /// The clock of their CPUs.
    pub clock: CpuClock,
    /// One or more. The roles of an experiment run on one each, in this order.
    pub hosts: Vec<GuestHost>,
    /// Remedy if an experiment has more roles than there are hosts.
    pub roles_remedy: String,
    /// Command line that shows the console of a host while it boots.
    pub console: String,
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GuestsRecord {
    /// The name of their declaration.
    pub name: String,
    /// The declaration in TOML.
    pub declaration: String,
    /// Name of the accelerator: `kvm`, or [`EMULATOR`].
    pub accelerator: String,
    /// The clock of their CPUs.
    pub clock: CpuClock,
}

/// The name of QEMU's emulator as an accelerator.
pub const EMULATOR: &str = "tcg";

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
            (false, CpuClock::Real) => "executed by KVM",
            (false, _) => "executed by KVM on an emulated CPU",
        };
        let clock = if self.clock == CpuClock::Planted { ", with a planted clock" } else { "" };
        write!(f, "guest {}, {how}{clock}", self.name)
    }
}

impl Guests {
    /// Checks that there is a host for each role of an experiment.
    ///
    /// # Errors
    /// Returns `unavailable` if there are fewer hosts.
    pub(crate) fn check_roles(&self, roles: usize) -> Result<(), Failure> {
        let (name, hosts) = (&self.name, count(self.hosts.len(), "host"));
        if roles <= self.hosts.len() {
            return Ok(());
        }
        let why = format!("its {roles} roles need a host each, and guest '{name}' has {hosts}");
        let cause = "guests with fewer hosts than the experiment has roles";
        Err(Failure::unavailable(why, self.roles_remedy.as_str()).with_cause(cause))
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    fn starts(outcomes: &[Result<u32, bool>]) -> (Result<u32, &'static str>, usize, usize) {
        let (mut started, mut reported) = (0, 0);
        let start = || {
            started += 1;
            outcomes[started - 1].map_err(|is_panic| BootFailure { error: "no boot", is_panic })
        };
        let result = boot(start, |_| {
            reported += 1;
            Ok(())
        });
        (result, started, reported)
    }

    #[test]
    fn only_a_panic_is_followed_by_another_start() {
        assert_eq!(starts(&[Ok(7)]), (Ok(7), 1, 0));
        assert_eq!(starts(&[Err(true), Ok(7)]), (Ok(7), 2, 1));
        assert_eq!(starts(&[Err(true), Err(false)]), (Err("no boot"), 2, 1));
        assert_eq!(starts(&[Err(false)]), (Err("no boot"), 1, 0));
        assert_eq!(starts(&[Err(true); 3]), (Err("no boot"), MAX_STARTS as usize, 2));
        let failed = boot(
            || Err::<(), _>(BootFailure { error: "no boot", is_panic: true }),
            |_| Err("no report"),
        );
        assert_eq!(failed, Err("no report"));
    }

    #[test]
    fn a_run_is_resumed_only_in_the_same_guests() {
        let guests = |declaration: &str| GuestsRecord {
            name: "nested".into(),
            declaration: declaration.into(),
            accelerator: "tcg".into(),
            clock: CpuClock::Untimed,
        };
        let difference = |before: Option<&str>, now: Option<&str>| {
            super::difference(before.map(guests).as_ref(), now.map(guests).as_ref())
        };
        assert_eq!(difference(None, None), None);
        assert_eq!(difference(Some("cpus = 2"), Some("cpus = 2")), None);
        let elsewhere = difference(None, Some("cpus = 2")).unwrap();
        assert_eq!(
            elsewhere,
            "location: the run is on this host, now it would be on guest 'nested' by tcg"
        );
        let changed = difference(Some("cpus = 2"), Some("cpus = 4")).unwrap();
        assert!(changed.contains("its declaration changed"), "{changed}");
    }
}
