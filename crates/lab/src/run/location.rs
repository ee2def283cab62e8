//! Where the workers of a run are: on this host, in guests, or on other hosts.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use machine::cpu::CpuClock;
use machine::environment::Environment;

use super::{Event, Lab, RunError, RunObserver, RunRequest, purpose_of_run};
use crate::artefact::{self, Artefacts, Recipe};
use crate::format::random_id;
use crate::guest::{BootCommand, Guests, MAX_BOOT_TIME};
use crate::host::{
    ConnectError, HostLog, Hosts, MAX_LOCK_WAIT, MAX_SILENCE, RemoteHost, RemoteOptions,
};
use crate::journal::JournalError;
use crate::option;
use crate::sample::{Failure, Sample};
use crate::side::{LEVELS, Side};
use crate::suite;
use crate::terminal;

/// The time limit for the greeting of a worker on this host.
pub(super) const MAX_GREETING_TIME: Duration = Duration::from_secs(20);
/// How much longer a sample may take in a guest with a CPU of this machine for each of its own: emulation executes an
/// instruction in the time of ten to a hundred. A guest of KVM never needs it.
const GUEST_SLOWDOWN: u32 = 20;

/// Where the workers of a supervisor run.
#[derive(Clone, Default)]
pub(super) enum Location {
    /// On this host.
    #[default]
    Host,
    /// In guests, one worker each.
    Guests {
        /// The guests.
        guests: Guests,
        /// What their starts need.
        artefacts: Artefacts,
    },
    /// On other hosts.
    Hosts(RemoteHosts),
}

/// The hosts of a run with their logs.
#[derive(Clone)]
pub(super) struct RemoteHosts {
    hosts: Hosts,
    /// By host, in the same order.
    logs: Vec<Arc<HostLog>>,
    /// What the run does, for others that want the lock of a host.
    purpose: String,
    /// The random ID of this session, by which its workers know each other.
    run: String,
    /// Whether to wait while another run measures on a host.
    waits: bool,
    /// The number of sides of the run, at least one, and the index of the side of these workers.
    sides: usize,
    side: usize,
}

impl RemoteHosts {
    /// Returns the hosts of a request.
    ///
    /// # Errors
    /// Returns [`RunError::Start`] if the current folder no longer exists.
    fn of(hosts: &Hosts, request: &RunRequest) -> Result<Self, RunError> {
        let here = machine::environment::hostname();
        Ok(Self {
            hosts: hosts.clone(),
            logs: hosts.hosts.iter().map(|host| Arc::new(HostLog::new(host.name()))).collect(),
            purpose: format!("{} on {here}", purpose_of_run(&request.results)?),
            run: random_id(),
            waits: request.waits,
            sides: request.sides.len().max(1),
            side: 0,
        })
    }

    fn host(&self, worker: usize) -> &dyn RemoteHost {
        self.hosts.hosts[self.hosts.index_of(worker)].as_ref()
    }

    /// Returns the log of the host of a worker. Workers on one host share its file.
    fn log(&self, worker: usize) -> &Arc<HostLog> {
        let name = self.host(worker).name();
        let first = self.hosts.hosts.iter().position(|host| host.name() == name);
        &self.logs[first.unwrap_or_default()]
    }

    /// Returns what the worker of a side on a host does, for others that want the lock of the machine.
    fn purpose(&self, host: &str, side: usize) -> String {
        let Self { purpose, .. } = self;
        match self.sides {
            1 => format!("{purpose} for '{host}'"),
            _ => format!("{purpose} for '{host}', {}", LEVELS[side]),
        }
    }

    /// Connects to the host of a worker and returns the command of the worker of a side there.
    fn command(&self, worker: usize, side: &Side) -> Result<BootCommand, ConnectError> {
        let host = self.host(worker);
        let options = RemoteOptions {
            purpose: self.purpose(host.name(), self.side),
            run: self.run.clone(),
            worker: format!("{}.{worker}", self.side),
            takes_lock: self.hosts.is_first_on_host(worker),
            waits: self.waits,
            nice: side.nice.unwrap_or(self.hosts.nice),
            cpus: host.cpus().to_vec(),
            max_silence: u64::try_from(MAX_SILENCE.as_millis()).unwrap_or(u64::MAX),
        };
        let command =
            host.worker(side, &options).inspect_err(|error| self.log(worker).add(&error.why))?;
        Ok(BootCommand::of_host(command, Arc::clone(self.log(worker))))
    }
}

impl Location {
    /// Returns where the run's workers start. Makes what guests need, and what their workers need: these find it in the
    /// cache of this host, whose CPUs are faster, and report what could not be made.
    pub(super) fn prepare(
        lab: &Lab,
        request: &RunRequest,
        options: &BTreeMap<String, String>,
        observer: &mut dyn RunObserver,
    ) -> Result<Self, RunError> {
        if let Some(hosts) = &request.hosts {
            return Ok(Self::Hosts(RemoteHosts::of(hosts, request)?));
        }
        let Some(guests) = request.guests.clone() else { return Ok(Self::Host) };
        let mut make = |recipes: &[Recipe]| {
            artefact::prepare_all(recipes, |name| observer.event(Event::Preparing(name)))
        };
        let of_guests: Vec<_> =
            guests.hosts.iter().flat_map(|host| host.guest.artefacts.clone()).collect();
        let artefacts = make(&of_guests);
        for experiment in &request.experiments {
            let method = suite::find_method(lab.suites, &experiment.suite, &experiment.method);
            let Ok(method) = method else { continue };
            let of_point = |point| option::recipes(method, point, options);
            make(&experiment.points.iter().flat_map(of_point).collect::<Vec<_>>());
        }
        Ok(Self::Guests { guests, artefacts })
    }

    /// Returns it for the workers of the side with an index.
    #[must_use]
    pub(super) fn of_side(mut self, index: usize) -> Self {
        if let Self::Hosts(hosts) = &mut self {
            hosts.side = index;
        }
        self
    }

    /// Returns the command that boots the guest of a worker, or starts the worker of a side on its host.
    ///
    /// # Errors
    /// Returns the failure of an artefact or of what the guest needs outside of it, or why the host cannot be used.
    pub(super) fn boot_command(
        &self,
        worker: usize,
        side: &Side,
    ) -> Option<Result<BootCommand, ConnectError>> {
        let final_error =
            |failure: Failure| ConnectError { why: failure.to_string(), is_temporary: false };
        match self {
            Self::Host => None,
            Self::Guests { guests, artefacts } => {
                let start = &guests.hosts.get(worker)?.guest.start;
                Some(start(artefacts).map_err(final_error))
            }
            Self::Hosts(hosts) => Some(hosts.command(worker, side)),
        }
    }

    /// Opens the logs of hosts in the folder of the run.
    ///
    /// # Errors
    /// Returns [`RunError::Journal`] if the system refuses.
    pub(super) fn open_logs(&self, run: &Path) -> Result<(), RunError> {
        let Self::Hosts(RemoteHosts { logs, .. }) = self else { return Ok(()) };
        let remedy = "free space or choose another folder with --results";
        let opened = logs.iter().try_for_each(|log| log.open(run));
        opened.map_err(|(path, error)| JournalError::System { path, error, remedy }.into())
    }

    /// Adds a line to the log of the host of a worker, if it is on another host.
    pub(super) fn log(&self, worker: usize, line: &str) {
        if let Self::Hosts(hosts) = self {
            hosts.log(worker).add(line);
        }
    }

    /// Returns the time for which to try to reach the host of a worker after a connection was lost; `None` if the worker
    /// is on this host or in a guest.
    pub(super) fn reconnect_time(&self, worker: usize) -> Option<Duration> {
        match self {
            Self::Hosts(hosts) => Some(hosts.host(worker).reconnect_time()),
            Self::Host | Self::Guests { .. } => None,
        }
    }

    /// Returns processes of this machine that must survive a lost worker: those that keep connections open.
    pub(super) fn processes(&self) -> Vec<u32> {
        match self {
            Self::Hosts(hosts) => {
                hosts.hosts.hosts.iter().flat_map(|host| host.processes()).collect()
            }
            Self::Host | Self::Guests { .. } => Vec::new(),
        }
    }

    /// Returns what to do if workers are lost again and again.
    pub(super) fn loss_remedy(&self) -> &'static str {
        match self {
            Self::Host | Self::Guests { .. } => {
                "look for what ends processes here (memory limits, other users) and run again"
            }
            Self::Hosts(_) => {
                "'tollgate logs' prints what that host reported; repair it and run again"
            }
        }
    }

    /// Returns the name of a worker in errors.
    pub(super) fn name(&self, worker: usize) -> String {
        match self {
            Self::Guests { guests, .. } if worker < guests.hosts.len() => {
                format!("guest '{}'", guests.hosts[worker].name)
            }
            Self::Hosts(hosts) => format!("the worker on '{}'", hosts.host(worker).name()),
            Self::Host | Self::Guests { .. } => "the worker".into(),
        }
    }

    /// Returns whether two workers are on one host, given whether their machines have one name.
    pub(super) fn is_one_host(&self, worker: usize, other: usize, has_one_name: bool) -> bool {
        match self {
            Self::Hosts(hosts) => hosts.host(worker).name() == hosts.host(other).name(),
            Self::Host | Self::Guests { .. } => has_one_name,
        }
    }

    /// Returns whether the workers are in guests.
    pub(super) fn is_guests(&self) -> bool {
        matches!(self, Self::Guests { .. })
    }

    /// Returns the time limit for the greeting of a worker.
    pub(super) fn max_greeting_time(&self) -> Duration {
        match self {
            Self::Host | Self::Hosts(_) => MAX_GREETING_TIME,
            Self::Guests { .. } => MAX_BOOT_TIME,
        }
    }

    /// Returns how long a worker may wait for the end of another run on its host, before its greeting.
    pub(super) fn max_waiting_time(&self) -> Duration {
        match self {
            Self::Hosts(RemoteHosts { waits: true, .. }) => Duration::MAX,
            // Only for the end of an earlier worker of this run.
            _ => MAX_LOCK_WAIT + MAX_GREETING_TIME,
        }
    }

    /// Returns how much longer than here samples may take.
    pub(super) fn slowdown(&self) -> u32 {
        match self {
            Self::Host | Self::Hosts(_) => 1,
            Self::Guests { guests, .. } => {
                let cpus = thread::available_parallelism().map_or(1, NonZero::get);
                guest_slowdown(guests.hosts.iter().map(|host| host.guest.cpus), cpus)
            }
        }
    }

    /// Returns whether no time is measured there, because a CPU is emulated.
    pub(super) fn lacks_time(&self) -> bool {
        match self {
            Self::Guests { guests, .. } if guests.clock == CpuClock::Untimed => true,
            Self::Host | Self::Guests { .. } => machine::cpu::lacks_time(),
            // Their greetings state it.
            Self::Hosts(_) => false,
        }
    }

    /// Checks that there is a worker for each role of an experiment.
    ///
    /// # Errors
    /// Returns `unavailable` if there are fewer guests.
    pub(super) fn check_roles(&self, roles: usize) -> Result<(), Failure> {
        match self {
            Self::Host | Self::Hosts(_) => Ok(()),
            Self::Guests { guests, .. } => guests.check_roles(roles),
        }
    }

    /// Checks that a worker in a guest states the guest's host name, and is not emulated if the guest is real.
    ///
    /// # Errors
    /// Returns one line with the guest's name.
    pub(super) fn check_guest(
        &self,
        worker: usize,
        environment: &Environment,
    ) -> Result<(), String> {
        let Self::Guests { guests, .. } = self else { return Ok(()) };
        let Some(host) = guests.hosts.get(worker) else { return Ok(()) };
        let name = terminal::one_line(&environment.hostname);
        let why = if environment.hostname != host.name {
            format!("its host name is '{name}'; remove what changes it from 'prepare'")
        } else if environment.emulated && !host.guest.clock.is_emulated() {
            "its CPU is emulated, not executed by KVM; repair qemu-system-x86_64, or use --accelerator tcg".into()
        } else {
            return Ok(());
        };
        Err(format!("guest '{}': {why}", host.name))
    }

    /// Replaces the fault of a sample by what is wrong outside of the guests, which explains it. Names the host of what is
    /// wrong or missing on another host.
    pub(super) fn explained(&self, sample: Sample) -> Sample {
        let guests = match self {
            Self::Host => return sample,
            Self::Hosts(hosts) => return of_host(sample, &hosts.hosts),
            Self::Guests { guests, .. } => guests,
        };
        if !sample.error.as_ref().is_some_and(|error| error.kind.is_fault()) {
            return sample;
        }
        match guests.hosts.iter().find_map(|host| (host.guest.check)().err()) {
            Some(failure) => Sample { error: Some(failure), ..sample },
            None => sample,
        }
    }
}

/// Returns how much longer samples may take in guests with so many CPUs each, which share `cpus` of this machine. Programs
/// that poll keep every CPU busy.
fn guest_slowdown(guests: impl Iterator<Item = u32>, cpus: usize) -> u32 {
    let cpus = u32::try_from(cpus).unwrap_or(u32::MAX);
    GUEST_SLOWDOWN.saturating_mul(guests.sum::<u32>().div_ceil(cpus.max(1)).max(1))
}

/// Names the host in the error of a sample, unless it has roles on several: then the error names its role, with the host name.
fn of_host(mut sample: Sample, hosts: &Hosts) -> Sample {
    let host = match hosts.hosts.as_slice() {
        [host] => host,
        // The first one measures what has no roles.
        [host, ..] if sample.parts.is_empty() => host,
        _ => return sample,
    };
    sample.error = sample.error.map(|error| match format!("'{}'", host.name()) {
        // The error of a lost worker.
        name if error.why.contains(&name) => error,
        name => {
            let why = format!("host {name}: {}", error.why);
            error.with_details(why)
        }
    });
    sample
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::HostRecord;
    use crate::message::Answer;
    use crate::run::Delay;
    use crate::run::scripted::{greet, guests, say, unforwarded, without_greeting};
    use std::process::Command;

    /// A host whose workers are scripts of this one.
    struct Scripted;

    impl RemoteHost for Scripted {
        fn name(&self) -> &str {
            "dut"
        }

        fn record(&self, _: Option<&str>) -> HostRecord {
            unimplemented!("no run records it")
        }

        fn reconnect_time(&self) -> Duration {
            Duration::ZERO
        }

        fn worker(&self, _: &Side, _: &RemoteOptions) -> Result<Command, ConnectError> {
            Ok(Command::new("true"))
        }

        fn cpus(&self) -> &[usize] {
            &[]
        }

        fn processes(&self) -> Vec<u32> {
            Vec::new()
        }
    }

    fn on_another_host(waits: bool) -> Location {
        Location::Hosts(RemoteHosts {
            hosts: Hosts { hosts: vec![Arc::new(Scripted)], roles: Vec::new(), nice: 0 },
            logs: vec![Arc::new(HostLog::new("dut"))],
            purpose: "a test".into(),
            run: random_id(),
            waits,
            sides: 1,
            side: 0,
        })
    }

    #[test]
    fn a_worker_that_waits_is_reported_once() {
        let environment = Environment::capture();
        let waits = |holder: &str| say(&Answer::Waiting { holder: holder.into() });
        let long = "x".repeat(5000);
        let script = format!(
            "i=0; while [ $i -lt 500 ]; do {}; {}; i=$((i+1)); done; {}; read rest",
            waits(&long),
            waits("another"),
            greet(environment.clone())
        );
        let mut supervisor = without_greeting(&[script]).with_location(on_another_host(true));
        let mut reported = Vec::new();
        let mut report = |delay| {
            let Delay::Waiting(line) = delay else { panic!("{delay:?}") };
            reported.push(line);
            Ok(())
        };
        let started = supervisor.ensure_workers(1, &mut report).unwrap();
        assert_eq!(started, [environment]);
        let [line] = &reported[..] else { panic!("{} reports", reported.len()) };
        assert!(line.starts_with("the worker on 'dut' waits for another run: xxx"), "{line}");
        assert!(line.len() < 300, "{line}");
    }

    #[test]
    fn only_with_wait_a_worker_may_wait_for_long() {
        assert_eq!(on_another_host(true).max_waiting_time(), Duration::MAX);
        assert!(on_another_host(false).max_waiting_time() < Duration::from_secs(120));
    }

    #[test]
    fn a_loss_on_another_host_is_looked_for_there() {
        assert!(on_another_host(false).loss_remedy().starts_with("'tollgate logs' "));
        assert!(Location::Host.loss_remedy().contains("ends processes here"));
    }

    #[test]
    fn a_guest_with_another_host_name_or_an_emulated_cpu_is_refused() {
        let location = |clock| Location::Guests {
            guests: Guests { clock, ..guests(&[("mine", clock)]) },
            artefacts: Artefacts::new(),
        };
        let [real, emulated] = [CpuClock::Real, CpuClock::Untimed].map(location);
        let states = |name: &str, emulated| Environment {
            hostname: name.into(),
            emulated,
            ..Environment::capture()
        };
        assert_eq!(real.check_guest(0, &states("mine", false)), Ok(()));
        assert_eq!(emulated.check_guest(0, &states("mine", true)), Ok(()));
        let why = real.check_guest(0, &states("other\n", false)).unwrap_err();
        assert!(why.starts_with("guest 'mine': its host name is 'other") && !why.contains('\n'));
        let why = real.check_guest(0, &states("mine", true)).unwrap_err();
        assert!(why.contains("its CPU is emulated") && why.contains("--accelerator tcg"), "{why}");
        assert_eq!(Location::Host.check_guest(0, &states("any", true)), Ok(()));
    }

    #[test]
    fn samples_may_take_longer_in_guests_that_share_cpus() {
        assert_eq!(guest_slowdown([2].into_iter(), 2), GUEST_SLOWDOWN);
        assert_eq!(guest_slowdown([2].into_iter(), 64), GUEST_SLOWDOWN);
        assert_eq!(guest_slowdown([10].into_iter(), 2), 5 * GUEST_SLOWDOWN);
        assert_eq!(guest_slowdown([2, 2].into_iter(), 3), 2 * GUEST_SLOWDOWN);
    }

    #[test]
    fn more_roles_than_hosts_are_unavailable_with_a_remedy() {
        let location = Location::Guests {
            guests: guests(&[("a", CpuClock::Untimed), ("b", CpuClock::Untimed)]),
            artefacts: Artefacts::new(),
        };
        assert_eq!(location.check_roles(0), Ok(()));
        assert_eq!(location.check_roles(2), Ok(()));
        let failure = location.check_roles(3).unwrap_err();
        assert_eq!(failure.why, "its 3 roles need a host each, and guest 'mine' has 2 hosts");
        assert!(!failure.kind.is_fault() && failure.remedy.is_some());
        assert_eq!(Location::Host.check_roles(9), Ok(()));
    }

    #[test]
    fn what_is_wrong_outside_of_a_guest_explains_a_fault() {
        let guests = unforwarded(guests(&[("mine", CpuClock::Untimed)]));
        let location = Location::Guests { guests, artefacts: Artefacts::new() };
        let sample = |error| Sample { error, ..Sample::default() };
        let explained = location.explained(sample(Some(Failure::check("byte 5 is 0"))));
        assert_eq!(explained.error, Some(Failure::failed("stores are no longer forwarded")));
        for other in [None, Some(Failure::unavailable("no device", "add one"))] {
            assert_eq!(location.explained(sample(other.clone())).error, other);
        }
    }
}
