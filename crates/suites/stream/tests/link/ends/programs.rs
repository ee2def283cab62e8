//! Programs in network namespaces, and the kernel's counts of their packets.

use std::io::Read;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use stream::link::namespace::Namespace;

use crate::processes::confine;

/// A running program, killed when dropped.
pub(crate) struct Program(Child);

impl Program {
    /// Starts a program that serves until it is killed.
    pub(crate) fn start(namespace: &Namespace, command: &mut Command) -> Self {
        confine(command, Some(namespace));
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        Self(child.spawn().unwrap())
    }

    /// Waits until it accepts TCP connections at a port.
    pub(crate) fn listens(mut self, namespace: &Namespace, port: u16) -> Self {
        let start = Instant::now();
        while !namespace.run(|| is_listening(port)).unwrap() {
            if let Some(status) = self.0.try_wait().unwrap() {
                let mut errors = String::new();
                self.0.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
                panic!("{status}: {errors}");
            }
            assert!(start.elapsed() < Duration::from_secs(30), "nothing listens at port {port}");
            std::thread::sleep(Duration::from_millis(20));
        }
        self
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Fails if it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns whether a socket of this thread's namespace listens at a port.
fn is_listening(port: u16) -> bool {
    let sockets = std::fs::read_to_string("/proc/thread-self/net/tcp").unwrap();
    let (local, listens) = (format!(":{port:04X}"), "0A");
    sockets.lines().skip(1).any(|socket| {
        let mut fields = socket.split_whitespace().skip(1);
        fields.next().is_some_and(|address| address.ends_with(&local))
            && fields.nth(1) == Some(listens)
    })
}

/// Runs a program to its end.
pub(crate) fn run(namespace: &Namespace, command: &mut Command) -> Output {
    confine(command, Some(namespace));
    command.stdin(Stdio::null()).output().unwrap()
}

/// Runs a program, whose arguments are separated by spaces, and returns what it prints.
///
/// # Errors
/// Returns the command and what it printed if it fails.
pub(crate) fn attempt(namespace: &Namespace, words: &str) -> Result<String, String> {
    let mut parts = words.split(' ');
    let mut command = Command::new(parts.next().unwrap());
    let output = run(namespace, command.args(parts));
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout).unwrap()),
        false => Err(format!("{words}: {output:?}")),
    }
}

/// Like [`attempt`], for a program that does not fail.
pub(crate) fn succeeds(namespace: &Namespace, words: &str) -> String {
    attempt(namespace, words).unwrap()
}

/// Returns a count of the kernel in a namespace, e.g. `InCsumErrors` of `Tcp`.
pub(crate) fn kernel_count(namespace: &Namespace, protocol: &str, name: &str) -> u64 {
    let read = || std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
    let text = namespace.run(read).unwrap();
    let prefix = format!("{protocol}: ");
    let lines: Vec<_> = text.lines().filter_map(|line| line.strip_prefix(&prefix)).collect();
    let [names, values] = lines[..] else { panic!("{protocol} of {text}") };
    let mut pairs = names.split(' ').zip(values.split(' '));
    let found =
        pairs.find(|(each, _)| *each == name).unwrap_or_else(|| panic!("{name} of {names}"));
    found.1.parse().unwrap()
}
