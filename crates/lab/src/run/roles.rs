//! One order for each role: they start and stop together, and their answers become one sample.

use std::collections::BTreeMap;
use std::time::Instant;

use super::hand::{Hand, Heard, Said};
use super::order::LOOK;
use super::session::Session;
use super::silence::Silence;
use super::{Event, RunError};
use crate::answer::{Due, checked};
use crate::experiment::Experiment;
use crate::message::{Answer, Order, Request};
use crate::sample::{Failure, MAX_ATTEMPTS, Part, Sample};

impl Session<'_> {
    /// A worker for each role; their answers become one sample. Where it is void, all try again.
    pub(super) fn together(
        &mut self,
        experiment: &Experiment,
        mut order: Order,
    ) -> Result<(), RunError> {
        for attempt in 1..=MAX_ATTEMPTS {
            order.attempt = attempt;
            let Some(sample) = self.one_try(experiment, &order)? else { break };
            let last = sample.is_final();
            self.keep(sample)?;
            if last {
                break;
            }
        }
        Ok(())
    }

    /// What all roles answered once; nothing where the run was interrupted.
    fn one_try(
        &mut self,
        experiment: &Experiment,
        order: &Order,
    ) -> Result<Option<Sample>, RunError> {
        let roles = &experiment.roles;
        self.staff(roles.len())?;
        let id = self.next_id();
        let orders: Vec<Order> =
            roles.iter().map(|role| Order { id, role: role.clone(), ..order.clone() }).collect();
        let mut dues: Vec<Due> = orders.iter().map(Due::of_worker).collect();
        let mut answers: Vec<Option<Sample>> = vec![None; roles.len()];
        let mut done = vec![false; roles.len()];
        let tell = |at: usize| self.hands[at].tell(&Request::Order(Box::new(orders[at].clone())));
        if let Err((at, why)) = in_turn(roles.len(), tell) {
            let failure = Failure::failed(format!("the worker: {why}"));
            answers[at] = Some(self.failed(order, &order.points[0], failure.clone()));
            // Those behind it have no order to stop.
            done[at..].fill(true);
            self.lose(at, &failure);
            self.tell_others(at, at, &Request::Stop);
        }
        let mut ready = vec![false; roles.len()];
        let mut silence = Silence::start(Instant::now());
        while !done.iter().all(|done| *done) && !self.interrupted() {
            let Ok(said) = self.said.recv_timeout(LOOK) else {
                let Some(failure) = silence.over(order.points[0].limit, Instant::now()) else {
                    continue;
                };
                for at in (0..roles.len()).filter(|at| !done[*at]) {
                    answers[at] = Some(self.failed(order, &order.points[0], failure.clone()));
                    self.lose(at, &failure);
                }
                break;
            };
            let spoke = |one: &Hand| one.number == said.hand && !one.is_gone();
            let Some(at) = self.hands.iter().position(spoke) else { continue };
            silence.heard(&said, Instant::now());
            let Said { hand, heard: what } = said;
            if let Err(failure) = self.taken(at, &orders[at], &mut dues[at], &what) {
                answers[at] = Some(self.failed(order, &order.points[0], failure.clone()));
                done[at] = true;
                silence.lost(hand);
                self.lose(at, &failure);
                self.tell_others(roles.len(), at, &Request::Stop);
                continue;
            }
            match what {
                Heard::Answer(Answer::Sample(answered)) => {
                    let sample = checked(answered.sample, self.metrics(order));
                    let failed = sample.error.is_some();
                    answers[at] = Some(sample);
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
                    self.watch.event(Event::Preparing(&artefact));
                }
                Heard::Answer(Answer::Done { id: ended }) => done[at] |= ended == id,
                Heard::Answer(Answer::Hello(_) | Answer::Prepared)
                | Heard::Nonsense(_)
                | Heard::Gone => {}
            }
        }
        if self.interrupted() {
            return Ok(None);
        }
        let sample = joined(roles, answers, || {
            self.failed(order, &order.points[0], Failure::failed("a role gave no answer"))
        });
        Ok(Some(sample))
    }

    /// Tells the first `roles` roles something, without one of them.
    fn tell_others(&mut self, roles: usize, but: usize, request: &Request) {
        for at in (0..roles).filter(|at| *at != but) {
            // One that reads nothing is found by its silence.
            let _ = self.hands[at].tell(request);
        }
    }
}

/// Does something for each role until it fails: for which one, and why.
fn in_turn(
    roles: usize,
    mut tell: impl FnMut(usize) -> Result<(), String>,
) -> Result<(), (usize, String)> {
    (0..roles).try_for_each(|at| tell(at).map_err(|why| (at, why)))
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
            noise: answer.noise,
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
            sample.error = Some(Failure { why: named(&error.why), ..error });
        }
    }
    whole.unwrap_or_else(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_role_behind_the_first_failure_is_told() {
        let mut told = Vec::new();
        let failed = in_turn(4, |at| {
            told.push(at);
            if at == 1 { Err("no".into()) } else { Ok(()) }
        });
        assert_eq!((failed, told), (Err((1, "no".into())), vec![0, 1]));
        assert_eq!(in_turn(4, |_| Ok(())), Ok(()));
    }
}
