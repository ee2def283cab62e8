//! A connection to a host: one process of the system's `ssh` keeps it open, and each command there is a session of it.
//!
//! The user's configuration, agent and known hosts are used. No question is ever asked, and an unknown host key is refused
//! even if the user's configuration accepts it: what is measured on another machine than the user means is worthless.

use std::fs;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use machine::child::{complete_within, die_with_parent, is_interrupted, run_within, wait_within};
use machine::user;
use rustix::process::{Pid, Signal, kill_process};

use crate::config::Host;
use crate::error::{HostError, last_line};
use crate::script;

/// Options that the user's configuration does not change.
const OPTIONS: [&str; 14] = [
    "BatchMode=yes",
    "StrictHostKeyChecking=yes",
    // Either would accept a key that is not among the known ones.
    "VerifyHostKeyDNS=no",
    "NoHostAuthenticationForLocalhost=no",
    "UpdateHostKeys=no",
    "ConnectTimeout=10",
    // A dead connection is noticed after 15 s, before the worker's time limit for a sample.
    "ServerAliveInterval=5",
    "ServerAliveCountMax=3",
    "ClearAllForwardings=yes",
    "ForwardAgent=no",
    "ForwardX11=no",
    "PermitLocalCommand=no",
    "RemoteCommand=none",
    "RequestTTY=no",
];
/// Options likewise, of OpenSSH 8.7 and later: an older client does not know them, and its configuration has none of them.
const NEWER_OPTIONS: [&str; 2] = ["ForkAfterAuthentication=no", "StdinNull=no"];
/// Likewise, for commands: the master has no session.
const SESSION: &str = "SessionType=default";
/// The exit status of `ssh` if it fails itself.
const SSH_FAILED: i32 = 255;
/// The maximum time of a connection, with the login.
const MAX_CONNECT: Duration = Duration::from_secs(30);
/// How often a new connection is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// The time limit of a call of `ssh` that makes no connection.
const MAX_LOCAL: Duration = Duration::from_secs(10);
/// The time for `ssh` to close a connection.
const MAX_CLOSE: Duration = Duration::from_secs(1);
/// The maximum length of a socket's path, in bytes: the limit of Linux less what `ssh` appends while it creates it.
const MAX_SOCKET: usize = 88;
/// The maximum of kept standard error, in bytes.
const MAX_ERRORS: usize = 16 << 10;

/// A connection to a host, which is opened when it is needed and closed when dropped.
pub struct Connection {
    host: Host,
    socket: PathBuf,
    master: Mutex<Option<Master>>,
    /// How often it was opened.
    openings: AtomicU32,
}

/// The process of `ssh` that keeps a connection open.
struct Master {
    process: Child,
    /// The start of its standard error.
    errors: Arc<Mutex<Vec<u8>>>,
    /// Ends with the standard error.
    reader: Option<std::thread::JoinHandle<()>>,
}

impl Connection {
    /// Creates a connection that is not open yet.
    ///
    /// # Errors
    /// Returns one line if there is no private folder for its socket.
    pub fn new(host: Host) -> Result<Self, HostError> {
        let folder = private_folder().map_err(|why| HostError::new(&host, why))?;
        remove_stale(&folder);
        static SOCKETS: AtomicU32 = AtomicU32::new(0);
        let number = SOCKETS.fetch_add(1, Ordering::Relaxed);
        Ok(Self::at(host, folder.join(format!("{}-{number}", std::process::id()))))
    }

    fn at(host: Host, socket: PathBuf) -> Self {
        Self { host, socket, master: Mutex::new(None), openings: AtomicU32::new(0) }
    }

    /// Returns its host.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Returns the process that keeps it open.
    pub fn process(&self) -> Option<u32> {
        self.lock().as_ref().map(|master| master.process.id())
    }

    /// Returns how often it was opened: what was found there before may have changed since.
    pub(crate) fn openings(&self) -> u32 {
        self.openings.load(Ordering::Relaxed)
    }

    /// Opens the connection unless it is open. It ends with the thread that opens it.
    ///
    /// # Errors
    /// Returns why the host cannot be reached, refuses the login, or is not known.
    pub fn open(&self) -> Result<(), HostError> {
        let mut master = self.lock();
        if master.as_mut().is_some_and(Master::is_alive) {
            return Ok(());
        }
        *master = None;
        // A killed process leaves its socket.
        let _ = fs::remove_file(&self.socket);
        let mut opened = self.start_master()?;
        let start = Instant::now();
        // ssh creates the socket after the login.
        while !self.socket.exists() {
            if !opened.is_alive() {
                return Err(HostError::of_ssh(&self.host, &opened.all_errors()));
            }
            if is_interrupted() {
                return Err(HostError::new(&self.host, "interrupted"));
            }
            if start.elapsed() > MAX_CONNECT {
                let why = format!("no login within {} s", MAX_CONNECT.as_secs());
                return Err(HostError { is_temporary: true, ..HostError::new(&self.host, why) });
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        *master = Some(opened);
        self.openings.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the command that runs a script of `/bin/sh` there. The connection must be open.
    pub fn command(&self, script: &str) -> Command {
        let mut command = self.ssh("no");
        if knows_newer_options() {
            command.args(["-o", SESSION]);
        }
        command.args(["--", &self.host.ssh]).arg(script::command(&self.host.environment, script));
        command
    }

    /// Runs a script there to its end and returns its standard output.
    ///
    /// # Errors
    /// Returns why the host cannot be reached, or the last line of the script's standard error.
    pub fn output(&self, script: &str, input: &[u8], limit: Duration) -> Result<String, HostError> {
        let output = self.run(script, input, limit)?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let errors = String::from_utf8_lossy(&output.stderr);
        Err(match (output.status.code(), last_line(&errors).as_str()) {
            (Some(SSH_FAILED), _) => HostError::of_ssh(&self.host, &errors),
            (_, "") => HostError::new(&self.host, machine::child::describe(output.status)),
            (_, line) => HostError::new(&self.host, line),
        })
    }

    /// Runs a script there to its end.
    ///
    /// # Errors
    /// Returns why the host cannot be reached, or that the script takes too long.
    pub fn run(&self, script: &str, input: &[u8], limit: Duration) -> Result<Output, HostError> {
        self.open()?;
        let mut command = self.command(script);
        command.stdin(if input.is_empty() { Stdio::null() } else { Stdio::piped() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        run_within(&mut command, input, limit).map_err(|why| self.not_run(&why))
    }

    /// Closes the connection, and with it all commands there.
    pub fn close(&self) {
        let mut master = self.lock();
        if self.socket.exists() {
            // Whichever process holds the connection, e.g. if a wrapper of ssh started it.
            let mut command = self.ssh("no");
            command.args(["-O", "exit", "--", &self.host.ssh]);
            let _ = complete_within(&mut command, &[], MAX_CLOSE);
        }
        *master = None;
        let _ = fs::remove_file(&self.socket);
    }

    fn start_master(&self) -> Result<Master, HostError> {
        let mut command = self.ssh("yes");
        // -N: no command.
        command.args(["-N", "--", &self.host.ssh]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        // Ctrl-C reaches this program only.
        command.process_group(0);
        die_with_parent(&mut command);
        let mut process = command.spawn().map_err(|why| self.not_run(&why))?;
        let errors = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&errors);
        let reader = process
            .stderr
            .take()
            .map(|output| std::thread::spawn(move || keep_start(output, &kept)));
        Ok(Master { process, errors, reader })
    }

    /// Returns `ssh` with its options, up to the host.
    fn ssh(&self, is_master: &str) -> Command {
        let mut command = Command::new("ssh");
        if let Some(config) = &self.host.ssh_config {
            command.arg("-F").arg(config);
        }
        OPTIONS.iter().for_each(|option| {
            command.args(["-o", option]);
        });
        if knows_newer_options() {
            NEWER_OPTIONS.iter().for_each(|option| {
                command.args(["-o", option]);
            });
        }
        command.args(["-o", &format!("ControlMaster={is_master}"), "-o", "ControlPersist=no"]);
        // ssh expands % in it.
        let socket = self.socket.to_string_lossy().replace('%', "%%");
        command.args(["-o", &format!("ControlPath={socket}"), "-T"]);
        command
    }

    fn not_run(&self, why: &io::Error) -> HostError {
        let why = match why.kind() {
            ErrorKind::NotFound => "ssh is not installed; install openssh-client".into(),
            _ => format!("ssh: {why}"),
        };
        HostError::new(&self.host, why)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Master>> {
        self.master.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.close();
    }
}

impl Master {
    fn is_alive(&mut self) -> bool {
        matches!(self.process.try_wait(), Ok(None))
    }

    /// Returns the standard error of a process that has ended.
    fn all_errors(&mut self) -> String {
        let _ = self.reader.take().map(std::thread::JoinHandle::join);
        let errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&errors).into_owned()
    }
}

impl Drop for Master {
    fn drop(&mut self) {
        // By SIGTERM it closes its sessions and removes its socket. It is not reaped yet, so its ID is not that of another.
        if self.is_alive() {
            let _ = kill_process(Pid::from_child(&self.process), Signal::TERM);
        }
        if !matches!(wait_within(&mut self.process, MAX_CLOSE), Ok(Some(_))) {
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }
}

/// Returns whether the client knows [`NEWER_OPTIONS`]. `IgnoreUnknown` would replace that of the user's configuration.
fn knows_newer_options() -> bool {
    static KNOWS: OnceLock<bool> = OnceLock::new();
    *KNOWS.get_or_init(|| {
        let mut command = Command::new("ssh");
        // -G prints the configuration and does not connect.
        command.args(["-G", "-F", "none", "-o", SESSION]);
        NEWER_OPTIONS.iter().for_each(|option| {
            command.args(["-o", option]);
        });
        let output = complete_within(command.arg("localhost"), &[], MAX_LOCAL);
        output.is_ok_and(|output| output.status.success())
    })
}

/// Reads to the end and keeps the start.
fn keep_start(mut output: impl Read, kept: &Mutex<Vec<u8>>) {
    let mut chunk = [0; 4096];
    while let Ok(length @ 1..) = output.read(&mut chunk) {
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        let room = MAX_ERRORS.saturating_sub(kept.len());
        kept.extend(&chunk[..length.min(room)]);
    }
}

/// Returns the folder of sockets, in which no other user can place one: in the runtime folder of the user's session, or in
/// `/tmp`.
fn private_folder() -> Result<PathBuf, String> {
    let session = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let session = session.filter(|folder| folder.is_absolute()).map(|it| it.join("tollgate-ssh"));
    // A longer path is no socket's.
    let fits = |folder: &PathBuf| folder.as_os_str().len() + "/4194304-999".len() <= MAX_SOCKET;
    let in_session = session.filter(fits).filter(|folder| secure(folder).is_ok());
    if let Some(folder) = in_session {
        return Ok(folder);
    }
    let folder = Path::new("/tmp").join(format!("tollgate-ssh-{}", user::id()));
    secure(&folder).map_err(|why| {
        let path = folder.display();
        format!(
            "no private folder for its connection: {path}: {why}; remove it, or set XDG_RUNTIME_DIR"
        )
    })?;
    Ok(folder)
}

/// Creates a folder, or checks that it is this user's only.
fn secure(folder: &Path) -> Result<(), String> {
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(why) if why.kind() != ErrorKind::AlreadyExists => return Err(why.to_string()),
        Ok(()) | Err(_) => {}
    }
    let found = fs::symlink_metadata(folder).map_err(|why| why.to_string())?;
    if !found.is_dir() {
        return Err("it is not a folder".into());
    }
    if found.uid() != user::id() {
        return Err(format!("it belongs to the user {}", found.uid()));
    }
    if found.mode() & 0o077 != 0 {
        return Err("other users may use it".into());
    }
    Ok(())
}

/// Removes the sockets of processes that were killed.
fn remove_stale(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.split('-').next()?.parse::<u32>().ok());
        if process.is_some_and(|process| !Path::new("/proc").join(process.to_string()).exists()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_folder_of_sockets_is_private() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        secure(&at("new")).unwrap();
        assert_eq!(fs::metadata(at("new")).unwrap().mode() & 0o777, 0o700);
        secure(&at("new")).unwrap();
        fs::set_permissions(at("new"), fs::Permissions::from_mode(0o750)).unwrap();
        assert_eq!(secure(&at("new")), Err("other users may use it".into()));
        symlink("/tmp", at("link")).unwrap();
        assert_eq!(secure(&at("link")), Err("it is not a folder".into()));
        assert!(secure(&at("absent/new")).is_err());
    }

    #[test]
    fn sockets_of_killed_processes_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let mut ended = Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        let names = [format!("{}-0", ended.id()), format!("{}-1", std::process::id()), "x".into()];
        names.iter().for_each(|name| fs::write(folder.path().join(name), "").unwrap());
        remove_stale(folder.path());
        let left: Vec<_> = names.iter().map(|name| folder.path().join(name).exists()).collect();
        assert_eq!(left, [false, true, true]);
    }

    #[test]
    fn the_host_is_one_argument_after_all_options() {
        let connection = Connection::at(Config::default().host("dut").unwrap(), "/run/x%y".into());
        let command = connection.command("echo 'x'");
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
        let [.., end, host, script] = words.as_slice() else { panic!("{words:?}") };
        assert_eq!((end.as_ref(), host.as_ref()), ("--", "dut"));
        assert_eq!(script, r"/bin/sh -c 'echo '\''x'\'''");
        let options = [
            "BatchMode=yes",
            "StrictHostKeyChecking=yes",
            "VerifyHostKeyDNS=no",
            "NoHostAuthenticationForLocalhost=no",
            "ControlMaster=no",
            "ControlPath=/run/x%%y",
        ];
        for option in options {
            assert!(words.iter().any(|word| word == option), "{words:?}");
        }
    }
}
