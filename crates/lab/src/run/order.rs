//! One order, carried out by one worker, or by one for each role.

use std::collections::BTreeMap;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use super::hand::{Hand, Heard, Said};
use super::session::Session;
use super::{Event, RunError};
use crate::descendants;
use crate::experiment::Experiment;
use crate::message::{Answer, HostData, Order, Ordered, Request};
use crate::plan::Item;
use crate::probe::blank;
use crate::sample::{Failure, FailureKind, Part, Sample};
use crate::suite;

/// How often the lab looks whether it was interrupted.
const LOOK: Duration = Duration::from_millis(50);
/// How much longer than a probe's limit a worker may be silent.
const SILENCE: Duration = Duration::from_secs(20);
/// A worker that dies this often without an answer between is not started again.
const LOSSES: u32 = 3;

impl Session<'_> {
    /// Has a batch of points measured and journalled.
    pub(super) fn carry_out(
        &mut self,
        experiment: &Experiment,
        round: u32,
        batch: &[(u32, Item)],
    ) -> Result<(), RunError> {
        let points = batch
            .iter()
            .map(|(position, item)| self.ordered(experiment, *position, item));
        let order = Order {
            id: 0,
            suite: experiment.suite.clone(),
            experiment: experiment.name.clone(),
            round,
            points: points.collect(),
            budget: experiment.effort.budget,
            role: String::new(),
            seed: self.journal.record.seed,
            options: self.wanted.options.clone(),
            host: HostData::default(),
        };
        if experiment.roles.is_empty() {
            self.alone(order)
        } else {
            self.together(experiment, &order)
        }
    }

    fn ordered(&self, experiment: &Experiment, position: u32, item: &Item) -> Ordered {
        let expected = suite::find(self.lab.suites, &experiment.suite)
            .map_or(experiment.effort.budget, |suite| {
                suite.expected(&experiment.name, &item.point, experiment.effort.budget)
            });
        // Ten times the expected time and ten seconds: slow is no fault, hung is.
        let limit = experiment
            .limit
            .unwrap_or(expected * 10 + Duration::from_secs(10));
        Ordered {
            position,
            point: item.point.clone(),
            twin: item.twin,
            limit,
        }
    }

    /// One worker; when it dies, another goes on behind the sample that it died of.
    fn alone(&mut self, mut order: Order) -> Result<(), RunError> {
        let mut losses = 0;
        while !order.points.is_empty() && !self.interrupted() {
            self.staff(1)?;
            order.id = self.next_id();
            self.hands[0].tell(&Request::Order(Box::new(order.clone())));
            let (answered, lost) = self.listen(&order)?;
            losses = if answered > 0 { 0 } else { losses };
            order.points.drain(..answered);
            if let Some(failure) = lost {
                losses += 1;
                self.replace(0, &failure);
                if !order.points.is_empty() {
                    let sample = self.failed(&order, &order.points[0], failure.clone());
                    self.keep(sample)?;
                    order.points.remove(0);
                }
                if losses >= LOSSES {
                    return Err(RunError::Worker(failure.why));
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
        let mut answered = 0;
        let mut heard = Instant::now();
        let mut preparing = false;
        loop {
            if self.interrupted() {
                return Ok((answered, None));
            }
            let limit = order
                .points
                .get(answered)
                .map_or(SILENCE, |point| point.limit + SILENCE);
            let said = match self.said.recv_timeout(LOOK) {
                Ok(said) => said,
                Err(RecvTimeoutError::Timeout) if preparing || heard.elapsed() < limit => continue,
                Err(_) => {
                    let why = "the worker is silent";
                    return Ok((answered, Some(Failure::new(FailureKind::Timeout, why))));
                }
            };
            if said.hand != self.hands[0].number {
                continue;
            }
            heard = Instant::now();
            match said.heard {
                Heard::Answer(Answer::Sample(sample)) => {
                    let last = sample.settled() || sample.error.is_some();
                    answered += usize::from(last);
                    self.keep(*sample)?;
                }
                Heard::Answer(Answer::Done { id }) if id == order.id => {
                    return Ok((answered, None));
                }
                Heard::Answer(Answer::Preparing { artefact }) => {
                    preparing = true;
                    self.watch.event(Event::Preparing(&artefact));
                }
                Heard::Answer(Answer::Prepared) => preparing = false,
                Heard::Answer(_) => {}
                Heard::Nonsense(what) => {
                    return Ok((
                        answered,
                        Some(Failure::failed(format!("the worker: {what}"))),
                    ));
                }
                Heard::Gone => {
                    let failure = Failure::new(FailureKind::Crashed, "the worker died");
                    return Ok((answered, Some(failure)));
                }
            }
        }
    }

    /// A worker for each role; their answers become one sample.
    fn together(&mut self, experiment: &Experiment, order: &Order) -> Result<(), RunError> {
        let roles = &experiment.roles;
        self.staff(roles.len())?;
        let id = self.next_id();
        for (at, role) in roles.iter().enumerate() {
            let order = Order {
                id,
                role: role.clone(),
                ..order.clone()
            };
            self.hands[at].tell(&Request::Order(Box::new(order)));
        }
        let mut answers: Vec<Option<Sample>> = vec![None; roles.len()];
        let mut done = vec![false; roles.len()];
        let mut ready = vec![false; roles.len()];
        let mut preparing = 0;
        let mut heard = Instant::now();
        let limit = order.points[0].limit + SILENCE;
        while !done.iter().all(|done| *done) && !self.interrupted() {
            let Ok(Said { hand, heard: what }) = self.said.recv_timeout(LOOK) else {
                if preparing > 0 || heard.elapsed() < limit {
                    continue;
                }
                let failure = Failure::new(FailureKind::Timeout, "the worker is silent");
                for at in (0..roles.len()).filter(|at| !done[*at]) {
                    answers[at] = Some(self.failed(order, &order.points[0], failure.clone()));
                    self.replace(at, &failure);
                }
                break;
            };
            let Some(at) = self.hands.iter().position(|one| one.number == hand) else {
                continue;
            };
            heard = Instant::now();
            match what {
                Heard::Answer(Answer::Sample(sample)) => {
                    // Only the last try counts: all roles measured it at the same time.
                    let failed = sample.error.is_some();
                    answers[at] = Some(*sample);
                    if failed {
                        self.tell_others(roles.len(), at, &Request::Stop);
                    }
                }
                Heard::Answer(Answer::Ready) => {
                    ready[at] = true;
                    if ready.iter().all(|ready| *ready) {
                        ready.fill(false);
                        self.tell_others(roles.len(), usize::MAX, &Request::Start);
                    }
                }
                Heard::Answer(Answer::Stop) => self.tell_others(roles.len(), at, &Request::Stop),
                Heard::Answer(Answer::Preparing { artefact }) => {
                    preparing += 1;
                    self.watch.event(Event::Preparing(&artefact));
                }
                Heard::Answer(Answer::Prepared) => preparing = 0,
                Heard::Answer(Answer::Done { id: ended }) => done[at] |= ended == id,
                Heard::Answer(Answer::Hello(_)) => {}
                Heard::Nonsense(_) | Heard::Gone => {
                    let failure = Failure::new(FailureKind::Crashed, "the worker died");
                    answers[at] = Some(self.failed(order, &order.points[0], failure.clone()));
                    done[at] = true;
                    self.replace(at, &failure);
                    self.tell_others(roles.len(), at, &Request::Stop);
                }
            }
        }
        if self.interrupted() {
            return Ok(());
        }
        let sample = joined(roles, answers, || {
            self.failed(
                order,
                &order.points[0],
                Failure::failed("a role gave no answer"),
            )
        });
        self.keep(sample)
    }

    fn tell_others(&mut self, roles: usize, but: usize, request: &Request) {
        for at in (0..roles).filter(|at| *at != but) {
            self.hands[at].tell(request);
        }
    }

    fn next_id(&mut self) -> u64 {
        self.started += 1;
        self.started
    }

    /// Sees to it that there are so many workers.
    fn staff(&mut self, hands: usize) -> Result<(), RunError> {
        while self.hands.len() < hands {
            let number = self.next_id();
            let hand = Hand::start(number, self.sender.clone()).map_err(RunError::Worker)?;
            self.hands.push(hand);
        }
        Ok(())
    }

    /// Lets go of a lost worker; the next order starts another.
    fn replace(&mut self, at: usize, failure: &Failure) {
        self.hands[at].kill();
        let others: Vec<_> = self.hands.iter().map(Hand::process).collect();
        descendants::end(&others);
        self.watch.event(Event::WorkerLost(&failure.why));
        let number = self.next_id();
        if let Ok(hand) = Hand::start(number, self.sender.clone()) {
            self.hands[at] = hand;
        } else {
            self.hands.remove(at);
        }
    }

    fn failed(&self, order: &Order, ordered: &Ordered, failure: Failure) -> Sample {
        Sample {
            host: self.journal.record.host.clone(),
            environment: self.environment.clone(),
            error: Some(failure),
            ..blank(order, ordered, 1)
        }
    }
}

/// One sample of what all roles answered; a role's failure or void is the sample's.
fn joined(roles: &[String], answers: Vec<Option<Sample>>, missing: impl Fn() -> Sample) -> Sample {
    let mut whole: Option<Sample> = None;
    for (role, answer) in roles.iter().zip(answers) {
        let answer = answer.unwrap_or_else(&missing);
        let part = Part {
            host: answer.host.clone(),
            environment: answer.environment.clone(),
            values: answer.values.clone(),
            noise: answer.noise.clone(),
            covariates: answer.covariates.clone(),
        };
        let sample = whole.get_or_insert_with(|| Sample {
            values: BTreeMap::new(),
            covariates: BTreeMap::new(),
            error: None,
            void: None,
            ..answer.clone()
        });
        sample.seconds = sample.seconds.max(answer.seconds);
        sample.attempt = sample.attempt.max(answer.attempt);
        sample.parts.insert(role.clone(), part);
        sample.values.extend(answer.values);
        sample.histograms.extend(answer.histograms);
        sample.covariates.extend(answer.covariates);
        let named = |why: &str| format!("{role}: {why}");
        sample.void = sample.void.take().or(answer.void.as_deref().map(named));
        // The first cause stands; what the others say follows from it.
        if let (None, Some(error)) = (&sample.error, answer.error) {
            sample.error = Some(Failure {
                why: named(&error.why),
                ..error
            });
        }
    }
    whole.unwrap_or_else(missing)
}
