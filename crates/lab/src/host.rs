//! Hosts: other machines on which workers run, reached by a command whose standard input and output are those of the worker.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::journal::now;
use crate::side::Side;
use crate::terminal::one_line;

/// How often the lab sends a heartbeat to a worker on another host.
pub(crate) const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(5);
/// How long a worker on another host may receive nothing, by default: four heartbeats. If a connection is half-open, its
/// standard input stays open.
pub(crate) const MAX_SILENCE: Duration = Duration::from_secs(20);
/// How long a worker waits for the lock of the machine while an earlier worker of the same run still ends there.
pub(crate) const MAX_LOCK_WAIT: Duration = Duration::from_secs(45);
/// The folder of the logs in the folder of a run.
pub const LOGS: &str = "logs";
/// The maximum size of what a session adds to a log, in bytes.
const MAX_LOG: usize = 16 << 20;
/// The maximum size of lines that precede the folder of the run, in bytes.
const MAX_PENDING: usize = 64 << 10;
/// The role whose host measures the experiments without roles: the device under test.
const DUT: &str = "dut";

/// Why a host cannot be reached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct ConnectError {
    /// One line with the host's name.
    pub why: String,
    /// Whether a later attempt may succeed, e.g. after a break of the network; not if the host refuses the login.
    pub is_temporary: bool,
}

/// A host other than this one.
pub trait RemoteHost: Send + Sync {
    /// Returns its name on the command line.
    fn name(&self) -> &str;

    /// Returns its record for `run.json`, with the role that it has.
    fn record(&self, role: Option<&str>) -> HostRecord;

    /// Returns how long the lab tries to reach it again after a connection was lost.
    fn reconnect_time(&self) -> Duration;

    /// Connects, unless there is a connection, and returns the command of a worker there, of the program of a side and with
    /// its variables.
    ///
    /// # Errors
    /// Returns one line with the host's name if it cannot be reached or used.
    fn worker(&self, side: &Side, options: &RemoteOptions) -> Result<Command, ConnectError>;

    /// Returns the CPUs on which its workers may run; empty for all.
    fn cpus(&self) -> &[usize];

    /// Returns the IDs of processes of this machine that keep its connection open.
    fn processes(&self) -> Vec<u32>;
}

/// The hosts on which a run is measured, instead of on this one.
#[derive(Clone)]
pub struct Hosts {
    /// One, or one per role, in the order of the roles of the experiments.
    pub hosts: Vec<Arc<dyn RemoteHost>>,
    /// The roles; empty if one host measures everything.
    pub roles: Vec<String>,
    /// The nice value of the workers.
    pub nice: i32,
}

/// A host of a run as `run.json` records it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HostRecord {
    /// The name on the command line.
    pub name: String,
    /// The role of its worker; absent if it has all roles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// The name for `ssh`.
    pub ssh: String,
    /// The CPUs on which its workers may run, e.g. `0-3`; absent for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<String>,
    /// Environment variables of its workers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
}

impl fmt::Display for HostRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.role {
            Some(role) => write!(f, "{role}={}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

impl Hosts {
    /// Returns the name of the run's host: that of the host, or of all of them.
    pub(crate) fn name(&self) -> String {
        let names: Vec<_> = self.hosts.iter().map(|host| host.name()).collect();
        names.join("+")
    }

    /// Returns their records.
    pub(crate) fn records(&self) -> Vec<HostRecord> {
        let record = |(index, host): (usize, &Arc<dyn RemoteHost>)| {
            host.record(self.roles.get(index).map(String::as_str))
        };
        self.hosts.iter().enumerate().map(record).collect()
    }

    /// Returns them in the order of the roles of an experiment; unchanged if it has other roles. If it has none, the host that
    /// measures it comes first.
    #[must_use]
    pub fn in_order_of(mut self, roles: &[String]) -> Self {
        let mut first_dut = self.roles.clone();
        first_dut.sort_by_key(|role| role != DUT);
        let roles = if roles.is_empty() { &first_dut[..] } else { roles };
        let position = |role: &String| self.roles.iter().position(|given| given == role);
        let order: Option<Vec<usize>> = roles.iter().map(position).collect();
        let is_of_all = |order: &Vec<usize>| order.len() == self.roles.len();
        if let Some(order) = order.filter(|order| !order.is_empty() && is_of_all(order)) {
            self.hosts = order.iter().map(|index| Arc::clone(&self.hosts[*index])).collect();
            self.roles = roles.to_vec();
        }
        self
    }

    /// Checks that an experiment with these roles can be measured there. One without roles is measured on the host of the device
    /// under test.
    ///
    /// # Errors
    /// Returns one line if each host has a role and the experiment has other roles.
    pub(crate) fn check_roles(&self, roles: &[String]) -> Result<(), String> {
        let is_of_dut = roles.is_empty() && self.roles.first().is_some_and(|role| role == DUT);
        if self.roles.is_empty() || self.roles == roles || is_of_dut {
            return Ok(());
        }
        let given = self.roles.join(", ");
        Err(match roles {
            [] => format!(
                "it has no roles, and --host names {given}; use --host HOST, or --host {DUT}=HOST"
            ),
            roles => {
                let words: Vec<_> =
                    roles.iter().map(|role| format!("--host {role}=HOST")).collect();
                format!("--host names the roles {given}; use {}", words.join(" "))
            }
        })
    }

    /// Returns the index of the host of a worker.
    pub(crate) fn index_of(&self, worker: usize) -> usize {
        if self.roles.is_empty() { 0 } else { worker.min(self.hosts.len().saturating_sub(1)) }
    }

    /// Returns whether no worker before this one is on its host: that one takes the lock of the machine.
    pub(crate) fn is_first_on_host(&self, worker: usize) -> bool {
        let name = |worker| self.hosts[self.index_of(worker)].name();
        (0..worker).all(|before| name(before) != name(worker))
    }
}

/// Returns how the hosts of two sessions of a run differ; `None` if they are equal. The name for `ssh` may change: the
/// environments show whether the machine is another.
pub(crate) fn difference(before: &[HostRecord], now: &[HostRecord]) -> Option<String> {
    let names = |records: &[HostRecord]| match records {
        [] => "this host".to_owned(),
        records => {
            let names: Vec<_> = records.iter().map(|one| format!("host {one}")).collect();
            names.join(", ")
        }
    };
    if names(before) != names(now) {
        return Some(format!(
            "location: the run is on {}, now it would be on {}",
            names(before),
            names(now)
        ));
    }
    let changed = before.iter().zip(now).find(|(before, now)| {
        (&before.cpus, &before.environment) != (&now.cpus, &now.environment)
    })?;
    Some(format!(
        "host '{}': its 'cpus' or 'environment' changed since the run began",
        changed.1.name
    ))
}

/// Description of the run for a worker on another host: the argument of `tollgate worker --remote`, in JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoteOptions {
    /// Purpose of the run, for others that request the lock of the machine.
    pub purpose: String,
    /// Whether this worker takes the lock of the machine, for all workers of the run there.
    pub takes_lock: bool,
    /// Whether it waits while another run measures there.
    pub waits: bool,
    /// Its nice value.
    pub nice: i32,
    /// The CPUs on which it may run; empty for all.
    pub cpus: Vec<usize>,
    /// How long it may receive nothing before it ends itself, in milliseconds.
    pub max_silence: u64,
    /// The random ID of the session: a worker with the same one that has the lock of the machine, under another name of the
    /// host or of another side, has it for this worker too.
    #[serde(default)]
    pub run: String,
    /// The worker's name within the run, without `-`: an earlier worker with this name may still be ending.
    #[serde(default)]
    pub worker: String,
}

impl RemoteOptions {
    /// Returns the arguments of the program.
    pub fn arguments(&self) -> [String; 3] {
        // Plain data always serialises.
        let options = serde_json::to_string(self).unwrap_or_default();
        ["worker".into(), "--remote".into(), options]
    }
}

/// The log of a host: the standard error of its workers, and what the lab notes about its connection. Lines that precede
/// the folder of the run are kept until it exists.
#[derive(Debug)]
pub struct HostLog {
    host: String,
    state: Mutex<LogState>,
}

#[derive(Debug, Default)]
struct LogState {
    file: Option<File>,
    pending: Vec<u8>,
    written: usize,
}

impl HostLog {
    /// Creates the log of a host, without a file.
    pub(crate) fn new(host: &str) -> Self {
        Self { host: host.into(), state: Mutex::default() }
    }

    /// Opens the file in the folder of a run, and writes the lines so far.
    ///
    /// # Errors
    /// Returns the path and the error of the system.
    pub(crate) fn open(&self, run: &Path) -> Result<(), (PathBuf, std::io::Error)> {
        let folder = run.join(LOGS);
        machine::file::create_folder(&folder).map_err(|why| (folder.clone(), why))?;
        let path = folder.join(format!("{}.log", self.host));
        let file = machine::file::append(&path).map_err(|why| (path, why))?;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let pending = std::mem::take(&mut state.pending);
        state.file = Some(file);
        state.write(&pending);
        Ok(())
    }

    /// Adds a line with the time. Errors are ignored: a full disk ends the run by its journal.
    pub(crate) fn add(&self, line: &str) {
        let line = format!("{} {}\n", now(), one_line(line.trim_end()));
        self.state.lock().unwrap_or_else(PoisonError::into_inner).write(line.as_bytes());
    }
}

impl LogState {
    fn write(&mut self, lines: &[u8]) {
        match &mut self.file {
            Some(file) if self.written < MAX_LOG => {
                let _ = file.write_all(lines);
                self.written += lines.len();
            }
            None if self.pending.len() < MAX_PENDING => self.pending.extend(lines),
            Some(_) | None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(name: &str, role: Option<&str>) -> HostRecord {
        HostRecord {
            name: name.into(),
            role: role.map(str::to_owned),
            ssh: name.into(),
            cpus: None,
            environment: BTreeMap::new(),
        }
    }

    struct Named(&'static str);

    impl RemoteHost for Named {
        fn name(&self) -> &str {
            self.0
        }

        fn record(&self, role: Option<&str>) -> HostRecord {
            record(self.0, role)
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

    fn hosts(names: &[&'static str], roles: &[&str]) -> Hosts {
        let hosts = names.iter().map(|&name| Arc::new(Named(name)) as Arc<dyn RemoteHost>);
        let roles = roles.iter().map(|&role| role.to_owned()).collect();
        Hosts { hosts: hosts.collect(), roles, nice: 0 }
    }

    #[test]
    fn each_role_has_its_host_and_one_host_has_all_roles() {
        let roles = ["dut", "generator"].map(str::to_owned);
        let two = hosts(&["a", "b"], &["generator", "dut"]);
        assert!(two.check_roles(&roles).is_err(), "in another order");
        let two = two.in_order_of(&roles);
        assert_eq!((two.name().as_str(), two.check_roles(&roles)), ("b+a", Ok(())));
        assert_eq!([two.index_of(0), two.index_of(1)], [0, 1]);
        assert!(two.is_first_on_host(0) && two.is_first_on_host(1));
        let records: Vec<_> = two.records().iter().map(ToString::to_string).collect();
        assert_eq!(records, ["dut=b", "generator=a"]);
        assert_eq!(two.check_roles(&[]), Ok(()), "on the host of the device under test");
        let alone = hosts(&["a", "b"], &["generator", "dut"]).in_order_of(&[]);
        assert_eq!((alone.name().as_str(), alone.check_roles(&[])), ("b+a", Ok(())));
        let copies = hosts(&["a", "b"], &["writer", "reader"]).in_order_of(&[]);
        let why = copies.check_roles(&[]).unwrap_err();
        assert!(why.starts_with("it has no roles, and --host names writer, reader"), "{why}");
        let why = two.check_roles(&["nic".into()]).unwrap_err();
        assert!(why.ends_with("use --host nic=HOST"), "{why}");
        for one in [hosts(&["a"], &[]), hosts(&["a"], &[]).in_order_of(&[])] {
            let one = one.in_order_of(&roles);
            assert_eq!((one.hosts.len(), one.check_roles(&roles)), (1, Ok(())));
            assert_eq!([one.index_of(0), one.index_of(1)], [0, 0]);
            assert!(one.is_first_on_host(0) && !one.is_first_on_host(1));
        }
    }

    #[test]
    fn a_run_is_resumed_only_on_the_same_hosts() {
        let one = [record("dut", None)];
        assert_eq!(difference(&[], &[]), None);
        assert_eq!(difference(&one, &[HostRecord { ssh: "other".into(), ..one[0].clone() }]), None);
        let why = difference(&[], &one).unwrap();
        assert_eq!(why, "location: the run is on this host, now it would be on host dut");
        let why = difference(&one, &[record("dut", Some("nic"))]).unwrap();
        assert!(why.ends_with("on host dut, now it would be on host nic=dut"), "{why}");
        let pinned = [HostRecord { cpus: Some("0-1".into()), ..one[0].clone() }];
        assert!(difference(&one, &pinned).unwrap().contains("'cpus' or 'environment' changed"));
    }

    #[test]
    fn a_log_keeps_the_lines_before_its_file_and_no_control_characters() {
        let folder = tempfile::tempdir().unwrap();
        let log = HostLog::new("dut");
        log.add("before\u{1b}[2J");
        log.open(folder.path()).unwrap();
        log.add("after\n");
        let text = std::fs::read_to_string(folder.path().join("logs/dut.log")).unwrap();
        let lines: Vec<_> = text.lines().map(|line| line.split_once("Z ").unwrap().1).collect();
        assert_eq!(lines, ["before\u{fffd}[2J", "after"]);
        std::fs::write(folder.path().join("file"), "").unwrap();
        assert!(log.open(&folder.path().join("file")).is_err());
    }

    #[test]
    fn a_log_is_limited() {
        let log = HostLog::new("dut");
        let line = "x".repeat(1000);
        (0..1000).for_each(|_| log.add(&line));
        assert!(log.state.lock().unwrap().pending.len() < MAX_PENDING + 2000);
    }

    #[test]
    fn options_are_one_argument() {
        let options = RemoteOptions {
            purpose: "results in /mine, 'quoted'".into(),
            takes_lock: true,
            waits: false,
            nice: 0,
            cpus: vec![0, 1],
            max_silence: 20_000,
            run: "0123456789abcdef".into(),
            worker: "0.1".into(),
        };
        let [worker, flag, json] = options.arguments();
        assert_eq!((worker.as_str(), flag.as_str()), ("worker", "--remote"));
        assert_eq!(serde_json::from_str::<RemoteOptions>(&json).unwrap(), options);
    }
}
