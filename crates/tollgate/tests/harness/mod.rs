//! Test bench: runs the program in a temporary folder and tracks every process that it starts.

#![allow(dead_code, unreachable_pub, reason = "each test file uses a part")]
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

pub mod grub;
pub mod namespace;

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use lab::journal::{self, Run};
use lab::sample::{FailureKind, Sample};
use serde_json::Value;

/// Timeout of operations that are quick on an idle machine.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// Temporary folder in which the program runs.
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
            // Tests run in parallel.
            .env("TOLLGATE_LOCK", self.path().join("lock"))
            .stdin(Stdio::null());
        command
    }

    /// Returns a command with the user's cache, so that kernels are made once per machine, not once per test.
    pub fn command_with_user_cache(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(arguments);
        command.env_remove("XDG_CACHE_HOME");
        command
    }

    /// Runs the program until it exits.
    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs the program and returns its standard output.
    ///
    /// # Panics
    /// Panics if the program fails for another reason than points that are void in every round.
    #[track_caller]
    pub fn ok(&self, arguments: &[&str]) -> String {
        let adhoc = || journal::newest(&self.path().join("results/adhoc")).ok();
        let before = adhoc();
        let output = self.run(arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        // The run of the command if only samples failed: a suite's command then reports no other error.
        let measured = match arguments[0] {
            "run" if samples_failed(&errors) => {
                let mut words = arguments.iter().skip_while(|word| **word != "--results");
                let results = words.nth(1).unwrap_or(&"results");
                journal::newest(&self.path().join(results)).ok()
            }
            "compare" if samples_failed(&errors) => {
                journal::newest(&self.path().join("results/compare")).ok()
            }
            "copy" | "crossing" | "enclave" | "bounds" | "stream" if error(&errors).is_none() => {
                adhoc().filter(|folder| Some(folder) != before.as_ref())
            }
            _ => None,
        };
        let is_excused =
            || output.status.code() == Some(1) && measured.is_some_and(|it| is_busy(&it));
        assert!(
            output.status.success() || is_excused(),
            "{arguments:?}: {}\n{errors}",
            output.status
        );
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs the program, parses its standard output and validates it by its schema.
    #[track_caller]
    pub fn json(&self, arguments: &[&str]) -> Value {
        let value = serde_json::from_str(&self.ok(arguments)).unwrap();
        self.validate(schema_of(arguments), &value);
        value
    }

    /// Validates an output by the schema that the program prints.
    #[track_caller]
    pub fn validate(&self, name: &str, output: &Value) {
        let schema: Value = serde_json::from_str(&self.ok(&["schema", name])).unwrap();
        let validator = jsonschema::draft202012::new(&schema).unwrap();
        let errors = validator.iter_errors(output);
        let errors: Vec<_> = errors.map(|it| format!("{}: {it}", it.instance_path())).collect();
        assert!(errors.is_empty(), "{name}:\n{}", errors.join("\n"));
    }

    /// Runs the program, which must fail with `status`, and returns its error line.
    #[track_caller]
    pub fn refused(&self, arguments: &[&str], status: i32) -> String {
        let output = self.run(arguments);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {errors}");
        let line = errors.lines().last().unwrap_or_default().to_string();
        assert!(line.starts_with("error: "), "{errors}");
        line
    }

    /// Starts the program; it is killed when the result is dropped.
    pub fn start(&self, arguments: &[&str]) -> Started {
        let mut command = self.command(arguments);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Started::new(command)
    }

    pub fn journal(&self) -> Run {
        journal::open(&journal::newest(&self.path().join("results")).unwrap()).unwrap()
    }

    /// Returns the number of samples in the newest run.
    pub fn samples(&self) -> usize {
        let newest = journal::newest(&self.path().join("results"));
        newest
            .ok()
            .and_then(|folder| journal::open(&folder).ok())
            .map_or(0, |run| run.samples.len())
    }

    /// Waits until the newest run has a sample.
    #[track_caller]
    pub fn wait_for_sample(&self) {
        let start = Instant::now();
        while self.samples() == 0 {
            assert!(start.elapsed() < TIMEOUT, "no sample");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Returns the running processes that the program started.
    pub fn processes(&self) -> Vec<String> {
        let mut processes = Vec::new();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
            let is_started =
                environment.split(|byte| *byte == 0).any(|word| word == self.mark.as_bytes());
            // A zombie has no environment.
            if is_started {
                let words = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
                let name = entry.file_name().to_string_lossy().into_owned();
                processes
                    .push(format!("{name} {}", String::from_utf8_lossy(&words).replace('\0', " ")));
            }
        }
        processes
    }

    /// Waits until no process is left: the kernel needs a moment to end them.
    #[track_caller]
    pub fn wait_for_no_processes(&self, timeout: Duration) {
        let start = Instant::now();
        while !self.processes().is_empty() && start.elapsed() < timeout {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(self.processes(), Vec::<String>::new());
    }
}

/// Returns the name of the schema of the JSON that a command prints.
fn schema_of<'a>(arguments: &[&'a str]) -> &'a str {
    match arguments {
        ["compare", words @ ..] if words.contains(&"--run") => "compare-run",
        ["stream", "search", ..] => "suite",
        ["stream", "generate", ..] => "stream-generate",
        ["stream", "pcap", ..] => "stream-pcap",
        ["stream", ..] => "stream-application",
        ["crossing", "guest", ..] => "crossing-guest",
        ["crossing", "import", ..] => "crossing-import",
        ["copy" | "crossing" | "enclave" | "bounds", ..] => "suite",
        ["export", ..] => "export-json",
        [name, ..] => name,
        [] => panic!("no command"),
    }
}

/// Returns the error in the last line.
fn error(errors: &str) -> Option<&str> {
    errors.lines().last()?.strip_prefix("error: ")
}

/// Returns whether the only error of `tollgate run` is failed samples.
fn samples_failed(errors: &str) -> bool {
    let words = error(errors).and_then(|line| line.split_once(" failed; the journal contains "));
    let count = words.and_then(|(count, _)| count.trim_end_matches('s').strip_suffix(" sample"));
    count.is_some_and(|count| count.parse::<u64>().is_ok())
}

/// Asserts that a run succeeded, or that its only failures are points that are void in every round.
#[track_caller]
pub fn succeeded(output: &Output, folder: &Path) {
    let is_excused = || output.status.code() == Some(1) && is_busy(folder);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() || is_excused(), "{}: {errors}", output.status);
}

/// Returns whether the only failures of a run are points that are void in every round.
pub fn is_busy(folder: &Path) -> bool {
    let samples = journal::open(folder).unwrap().samples;
    let kinds: Vec<_> = samples.into_iter().filter_map(|it| Some(it.error?.kind)).collect();
    let is_excused = |kind: &FailureKind| !kind.is_fault() || *kind == FailureKind::Void;
    kinds.contains(&FailureKind::Void) && kinds.iter().all(is_excused)
}

/// Opens `/dev/full` for writing; `None`, with a note, if it cannot be opened.
pub fn full_device(test: &str) -> Option<std::fs::File> {
    let opened = std::fs::File::options().write(true).open("/dev/full");
    opened.inspect_err(|why| machine::untested::note(test, &format!("/dev/full: {why}"))).ok()
}

/// Running program, killed when dropped.
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
        // Both do nothing if the process was waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the final samples of an experiment by the level of a factor.
pub fn by_level<'a>(
    run: &'a Run,
    experiment: &str,
    factor: &str,
) -> BTreeMap<String, Vec<&'a Sample>> {
    let mut levels: BTreeMap<String, Vec<&Sample>> = BTreeMap::new();
    let samples = run.samples.iter().filter(|sample| sample.experiment == experiment);
    for sample in samples.filter(|sample| sample.is_final()) {
        levels.entry(sample.point.text(factor).to_string()).or_default().push(sample);
    }
    levels
}

/// Returns whether a sample was made: a void one was not if the clock was unusable before it.
pub fn was_made(sample: &Sample) -> bool {
    sample.void.is_none() || !sample.values.is_empty()
}

/// Builds a shared object of a C file in the folder of the bench, with further flags of the compiler.
pub fn shared_object(bench: &Bench, name: &str, source: &Path, flags: &[&str]) -> PathBuf {
    let object = bench.path().join(name);
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&object).args(flags).arg(source);
    assert!(compiler.status().unwrap().success());
    object
}

/// Writes a file in the folder of the bench.
pub fn file(bench: &Bench, name: &str, text: &str) -> PathBuf {
    let path = bench.path().join(name);
    std::fs::write(&path, text).unwrap();
    path
}
