//! Processes that run the suite's command in a network namespace.

use std::io::{BufRead, BufReader, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};

use lab::suite::{Lab, SuiteCommand, UsageError};
use rustix::process::Signal;
use rustix::thread::{CapabilitySet, CapabilitySets, LinkNameSpaceType};
use serde_json::Value;
use stream::link::namespace::Namespace;

static LAB: Lab = Lab { suites: &[&stream::SUITE], version: "test" };

/// The environment variable that holds the arguments of a child process that runs the command.
const WORDS: &str = "TOLLGATE_TEST_WORDS";
/// The environment variable by which the child drops its rights.
const NO_RIGHTS: &str = "TOLLGATE_TEST_NO_RIGHTS";

#[test]
#[ignore = "what the other tests start in a separate process"]
fn the_command() {
    let Ok(words) = std::env::var(WORDS) else { return };
    if std::env::var_os(NO_RIGHTS).is_some() {
        let none = CapabilitySet::empty();
        let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
        rustix::thread::set_capabilities(None, sets).unwrap();
    }
    let SuiteCommand { command, run } = stream::SUITE.command().unwrap();
    let words = std::iter::once("stream").chain(words.split('\n'));
    let ended = command()
        .try_get_matches_from(words)
        .map_err(Into::into)
        .and_then(|matches| run(&matches, &LAB));
    let status = ended.unwrap_or_else(|why| {
        eprintln!("error: {why}");
        // As `main` does.
        if why.is::<UsageError>() || why.is::<clap::Error>() { 2 } else { 1 }
    });
    std::process::exit(status);
}

/// Has a command run in a namespace, or in that of this process, and end with the thread that starts it.
pub(crate) fn confine(command: &mut Command, namespace: Option<&Namespace>) {
    let fd = namespace.map(|namespace| namespace.as_fd().as_raw_fd());
    let enter = move || {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        let Some(fd) = fd else { return Ok(()) };
        // SAFETY: the namespace outlives the start of the child, which has the same descriptors.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        let kind = Some(LinkNameSpaceType::Network);
        Ok(rustix::thread::move_into_link_name_space(fd, kind)?)
    };
    // SAFETY: the function only makes system calls.
    unsafe { command.pre_exec(enter) };
}

/// Returns a command that runs an ignored test.
fn test(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--ignored", "--nocapture"]);
    command
}

/// A running command, killed when dropped.
pub(crate) struct Running {
    child: Child,
    errors: BufReader<ChildStderr>,
}

impl Running {
    /// Starts a command in a namespace and a folder; its arguments are separated by spaces.
    pub(crate) fn start(namespace: Option<&Namespace>, folder: &Path, words: &str) -> Self {
        Self::start_with(namespace, folder, words.split_whitespace(), false)
    }

    /// Starts a command whose last argument contains spaces.
    #[cfg(feature = "dpdk")]
    pub(crate) fn start_and(
        namespace: Option<&Namespace>,
        folder: &Path,
        words: &str,
        last: &str,
    ) -> Self {
        Self::start_with(namespace, folder, words.split_whitespace().chain([last]), false)
    }

    /// Returns the number of the process.
    #[cfg(feature = "dpdk")]
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Starts a command without any rights in this process's namespace.
    pub(crate) fn start_without_rights(folder: &Path, words: &str) -> Self {
        Self::start_with(None, folder, words.split_whitespace(), true)
    }

    fn start_with<'a>(
        namespace: Option<&Namespace>,
        folder: &Path,
        words: impl Iterator<Item = &'a str>,
        no_rights: bool,
    ) -> Self {
        let mut command = test("processes::the_command");
        command.env(WORDS, words.collect::<Vec<_>>().join("\n"));
        command.current_dir(folder);
        if no_rights {
            command.env(NO_RIGHTS, "yes");
        }
        Self::spawn(&mut command, namespace)
    }

    /// Starts an ignored test in a separate process, with an environment variable.
    pub(crate) fn start_test(name: &str, (variable, value): (&str, &Path)) -> Self {
        Self::spawn(test(name).env(variable, value), None)
    }

    fn spawn(command: &mut Command, namespace: Option<&Namespace>) -> Self {
        confine(command, namespace);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let errors = BufReader::new(child.stderr.take().unwrap());
        Self { child, errors }
    }

    /// Waits for a line that contains a string, and returns it.
    pub(crate) fn says(&mut self, what: &str) -> String {
        let mut all = String::new();
        loop {
            let mut line = String::new();
            assert!(self.errors.read_line(&mut line).unwrap() > 0, "no '{what}' in {all}");
            if line.contains(what) {
                return line;
            }
            all += &line;
        }
    }

    pub(crate) fn signal(&self, signal: i32) {
        // SAFETY: the process is a child that nothing has waited for.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, signal) }, 0);
    }

    /// Waits for the end. Returns the status, stdout and stderr.
    pub(crate) fn ends(mut self) -> (ExitStatus, String, String) {
        let (mut output, mut errors) = (String::new(), String::new());
        // Neither fills a pipe.
        self.child.stdout.take().unwrap().read_to_string(&mut output).unwrap();
        self.errors.read_to_string(&mut errors).unwrap();
        (self.child.wait().unwrap(), output, errors)
    }

    /// Waits for the end with this status. Returns the printed JSON.
    pub(crate) fn ends_with_json(self, with: i32) -> Value {
        let (status, output, errors) = self.ends();
        assert_eq!(status.code(), Some(with), "{errors}{output}");
        let line = output.lines().find(|line| line.starts_with('{'));
        serde_json::from_str(line.unwrap_or_else(|| panic!("{output}"))).unwrap()
    }

    /// Interrupts it. Returns the printed JSON.
    pub(crate) fn interrupted(self) -> Value {
        self.signal(libc::SIGINT);
        self.ends_with_json(0)
    }

    /// Kills it, and waits for its end.
    pub(crate) fn killed(self) {
        self.signal(libc::SIGKILL);
        assert!(!self.ends().0.success());
    }

    /// Waits for the end with this status and one line of error.
    pub(crate) fn refused(self, with: i32) -> String {
        let (status, _, errors) = self.ends();
        assert_eq!(status.code(), Some(with), "{errors}");
        let lines: Vec<_> = errors.lines().filter(|line| !line.trim().is_empty()).collect();
        assert_eq!(lines.len(), 1, "{errors}");
        lines[0].to_owned()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Fails if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
