//! One order, carried out by one worker.

use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use machine::environment::Environment;

use super::hand::{Hand, Heard};
use super::session::Session;
use super::silence::Silence;
use super::{Event, RunError};
use crate::answer::{Due, checked};
use crate::descendants;
use crate::experiment::Experiment;
use crate::message::{Answer, HostData, Order, Ordered, Request};
use crate::metric::Metric;
use crate::plan::Item;
use crate::probe::blank;
use crate::sample::{Failure, FailureKind, Sample};
use crate::suite;

/// How often the lab looks whether it was interrupted.
pub(super) const LOOK: Duration = Duration::from_millis(50);
/// A worker that dies this often without an answer between is not started again.
const LOSSES: u32 = 3;
/// Environments that a run may name: every kind of guest is one.
const MAX_ENVIRONMENTS: usize = 1000;

impl Session<'_> {
    /// Has a batch of points measured and journalled.
    pub(super) fn carry_out(
        &mut self,
        experiment: &Experiment,
        round: u32,
        batch: &[(u32, Item)],
    ) -> Result<(), RunError> {
        let points = batch.iter().map(|(position, item)| self.ordered(experiment, *position, item));
        let order = Order {
            id: 0,
            suite: experiment.suite.clone(),
            experiment: experiment.name.clone(),
            method: experiment.method.clone(),
            round,
            points: points.collect(),
            budget: experiment.effort.budget,
            role: String::new(),
            attempt: 1,
            seed: self.journal.record.seed,
            options: self.wanted.options.clone(),
            host: HostData::default(),
            inside: false,
        };
        if experiment.roles.is_empty() {
            self.alone(order)
        } else {
            self.together(experiment, order)
        }
    }

    fn ordered(&self, experiment: &Experiment, position: u32, item: &Item) -> Ordered {
        let budget = experiment.effort.budget;
        let method = suite::find_method(self.lab.suites, &experiment.suite, &experiment.method);
        let expected = method.map_or(budget, |method| method.expected(&item.point, budget));
        // Ten times the expected time and ten seconds: slow is no fault, hung is.
        let limit = experiment
            .limit
            .unwrap_or(expected.saturating_mul(10).saturating_add(Duration::from_secs(10)));
        Ordered { position, point: item.point.clone(), twin: item.twin, limit }
    }

    /// One worker; when it dies, another goes on behind the sample that it died of.
    fn alone(&mut self, mut order: Order) -> Result<(), RunError> {
        let mut losses = 0;
        while !order.points.is_empty() && !self.interrupted() {
            self.staff(1)?;
            order.id = self.next_id();
            let told = self.hands[0].tell(&Request::Order(Box::new(order.clone())));
            let (answered, lost) = match told {
                Ok(()) => self.listen(&order)?,
                Err(why) => (0, Some(Failure::failed(format!("the worker: {why}")))),
            };
            losses = if answered > 0 { 0 } else { losses };
            order.points.drain(..answered);
            if let Some(failure) = lost {
                losses += 1;
                self.lose(0, &failure);
                if !order.points.is_empty() {
                    let sample = self.failed(&order, &order.points[0], failure.clone());
                    self.keep(sample)?;
                    order.points.remove(0);
                }
                if losses >= LOSSES {
                    let why = failure.why;
                    return Err(RunError::Lost(format!(
                        "{LOSSES} workers in a row were lost, the last: {why}; look for what ends \
                         processes here (memory limits, other users) and run again"
                    )));
                }
            } else {
                break;
            }
        }
        Ok(())
    }

    /// Journals answers until the order is done. Gives how many points are settled, and how the
    /// worker was lost.
    fn listen(&mut self, order: &Order) -> Result<(usize, Option<Failure>), RunError> {
        let mut due = Due::of_worker(order);
        let mut silence = Silence::start(Instant::now());
        loop {
            if self.interrupted() {
                return Ok((due.answered, None));
            }
            let limit = due.point(order).map_or(Duration::ZERO, |point| point.limit);
            let said = match self.said.recv_timeout(LOOK) {
                Ok(said) => said,
                Err(RecvTimeoutError::Timeout) => match silence.over(limit, Instant::now()) {
                    None => continue,
                    Some(failure) => return Ok((due.answered, Some(failure))),
                },
                Err(RecvTimeoutError::Disconnected) => {
                    let why = "the worker is silent";
                    return Ok((due.answered, Some(Failure::new(FailureKind::Timeout, why))));
                }
            };
            if said.hand != self.hands[0].number {
                continue;
            }
            silence.heard(&said, Instant::now());
            if let Err(failure) = self.taken(0, order, &mut due, &said.heard) {
                return Ok((due.answered, Some(failure)));
            }
            match said.heard {
                Heard::Answer(Answer::Sample(answered)) => {
                    let sample = checked(answered.sample, self.metrics(order));
                    self.keep(sample)?;
                }
                Heard::Answer(Answer::Done { id }) if id == order.id => {
                    return Ok((due.answered, None));
                }
                Heard::Answer(Answer::Preparing { artefact }) => {
                    self.watch.event(Event::Preparing(&artefact));
                }
                Heard::Answer(Answer::Hello(guest)) => self.know(guest.environment)?,
                Heard::Answer(_) | Heard::Nonsense(_) | Heard::Gone => {}
            }
        }
    }

    /// Whether what a worker said is due in its order; after an error the worker is not trusted again.
    pub(super) fn taken(
        &self,
        hand: usize,
        order: &Order,
        due: &mut Due,
        heard: &Heard,
    ) -> Result<(), Failure> {
        let taken = match heard {
            Heard::Answer(Answer::Sample(answered)) => {
                self.hands[hand].is_own(answered).and_then(|()| due.take(order, answered))
            }
            Heard::Answer(Answer::Done { id }) if *id == order.id && due.point(order).is_some() => {
                Err("it ended before its order".into())
            }
            Heard::Answer(Answer::Hello(_))
                if self.journal.record.environments.len() >= MAX_ENVIRONMENTS =>
            {
                Err(format!("it named more than {MAX_ENVIRONMENTS} environments"))
            }
            Heard::Answer(_) => due.message(),
            Heard::Nonsense(what) => Err(what.clone()),
            Heard::Gone => return Err(Failure::new(FailureKind::Crashed, "the worker died")),
        };
        taken.map_err(|why| Failure::failed(format!("the worker: {why}")))
    }

    /// The metrics that the method of an order declares.
    pub(super) fn metrics(&self, order: &Order) -> &'static [Metric] {
        suite::find_method(self.lab.suites, &order.suite, &order.method)
            .map_or(&[], |method| method.metrics())
    }

    /// Writes down where samples come from, once.
    fn know(&mut self, environment: Environment) -> Result<(), RunError> {
        let known = self.journal.record.environments.insert(environment.id(), environment);
        if known.is_none() {
            self.journal.save_record()?;
        }
        Ok(())
    }

    pub(super) fn next_id(&mut self) -> u64 {
        self.started += 1;
        self.started
    }

    /// Sees to it that there are so many workers.
    pub(super) fn staff(&mut self, hands: usize) -> Result<(), RunError> {
        for at in 0..hands {
            if self.hands.get(at).is_some_and(|hand| !hand.is_gone()) {
                continue;
            }
            let number = self.next_id();
            let hand = Hand::start(number, self.sender.clone()).map_err(RunError::Worker)?;
            if hand.environment() != self.environment {
                let what = "the machine changed under the run (host name, governor, huge pages, …)";
                return Err(RunError::Lost(format!("{what}; undo it or run again")));
            }
            match self.hands.get_mut(at) {
                Some(gone) => *gone = hand,
                None => self.hands.push(hand),
            }
        }
        Ok(())
    }

    /// Kills a lost worker; the next order starts another in its place.
    pub(super) fn lose(&mut self, at: usize, failure: &Failure) {
        self.hands[at].kill();
        let others: Vec<_> =
            self.hands.iter().filter(|hand| !hand.is_gone()).map(Hand::process).collect();
        descendants::end(&others);
        self.watch.event(Event::WorkerLost(&failure.why));
    }

    pub(super) fn failed(&self, order: &Order, ordered: &Ordered, failure: Failure) -> Sample {
        Sample {
            host: self.journal.record.host.clone(),
            environment: self.environment.clone(),
            error: Some(failure),
            ..blank(order, ordered, order.attempt)
        }
    }
}
