//! The workers of a run, or of one side of a comparison: starts them, checks their greetings and replaces lost ones.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::os::unix::process::CommandExt;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use machine::environment::Environment;

use super::location::Location;
use super::{Delay, RunError};
use crate::descendants;
use crate::guest::{BootCommand, BootFailure, boot};
use crate::host::ConnectError;
use crate::link::{Build, Link, LinkOutput, Origin};
use crate::message::{Answer, QUEUE_LENGTH, Request};
use crate::quantity::format_duration;
use crate::sample::{Failure, FailureKind};
use crate::side::Side;
use crate::worker::WORKER_GRACE;

/// How often the lab checks for an interruption.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The pause between two attempts to reach a host again: the first, and the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// The minimum time between two reports that a worker waits.
const MIN_REPORT_INTERVAL: Duration = Duration::from_secs(10);
/// The maximum length of the description of another run, in characters.
const MAX_HOLDER: usize = 200;
/// The maximum number of environments of a run: each boot of a host and each kind of guest is one.
const MAX_ENVIRONMENTS: usize = 1000;

/// The processes of the workers of a run, of all sides.
pub(super) type Processes = Rc<RefCell<BTreeSet<u32>>>;

/// All workers of a run, or of one side.
pub(super) struct Supervisor<'a> {
    side: Side,
    location: Location,
    /// The build of all workers; `None` for any, which is then that of the first.
    build: Option<Build>,
    processes: Processes,
    interrupted: &'a AtomicBool,
    workers: Vec<WorkerSlot>,
    next_id: u64,
    /// Whether a worker on another host has an emulated CPU, so that no time of it is accepted.
    has_emulated: bool,
    /// The ids of the run's environments.
    environments: BTreeSet<String>,
    sender: SyncSender<LinkOutput>,
    outputs: Receiver<LinkOutput>,
    /// Kills all descendants of this process, except these processes and theirs.
    pub(super) kill_descendants: fn(&[u32]),
}

/// One worker; its process may be replaced.
struct WorkerSlot {
    /// Returns the command that starts it.
    start: Box<dyn Fn() -> Result<BootCommand, ConnectError>>,
    link: Option<Link>,
    /// The identity in which every process of this worker must run; `None` before the first.
    origin: Option<Origin>,
}

/// A function that reports what delays a start.
pub(super) type Report<'r> = dyn FnMut(Delay) -> Result<(), RunError> + 'r;

/// Why a worker did not start.
struct StartFailure {
    error: RunError,
    /// Whether it is a guest whose kernel panicked.
    is_panic: bool,
    /// Whether a later attempt to reach its host may succeed.
    is_temporary: bool,
}

impl StartFailure {
    fn new(error: RunError) -> Self {
        Self { error, is_panic: false, is_temporary: false }
    }
}

impl<'a> Supervisor<'a> {
    /// Creates a supervisor without workers. All supervisors of a run share their `processes`.
    pub(super) fn new(interrupted: &'a AtomicBool, side: Side, processes: Processes) -> Self {
        let (sender, outputs) = sync_channel(QUEUE_LENGTH);
        Self {
            build: side.program.is_none().then(Build::current),
            side,
            location: Location::Host,
            processes,
            interrupted,
            workers: Vec::new(),
            next_id: 0,
            has_emulated: false,
            environments: BTreeSet::new(),
            sender,
            outputs,
            kill_descendants: descendants::end,
        }
    }

    /// Starts the workers elsewhere than on this host.
    pub(super) fn with_location(mut self, location: Location) -> Self {
        self.location = location;
        self
    }

    /// Returns where the workers run.
    pub(super) fn location(&self) -> &Location {
        &self.location
    }

    /// Returns whether no time is measured where the workers run, because a CPU is emulated.
    pub(super) fn lacks_time(&self) -> bool {
        self.has_emulated || self.location.lacks_time()
    }

    /// Returns whether the user interrupted the run.
    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// Returns an unused id for an order or a link.
    pub(super) fn next_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Returns the identity of a worker; `None` before its first greeting.
    pub(super) fn origin(&self, worker: usize) -> Option<&Origin> {
        self.workers.get(worker)?.origin.as_ref()
    }

    /// Counts an environment of the run.
    ///
    /// # Errors
    /// Returns one line if the run has too many.
    pub(super) fn admit(&mut self, environment: String) -> Result<(), String> {
        self.environments.insert(environment);
        match self.environments.len() > MAX_ENVIRONMENTS {
            true => Err(format!("the run has more than {MAX_ENVIRONMENTS} environments")),
            false => Ok(()),
        }
    }

    /// Starts workers until the first `count` are running; returns the environments of those that were started. Calls
    /// `report` before a guest is started again, and while a host cannot be used.
    ///
    /// # Errors
    /// Returns [`RunError::Start`] if one does not start or there are fewer guests, [`RunError::Lost`] if its environment
    /// has changed or its host cannot be reached again, [`RunError::Interrupted`] if the user interrupts the run, and the error of `report`.
    pub(super) fn ensure_workers(
        &mut self,
        count: usize,
        report: &mut Report,
    ) -> Result<Vec<Environment>, RunError> {
        self.location.check_roles(count).map_err(|why| RunError::Start(why.to_string()))?;
        while self.workers.len() < count {
            let (side, location, index) =
                (self.side.clone(), self.location.clone(), self.workers.len());
            self.add(move || {
                let elsewhere = location.boot_command(index, &side);
                elsewhere.unwrap_or_else(|| Ok(side.worker().into()))
            });
        }
        let mut started = Vec::new();
        // While one worker starts, another may end.
        while let Some(index) = self.workers[..count].iter().position(|one| one.link.is_none()) {
            started.push(self.start(index, report)?);
        }
        Ok(started)
    }

    /// Adds a worker that is not started yet.
    pub(super) fn add(&mut self, start: impl Fn() -> Result<BootCommand, ConnectError> + 'static) {
        self.workers.push(WorkerSlot { start: Box::new(start), link: None, origin: None });
    }

    /// Starts a worker. A guest whose kernel panics as it boots is started again; a host to which the connection was lost
    /// is connected again.
    fn start(&mut self, index: usize, report: &mut Report) -> Result<Environment, RunError> {
        if let Some(limit) = self.location.reconnect_time(index) {
            return match self.workers[index].origin {
                None => self.start_once(index, report).map_err(|failure| failure.error),
                Some(_) => self.reconnect(index, limit, report),
            };
        }
        let report = RefCell::new(report);
        boot(
            || {
                let mut report = report.borrow_mut();
                self.start_once(index, &mut **report).map_err(|failure| {
                    let StartFailure { error, is_panic, .. } = failure;
                    BootFailure { error, is_panic }
                })
            },
            |error| report.borrow_mut()(Delay::BootRepeated(error.to_string())),
        )
    }

    /// Starts a worker on a host to which the connection was lost: tries again, with longer and longer pauses, until the
    /// host refuses or `limit` is over.
    fn reconnect(
        &mut self,
        index: usize,
        limit: Duration,
        report: &mut Report,
    ) -> Result<Environment, RunError> {
        let (start, mut pause, mut reported) = (Instant::now(), FIRST_PAUSE, String::new());
        loop {
            let failure = match self.start_once(index, report) {
                Ok(environment) => return Ok(environment),
                Err(failure) => failure,
            };
            let why = match failure.error {
                RunError::Start(why) if failure.is_temporary => why,
                other => return Err(other),
            };
            if start.elapsed() + pause > limit {
                let limit = format_duration(limit);
                let line = format!("{why}; not reached for {limit}; run again to resume");
                return Err(RunError::Lost(line));
            }
            if reported != why {
                report(Delay::Reconnecting(why.clone()))?;
                reported = why;
            }
            self.pause(pause)?;
            pause = (2 * pause).min(MAX_PAUSE);
        }
    }

    /// Waits.
    ///
    /// # Errors
    /// Returns [`RunError::Interrupted`] if the user interrupts the run.
    fn pause(&self, time: Duration) -> Result<(), RunError> {
        let start = Instant::now();
        while start.elapsed() < time {
            if self.is_interrupted() {
                return Err(RunError::Interrupted);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Starts a worker in one attempt.
    fn start_once(
        &mut self,
        index: usize,
        report: &mut Report,
    ) -> Result<Environment, StartFailure> {
        self.start_process(index)?;
        self.greeting(index, report).map_err(|error| {
            let link = self.link(index);
            let is_temporary = link.as_ref().is_some_and(|link| link.is_disconnected());
            let has_panicked = link.is_some_and(|link| link.has_panicked());
            let is_panic = has_panicked && self.location.is_guests();
            self.kill(index);
            StartFailure { error, is_panic, is_temporary }
        })
    }

    /// Starts the process of a worker.
    fn start_process(&mut self, index: usize) -> Result<(), StartFailure> {
        let id = self.next_id();
        let failed = |why: String| StartFailure::new(RunError::Start(why));
        let started = (self.workers[index].start)();
        let mut start = started.map_err(|error| match self.is_interrupted() {
            true => StartFailure::new(RunError::Interrupted),
            false => StartFailure { is_temporary: error.is_temporary, ..failed(error.why) },
        })?;
        // In a separate process group, so that Ctrl-C reaches the lab only. When the lab dies, the input of a worker on this
        // host closes, and it ends with all that it started; the kernel kills a guest.
        start.command.process_group(0);
        let link = Link::start(id, self.location.name(index), start, self.sender.clone());
        let link = link.map_err(|why| failed(self.side.not_started(&why.to_string())))?;
        self.processes.borrow_mut().insert(link.process());
        self.workers[index].link = Some(link);
        Ok(())
    }

    /// Waits for the greeting of a new worker and checks it.
    fn greeting(&mut self, index: usize, report: &mut Report) -> Result<Environment, RunError> {
        let environment = self.receive_greeting(index, report)?;
        self.location.check_guest(index, &environment).map_err(RunError::Start)?;
        self.keep_origin(index, Origin::of(&environment))?;
        let is_remote = self.location.reconnect_time(index).is_some();
        self.has_emulated |= is_remote && environment.emulated;
        Ok(environment)
    }

    /// Receives the greeting of a new worker. No order is in flight, so any output of another worker is wrong. A worker on
    /// another host may wait for the end of another run, without limit only if the user wants that.
    fn receive_greeting(
        &mut self,
        index: usize,
        report: &mut Report,
    ) -> Result<Environment, RunError> {
        let (mut start, mut limit) = (Instant::now(), self.location.max_greeting_time());
        let mut waiting: Option<(Instant, String)> = None;
        while !self.is_interrupted() {
            let Some(output) = self.receive(POLL_INTERVAL) else {
                let Some(link) = self.link(index) else { break };
                if start.elapsed() < limit {
                    continue;
                }
                let failure = link.timeout(limit);
                return Err(self.not_started(&failure));
            };
            let Some(sender) = self.position(output.link) else { continue };
            if sender != index {
                self.kill(sender);
                continue;
            }
            let WorkerSlot { link: Some(link), .. } = &mut self.workers[index] else { break };
            let build = self.build.as_ref();
            let greeted = link.answer(output.output).and_then(|answer| match answer {
                Answer::Greeting(greeting) => link
                    .accept_greeting(&greeting, build)
                    .map(|()| Greeted::In(Box::new(greeting.environment))),
                Answer::Waiting { holder } if self.location.reconnect_time(index).is_some() => {
                    Ok(Greeted::Waiting(holder))
                }
                _ => Err(link.failure("no greeting")),
            });
            match greeted.map_err(|failure| self.not_started(&failure))? {
                Greeted::In(environment) => return Ok(*environment),
                Greeted::Waiting(holder) => {
                    if waiting.is_none() {
                        // The other run ends when it ends; a lost connection is detected by ssh.
                        (start, limit) = (Instant::now(), self.location.max_waiting_time());
                    } else if start.elapsed() >= limit {
                        let Some(link) = self.link(index) else { break };
                        let failure = link.timeout(limit);
                        return Err(self.not_started(&failure));
                    }
                    let is_new = waiting.as_ref().is_none_or(|(at, last)| {
                        *last != holder && at.elapsed() >= MIN_REPORT_INTERVAL
                    });
                    if is_new {
                        let name = self.location.name(index);
                        let shown: String = holder.chars().take(MAX_HOLDER).collect();
                        report(Delay::Waiting(format!("{name} waits for another run: {shown}")))?;
                        waiting = Some((Instant::now(), holder));
                    }
                }
            }
        }
        Err(RunError::Interrupted)
    }

    /// Returns the error of a worker that ends or is silent before its greeting.
    fn not_started(&self, failure: &Failure) -> RunError {
        let has_console = matches!(failure.kind, FailureKind::Crashed | FailureKind::Timeout);
        RunError::Start(match &self.location {
            Location::Guests { guests, .. } if has_console => {
                format!("{}; see its console with '{}'", failure.why, guests.console)
            }
            Location::Guests { .. } | Location::Host | Location::Hosts(_) => {
                self.side.not_started(&failure.why)
            }
        })
    }

    /// Checks that a worker runs where it ran before, and that the workers of one host have one environment. Two names of a
    /// machine may have different variables.
    fn keep_origin(&mut self, index: usize, origin: Origin) -> Result<(), RunError> {
        let is_other = |(at, worker): (usize, &WorkerSlot)| {
            let before = worker.origin.as_ref();
            let is_same = |one: &Origin| {
                at == index || self.location.is_one_host(at, index, one.host == origin.host)
            };
            before.is_some_and(|one| *one != origin && is_same(one))
        };
        if self.workers.iter().enumerate().any(is_other) {
            let what = "the machine changed under the run (host name, governor, huge pages, …)";
            return Err(RunError::Lost(format!("{what}; undo it or run again")));
        }
        self.workers[index].origin = Some(origin);
        Ok(())
    }

    /// Returns the next output of any worker; `None` if there is none within the limit.
    pub(super) fn receive(&self, limit: Duration) -> Option<LinkOutput> {
        self.outputs.recv_timeout(limit).ok()
    }

    /// Returns the index of the worker with this link; `None` if the worker was lost.
    pub(super) fn position(&self, link: u64) -> Option<usize> {
        let has_link =
            |worker: &WorkerSlot| worker.link.as_ref().is_some_and(|current| current.id() == link);
        self.workers.iter().position(has_link)
    }

    /// Returns the link of a worker; `None` if the worker was lost.
    pub(super) fn link(&mut self, index: usize) -> Option<&mut Link> {
        self.workers.get_mut(index)?.link.as_mut()
    }

    /// Sends a request to a worker unless the worker was lost.
    ///
    /// # Errors
    /// Returns `failed` if the request is too long or the worker does not read.
    pub(super) fn send(&mut self, index: usize, request: &Request) -> Result<(), Failure> {
        self.link(index).map_or(Ok(()), |link| link.send(request))
    }

    /// Kills a worker with all that it started; the next order starts another in its place.
    pub(super) fn kill(&mut self, index: usize) {
        if let Some(mut link) = self.workers[index].link.take() {
            link.kill();
            self.processes.borrow_mut().remove(&link.process());
        }
        let mut others = self.location.processes();
        others.extend(self.processes.borrow().iter());
        (self.kill_descendants)(&others);
    }

    /// Ends all workers.
    pub(super) fn end(&mut self) {
        for worker in &mut self.workers {
            if let Some(mut link) = worker.link.take() {
                link.end(WORKER_GRACE, Duration::ZERO);
                self.processes.borrow_mut().remove(&link.process());
            }
        }
    }
}

/// What a new worker answers first.
enum Greeted {
    /// It runs in this environment.
    In(Box<Environment>),
    /// Another run measures there: its process, start and folder.
    Waiting(String),
}

impl Drop for Supervisor<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::super::location::MAX_GREETING_TIME;
    use super::super::scripted::{greet, guests, unreported, without_greeting};
    use super::*;
    use crate::artefact::Artefacts;
    use crate::guest::MAX_STARTS;
    use machine::cpu::CpuClock;

    fn refused(script: &str) -> String {
        let mut supervisor = without_greeting(&[script.to_owned()]);
        let refused = supervisor.ensure_workers(1, &mut unreported).unwrap_err().to_string();
        assert!(supervisor.link(0).is_none());
        refused
    }

    #[test]
    fn a_worker_that_does_not_greet_is_refused_with_the_cause() {
        let cases = [
            ("echo 'no route to host' >&2; exit 255", "exited with status 255: no route to host"),
            ("echo hello; read rest", "the worker: unexpected output 'hello'"),
            ("echo '\"ready\"'; read rest", "the worker: no greeting"),
        ];
        for (script, expected) in cases {
            let line = refused(script);
            assert!(
                line.starts_with("cannot start: the worker") && line.contains(expected),
                "{line}"
            );
        }
        let other = Environment { program_hash: None, ..Environment::capture() };
        let line = refused(&format!("{}; read rest", greet(other)));
        assert!(line.contains("another build"), "{line}");
    }

    #[test]
    fn another_program_may_be_of_another_build_but_must_be_a_tollgate() {
        let start = |script: &str| {
            let mut supervisor = without_greeting(&[script.to_owned()]);
            supervisor.side.program = Some("/bin/other".into());
            supervisor.build = None;
            supervisor.ensure_workers(1, &mut unreported).map_err(|error| error.to_string())
        };
        let other = Environment { program_hash: None, ..Environment::capture() };
        assert_eq!(start(&format!("{}; read rest", greet(other.clone()))), Ok(vec![other]));
        for (script, expected) in [
            ("echo hello; read rest", "unexpected output 'hello'"),
            ("echo 'unknown command' >&2; exit 2", "exited with status 2: unknown command"),
            (
                r#"echo '{"greeting":{"protocol":99}}'; read rest"#,
                "messages have version 99 instead",
            ),
        ] {
            let line = start(script).unwrap_err();
            assert!(line.starts_with("cannot start: /bin/other: the worker"), "{line}");
            assert!(
                line.contains(expected) && line.contains("; name a tollgate program"),
                "{line}"
            );
        }
    }

    #[test]
    fn a_lost_worker_leaves_those_of_the_other_side_alive() {
        let mut sides = [0, 1].map(|_| super::super::scripted::supervisor(&["read rest".into()]));
        let processes = Processes::default();
        for side in &mut sides {
            side.kill_descendants = |spared| assert_eq!(spared.len(), 1);
            side.processes = processes.clone();
            side.ensure_workers(1, &mut unreported).unwrap();
        }
        assert_eq!(processes.borrow().len(), 2);
        sides[0].kill(0);
        sides[0].ensure_workers(1, &mut unreported).unwrap();
        sides[1].end();
        assert_eq!(processes.borrow().len(), 1);
    }

    /// Returns a supervisor of one guest that panics as it boots, `panics` times, and the environment that it then greets
    /// from.
    fn panicking(panics: u32, folder: &tempfile::TempDir) -> (Supervisor<'static>, Environment) {
        let starts = folder.path().join("starts").display().to_string();
        let environment = Environment { hostname: "mine".into(), ..Environment::capture() };
        let script = format!(
            "echo >> {starts}; if [ $(wc -l < {starts}) -gt {panics} ]; then {}; read rest; fi; \
             echo 'Kernel panic - not syncing: planted' >&2; echo 'reboot: now' >&2",
            greet(environment.clone())
        );
        let guests = guests(&[("mine", CpuClock::Untimed)]);
        let location = Location::Guests { guests, artefacts: Artefacts::new() };
        (without_greeting(&[script]).with_location(location), environment)
    }

    #[test]
    fn a_guest_whose_kernel_panics_as_it_boots_is_started_again() {
        let panics = MAX_STARTS - 1;
        let folder = tempfile::tempdir().unwrap();
        let (mut supervisor, environment) = panicking(panics, &folder);
        let mut reported = Vec::new();
        let mut report = |delay| {
            let Delay::BootRepeated(why) = delay else { panic!("{delay:?}") };
            reported.push(why);
            Ok(())
        };
        assert_eq!(supervisor.ensure_workers(1, &mut report).unwrap(), [environment]);
        assert_eq!(reported.len(), panics as usize);
        let start =
            "cannot start: guest 'mine' exited with status 0: Kernel panic - not syncing: planted";
        assert!(reported[0].starts_with(start), "{}", reported[0]);

        let folder = tempfile::tempdir().unwrap();
        let (mut supervisor, _) = panicking(MAX_STARTS, &folder);
        let why = supervisor.ensure_workers(1, &mut |_| Ok(())).unwrap_err().to_string();
        let console = "see its console with 'tollgate guest ./mine.toml -- list'";
        assert!(why.starts_with(start) && why.ends_with(console), "{why}");
        let starts = std::fs::read_to_string(folder.path().join("starts")).unwrap();
        assert_eq!(starts.lines().count(), MAX_STARTS as usize);
    }

    #[test]
    #[ignore = "waits for 20 s"]
    fn long_a_guest_may_greet_later_than_a_worker_of_this_host() {
        let environment = Environment { hostname: "mine".into(), ..Environment::capture() };
        let late = MAX_GREETING_TIME.as_secs() + 1;
        let script = format!("sleep {late}; {}; read rest", greet(environment.clone()));
        let guests = guests(&[("mine", CpuClock::Untimed)]);
        let location = Location::Guests { guests, artefacts: Artefacts::new() };
        let mut supervisor = without_greeting(&[script]).with_location(location);
        assert_eq!(supervisor.ensure_workers(1, &mut unreported).unwrap(), [environment]);
    }

    #[test]
    fn a_worker_on_this_host_is_not_started_again() {
        let line = refused("echo 'Kernel panic - not syncing: of another' >&2; exit 1");
        assert!(line.contains("the worker exited with status 1: Kernel panic"), "{line}");
    }

    #[test]
    fn an_interrupt_ends_the_wait_for_a_greeting() {
        static INTERRUPTED: AtomicBool = AtomicBool::new(false);
        let mut supervisor = without_greeting(&["read rest".to_owned()]);
        supervisor.interrupted = &INTERRUPTED;
        let interrupt = std::thread::spawn(|| {
            std::thread::sleep(Duration::from_millis(100));
            INTERRUPTED.store(true, Ordering::Relaxed);
        });
        let start = Instant::now();
        assert!(matches!(
            supervisor.ensure_workers(1, &mut unreported),
            Err(RunError::Interrupted)
        ));
        assert!(start.elapsed() < MAX_GREETING_TIME);
        interrupt.join().unwrap();
    }

    #[test]
    fn the_workers_of_a_host_have_one_environment_and_others_their_own() {
        let here = Environment::capture();
        let greet =
            |environment: &Environment| format!("{}; read rest", greet(environment.clone()));
        let other = Environment { hostname: "elsewhere".into(), ..here.clone() };
        let mut supervisor = without_greeting(&[greet(&here), greet(&other), greet(&here)]);
        assert_eq!(
            supervisor.ensure_workers(3, &mut unreported).unwrap(),
            [&here, &other, &here].map(Clone::clone)
        );
        assert_eq!(supervisor.origin(1), Some(&Origin::of(&other)));
        assert_eq!(supervisor.ensure_workers(3, &mut unreported).unwrap(), [], "all are running");
        supervisor.kill(2);
        assert_eq!(
            supervisor.ensure_workers(3, &mut unreported).unwrap(),
            std::slice::from_ref(&here)
        );
        let changed = Environment { governor: Some("changed".into()), ..here.clone() };
        let mut supervisor = without_greeting(&[greet(&here), greet(&changed)]);
        let refused = supervisor.ensure_workers(2, &mut unreported);
        assert!(matches!(refused, Err(RunError::Lost(_))), "{refused:?}");
    }

    #[test]
    fn a_worker_that_speaks_without_an_order_is_replaced() {
        let greeting = greet(Environment::capture());
        // The second worker starts slowly, so that the invalid message of the first arrives before its greeting.
        let mut supervisor = without_greeting(&[
            format!("{greeting}; echo garbage; read rest"),
            format!("sleep 1; {greeting}; read rest"),
        ]);
        supervisor.ensure_workers(1, &mut unreported).unwrap();
        let first = supervisor.link(0).unwrap().id();
        supervisor.ensure_workers(2, &mut unreported).unwrap();
        assert!(supervisor.position(first).is_none());
        assert!(supervisor.link(0).is_some());
    }

    #[test]
    fn the_environments_of_a_run_are_limited() {
        let mut supervisor = without_greeting(&[]);
        for id in 0..MAX_ENVIRONMENTS {
            supervisor.admit(id.to_string()).unwrap();
        }
        supervisor.admit("0".into()).unwrap();
        assert!(supervisor.admit("another".into()).unwrap_err().contains("more than 1000"));
    }
}
