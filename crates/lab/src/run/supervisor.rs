//! The workers of a run: they are started, given orders, watched while they execute them, and replaced when lost.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use machine::environment::Environment;

use super::RunError;
use super::silence::Silence;
use crate::answer::{OrderProgress, checked};
use crate::descendants;
use crate::link::{Link, LinkOutput, Origin, Output, local_worker};
use crate::message::{Answer, Greeting, Order, QUEUE_LENGTH, Request};
use crate::metric::Metric;
use crate::sample::{Failure, Sample};

/// How often the supervisor checks for an interruption.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The time limit for a worker's greeting.
const MAX_GREETING_TIME: Duration = Duration::from_secs(20);
/// The time for a worker to end with all that it started.
const GRACE: Duration = Duration::from_secs(3);
/// The maximum number of guest environments in a session: each kind of guest is one.
const MAX_ENVIRONMENTS: usize = 1000;

/// An event while workers execute orders.
pub(super) enum OrderEvent {
    /// A worker measured a sample.
    Sample {
        /// The index of the worker.
        worker: usize,
        /// The sample, checked.
        sample: Sample,
    },
    /// A worker makes an artefact.
    Preparing(String),
    /// A worker started a guest with this environment.
    Guest(Environment),
    /// A worker was lost.
    WorkerLost {
        /// The index of the worker.
        worker: usize,
        /// Why it was lost.
        failure: Failure,
    },
}

/// How an order ended.
pub(super) struct OrderResult {
    /// The number of points with a final sample.
    pub(super) answered: usize,
    /// Why the worker was lost; `None` if it is still running.
    pub(super) lost: Option<Failure>,
}

/// All workers of a run.
pub(super) struct Supervisor<'a> {
    version: &'a str,
    interrupted: &'a AtomicBool,
    workers: Vec<Worker>,
    next_id: u64,
    guests: BTreeSet<String>,
    sender: SyncSender<LinkOutput>,
    outputs: Receiver<LinkOutput>,
    /// Kills all descendants of this process, except these processes and theirs.
    kill_descendants: fn(&[u32]),
}

/// The place of one worker, which outlives its process.
struct Worker {
    command: fn() -> Command,
    link: Option<Link>,
    /// The identity in which every process of this worker must run; `None` before the first.
    origin: Option<Origin>,
}

/// An order that a worker executes.
struct Execution<'o> {
    order: &'o Order,
    progress: OrderProgress,
    is_ready: bool,
    is_done: bool,
    lost: Option<Failure>,
}

impl<'o> Execution<'o> {
    fn new(order: &'o Order) -> Self {
        let progress = OrderProgress::of_worker(order);
        Self { order, progress, is_ready: false, is_done: false, lost: None }
    }

    /// The time limit of the next sample; zero if no sample is expected.
    fn limit(&self) -> Duration {
        let point = self.progress.point(self.order).filter(|_| !self.is_done);
        point.map_or(Duration::ZERO, |point| point.limit)
    }
}

impl<'a> Supervisor<'a> {
    /// Creates a supervisor without workers.
    pub(super) fn new(version: &'a str, interrupted: &'a AtomicBool) -> Self {
        let (sender, outputs) = sync_channel(QUEUE_LENGTH);
        Self {
            version,
            interrupted,
            workers: Vec::new(),
            next_id: 0,
            guests: BTreeSet::new(),
            sender,
            outputs,
            kill_descendants: descendants::end,
        }
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

    /// Starts the first worker and returns its environment.
    ///
    /// # Errors
    /// Returns [`RunError::Worker`] if it does not start.
    pub(super) fn start_first(&mut self) -> Result<Environment, RunError> {
        self.workers.push(Worker { command: local_worker, link: None, origin: None });
        self.start(0)
    }

    /// Returns the identity of a worker; that of the first if it has not run yet.
    pub(super) fn origin(&self, worker: usize) -> Option<&Origin> {
        let worker = self.workers.get(worker).or(self.workers.first());
        worker.and_then(|worker| worker.origin.as_ref())
    }

    /// Starts workers until the first `count` are running.
    ///
    /// # Errors
    /// Returns [`RunError::Worker`] if one does not start, and [`RunError::Lost`] if its environment has changed.
    fn ensure_workers(&mut self, count: usize) -> Result<(), RunError> {
        while self.workers.len() < count {
            // All workers run on this host, so that they share the identity of the first.
            let origin = self.origin(0).cloned();
            self.workers.push(Worker { command: local_worker, link: None, origin });
        }
        // While one worker starts, another may end.
        while let Some(index) = self.workers[..count].iter().position(|one| one.link.is_none()) {
            self.start(index)?;
        }
        Ok(())
    }

    /// Starts the process of a worker and waits for its greeting.
    fn start(&mut self, index: usize) -> Result<Environment, RunError> {
        let id = self.next_id();
        let command = (self.workers[index].command)();
        let link = Link::start(id, command, self.sender.clone());
        let mut link = link.map_err(|why| RunError::Worker(why.to_string()))?;
        let greeted = self.greeting(id).and_then(|greeting| {
            let origin = link.accept_greeting(&greeting, self.version)?;
            Ok((origin.clone(), greeting.environment))
        });
        let (origin, environment) = match greeted {
            Ok(greeted) => greeted,
            Err(why) => {
                link.kill();
                return Err(RunError::Worker(why));
            }
        };
        let worker = &mut self.workers[index];
        if worker.origin.as_ref().is_some_and(|before| *before != origin) {
            link.end(GRACE, Duration::ZERO);
            let what = "the machine changed under the run (host name, governor, huge pages, …)";
            return Err(RunError::Lost(format!("{what}; undo it or run again")));
        }
        (worker.origin, worker.link) = (Some(origin), Some(link));
        Ok(environment)
    }

    /// Drops the link of a worker that exited or sent garbage without an order, so that it is replaced.
    fn drop_if_lost(&mut self, output: &LinkOutput) {
        if matches!(output.output, Output::Answer(_)) {
            return;
        }
        if let Some(index) = self.position(output.link)
            && let Some(mut link) = self.workers[index].link.take()
        {
            link.kill();
        }
    }

    /// Waits for the greeting of a new link. No order is in flight, so answers of other links are stale.
    fn greeting(&mut self, id: u64) -> Result<Greeting, String> {
        let end = Instant::now() + MAX_GREETING_TIME;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.outputs.recv_timeout(left) {
                Ok(output) if output.link != id => self.drop_if_lost(&output),
                Ok(LinkOutput { output: Output::Answer(Answer::Greeting(greeting)), .. }) => {
                    return Ok(*greeting);
                }
                Ok(LinkOutput { output: Output::Answer(_), .. }) => {
                    return Err("no greeting".into());
                }
                Ok(LinkOutput { output: Output::Garbage(what), .. }) => return Err(what),
                Ok(LinkOutput { output: Output::Closed, .. }) => {
                    return Err("it exited before its greeting".into());
                }
                Err(_) => {
                    return Err(format!("no greeting within {} s", MAX_GREETING_TIME.as_secs()));
                }
            }
        }
    }

    /// Has one worker per order execute the orders, together, until each order is done, its worker is lost or the run is
    /// interrupted. The orders must share an id that is new.
    ///
    /// # Errors
    /// Returns an error if a worker does not start, or the error of `handle`.
    pub(super) fn execute(
        &mut self,
        orders: &[Order],
        metrics: &[Metric],
        handle: &mut dyn FnMut(OrderEvent) -> Result<(), RunError>,
    ) -> Result<Vec<OrderResult>, RunError> {
        self.ensure_workers(orders.len())?;
        let mut executions: Vec<_> = orders.iter().map(Execution::new).collect();
        let mut silence = Silence::start(Instant::now());
        for index in 0..orders.len() {
            let order = Request::Order(Box::new(orders[index].clone()));
            if let Err(why) = self.send(index, &order) {
                let failure = Failure::failed(format!("the worker: {why}"));
                self.lose(index, &mut executions, failure, handle)?;
                // The workers after this one have no order.
                executions[index..].iter_mut().for_each(|execution| execution.is_done = true);
                self.send_to_others(index, 0..index, &Request::Cancel);
                break;
            }
        }
        let all = 0..orders.len();
        while executions.iter().any(|execution| !execution.is_done) && !self.is_interrupted() {
            let output = match self.outputs.recv_timeout(POLL_INTERVAL) {
                Ok(output) => output,
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    let limit = executions.iter().map(Execution::limit).max().unwrap_or_default();
                    let Some(failure) = silence.timeout(limit, Instant::now()) else { continue };
                    for index in all {
                        if !executions[index].is_done {
                            self.lose(index, &mut executions, failure.clone(), handle)?;
                        }
                    }
                    break;
                }
            };
            // Answers of lost workers and of those without an order are ignored.
            let Some(index) = self.position(output.link).filter(|index| all.contains(index)) else {
                self.drop_if_lost(&output);
                continue;
            };
            silence.heard(&output, Instant::now());
            if let Err(failure) = self.check(index, &mut executions[index], &output.output) {
                silence.lost(output.link);
                self.lose(index, &mut executions, failure, handle)?;
                self.send_to_others(index, all.clone(), &Request::Cancel);
                continue;
            }
            let Output::Answer(answer) = output.output else { continue };
            match answer {
                Answer::Sample(answer) => {
                    let sample = checked(answer.sample, metrics);
                    if sample.error.is_some() {
                        self.send_to_others(index, all.clone(), &Request::Cancel);
                    }
                    handle(OrderEvent::Sample { worker: index, sample })?;
                }
                Answer::Ready => {
                    executions[index].is_ready = true;
                    if executions.iter().all(|execution| execution.is_ready) {
                        executions.iter_mut().for_each(|execution| execution.is_ready = false);
                        self.send_to_others(usize::MAX, all.clone(), &Request::Start);
                    }
                }
                Answer::Stop => self.send_to_others(index, all.clone(), &Request::Stop),
                Answer::Message(message) => {
                    self.send_to_others(index, all.clone(), &Request::Message(message));
                }
                Answer::Preparing { artefact } => handle(OrderEvent::Preparing(artefact))?,
                Answer::Greeting(greeting) => handle(OrderEvent::Guest(greeting.environment))?,
                Answer::Done { id } => {
                    executions[index].is_done |= id == executions[index].order.id
                }
                Answer::Prepared => {}
            }
        }
        let result = |execution: Execution| OrderResult {
            answered: execution.progress.answered,
            lost: execution.lost,
        };
        Ok(executions.into_iter().map(result).collect())
    }

    /// Checks that an output belongs to the order.
    fn check(
        &mut self,
        index: usize,
        execution: &mut Execution,
        output: &Output,
    ) -> Result<(), Failure> {
        let origin = match (output, &self.workers[index].link) {
            (Output::Answer(Answer::Sample(answer)), Some(link)) => {
                link.check_origin(&answer.sample)
            }
            (Output::Answer(Answer::Greeting(greeting)), _) => {
                self.guests.insert(greeting.environment.id());
                match self.guests.len() > MAX_ENVIRONMENTS {
                    true => Err(format!("it named more than {MAX_ENVIRONMENTS} environments")),
                    false => Ok(()),
                }
            }
            _ => Ok(()),
        };
        origin.map_err(|why| Failure::failed(format!("the worker: {why}")))?;
        execution.progress.accept(execution.order, "the worker", output)
    }

    /// Returns the index of the worker with this link.
    fn position(&self, link: u64) -> Option<usize> {
        let has_link =
            |worker: &Worker| worker.link.as_ref().is_some_and(|current| current.id() == link);
        self.workers.iter().position(has_link)
    }

    fn send(&self, index: usize, request: &Request) -> Result<(), String> {
        self.workers[index].link.as_ref().map_or(Ok(()), |link| link.send(request))
    }

    /// Sends a request to some workers, except one.
    fn send_to_others(&self, except: usize, workers: std::ops::Range<usize>, request: &Request) {
        for index in workers.filter(|index| *index != except) {
            // A worker that does not read is detected by its silence.
            let _ = self.send(index, request);
        }
    }

    /// Kills a worker with all that it started; the next order starts another in its place.
    fn lose(
        &mut self,
        index: usize,
        executions: &mut [Execution],
        failure: Failure,
        handle: &mut dyn FnMut(OrderEvent) -> Result<(), RunError>,
    ) -> Result<(), RunError> {
        if let Some(mut link) = self.workers[index].link.take() {
            link.kill();
        }
        let others = self.workers.iter().filter_map(|worker| worker.link.as_ref());
        (self.kill_descendants)(&others.map(Link::process).collect::<Vec<_>>());
        executions[index].is_done = true;
        executions[index].lost = Some(failure.clone());
        handle(OrderEvent::WorkerLost { worker: index, failure })
    }

    /// Ends all workers.
    pub(super) fn end(&mut self) {
        for worker in &mut self.workers {
            if let Some(mut link) = worker.link.take() {
                link.end(GRACE, Duration::ZERO);
            }
        }
    }
}

impl Drop for Supervisor<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{HostData, OrderedPoint, RoleMessage, SampleAnswer};
    use crate::point::Point;
    use crate::sample::FailureKind;

    static INTERRUPTED: AtomicBool = AtomicBool::new(false);

    fn order(id: u64, role: &str) -> Order {
        let ordered = OrderedPoint {
            position: 0,
            point: Point::from([("length", "1 B")]),
            twin: false,
            limit: Duration::from_secs(60),
        };
        Order {
            id,
            suite: "toy".into(),
            experiment: "one".into(),
            method: "one".into(),
            round: 0,
            points: vec![ordered],
            budget: Duration::from_millis(1),
            role: role.into(),
            attempt: 1,
            seed: 0,
            options: Default::default(),
            host: HostData::default(),
            inside: false,
        }
    }

    fn line(answer: &Answer) -> String {
        let mut line = Vec::new();
        crate::message::send(&mut line, answer).unwrap();
        String::from_utf8(line).unwrap().trim_end().to_owned()
    }

    /// Returns a supervisor of workers that are shell scripts. Each reads its order, then does what its script says.
    fn supervisor(scripts: &[String]) -> Supervisor<'static> {
        let mut supervisor = Supervisor::new("1", &INTERRUPTED);
        // The tests share a process, and with it their descendants.
        supervisor.kill_descendants = |_| {};
        for script in scripts {
            let id = supervisor.next_id();
            let mut command = Command::new("sh");
            command.args(["-c", &format!("read order; {script}")]);
            let mut link = Link::start(id, command, supervisor.sender.clone()).unwrap();
            let environment = Environment::capture();
            let greeting = Greeting { version: "1".into(), environment };
            let origin = link.accept_greeting(&greeting, "1").unwrap().clone();
            supervisor.workers.push(Worker {
                command: local_worker,
                link: Some(link),
                origin: Some(origin),
            });
        }
        supervisor
    }

    fn execute(scripts: &[String], roles: &[&str]) -> (Vec<OrderResult>, Vec<OrderEvent>) {
        let mut supervisor = supervisor(scripts);
        let orders: Vec<_> = roles.iter().map(|role| order(77, role)).collect();
        let mut events = Vec::new();
        let results = supervisor.execute(&orders, &[], &mut |event| {
            events.push(event);
            Ok(())
        });
        (results.unwrap(), events)
    }

    #[test]
    fn roles_start_together_and_exchange_messages_through_the_lab() {
        let values = [("lost".to_owned(), 3.0)].into();
        let message = Answer::Message(RoleMessage { role: "nic".into(), values });
        let [ready, message, done] =
            [Answer::Ready, message, Answer::Done { id: 76 }].map(|answer| line(&answer));
        // The NIC sends its values after the start; the application ends when it has received them.
        let nic = format!("echo '{ready}'; read start; echo '{message}'; read rest");
        let application = format!(
            "echo '{ready}'; read start; read message; case $message in *lost*3.0*) echo garbage;; *) echo '{done}';; esac"
        );
        let (results, events) = execute(&[nic, application], &["nic", "application"]);
        let lost: Vec<_> = results.iter().map(|result| result.lost.clone().unwrap()).collect();
        assert!(lost[1].why.contains("unexpected output 'garbage'"), "{:?}", lost[1]);
        assert_eq!(lost[0].kind, FailureKind::Crashed, "it is cancelled and ends");
        assert_eq!(events.len(), 2);
    }

    #[test]
    fn the_greeting_of_a_guest_of_a_role_is_reported() {
        let environment = Environment::capture();
        let greeting = Greeting { version: "1".into(), environment };
        let greeting = line(&Answer::Greeting(Box::new(greeting)));
        let script = format!("cat <<'E'\n{greeting}\nE\n");
        let (_, events) = execute(&[script.clone(), script], &["one", "two"]);
        let guests = events.iter().filter(|event| matches!(event, OrderEvent::Guest(_)));
        assert_eq!(guests.count(), 2);
    }

    #[test]
    fn a_worker_that_answers_for_another_host_is_lost() {
        let ours = Environment::capture();
        let run = |host: &str| {
            let order = order(77, "");
            let mut sample = crate::probe::blank(&order, &order.points[0], 1);
            (sample.host, sample.environment) = (host.into(), ours.id());
            let answer = SampleAnswer { order: 77, role: String::new(), sample };
            let answer = line(&Answer::Sample(Box::new(answer)));
            let done = line(&Answer::Done { id: 77 });
            execute(&[format!("echo '{answer}'; echo '{done}'; read rest")], &[""]).0
        };
        let right = run(&ours.hostname);
        assert_eq!((right[0].answered, &right[0].lost), (1, &None));
        let wrong = run("elsewhere");
        let failure = wrong[0].lost.as_ref().unwrap();
        assert!(failure.why.contains("elsewhere"), "{failure}");
        assert_eq!(wrong[0].answered, 0);
    }
}
