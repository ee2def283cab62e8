//! A link: a child process that exchanges messages with this process over its standard input and output.

use std::io::{BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use machine::child::{die_with_parent, wait_within};
use machine::environment::{Environment, program_hash};

use crate::console::{CauseOfDeath, is_kvm_error, kvm_failure, start_of_line};
use crate::guest::BootCommand;
use crate::host::HEARTBEAT_INTERVAL;
use crate::message::{Answer, Greeting, Outbox, PROTOCOL, Request, receive};
use crate::quantity::format_duration;
use crate::sample::{Failure, FailureKind, Sample};

/// The arguments that make the program a worker.
pub const WORKER: [&str; 1] = ["worker"];
/// The arguments that make the program a probe.
pub(crate) const PROBE: [&str; 2] = ["worker", "--probe"];

/// The file of the program of this process, even if it was replaced since.
const THIS_PROGRAM: &str = "/proc/self/exe";
/// The maximum time between the end of a process's output and its exit.
const MAX_EXIT_TIME: Duration = Duration::from_millis(500);
/// The maximum time between the exit of a process and the end of its standard error, which a process that it left behind
/// may keep open.
const MAX_ERRORS_TIME: Duration = Duration::from_secs(5);
/// The exit status of `ssh` if the connection cannot be made or is lost.
const SSH_FAILED: i32 = 255;

/// Message or event received over a link.
#[derive(Debug)]
pub(crate) enum Output {
    /// A message.
    Answer(Answer),
    /// A line that is not a message, or another failure. The link is not read any further.
    Invalid(String),
    /// The end of the process's output.
    Closed,
}

/// An output and the link that it arrived over.
#[derive(Debug)]
pub(crate) struct LinkOutput {
    pub(crate) link: u64,
    pub(crate) output: Output,
}

/// The host and the environment of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Origin {
    /// The host name.
    pub(crate) host: String,
    /// The id of the environment.
    pub(crate) environment: String,
}

impl Origin {
    /// Returns the origin of a process that runs in this environment.
    pub(crate) fn of(environment: &Environment) -> Self {
        Self { host: environment.hostname.clone(), environment: environment.id() }
    }
}

/// The build of a program. All processes of a run, or of one side of a comparison, must be of one build, because they
/// measure with their own code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Build {
    version: String,
    hash: Option<String>,
}

impl Build {
    /// Returns the build of the program that runs in this environment.
    pub(crate) fn of(environment: &Environment) -> Self {
        let Environment { program_version, program_hash, .. } = environment;
        Self { version: program_version.clone(), hash: program_hash.clone() }
    }

    /// Returns the build of this process.
    pub(crate) fn current() -> Self {
        Self { version: env!("CARGO_PKG_VERSION").into(), hash: program_hash() }
    }

    /// Checks that a process has this build.
    fn check(&self, other: &Self) -> Result<(), String> {
        let version = &self.version;
        if other.version != *version {
            let theirs: String = other.version.chars().take(60).collect();
            return Err(format!(
                "it runs tollgate {theirs} instead of {version}; install this one"
            ));
        }
        if other.hash != self.hash {
            return Err(format!("it runs another build of tollgate {version}; install this one"));
        }
        Ok(())
    }
}

/// A running child process with its pipes.
pub(crate) struct Link {
    id: u64,
    /// The name of the process in errors, e.g. `the worker`.
    name: String,
    child: Child,
    /// `None` after the input was closed.
    input: Option<Outbox>,
    cause: Arc<Mutex<CauseOfDeath>>,
    /// Disconnected at the end of the standard error.
    errors_end: mpsc::Receiver<()>,
    origin: Option<Origin>,
    /// The time of the start or of the last output.
    heartbeat: Instant,
    /// Whether the process is a connection to a worker on another host.
    is_remote: bool,
    /// Whether that connection was lost.
    is_disconnected: bool,
}

impl Link {
    /// Starts a process, `name` in errors, and forwards its output to `outputs`, marked with `id`. A line of its
    /// standard error is kept as the cause of its death.
    ///
    /// # Errors
    /// Returns the error of the system if the process does not start.
    pub(crate) fn start<E>(
        id: u64,
        name: impl Into<String>,
        command: impl Into<BootCommand>,
        outputs: SyncSender<E>,
    ) -> std::io::Result<Self>
    where
        E: From<LinkOutput> + Send + 'static,
    {
        let BootCommand { mut command, held, kvm_remedy, log } = command.into();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        drop(held);
        let (Some(input), Some(output), Some(errors)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(std::io::Error::other("the process has no pipes"));
        };
        let failures = outputs.clone();
        std::thread::spawn(move || forward(id, output, &outputs));
        let cause = Arc::new(Mutex::new(CauseOfDeath::default()));
        let kept = Arc::clone(&cause);
        let (errors_open, errors_end) = mpsc::channel();
        let is_remote = log.is_some();
        std::thread::spawn(move || {
            keep_cause(errors, &kept, |line| {
                if let Some(log) = &log {
                    log.add(line);
                }
                // QEMU neither ends nor closes its output.
                let Some(remedy) = kvm_remedy.filter(|_| is_kvm_error(line)) else { return };
                let output = Output::Invalid(kvm_failure(line, remedy));
                let _ = failures.send(E::from(LinkOutput { link: id, output }));
            });
            drop(errors_open);
        });
        Ok(Self {
            id,
            name: name.into(),
            child,
            input: Some(match is_remote {
                true => Outbox::with_heartbeat(input, HEARTBEAT_INTERVAL),
                false => Outbox::new(input),
            }),
            cause,
            errors_end,
            origin: None,
            heartbeat: Instant::now(),
            is_remote,
            is_disconnected: false,
        })
    }

    /// Returns the number that marks its outputs.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Returns the process ID.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Returns the identity of the other side; `None` before its greeting.
    pub(crate) fn origin(&self) -> Option<&Origin> {
        self.origin.as_ref()
    }

    /// Accepts the greeting of the other side.
    ///
    /// # Errors
    /// Returns `failed` if it is the second greeting, or the other side exchanges other messages or does not run
    /// `build`; `None` permits any build.
    pub(crate) fn accept_greeting(
        &mut self,
        greeting: &Greeting,
        build: Option<&Build>,
    ) -> Result<(), Failure> {
        if self.origin.is_some() {
            return Err(self.failure("it sent a second greeting"));
        }
        let Greeting { protocol, environment } = greeting;
        if *protocol != PROTOCOL {
            let why = format!("its messages have version {protocol} instead of {PROTOCOL}");
            return Err(self.failure(why));
        }
        let checked = build.map_or(Ok(()), |build| build.check(&Build::of(environment)));
        checked.map_err(|why| self.failure(why))?;
        self.origin = Some(Origin::of(environment));
        Ok(())
    }

    /// Returns the message of an output.
    ///
    /// # Errors
    /// Returns `failed` if the output is not a message, and `crashed` with the cause if the process closed it.
    pub(crate) fn answer(&mut self, output: Output) -> Result<Answer, Failure> {
        match output {
            Output::Answer(answer) => Ok(answer),
            Output::Invalid(what) => Err(self.failure(what)),
            Output::Closed => Err(self.cause_of_death()),
        }
    }

    /// Returns a failure of this process.
    pub(crate) fn failure(&self, why: impl std::fmt::Display) -> Failure {
        Failure::failed(format!("{}: {why}", self.name))
    }

    /// Returns a failure because this process did not answer in time.
    pub(crate) fn timeout(&self, limit: Duration) -> Failure {
        let why = format!("{}: no answer within {}", self.name, format_duration(limit));
        Failure::new(FailureKind::Timeout, why)
    }

    /// Returns a failure because this process sent messages, but no sample in time.
    pub(crate) fn too_long(&self, limit: Duration) -> Failure {
        let why = format!("{}: no sample within {}", self.name, format_duration(limit));
        Failure::new(FailureKind::Timeout, why)
    }

    /// Checks that a sample is from the host and environment of the greeting.
    ///
    /// # Errors
    /// Returns `failed` with both.
    pub(crate) fn check_origin(&self, sample: &Sample) -> Result<(), Failure> {
        let Some(origin) = &self.origin else { return Err(self.failure("it sent no greeting")) };
        if (&sample.host, &sample.environment) == (&origin.host, &origin.environment) {
            return Ok(());
        }
        let Sample { host, environment, .. } = sample;
        let expected = format!("{} {}", origin.host, origin.environment);
        Err(self.failure(format!("it answered for {host} {environment} instead of {expected}")))
    }

    /// Queues a request. A process that has died is detected by the end of its output.
    ///
    /// # Errors
    /// Returns `failed` if the request is too long or the process does not read.
    pub(crate) fn send(&self, request: &Request) -> Result<(), Failure> {
        let sent = self.input.as_ref().map_or(Ok(()), |input| input.send(request));
        sent.map_err(|why| self.failure(why))
    }

    /// Restarts the time limit of [`remaining`](Self::remaining).
    pub(crate) fn beat(&mut self) {
        self.heartbeat = Instant::now();
    }

    /// Returns how much of `limit` is left since the last heartbeat.
    pub(crate) fn remaining(&self, limit: Duration) -> Duration {
        limit.saturating_sub(self.heartbeat.elapsed())
    }

    /// Closes the input, waits for the process to exit, sends SIGTERM, waits again, and kills it.
    pub(crate) fn end(&mut self, before_term: Duration, after_term: Duration) {
        self.input = None;
        let has_exited =
            |child: &mut Child, limit| matches!(wait_within(child, limit), Ok(Some(_)));
        if !has_exited(&mut self.child, before_term) {
            // SAFETY: `kill` takes two integers. The process is not reaped, so its ID is not reused.
            unsafe { libc::kill(self.child.id() as i32, libc::SIGTERM) };
            has_exited(&mut self.child, after_term);
        }
        self.kill();
    }

    /// Kills and reaps the process; its descendants are left to the caller.
    pub(crate) fn kill(&mut self) {
        self.input = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Returns whether the process is a guest whose kernel panicked.
    pub(crate) fn has_panicked(&self) -> bool {
        self.cause.lock().is_ok_and(|cause| cause.is_panic())
    }

    /// Returns whether the connection to the worker on another host was lost; the worker itself may be alive.
    pub(crate) fn is_disconnected(&self) -> bool {
        self.is_disconnected
    }

    /// Returns why the process closed its output: how it died and a line of its standard error. Kills it if it is still
    /// running.
    fn cause_of_death(&mut self) -> Failure {
        let name = self.name.clone();
        let status = match wait_within(&mut self.child, MAX_EXIT_TIME) {
            Ok(Some(status)) => status,
            Ok(None) => {
                self.kill();
                let why = format!("{name} closed its output and did not exit");
                return Failure::new(FailureKind::Crashed, why);
            }
            Err(why) => return Failure::new(FailureKind::Crashed, format!("{name}: {why}")),
        };
        let _ = self.errors_end.recv_timeout(MAX_ERRORS_TIME);
        let line = match self.cause.lock() {
            Ok(cause) if !cause.line().is_empty() => format!(": {}", cause.line()),
            _ => String::new(),
        };
        let what = match self.is_remote {
            true => self.end_of_remote(status),
            false => machine::child::describe(status),
        };
        Failure::new(FailureKind::Crashed, format!("{name} {what}{line}"))
    }

    /// Describes how a worker on another host ended, given the status of its connection.
    fn end_of_remote(&mut self, status: ExitStatus) -> String {
        match status.code() {
            // ssh itself failed, or was killed.
            Some(SSH_FAILED) | None => {
                self.is_disconnected = true;
                "lost its connection".into()
            }
            // The shell there reports a signal like this.
            Some(code @ 129..SSH_FAILED) => {
                format!("was killed by {}", machine::signal::name(code - 128))
            }
            Some(_) => machine::child::describe(status),
        }
    }
}

/// Returns the command of a worker on this host, by default of this program.
pub(crate) fn local_worker(program: Option<&Path>) -> Command {
    command(program.unwrap_or(Path::new(THIS_PROGRAM)), &WORKER)
}

/// Returns the command of a probe on this host, which ends with its worker.
pub(crate) fn local_probe() -> Command {
    let mut command = command(Path::new(THIS_PROGRAM), &PROBE);
    die_with_parent(&mut command);
    command
}

fn command(program: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    // The last line of a panic is to be its cause, not its backtrace.
    command.args(arguments).env("RUST_BACKTRACE", "0");
    command
}

/// Forwards messages until the output ends, is invalid, or the receiver is dropped.
fn forward<E: From<LinkOutput>>(link: u64, output: impl Read, to: &SyncSender<E>) {
    let mut output = BufReader::new(output);
    while let Some(answer) = receive(&mut output).transpose() {
        let is_last = answer.is_err();
        let output = answer.map_or_else(Output::Invalid, Output::Answer);
        // After an invalid message nothing can be trusted, and a line may be endless.
        if to.send(E::from(LinkOutput { link, output })).is_err() || is_last {
            return;
        }
    }
    let _ = to.send(E::from(LinkOutput { link, output: Output::Closed }));
}

/// Keeps the line of a process's standard error that states why it ended; passes each line to `observe`.
fn keep_cause(errors: impl Read, cause: &Mutex<CauseOfDeath>, observe: impl Fn(&str)) {
    let mut errors = BufReader::new(errors);
    while let Some(line) = start_of_line(&mut errors) {
        observe(&line);
        if let Ok(mut cause) = cause.lock() {
            cause.consider(&line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::mpsc::{Receiver, sync_channel};

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    /// Starts a shell script as the other side of a link.
    fn script(script: &str) -> (Link, Receiver<LinkOutput>) {
        let (sender, outputs) = sync_channel(16);
        (Link::start(7, "the probe", shell(script), sender).unwrap(), outputs)
    }

    fn next(outputs: &Receiver<LinkOutput>) -> Output {
        let LinkOutput { link, output } = outputs.recv_timeout(Duration::from_secs(60)).unwrap();
        assert_eq!(link, 7);
        output
    }

    #[test]
    fn messages_are_forwarded_until_the_output_ends() {
        let (mut link, outputs) = script(r#"echo '"ready"'; echo 'last words' >&2; exit 3"#);
        assert!(matches!(next(&outputs), Output::Answer(Answer::Ready)));
        assert!(matches!(next(&outputs), Output::Closed));
        let why = link.answer(Output::Closed).unwrap_err().why;
        assert_eq!(why, "the probe exited with status 3: last words");
    }

    #[test]
    fn a_guest_that_kvm_cannot_execute_is_dead_at_once() {
        let stuck = "echo 'KVM internal error. Suberror: 1' >&2; echo rax >&2; exec sleep 1000";
        let (sender, outputs) = sync_channel(16);
        let command = BootCommand::of_guest(shell(stuck), Vec::new(), "use another host");
        let mut link = Link::start(7, "guest 'one'", command, sender).unwrap();
        let output = next(&outputs);
        let why = link.answer(output).unwrap_err().why;
        let expected = "guest 'one': KVM internal error. Suberror: 1: this host's KVM does not run the guest's Linux; use \
            another host";
        assert_eq!(why, expected);
        link.kill();
    }

    #[test]
    fn a_probe_has_no_kvm_that_fails() {
        let (mut link, outputs) = script("echo 'KVM internal error' >&2; echo '\"ready\"'; exit 3");
        assert!(matches!(next(&outputs), Output::Answer(Answer::Ready)));
        assert!(matches!(next(&outputs), Output::Closed));
        let why = link.answer(Output::Closed).unwrap_err().why;
        assert_eq!(why, "the probe exited with status 3: KVM internal error");
    }

    #[test]
    fn a_lost_connection_is_distinguished_from_a_worker_that_ended() {
        let end = |script: &str| {
            let (sender, outputs) = sync_channel(16);
            let log = Arc::new(crate::host::HostLog::new("dut"));
            let command = BootCommand::of_host(shell(script), log);
            let mut link = Link::start(7, "the worker on 'dut'", command, sender).unwrap();
            assert!(matches!(next(&outputs), Output::Closed));
            (link.answer(Output::Closed).unwrap_err().why, link.is_disconnected())
        };
        let (why, lost) = end("echo 'Broken pipe' >&2; exit 255");
        assert_eq!(
            (why.as_str(), lost),
            ("the worker on 'dut' lost its connection: Broken pipe", true)
        );
        assert!(end("kill -KILL $$").1);
        let (why, lost) = end("exit 137");
        assert_eq!((why.as_str(), lost), ("the worker on 'dut' was killed by SIGKILL", false));
        let (why, lost) = end("echo 'no lock' >&2; exit 1");
        assert_eq!(
            (why.as_str(), lost),
            ("the worker on 'dut' exited with status 1: no lock", false)
        );
    }

    #[test]
    fn the_cause_may_follow_the_exit() {
        let late = "(exec >&-; sleep 0.3; echo 'Kernel panic - not syncing: late' >&2) & exit 3";
        let (mut link, outputs) = script(late);
        assert!(matches!(next(&outputs), Output::Closed));
        let why = link.answer(Output::Closed).unwrap_err().why;
        assert_eq!(why, "the probe exited with status 3: Kernel panic - not syncing: late");
        assert!(link.has_panicked());
    }

    #[test]
    fn an_invalid_message_is_the_last_output() {
        let (mut link, outputs) = script(r#"echo hello; echo '"ready"'; exec sleep 1000"#);
        let failure = link.answer(next(&outputs)).unwrap_err();
        assert!(failure.why.starts_with("the probe: unexpected output 'hello'"), "{failure}");
        assert!(outputs.recv_timeout(Duration::from_millis(500)).is_err());
        link.kill();
    }

    #[test]
    fn a_process_that_ignores_its_closed_input_is_ended() {
        let (mut link, outputs) = script("trap '' TERM; echo '\"ready\"'; exec sleep 1000");
        assert!(matches!(next(&outputs), Output::Answer(Answer::Ready)));
        link.end(Duration::from_millis(10), Duration::from_millis(10));
        assert!(matches!(link.child.try_wait(), Ok(Some(_))));
        assert_eq!(link.send(&Request::Start), Ok(()), "a request to a dead process is dropped");
    }

    #[test]
    fn a_greeting_counts_once_and_from_the_same_build_only() {
        let (mut link, _outputs) = script("read line");
        let environment = Environment::capture();
        let build = Build::current();
        let sample = Sample {
            host: environment.hostname.clone(),
            environment: environment.id(),
            ..Sample::default()
        };
        assert_eq!(link.check_origin(&sample), Err(link.failure("it sent no greeting")));
        let refused = |environment: Environment, link: &mut Link| {
            link.accept_greeting(&Greeting::of(environment), Some(&build)).unwrap_err().why
        };
        let other = Greeting { protocol: 99, environment: environment.clone() };
        let why = link.accept_greeting(&other, None).unwrap_err().why;
        assert_eq!(why, format!("the probe: its messages have version 99 instead of {PROTOCOL}"));
        let older = Environment { program_version: "0".into(), ..environment.clone() };
        let why = refused(older, &mut link);
        assert!(why.starts_with("the probe: it runs tollgate 0 instead of "), "{why}");
        for hash in [None, Some("another".to_owned())] {
            let other = Environment { program_hash: hash, ..environment.clone() };
            let why = refused(other, &mut link);
            assert!(why.starts_with("the probe: it runs another build of tollgate "), "{why}");
        }
        let other = Environment { program_hash: None, ..environment.clone() };
        let (mut any_build, _outputs) = script("read line");
        any_build.accept_greeting(&Greeting::of(other), None).unwrap();
        any_build.kill();
        link.accept_greeting(&Greeting::of(environment.clone()), Some(&build)).unwrap();
        assert!(refused(environment, &mut link).ends_with("it sent a second greeting"));
        assert_eq!(link.check_origin(&sample), Ok(()));
        let other = Sample { host: "elsewhere".into(), ..sample };
        assert!(link.check_origin(&other).unwrap_err().why.contains("answered for elsewhere"));
        link.end(Duration::from_secs(60), Duration::ZERO);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_bytes_on_standard_error_panic_or_grow_its_last_line(
            start in prop::collection::vec(any::<u8>(), 0..40),
            length in 0..5000_usize,
        ) {
            let bytes: Vec<u8> = start.iter().copied().cycle().take(length).collect();
            let cause = Mutex::new(CauseOfDeath::default());
            keep_cause(bytes.as_slice(), &cause, |_| ());
            prop_assert!(cause.into_inner().unwrap().line().chars().count() <= 300);
        }
    }
}
