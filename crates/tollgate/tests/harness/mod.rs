//! The program under test, in a folder of its own, with every process that it started accounted for.

#![allow(dead_code, unreachable_pub, reason = "each test file uses a part")]
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use lab::journal::{self, Run};
use lab::sample::{FailureKind, Sample};

/// How long anything may take that takes a moment on a machine of one's own.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A folder with results in which the program runs.
pub struct Bench {
    folder: tempfile::TempDir,
    mark: String,
}

impl Bench {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mark = format!("TOLLGATE_TEST={}", folder.path().display());
        Self { folder, mark }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        let (name, value) = self.mark.split_once('=').unwrap();
        command
            .args(arguments)
            .current_dir(self.path())
            .env(name, value)
            .env("XDG_CACHE_HOME", self.path().join("cache"))
            .stdin(Stdio::null());
        command
    }

    /// Runs the program to its end.
    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs the program, which must succeed but for points that a busy machine left void in every round, and
    /// returns what it printed.
    #[track_caller]
    pub fn ok(&self, arguments: &[&str]) -> String {
        let by_hand = || journal::newest(&self.path().join("results/by-hand")).ok();
        let before = by_hand();
        let output = self.run(arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        // What the command measured: a suite's own begins a new run, and says no error beside its samples'.
        let measured = match arguments[0] {
            "run" if samples_failed(&errors) => journal::newest(&self.path().join("results")).ok(),
            "copy" | "crossing" | "enclave" | "bounds" | "stream" if error(&errors).is_none() => {
                by_hand().filter(|folder| Some(folder) != before.as_ref())
            }
            _ => None,
        };
        let excused = || output.status.code() == Some(1) && measured.is_some_and(|it| is_busy(&it));
        assert!(output.status.success() || excused(), "{arguments:?}: {}\n{errors}", output.status);
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs the program, which must fail with this status and one line, and gives the line.
    #[track_caller]
    pub fn refused(&self, arguments: &[&str], status: i32) -> String {
        let output = self.run(arguments);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {errors}");
        let line = errors.lines().last().unwrap_or_default().to_string();
        assert!(line.starts_with("error: "), "{errors}");
        line
    }

    /// Starts the program, which is killed if it still runs when the answer is dropped.
    pub fn start(&self, arguments: &[&str]) -> Started {
        let mut command = self.command(arguments);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Started::new(command)
    }

    pub fn journal(&self) -> Run {
        journal::open(&journal::newest(&self.path().join("results")).unwrap()).unwrap()
    }

    /// How many samples there are so far.
    pub fn samples(&self) -> usize {
        let newest = journal::newest(&self.path().join("results"));
        newest
            .ok()
            .and_then(|folder| journal::open(&folder).ok())
            .map_or(0, |run| run.samples.len())
    }

    /// Waits until a run that was started has a sample.
    #[track_caller]
    pub fn measures(&self) {
        let begun = Instant::now();
        while self.samples() == 0 {
            assert!(begun.elapsed() < PATIENCE, "it measures nothing");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The processes that the program started and that still live.
    pub fn left(&self) -> Vec<String> {
        let mut left = Vec::new();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
            let ours =
                environment.split(|byte| *byte == 0).any(|word| word == self.mark.as_bytes());
            // A zombie has no environment left, and holds nothing.
            if ours {
                let words = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
                let name = entry.file_name().to_string_lossy().into_owned();
                left.push(format!("{name} {}", String::from_utf8_lossy(&words).replace('\0', " ")));
            }
        }
        left
    }

    /// Waits until no process is left, as the kernel needs a moment to end them, and a busy machine more.
    #[track_caller]
    pub fn nothing_is_left(&self, within: Duration) {
        let begun = Instant::now();
        while !self.left().is_empty() && begun.elapsed() < within {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(self.left(), Vec::<String>::new());
    }
}

/// What the last line says that is an error.
fn error(errors: &str) -> Option<&str> {
    errors.lines().last()?.strip_prefix("error: ")
}

/// Whether `run` says that samples failed, and nothing else.
fn samples_failed(errors: &str) -> bool {
    let words = error(errors).and_then(|line| line.split_once(" failed; the journal holds "));
    let count = words.and_then(|(count, _)| count.trim_end_matches('s').strip_suffix(" sample"));
    count.is_some_and(|count| count.parse::<u64>().is_ok())
}

/// Whether a run failed by points alone that were void in every round.
fn is_busy(folder: &Path) -> bool {
    let samples = journal::open(folder).unwrap().samples;
    let kinds: Vec<_> = samples.into_iter().filter_map(|it| Some(it.error?.kind)).collect();
    let fine = |kind: &FailureKind| !kind.is_fault() || *kind == FailureKind::Void;
    kinds.contains(&FailureKind::Void) && kinds.iter().all(fine)
}

/// `/dev/full` for writing; `None`, with a note, where it cannot be opened.
pub fn full_device(test: &str) -> Option<std::fs::File> {
    let opened = std::fs::File::options().write(true).open("/dev/full");
    opened.inspect_err(|why| machine::untested::note(test, &format!("/dev/full: {why}"))).ok()
}

/// A program that runs: also a failed assertion ends it.
pub struct Started(Child);

impl Started {
    pub fn new(mut command: Command) -> Self {
        Self(command.spawn().unwrap())
    }
}

impl Deref for Started {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Started {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // Neither does anything to one that was waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The samples of an experiment by a factor's level, without those that were tried again.
pub fn by_level<'a>(
    run: &'a Run,
    experiment: &str,
    factor: &str,
) -> BTreeMap<String, Vec<&'a Sample>> {
    let mut levels: BTreeMap<String, Vec<&Sample>> = BTreeMap::new();
    let own = run.samples.iter().filter(|sample| sample.experiment == experiment);
    for sample in own.filter(|sample| sample.is_final()) {
        levels.entry(sample.point.text(factor).to_string()).or_default().push(sample);
    }
    levels
}

/// A file in the bench's folder.
pub fn file(bench: &Bench, name: &str, text: &str) -> PathBuf {
    let path = bench.path().join(name);
    std::fs::write(&path, text).unwrap();
    path
}
