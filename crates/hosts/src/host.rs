//! A host as the lab uses it: its workers are sessions of one connection.

use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lab::host::{ConnectError, HostRecord, RemoteHost, RemoteOptions};

use crate::config::Host;
use crate::error::HostError;
use crate::program::{Installed, Program};
use crate::script::quoted;
use crate::ssh::Connection;

/// A host over SSH, with this program on it.
pub struct SshHost {
    connection: Connection,
    program: Arc<Program>,
    /// The program there; `None` until it was checked.
    installed: Mutex<Option<Installed>>,
}

impl SshHost {
    /// Creates a host to which there is no connection yet.
    ///
    /// # Errors
    /// Returns one line if there is no private folder for the connection.
    pub fn new(host: Host, program: Arc<Program>) -> Result<Self, HostError> {
        Ok(Self { connection: Connection::new(host)?, program, installed: Mutex::new(None) })
    }

    /// Returns its connection.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Connects unless there is a connection, and installs the program unless it was checked before.
    ///
    /// # Errors
    /// Returns why the host cannot be reached or used.
    pub fn prepare(&self) -> Result<Installed, HostError> {
        self.connection.open()?;
        let mut installed = self.installed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(installed) = &*installed {
            return Ok(installed.clone());
        }
        let found = self.program.install(&self.connection)?;
        *installed = Some(found.clone());
        Ok(found)
    }

    /// Returns the script that runs the program there with these arguments.
    ///
    /// # Errors
    /// Returns why the host cannot be reached or used.
    pub fn script(&self, arguments: &[String]) -> Result<String, HostError> {
        let mut words = vec![quoted(&self.prepare()?.path)];
        words.extend(arguments.iter().map(|word| quoted(word)));
        // The shell stays, so that its exit status states a signal that ended the program. A panic's last line is its cause.
        Ok(format!("RUST_BACKTRACE=0 {}; exit $?", words.join(" ")))
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

    fn worker(&self, options: &RemoteOptions) -> Result<Command, ConnectError> {
        Ok(self.connection.command(&self.script(&options.arguments())?))
    }

    fn cpus(&self) -> &[usize] {
        &self.connection.host().cpus
    }

    fn processes(&self) -> Vec<u32> {
        self.connection.process().into_iter().collect()
    }
}
