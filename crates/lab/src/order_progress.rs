//! The progress of a worker or probe in its order: whether each of its messages belongs to the order.

use std::collections::BTreeSet;

use crate::message::{Answer, CodeAnswer, Order, OrderedPoint, SampleAnswer};
use crate::timed_code::check_loops;

/// The maximum number of messages of a probe before one sample, e.g. `ready` in each step of a search.
const MAX_PROBE_MESSAGES: u32 = 10_000;
/// The same for a worker, which forwards the messages of its probe and adds more, e.g. `preparing`. It is larger, so
/// that the lab does not kill a worker because of its probe.
const MAX_WORKER_MESSAGES: u32 = 2 * MAX_PROBE_MESSAGES;

/// The maximum number of artefacts that a worker makes for an order.
const MAX_ARTEFACTS: usize = 1000;
/// The maximum length of a quoted name, in characters.
const MAX_NAME: usize = 60;

/// The progress of a worker or probe in its order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OrderProgress {
    /// The number of points with a final answer.
    pub(crate) answered: usize,
    /// The expected attempt at the next point, from 1.
    pub(crate) attempt: u32,
    first_attempt: u32,
    messages: u32,
    max_messages: u32,
    /// The artefacts that the worker has announced; `None` once it has sent something else, because it makes them first.
    announced: Option<BTreeSet<String>>,
}

impl OrderProgress {
    /// Starts the order of a probe.
    pub(crate) fn of_probe(order: &Order) -> Self {
        let (first_attempt, max_messages) = (order.attempt, MAX_PROBE_MESSAGES);
        let announced = Some(BTreeSet::new());
        let (answered, attempt, messages) = (0, first_attempt, 0);
        Self { answered, attempt, first_attempt, messages, max_messages, announced }
    }

    /// Starts the order of a worker.
    pub(crate) fn of_worker(order: &Order) -> Self {
        Self { max_messages: MAX_WORKER_MESSAGES, ..Self::of_probe(order) }
    }

    /// Returns the point to be answered next; `None` if all are answered.
    pub(crate) fn point<'a>(&self, order: &'a Order) -> Option<&'a OrderedPoint> {
        order.points.get(self.answered)
    }

    /// Checks a message of the process and records it. After an error the process must not be trusted.
    ///
    /// # Errors
    /// Returns one line if the message does not belong to the order.
    pub(crate) fn accept(&mut self, order: &Order, answer: &Answer) -> Result<(), String> {
        if let Answer::Preparing { artefact } = answer {
            return self.accept_artefact(artefact);
        }
        self.announced = None;
        match answer {
            Answer::Waiting { .. } => Err("it waits for another run during an order".into()),
            Answer::Sample(answer) => self.accept_sample(order, answer),
            Answer::Code(code) => {
                self.check_code(order, code)?;
                self.accept_message()
            }
            Answer::Done { id } if *id != order.id => {
                Err(format!("it ended order '{id}' instead of '{}'", order.id))
            }
            Answer::Done { .. } if self.point(order).is_some() => {
                Err("it ended the order before its last point".into())
            }
            // Replies to these would reach the next probe of the order.
            Answer::Ready | Answer::Stop | Answer::Message(_) if order.role.is_empty() => {
                Err("it sent a message to other roles, and its experiment has none".into())
            }
            Answer::Message(message) if message.role != order.role => {
                let role: String = message.role.chars().take(60).collect();
                Err(format!("it sent a message of role '{role}' instead of '{}'", order.role))
            }
            _ => self.accept_message(),
        }
    }

    /// Records that the worker starts to make an artefact: each once, before anything else.
    fn accept_artefact(&mut self, artefact: &str) -> Result<(), String> {
        let name: String = artefact.chars().take(MAX_NAME).collect();
        let Some(announced) = &mut self.announced else {
            return Err(format!("it makes '{name}' after it has begun to measure"));
        };
        if announced.len() == MAX_ARTEFACTS {
            return Err(format!("it makes more than {MAX_ARTEFACTS} artefacts for one order"));
        }
        match announced.insert(artefact.to_owned()) {
            true => Ok(()),
            false => Err(format!("it makes '{name}' twice for one order")),
        }
    }

    fn accept_sample(&mut self, order: &Order, answer: &SampleAnswer) -> Result<(), String> {
        let Some(ordered) = self.point(order) else {
            return Err(format!("it answered more than the {} points ordered", order.points.len()));
        };
        check_answer(order, ordered, self.attempt, answer)?;
        self.messages = 0;
        if order.is_last(&answer.sample) {
            self.answered += 1;
            self.attempt = self.first_attempt;
        } else {
            self.attempt += 1;
        }
        Ok(())
    }

    /// Checks that code is that of the point to be answered next.
    fn check_code(&self, order: &Order, code: &CodeAnswer) -> Result<(), String> {
        let point = self.point(order).map(|ordered| &ordered.point);
        if (code.order, &code.role, Some(&code.point)) != (order.id, &order.role, point) {
            return Err("it sent the code of another point than the next".into());
        }
        check_loops(&code.loops).map_err(|why| format!("it sent code that is not valid: {why}"))
    }

    fn accept_message(&mut self) -> Result<(), String> {
        self.messages += 1;
        if self.messages > self.max_messages {
            return Err(format!(
                "it sent more than {} messages before a sample",
                self.max_messages
            ));
        }
        Ok(())
    }
}

/// Checks that an answer repeats what was ordered.
fn check_answer(
    order: &Order,
    ordered: &OrderedPoint,
    attempt: u32,
    answer: &SampleAnswer,
) -> Result<(), String> {
    let sample = &answer.sample;
    let experiment = format!("{}/{}", order.suite, order.experiment);
    let differs = |what: &str, got: &dyn std::fmt::Display, expected: &dyn std::fmt::Display| {
        let got: String = got.to_string().chars().take(120).collect();
        Err(format!("it answered {what} '{got}' instead of '{expected}'"))
    };
    if answer.order != order.id {
        differs("order", &answer.order, &order.id)
    } else if answer.role != order.role {
        differs("role", &answer.role, &order.role)
    } else if sample.experiment != experiment {
        differs("experiment", &sample.experiment, &experiment)
    } else if sample.point != ordered.point {
        differs("point", &sample.point, &ordered.point)
    } else if sample.twin != ordered.twin {
        differs("twin", &sample.twin, &ordered.twin)
    } else if sample.round != order.round {
        differs("round", &sample.round, &order.round)
    } else if sample.position != ordered.position {
        differs("position", &sample.position, &ordered.position)
    } else if sample.attempt != attempt {
        differs("attempt", &sample.attempt, &attempt)
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{HostData, RoleMessage};
    use crate::point::Point;
    use crate::sample::MAX_ATTEMPTS;
    use std::time::Duration;

    fn order() -> Order {
        let ordered = |level: &str, position, twin| OrderedPoint {
            position,
            point: Point::from([("length", level)]),
            twin,
            limit: Duration::from_secs(1),
        };
        Order {
            id: 7,
            suite: "toy".into(),
            experiment: "one".into(),
            method: "one".into(),
            round: 3,
            points: vec![ordered("1 B", 4, false), ordered("2 B", 9, true)],
            budget: Duration::from_millis(1),
            role: String::new(),
            attempt: 1,
            seed: 0,
            options: Default::default(),
            host: HostData::default(),
            inside: false,
        }
    }

    fn answer(order: &Order, at: usize, attempt: u32) -> SampleAnswer {
        let sample = crate::probe::empty_sample(order, &order.points[at], attempt);
        SampleAnswer { order: order.id, role: order.role.clone(), sample }
    }

    #[test]
    fn an_answer_to_another_order_is_refused() {
        let order = order();
        let mut progress = OrderProgress::of_probe(&order);
        let right = answer(&order, 0, 1);
        type Change = fn(&mut SampleAnswer);
        let wrong: [(Change, &str); 9] = [
            (|one| one.order = 6, "order '6' instead of '7'"),
            (|one| one.role = "dut".into(), "role 'dut' instead of ''"),
            (
                |one| one.sample.experiment = "toy/two".into(),
                "experiment 'toy/two' instead of 'toy/one'",
            ),
            (|one| one.sample.point = Point::from([("length", "2 B")]), "point 'length=2 B'"),
            (|one| one.sample.twin = true, "twin 'true' instead of 'false'"),
            (|one| one.sample.round = 2, "round '2' instead of '3'"),
            (|one| one.sample.position = 0, "position '0' instead of '4'"),
            (|one| one.sample.attempt = 2, "attempt '2' instead of '1'"),
            (|one| one.sample.point = Point::from([("a", &*"b".repeat(9999))]), "point 'a=b"),
        ];
        for (change, expected) in wrong {
            let mut one = right.clone();
            change(&mut one);
            let why = progress.accept_sample(&order, &one).unwrap_err();
            assert!(why.contains(expected) && why.len() < 300, "{why}");
        }
        assert_eq!(progress, OrderProgress::of_probe(&order));
        progress.accept_sample(&order, &right).unwrap();
        assert!(progress.accept_sample(&order, &right).is_err(), "a point answered twice");
        progress.accept_sample(&order, &answer(&order, 1, 1)).unwrap();
        assert!(progress.point(&order).is_none());
        assert!(
            progress.accept_sample(&order, &right).unwrap_err().contains("more than the 2 points")
        );
    }

    #[test]
    fn a_void_sample_is_repeated_up_to_the_limit() {
        let order = order();
        let mut progress = OrderProgress::of_probe(&order);
        let void = |attempt| {
            let mut one = answer(&order, 0, attempt);
            one.sample.void = Some("a stall".into());
            one
        };
        assert!(progress.accept_sample(&order, &void(2)).is_err());
        for attempt in 1..=MAX_ATTEMPTS {
            assert_eq!(progress.answered, 0);
            progress.accept_sample(&order, &void(attempt)).unwrap();
            assert!(
                progress.accept_sample(&order, &void(attempt)).is_err(),
                "the same attempt again"
            );
        }
        assert_eq!((progress.answered, progress.attempt), (1, 1));
    }

    #[test]
    fn only_roles_may_send_messages_to_roles_and_only_their_own() {
        for role in ["", "writer"] {
            let order = Order { role: role.into(), ..order() };
            let accept = |answer| OrderProgress::of_probe(&order).accept(&order, &answer);
            let message =
                |role: &str| Answer::Message(RoleMessage { role: role.into(), values: [].into() });
            for answer in [Answer::Ready, Answer::Stop, message(role)] {
                assert_eq!(accept(answer).is_ok(), !role.is_empty());
            }
            assert!(accept(message("reader")).is_err());
        }
    }

    #[test]
    fn only_the_code_of_the_next_point_is_accepted() {
        let order = order();
        let mut progress = OrderProgress::of_probe(&order);
        let code = |id, at: usize| {
            let (loops, omitted) = (Vec::new(), 0);
            let point = order.points[at].point.clone();
            Answer::Code(Box::new(CodeAnswer {
                order: id,
                role: String::new(),
                point,
                loops,
                omitted,
            }))
        };
        assert_eq!(progress.accept(&order, &code(7, 0)), Ok(()));
        for (id, at) in [(6, 0), (7, 1)] {
            assert!(progress.accept(&order, &code(id, at)).unwrap_err().contains("another point"));
        }
        progress.accept_sample(&order, &answer(&order, 0, 1)).unwrap();
        assert_eq!(progress.accept(&order, &code(7, 1)), Ok(()));
    }

    #[test]
    fn artefacts_are_made_once_and_first_and_no_order_waits() {
        let order = order();
        let mut progress = OrderProgress::of_worker(&order);
        let mut accept = |answer: &Answer| progress.accept(&order, answer);
        let preparing = |name: &str| Answer::Preparing { artefact: name.into() };
        assert_eq!(accept(&preparing("kernel")), Ok(()));
        assert_eq!(accept(&preparing("image")), Ok(()));
        assert!(accept(&preparing("kernel")).unwrap_err().contains("'kernel' twice"));
        assert_eq!(accept(&Answer::Prepared), Ok(()));
        assert!(accept(&preparing("other")).unwrap_err().contains("after it has begun"));
        let why = accept(&Answer::Waiting { holder: "pid 1".into() }).unwrap_err();
        assert!(why.contains("waits for another run"), "{why}");
        let mut flood = OrderProgress::of_worker(&order);
        let mut announced = (0..=MAX_ARTEFACTS).map(|at| preparing(&at.to_string()));
        assert!(announced.any(|one| flood.accept(&order, &one).is_err()));
    }

    #[test]
    fn an_order_ends_after_its_points() {
        let order = order();
        let mut progress = OrderProgress::of_worker(&order);
        let mut end = |id, answered| {
            progress.answered = answered;
            progress.accept(&order, &Answer::Done { id })
        };
        assert_eq!(end(7, 1), Err("it ended the order before its last point".into()));
        assert_eq!(end(6, 2), Err("it ended order '6' instead of '7'".into()));
        assert_eq!(end(7, 2), Ok(()));
    }

    #[test]
    fn a_flood_of_messages_is_refused() {
        let order = order();
        let mut probe = OrderProgress::of_probe(&order);
        let mut worker = OrderProgress::of_worker(&order);
        // Messages of the worker: it makes an artefact and starts a guest.
        (0..3).for_each(|_| worker.accept_message().unwrap());
        for point in 0..2 {
            // The worker forwards as many messages as its probe may send.
            for _ in 0..MAX_PROBE_MESSAGES {
                probe.accept_message().unwrap();
                worker.accept_message().unwrap();
            }
            let sample = answer(&order, point, 1);
            worker.accept_sample(&order, &sample).unwrap();
            if point == 0 {
                probe.accept_sample(&order, &sample).unwrap();
            }
        }
        assert!(probe.accept_message().unwrap_err().contains("more than 10000 messages"));
        assert!((0..MAX_WORKER_MESSAGES).all(|_| worker.accept_message().is_ok()));
        assert!(worker.accept_message().unwrap_err().contains("more than 20000 messages"));
    }
}
