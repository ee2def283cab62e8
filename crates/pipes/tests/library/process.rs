//! The NIC and its programs as processes.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;

/// The environment variable that holds the arguments of a child process that runs the command.
pub(crate) const WORDS: &str = "TOLLGATE_TEST_WORDS";

/// Reserves the CPUs for a test, since NIC and programs never sleep. Returns `None`, with a record, if there is only one.
pub(crate) fn alone() -> Option<MutexGuard<'static, ()>> {
    static ALONE: Mutex<()> = Mutex::new(());
    if machine::topology::allowed_cpus().len() < 2 {
        machine::untested::note("programs in C, Python and Rust with a NIC", &"requires two CPUs");
        return None;
    }
    Some(ALONE.lock().unwrap_or_else(PoisonError::into_inner))
}

/// A running process. It is killed if a test fails.
pub(crate) struct Running {
    child: Child,
    errors: BufReader<ChildStderr>,
}

impl Running {
    /// Starts a program in a folder.
    pub(crate) fn start(folder: &Path, command: &mut Command) -> Self {
        // Cargo's path may have the library of an older build, which `cargo build` made.
        command.env_remove("LD_LIBRARY_PATH");
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = pipes.current_dir(folder).spawn().unwrap();
        let errors = BufReader::new(child.stderr.take().unwrap());
        Self { child, errors }
    }

    /// Waits for a line that contains a text.
    pub(crate) fn says(&mut self, what: &str) {
        let mut all = String::new();
        while !all.lines().next_back().is_some_and(|line| line.contains(what)) {
            assert!(self.errors.read_line(&mut all).unwrap() > 0, "no '{what}' in {all}");
        }
    }

    /// Writes a line to the standard input.
    pub(crate) fn tell(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    pub(crate) fn signal(&self, signal: i32) {
        // SAFETY: the process is a child for which no thread has waited.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, signal) }, 0);
    }

    /// Waits for the end. Returns the status, stdout and stderr.
    pub(crate) fn ends(mut self) -> (ExitStatus, String, String) {
        let (mut out, mut errors) = (String::new(), String::new());
        drop(self.child.stdin.take());
        let mut stdout = self.child.stdout.take().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| stdout.read_to_string(&mut out).unwrap());
            self.errors.read_to_string(&mut errors).unwrap();
        });
        (self.child.wait().unwrap(), out, errors)
    }

    /// Waits for a successful end. Returns stdout.
    pub(crate) fn succeeds(self) -> String {
        let (status, out, errors) = self.ends();
        assert!(status.success(), "{status}: {out}{errors}");
        out
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.child.kill();
        }
    }
}

/// The arguments `words` of `tollgate stream` in a child process.
pub(crate) fn stream(words: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "the_command", "--ignored", "--nocapture"]);
    command.env(WORDS, words.split_whitespace().collect::<Vec<_>>().join("\n"));
    command
}

/// A NIC with a generator, which waits for a program.
pub(crate) struct Nic {
    running: Running,
}

/// The file name of the NIC's socket.
pub(crate) const SOCKET: &str = "nic";

impl Nic {
    /// Starts a NIC in a folder that replays sample traffic with this name.
    pub(crate) fn start(folder: &Path, sample: &str, words: &str) -> Self {
        Running::start(folder, &mut stream(&format!("pcap {sample}"))).succeeds();
        let words = format!("generate {sample} {words} --nic {SOCKET} --json");
        let mut running = Running::start(folder, &mut stream(&words));
        running.says("NIC at");
        Self { running }
    }

    /// Waits until packets are being sent, for at least a second.
    pub(crate) fn sends(&mut self) {
        self.running.says(" s  sent");
    }

    pub(crate) fn signal(&self, signal: i32) {
        self.running.signal(signal);
    }

    pub(crate) fn kill(self) {
        self.signal(libc::SIGKILL);
        self.running.ends();
    }

    /// Interrupts the NIC. Returns its result.
    pub(crate) fn interrupt(self) -> Value {
        self.signal(libc::SIGINT);
        self.result()
    }

    /// Waits for the end of the traffic. Returns the result.
    pub(crate) fn result(self) -> Value {
        let out = self.running.succeeds();
        let line = out.lines().find(|line| line.starts_with('{'));
        serde_json::from_str(line.unwrap_or_else(|| panic!("{out}"))).unwrap()
    }
}

/// Asserts that all of `packets` packets were echoed as expected.
pub(crate) fn all_echoed(result: &Value, packets: u64) {
    let of = |name: &str| result[name].as_u64().unwrap_or_else(|| panic!("{name} of {result}"));
    let counts = ["sent", "received", "lost", "corrupted", "late"].map(of);
    assert_eq!(counts, [packets, packets, 0, 0, 0], "{result}");
}
