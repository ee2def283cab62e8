//! Execution of orders, one per worker. A worker that is silent or answers wrongly is lost; roles start together and
//! exchange messages.

use std::time::{Duration, Instant};

use machine::environment::Environment;

use super::supervisor::{POLL_INTERVAL, Supervisor};
use super::{Delay, RunError};
use crate::answer::{Permitted, checked};
use crate::artefact::{MAX_LOCK_WAIT, MAX_MAKING};
use crate::link::{LinkOutput, Output};
use crate::message::{Answer, CodeAnswer, Order, Request};
use crate::metric::Metric;
use crate::order_progress::OrderProgress;
use crate::sample::{Failure, Sample};
use crate::timed_code::TimedCode;

/// How much longer than the limit of a sample a worker may be silent.
const MARGIN: Duration = Duration::from_secs(20);
/// How many of these times a sample may take in all, however often the worker speaks: a search is one sample, of many trials.
const MAX_SPEAKING: u32 = 20;
/// The maximum time until the artefacts of an order are made, after the wait for their locks.
const MAX_PREPARATION: Duration = MAX_LOCK_WAIT.saturating_add(MAX_MAKING);

/// An event while workers execute orders.
pub(super) enum OrderEvent {
    /// A worker measured a sample.
    Sample {
        /// The index of the worker.
        worker: usize,
        /// The sample, checked.
        sample: Sample,
    },
    /// The generated code of a point.
    Code(Box<TimedCode>),
    /// A worker makes an artefact.
    Preparing(String),
    /// A worker, or a guest of a worker, was started in this environment.
    Environment(Environment),
    /// The start of a worker is delayed.
    Delayed(Delay),
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
    /// The attempt at the next point that is due, from 1.
    pub(super) attempt: u32,
    /// Why the worker was lost; `None` if it is still running.
    pub(super) lost: Option<Failure>,
    /// Whether it was lost because the connection to its host was.
    pub(super) is_disconnected: bool,
}

/// A function that handles events.
type Handler<'h> = dyn FnMut(OrderEvent) -> Result<(), RunError> + 'h;

/// Has one worker per order execute the orders, together, until each order is done, its worker is lost or the run is
/// interrupted. The orders must share an id that is new.
///
/// # Errors
/// Returns an error if a worker does not start, or the error of `handle`.
pub(super) fn execute(
    supervisor: &mut Supervisor,
    orders: &[Order],
    metrics: &[Metric],
    handle: &mut Handler,
) -> Result<Vec<OrderResult>, RunError> {
    let mut report = |delay: Delay| handle(OrderEvent::Delayed(delay));
    for environment in supervisor.ensure_workers(orders.len(), &mut report)? {
        handle(OrderEvent::Environment(environment))?;
    }
    Executor::new(supervisor, orders, metrics, handle).run()
}

/// The orders in execution.
struct Executor<'e, 'a> {
    supervisor: &'e mut Supervisor<'a>,
    metrics: &'e [Metric],
    handle: &'e mut Handler<'e>,
    /// By worker, from the first.
    executions: Vec<Execution<'e>>,
    margin: Duration,
    /// Whether the workers were told that there will be no start.
    is_cancelled: bool,
}

/// An order that a worker executes.
struct Execution<'o> {
    order: &'o Order,
    progress: OrderProgress,
    state: State,
    /// When the state began.
    since: Instant,
    /// When the present sample began: later by the time in which its role waited.
    begun: Instant,
    /// How long the worker has made artefacts.
    preparing: Duration,
    lost: Option<Failure>,
    is_disconnected: bool,
}

/// State of an order; it determines how long the worker may be silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Measuring,
    /// It makes an artefact.
    Preparing,
    /// Its role is ready and waits for the others, however long they take.
    Ready,
    /// It was lost or its order is finished.
    Done,
}

impl<'o> Execution<'o> {
    fn new(order: &'o Order) -> Self {
        let progress = OrderProgress::of_worker(order);
        let now = Instant::now();
        Self {
            order,
            progress,
            state: State::Measuring,
            since: now,
            begun: now,
            preparing: Duration::ZERO,
            lost: None,
            is_disconnected: false,
        }
    }

    /// Sets the state. The time of a sample does not include that of artefacts and of the wait for other roles.
    fn set_state(&mut self, state: State) {
        let spent = self.since.elapsed();
        if matches!(self.state, State::Preparing | State::Ready) {
            self.begun += spent;
        }
        if self.state == State::Preparing {
            self.preparing += spent;
        }
        (self.state, self.since) = (state, Instant::now());
    }

    /// Returns how much of the time of the present state is left, however often the worker speaks, and the time.
    fn remaining(&self, margin: Duration) -> Option<(Duration, Duration)> {
        let (max, spent) = match self.state {
            State::Measuring => {
                (self.limit(margin)?.saturating_mul(MAX_SPEAKING), self.begun.elapsed())
            }
            State::Preparing => (MAX_PREPARATION, self.preparing + self.since.elapsed()),
            State::Ready | State::Done => return None,
        };
        Some((max.saturating_sub(spent), max))
    }

    /// Returns the time for which the worker may be silent; `None` without limit.
    fn limit(&self, margin: Duration) -> Option<Duration> {
        match self.state {
            State::Measuring => {
                let point = self.progress.point(self.order);
                let limit = point.map_or(Duration::ZERO, |point| point.limit);
                Some(limit.saturating_add(margin))
            }
            State::Preparing => Some(MAX_PREPARATION),
            State::Ready | State::Done => None,
        }
    }
}

impl<'e, 'a> Executor<'e, 'a> {
    fn new(
        supervisor: &'e mut Supervisor<'a>,
        orders: &'e [Order],
        metrics: &'e [Metric],
        handle: &'e mut Handler<'e>,
    ) -> Self {
        let executions = orders.iter().map(Execution::new).collect();
        Self { supervisor, metrics, handle, executions, margin: MARGIN, is_cancelled: false }
    }

    fn run(mut self) -> Result<Vec<OrderResult>, RunError> {
        self.give_orders()?;
        while self.executions.iter().any(|one| one.state != State::Done)
            && !self.supervisor.is_interrupted()
        {
            // Outputs in the queue come first: the lab may have been stopped for longer than a worker may be silent.
            let mut output = self.supervisor.receive(Duration::ZERO);
            if output.is_none() {
                self.lose_silent()?;
                output = self.supervisor.receive(POLL_INTERVAL);
            }
            if let Some(output) = output {
                self.receive(output)?;
            }
        }
        let result = |one: Execution| OrderResult {
            answered: one.progress.answered,
            attempt: one.progress.attempt,
            lost: one.lost,
            is_disconnected: one.is_disconnected,
        };
        Ok(self.executions.into_iter().map(result).collect())
    }

    fn give_orders(&mut self) -> Result<(), RunError> {
        for index in 0..self.executions.len() {
            let order = Request::Order(Box::new(self.executions[index].order.clone()));
            if let Err(failure) = self.supervisor.send(index, &order) {
                // The workers after this one have no order.
                self.executions[index..].iter_mut().for_each(|one| one.state = State::Done);
                return self.lose(index, failure);
            }
            self.set_state(index, State::Measuring);
        }
        Ok(())
    }

    /// Sets the state of a worker and restarts its time limit.
    fn set_state(&mut self, index: usize, state: State) {
        self.executions[index].set_state(state);
        if let Some(link) = self.supervisor.link(index) {
            link.beat();
        }
    }

    fn receive(&mut self, output: LinkOutput) -> Result<(), RunError> {
        let Some(index) = self.supervisor.position(output.link) else {
            return Ok(());
        };
        if self.executions.get(index).is_none_or(|one| one.state == State::Done) {
            // A worker without an order has nothing to send. What it measured before stays valid.
            self.supervisor.kill(index);
            return Ok(());
        }
        match self.accept(index, output.output) {
            Ok(answer) => self.react(index, answer),
            Err(failure) => self.lose(index, failure),
        }
    }

    /// Checks that an output is an answer to the order.
    fn accept(&mut self, index: usize, output: Output) -> Result<Answer, Failure> {
        let Some(link) = self.supervisor.link(index) else {
            return Err(Failure::failed("the worker was lost"));
        };
        let answer = link.answer(output)?;
        if let Answer::Sample(answer) = &answer {
            link.check_origin(&answer.sample)?;
        }
        let Execution { progress, order, .. } = &mut self.executions[index];
        progress.accept(order, &answer).map_err(|why| link.failure(why))?;
        if let Answer::Greeting(guest) = &answer {
            let admitted = self.supervisor.admit(guest.environment.id());
            admitted.map_err(|why| Failure::failed(format!("the worker: {why}")))?;
        }
        Ok(answer)
    }

    fn react(&mut self, index: usize, answer: Answer) -> Result<(), RunError> {
        let state = match &answer {
            Answer::Preparing { .. } => State::Preparing,
            Answer::Ready if !self.is_cancelled => State::Ready,
            Answer::Done { .. } => State::Done,
            Answer::Ready
            | Answer::Sample(_)
            | Answer::Code(_)
            | Answer::Stop
            | Answer::Message(_)
            | Answer::Greeting(_)
            | Answer::Prepared
            | Answer::Waiting { .. } => State::Measuring,
        };
        self.set_state(index, state);
        match answer {
            Answer::Sample(answer) => {
                self.executions[index].begun = Instant::now();
                let permitted = Permitted {
                    metrics: self.metrics,
                    lacks_time: self.supervisor.lacks_time(),
                    may_be_empty: !answer.role.is_empty(),
                };
                let sample = checked(answer.sample, permitted);
                let has_failed = sample.error.is_some();
                (self.handle)(OrderEvent::Sample { worker: index, sample })?;
                if has_failed { self.cancel(Some(index)) } else { Ok(()) }
            }
            Answer::Ready | Answer::Done { .. } => self.start_or_cancel(),
            Answer::Stop => self.send_to_others(Some(index), &Request::Stop),
            Answer::Message(message) => {
                self.send_to_others(Some(index), &Request::Message(message))
            }
            Answer::Preparing { artefact } => (self.handle)(OrderEvent::Preparing(artefact)),
            Answer::Greeting(guest) => (self.handle)(OrderEvent::Environment(guest.environment)),
            Answer::Prepared | Answer::Waiting { .. } => Ok(()),
            Answer::Code(code) => {
                let code = self.of_worker(index, *code);
                (self.handle)(OrderEvent::Code(code))
            }
        }
    }

    /// Returns the code of a point as that of a worker's environment.
    fn of_worker(&self, index: usize, code: CodeAnswer) -> Box<TimedCode> {
        let order = self.executions[index].order;
        let origin = self.supervisor.origin(index).cloned().unwrap_or_default();
        let CodeAnswer { role, point, loops, omitted, .. } = code;
        Box::new(TimedCode {
            experiment: format!("{}/{}", order.suite, order.experiment),
            point,
            role,
            environment: origin.environment,
            session: 0,
            loops,
            omitted,
        })
    }

    /// Starts the roles if all are ready; cancels those that wait for a role whose order is done.
    fn start_or_cancel(&mut self) -> Result<(), RunError> {
        let all_are = |state| self.executions.iter().all(|one| one.state == state);
        let any_is = |state| self.executions.iter().any(|one| one.state == state);
        if all_are(State::Ready) {
            (0..self.executions.len()).for_each(|index| self.set_state(index, State::Measuring));
            return self.send_to_others(None, &Request::Start);
        }
        if any_is(State::Ready) && any_is(State::Done) { self.cancel(None) } else { Ok(()) }
    }

    /// Tells all workers, except the one given, that there will be no start.
    fn cancel(&mut self, except: Option<usize>) -> Result<(), RunError> {
        if std::mem::replace(&mut self.is_cancelled, true) {
            return Ok(());
        }
        for index in 0..self.executions.len() {
            if self.executions[index].state == State::Ready {
                self.set_state(index, State::Measuring);
            }
        }
        self.send_to_others(except, &Request::Cancel)
    }

    /// Sends a request to all workers that have an order, except the one given. A worker that does not read is lost.
    fn send_to_others(&mut self, except: Option<usize>, request: &Request) -> Result<(), RunError> {
        for index in (0..self.executions.len()).filter(|index| Some(*index) != except) {
            if self.executions[index].state != State::Done
                && let Err(failure) = self.supervisor.send(index, request)
            {
                self.lose(index, failure)?;
            }
        }
        Ok(())
    }

    /// Loses the workers that were silent for too long.
    fn lose_silent(&mut self) -> Result<(), RunError> {
        for index in 0..self.executions.len() {
            let execution = &self.executions[index];
            let (Some(limit), Some((remaining, max)), Some(link)) = (
                execution.limit(self.margin),
                execution.remaining(self.margin),
                self.supervisor.link(index),
            ) else {
                continue;
            };
            if link.remaining(limit).is_zero() {
                let failure = link.timeout(limit);
                self.lose(index, failure)?;
            } else if remaining.is_zero() {
                let failure = link.too_long(max);
                self.lose(index, failure)?;
            }
        }
        Ok(())
    }

    /// Kills a worker and cancels the others; the next order starts another in its place.
    fn lose(&mut self, index: usize, failure: Failure) -> Result<(), RunError> {
        let is_disconnected = self.supervisor.link(index).is_some_and(|it| it.is_disconnected());
        self.supervisor.location().log(index, &failure.why);
        self.supervisor.kill(index);
        let execution = &mut self.executions[index];
        execution.is_disconnected = is_disconnected;
        (execution.state, execution.lost) = (State::Done, Some(failure.clone()));
        (self.handle)(OrderEvent::WorkerLost { worker: index, failure })?;
        self.cancel(Some(index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Greeting, QUEUE_LENGTH, RoleMessage};
    use crate::run::scripted::{
        POINT_LIMIT, done, order, ready, sample, say, supervisor, unreported,
    };
    use crate::sample::FailureKind;

    /// Has workers execute one order per role. Each reads its order, then does what its script says.
    fn execute_with(
        scripts: &[(&str, String)],
        margin: Duration,
    ) -> (Vec<OrderResult>, Vec<OrderEvent>) {
        let read = scripts.iter().map(|(_, script)| format!("read order; {script}"));
        let mut supervisor = supervisor(&read.collect::<Vec<_>>());
        let mut orders: Vec<_> = scripts.iter().map(|(role, _)| order(role)).collect();
        if margin < MARGIN {
            orders.iter_mut().for_each(|order| order.points[0].limit = Duration::ZERO);
        }
        supervisor.ensure_workers(orders.len(), &mut unreported).unwrap();
        let mut events = Vec::new();
        let mut handle = |event| {
            events.push(event);
            Ok(())
        };
        let mut executor = Executor::new(&mut supervisor, &orders, &[], &mut handle);
        executor.margin = margin;
        let results = executor.run().unwrap();
        (results, events)
    }

    fn run(scripts: &[(&str, String)]) -> Vec<OrderResult> {
        execute_with(scripts, MARGIN).0
    }

    fn why(result: &OrderResult) -> &str {
        result.lost.as_ref().map_or("", |failure| &failure.why)
    }

    #[test]
    fn roles_start_together_and_exchange_messages_through_the_lab() {
        let values = [("lost".to_owned(), 3.0)].into();
        let message = say(&Answer::Message(RoleMessage { role: "nic".into(), values }));
        // The NIC sends its values after the start; the application ends when it has received them.
        let nic = format!(
            "{}; read start; {message}; {}; {}; read rest",
            ready(),
            sample("nic", None),
            done()
        );
        let application = format!(
            "{}; read start; read message; case $message in *lost*3.0*) {}; {};; *) echo garbage;; esac; read rest",
            ready(),
            sample("application", None),
            done()
        );
        for result in run(&[("nic", nic), ("application", application)]) {
            assert_eq!((why(&result), result.answered), ("", 1));
        }
    }

    #[test]
    fn a_role_that_waits_for_one_that_is_done_is_cancelled() {
        let done = format!("{}; {}; read rest", sample("nic", None), done());
        let waits = format!("{}; read -r answer; echo \"got $answer\"; read rest", ready());
        let results = run(&[("nic", done.clone()), ("application", waits.clone())]);
        assert_eq!((why(&results[0]), results[0].answered), ("", 1));
        assert!(why(&results[1]).contains("'got \"cancel\"'"), "{}", why(&results[1]));
        // The same for a role that is lost, also after it was ready.
        let late = format!("sleep 0.5; {waits}");
        for (lost, waits) in [("exit 3".to_owned(), waits), (format!("{}; exit 3", ready()), late)]
        {
            let results = run(&[("nic", lost), ("application", waits)]);
            assert_eq!(why(&results[0]), "the worker exited with status 3");
            assert!(why(&results[1]).contains("cancel"), "{}", why(&results[1]));
        }
    }

    #[test]
    fn a_worker_that_does_not_read_is_lost_with_the_reason() {
        let message = say(&Answer::Message(RoleMessage { role: "nic".into(), values: [].into() }));
        // The pipe has space for thousands of short messages.
        let flood = format!("while :; do {message} || exit; done");
        let results = run(&[("nic", flood), ("application", "exec sleep 1000".into())]);
        let expected =
            format!("the worker: it does not read its requests: {QUEUE_LENGTH} are waiting");
        assert_eq!(why(&results[1]), expected);
    }

    #[test]
    fn a_silent_worker_is_lost_although_another_speaks() {
        let message = say(&Answer::Message(RoleMessage { role: "nic".into(), values: [].into() }));
        let speaks = format!("for turn in $(seq 200); do {message}; sleep 0.02; done");
        let reads = "while read -r message; do :; done".to_owned();
        let scripts = [("nic", speaks), ("application", reads)];
        let (results, events) = execute_with(&scripts, Duration::from_secs(2));
        assert_eq!(why(&results[1]), "the worker: no answer within 2.0 s");
        let OrderEvent::WorkerLost { worker: 1, failure } = &events[0] else { panic!() };
        assert_eq!(failure.kind, FailureKind::Timeout);
    }

    #[test]
    fn a_worker_that_speaks_for_ever_is_lost() {
        let message = say(&Answer::Message(RoleMessage { role: "nic".into(), values: [].into() }));
        let speaks = format!("while {message}; do sleep 0.01; done");
        let margin = Duration::from_secs(1);
        let start = Instant::now();
        let (results, events) = execute_with(&[("nic", speaks)], margin);
        assert_eq!(why(&results[0]), "the worker: no sample within 20.0 s");
        assert!(matches!(&events[0], OrderEvent::WorkerLost { failure, .. }
            if failure.kind == FailureKind::Timeout));
        assert!(start.elapsed() < Duration::from_secs(60));
    }

    #[test]
    fn the_time_of_a_sample_is_without_artefacts_and_waits() {
        let order = order("nic");
        let mut execution = Execution::new(&order);
        let max = (POINT_LIMIT + MARGIN) * MAX_SPEAKING;
        let earlier = |execution: &mut Execution| execution.since -= Duration::from_secs(3600);
        for state in [State::Preparing, State::Ready] {
            execution.set_state(state);
            earlier(&mut execution);
            execution.set_state(State::Measuring);
            let (remaining, of) = execution.remaining(MARGIN).unwrap();
            assert!(of == max && remaining > max - Duration::from_secs(60), "{remaining:?}");
        }
        execution.set_state(State::Preparing);
        let (remaining, of) = execution.remaining(MARGIN).unwrap();
        assert!(of == MAX_PREPARATION && remaining <= of - Duration::from_secs(3600));
    }

    #[test]
    fn a_role_may_wait_for_the_others_for_longer_than_its_limit() {
        let end = |role| format!("read start; {}; {}; read rest", sample(role, None), done());
        let waits = format!("{}; {}", ready(), end("nic"));
        let preparing = say(&Answer::Preparing { artefact: "table".into() });
        let prepares = format!(
            "{preparing}; sleep 7; {}; {}; {}",
            say(&Answer::Prepared),
            ready(),
            end("application")
        );
        let scripts = [("nic", waits), ("application", prepares)];
        for result in execute_with(&scripts, Duration::from_secs(6)).0 {
            assert_eq!((why(&result), result.answered), ("", 1));
        }
    }

    #[test]
    fn the_limit_of_an_artefact_is_longer_than_the_wait_for_its_lock() {
        let order = order("");
        let mut execution = Execution::new(&order);
        assert_eq!(execution.limit(MARGIN), Some(POINT_LIMIT + MARGIN));
        execution.state = State::Preparing;
        let limit = execution.limit(MARGIN).unwrap();
        assert!(limit > MAX_LOCK_WAIT + Duration::from_secs(8 * 3600));
        assert!(limit < Duration::from_secs(24 * 3600));
        execution.state = State::Ready;
        assert_eq!(execution.limit(MARGIN), None);
    }

    #[test]
    fn the_environment_of_a_guest_of_any_worker_is_reported() {
        let guest = Environment { hostname: "guest".into(), ..Environment::capture() };
        let script = say(&Answer::Greeting(Box::new(Greeting::of(guest))));
        let scripts = [("one", script.clone()), ("two", format!("{script}; read rest"))];
        for scripts in [&scripts[..], &[("", script)]] {
            let (_, events) = execute_with(scripts, MARGIN);
            let guests = events.iter().filter(|event| matches!(event, OrderEvent::Environment(_)));
            assert_eq!(guests.count(), scripts.len());
        }
    }

    #[test]
    fn a_worker_that_answers_for_another_host_is_lost() {
        let run =
            |host| run(&[("", format!("{}; {}; read rest", sample("", host), done()))]).remove(0);
        let right = run(None);
        assert_eq!((why(&right), right.answered), ("", 1));
        let wrong = run(Some("elsewhere"));
        assert!(why(&wrong).contains("elsewhere"), "{}", why(&wrong));
        assert_eq!(wrong.answered, 0);
    }

    #[test]
    fn garbage_after_the_end_of_an_order_costs_no_sample() {
        let garbage = format!("{}; {}; echo garbage; read rest", sample("nic", None), done());
        let slow = format!("sleep 0.5; {}; {}; read rest", sample("dut", None), done());
        for result in run(&[("nic", garbage), ("dut", slow)]) {
            assert_eq!((why(&result), result.answered), ("", 1));
        }
    }
}
