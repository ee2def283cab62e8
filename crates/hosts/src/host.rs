//! A host as the lab uses it: its workers are sessions of one connection.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lab::host::{ConnectError, HostRecord, RemoteHost, RemoteOptions};
use lab::side::Side;

use crate::config::Host;
use crate::error::HostError;
use crate::program::{Installed, Program};
use crate::script::quoted;
use crate::ssh::Connection;

/// A host over SSH, with this program on it.
pub struct SshHost {
    connection: Connection,
    program: Arc<Program>,
    checked: Mutex<Checked>,
}

/// The programs on a host that were checked by the present connection: after a break they may be gone, or replaced.
#[derive(Default)]
struct Checked {
    /// How often the connection was opened until then.
    openings: u32,
    /// By their path on this machine; `None` is this program.
    installed: BTreeMap<Option<PathBuf>, Installed>,
}

impl SshHost {
    /// Creates a host to which there is no connection yet.
    ///
    /// # Errors
    /// Returns one line if there is no private folder for the connection.
    pub fn new(host: Host, program: Arc<Program>) -> Result<Self, HostError> {
        Ok(Self { connection: Connection::new(host)?, program, checked: Mutex::default() })
    }

    /// Returns its connection.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Connects unless there is a connection, and installs the program unless this connection has checked it.
    ///
    /// # Errors
    /// Returns why the host cannot be reached or used.
    pub fn prepare(&self) -> Result<Installed, HostError> {
        self.prepare_program(None)
    }

    /// As [`prepare`](Self::prepare), with another program of this machine if one is given.
    fn prepare_program(&self, program: Option<&Path>) -> Result<Installed, HostError> {
        self.connection.open()?;
        let mut checked = self.checked.lock().unwrap_or_else(PoisonError::into_inner);
        let openings = self.connection.openings();
        if checked.openings != openings {
            *checked = Checked { openings, ..Checked::default() };
        }
        let key = program.map(Path::to_owned);
        if let Some(installed) = checked.installed.get(&key) {
            return Ok(installed.clone());
        }
        let found = match program {
            None => self.program.install(&self.connection)?,
            Some(path) => {
                let program = Program::read(path).map_err(|why| {
                    HostError::new(
                        self.connection.host(),
                        format!("{}: {why}; name a readable program", path.display()),
                    )
                })?;
                program.install_here(&self.connection)?
            }
        };
        checked.installed.insert(key, found.clone());
        Ok(found)
    }

    /// Returns the script that runs the program there with these arguments.
    ///
    /// # Errors
    /// Returns why the host cannot be reached or used.
    pub fn script(&self, arguments: &[String]) -> Result<String, HostError> {
        self.script_of(&Side::default(), arguments)
    }

    /// Returns the script that runs the program of a side there, with its variables and these arguments.
    fn script_of(&self, side: &Side, arguments: &[String]) -> Result<String, HostError> {
        // A panic's last line is its cause.
        let mut words = vec!["RUST_BACKTRACE=0".to_owned()];
        words
            .extend(side.variables.iter().map(|(name, value)| format!("{name}={}", quoted(value))));
        words.push(quoted(&self.prepare_program(side.program.as_deref())?.path));
        words.extend(arguments.iter().map(|word| quoted(word)));
        // The shell stays, so that its exit status states a signal that ended the program.
        Ok(format!("{}; exit $?", words.join(" ")))
    }
}

impl RemoteHost for SshHost {
    fn name(&self) -> &str {
        &self.connection.host().name
    }

    fn record(&self, role: Option<&str>) -> HostRecord {
        let Host { name, ssh, cpu_list, environment, .. } = self.connection.host().clone();
        let role = role.map(str::to_owned);
        HostRecord { name, role, ssh, cpus: cpu_list, environment }
    }

    fn reconnect_time(&self) -> Duration {
        self.connection.host().reconnect
    }

    fn worker(&self, side: &Side, options: &RemoteOptions) -> Result<Command, ConnectError> {
        Ok(self.connection.command(&self.script_of(side, &options.arguments())?))
    }

    fn cpus(&self) -> &[usize] {
        &self.connection.host().cpus
    }

    fn processes(&self) -> Vec<u32> {
        self.connection.process().into_iter().collect()
    }
}
