//! Whether an answer is for what was ordered, and whether its contents can be journalled.

use crate::histogram::decode_histogram;
use crate::message::{Answered, Order, Ordered};
use crate::metric::Metric;
use crate::sample::{Failure, MAX_ATTEMPTS, Sample};

/// Other messages of a probe than samples before one sample, such as `ready` of each step of a search: more is a
/// flood, and ends the probe.
const MAX_PROBE_MESSAGES: u32 = 10_000;
/// The same of a worker. It hands on those of its probe and adds its own, such as `preparing`: the lab gives
/// up no worker for what its probe did.
const MAX_WORKER_MESSAGES: u32 = 2 * MAX_PROBE_MESSAGES;

/// What is due in an order: which point, and which try of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Due {
    /// How many points are answered for good.
    pub(crate) answered: usize,
    /// The try of the next, from 1.
    pub(crate) attempt: u32,
    first: u32,
    messages: u32,
    max_messages: u32,
}

impl Due {
    /// Nothing of a probe's order is answered yet.
    pub(crate) fn of_probe(order: &Order) -> Self {
        let (first, max_messages) = (order.attempt, MAX_PROBE_MESSAGES);
        Self { answered: 0, attempt: first, first, messages: 0, max_messages }
    }

    /// Nothing of a worker's order is answered yet.
    pub(crate) fn of_worker(order: &Order) -> Self {
        Self { max_messages: MAX_WORKER_MESSAGES, ..Self::of_probe(order) }
    }

    /// The point that is due; none if all are answered.
    pub(crate) fn point<'a>(&self, order: &'a Order) -> Option<&'a Ordered> {
        order.points.get(self.answered)
    }

    /// Takes note of an answer, if it is the one that is due.
    ///
    /// # Errors
    /// One line: what was answered in place of what. Whoever answers so cannot be trusted with the rest.
    pub(crate) fn take(&mut self, order: &Order, answer: &Answered) -> Result<(), String> {
        let Some(ordered) = self.point(order) else {
            return Err(format!("it answered more than the {} points ordered", order.points.len()));
        };
        directed(order, ordered, self.attempt, answer)?;
        self.messages = 0;
        if order.is_last(&answer.sample) {
            self.answered += 1;
            self.attempt = self.first;
        } else {
            self.attempt += 1;
        }
        Ok(())
    }

    /// Takes note of a message that is no sample.
    ///
    /// # Errors
    /// One line, where there are more than any method sends.
    pub(crate) fn message(&mut self) -> Result<(), String> {
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

/// Whether an answer names all that was ordered.
fn directed(
    order: &Order,
    ordered: &Ordered,
    attempt: u32,
    answer: &Answered,
) -> Result<(), String> {
    let sample = &answer.sample;
    let experiment = format!("{}/{}", order.suite, order.experiment);
    let differs = |what: &str, got: &dyn std::fmt::Display, due: &dyn std::fmt::Display| {
        let got: String = got.to_string().chars().take(120).collect();
        Err(format!("it answered {what} '{got}' where '{due}' was ordered"))
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
        differs("try", &sample.attempt, &attempt)
    } else {
        Ok(())
    }
}

/// The sample as it can be journalled: contents that no metric of the suite explains are dropped and make it an
/// error of its point. A void sample that is tried again stays void: its point gets one row that is final.
pub(crate) fn checked(mut sample: Sample, metrics: &[Metric]) -> Sample {
    if let Err(why) = contents(&sample, metrics) {
        sample.values.clear();
        sample.histograms.clear();
        sample.trials.clear();
        sample.clock = None;
        for number in [&mut sample.seconds, &mut sample.at] {
            *number = if number.is_finite() { number.max(0.0) } else { 0.0 };
        }
        match &mut sample.void {
            Some(void) if sample.error.is_none() && sample.attempt < MAX_ATTEMPTS => {
                void.push_str(&format!("; {why}"));
            }
            _ => {
                sample.void = None;
                sample.error.get_or_insert(Failure::check(why));
            }
        }
    }
    sample
}

fn contents(sample: &Sample, metrics: &[Metric]) -> Result<(), String> {
    let declared = |name: &str| match metrics.iter().any(|metric| metric.name == name) {
        true => Ok(()),
        false => {
            let name: String = name.chars().take(60).collect();
            Err(format!("'{name}' is no metric of its suite"))
        }
    };
    let finite = |what: &str, value: f64| match value.is_finite() {
        true => Ok(()),
        false => Err(format!("'{what}' came out as {value}")),
    };
    for (metric, value) in &sample.values {
        declared(metric)?;
        finite(metric, *value)?;
    }
    for (metric, text) in &sample.histograms {
        declared(metric)?;
        decode_histogram(text).map_err(|why| format!("the histogram '{metric}' is {why}"))?;
    }
    for trial in &sample.trials {
        finite("a trial's level", trial.level)?;
        trial.values.iter().try_for_each(|(name, value)| finite(name, *value))?;
    }
    for (what, time) in [("seconds", sample.seconds), ("at", sample.at)] {
        finite(what, time)?;
        if !(0.0..1e12).contains(&time) {
            return Err(format!("'{what}' came out as {time}"));
        }
    }
    if let Some(clock) = &sample.clock {
        let second = clock.second_before.into_iter().chain(clock.second_after);
        let hertz = [clock.tsc_hertz, clock.core_before, clock.core_after];
        if let Some(wrong) =
            hertz.into_iter().chain(second).find(|hertz| hertz.is_nan() || *hertz <= 0.0)
        {
            return Err(format!("a clock came out as {wrong} Hz"));
        }
        hertz.into_iter().try_for_each(|hertz| finite("a clock", hertz))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::HostData;
    use crate::point::Point;
    use crate::sample::{Clock, FailureKind, MAX_ATTEMPTS, Trial};
    use std::time::Duration;

    const METRICS: [Metric; 1] = [Metric::time("time", "")];

    fn order() -> Order {
        let ordered = |level: &str, position, twin| Ordered {
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

    fn answer(order: &Order, at: usize, attempt: u32) -> Answered {
        let sample = crate::probe::blank(order, &order.points[at], attempt);
        Answered { order: order.id, role: order.role.clone(), sample }
    }

    #[test]
    fn only_what_was_ordered_is_taken() {
        let order = order();
        let mut due = Due::of_probe(&order);
        let right = answer(&order, 0, 1);
        type Change = fn(&mut Answered);
        let wrong: [(Change, &str); 9] = [
            (|one| one.order = 6, "order '6' where '7'"),
            (|one| one.role = "dut".into(), "role 'dut' where ''"),
            (
                |one| one.sample.experiment = "toy/two".into(),
                "experiment 'toy/two' where 'toy/one'",
            ),
            (|one| one.sample.point = Point::from([("length", "2 B")]), "point 'length=2 B'"),
            (|one| one.sample.twin = true, "twin 'true' where 'false'"),
            (|one| one.sample.round = 2, "round '2' where '3'"),
            (|one| one.sample.position = 0, "position '0' where '4'"),
            (|one| one.sample.attempt = 2, "try '2' where '1'"),
            (|one| one.sample.point = Point::from([("a", &*"b".repeat(9999))]), "point 'a=b"),
        ];
        for (change, told) in wrong {
            let mut one = right.clone();
            change(&mut one);
            let why = due.take(&order, &one).unwrap_err();
            assert!(why.contains(told) && why.len() < 300, "{why}");
        }
        assert_eq!(due, Due::of_probe(&order));
        due.take(&order, &right).unwrap();
        assert!(due.take(&order, &right).is_err(), "no point twice");
        due.take(&order, &answer(&order, 1, 1)).unwrap();
        assert!(due.point(&order).is_none());
        assert!(due.take(&order, &right).unwrap_err().contains("more than the 2 points"));
    }

    #[test]
    fn a_void_is_tried_again_so_often_and_no_more() {
        let order = order();
        let mut due = Due::of_probe(&order);
        let void = |attempt| {
            let mut one = answer(&order, 0, attempt);
            one.sample.void = Some("a stall".into());
            one
        };
        assert!(due.take(&order, &void(2)).is_err());
        for attempt in 1..=MAX_ATTEMPTS {
            assert_eq!(due.answered, 0);
            due.take(&order, &void(attempt)).unwrap();
            assert!(due.take(&order, &void(attempt)).is_err(), "the same try for ever");
        }
        assert_eq!((due.answered, due.attempt), (1, 1));
    }

    #[test]
    fn a_flood_of_messages_ends() {
        let order = order();
        let mut probe = Due::of_probe(&order);
        let mut worker = Due::of_worker(&order);
        // What a worker says of itself: an artefact is made, and a guest starts.
        (0..3).for_each(|_| worker.message().unwrap());
        for point in 0..2 {
            // The worker hands on all that its probe may send, and loses nothing by it.
            for _ in 0..MAX_PROBE_MESSAGES {
                probe.message().unwrap();
                worker.message().unwrap();
            }
            let sample = answer(&order, point, 1);
            worker.take(&order, &sample).unwrap();
            if point == 0 {
                probe.take(&order, &sample).unwrap();
            }
        }
        assert!(probe.message().unwrap_err().contains("more than 10000 messages"));
        assert!((0..MAX_WORKER_MESSAGES).all(|_| worker.message().is_ok()));
        assert!(worker.message().unwrap_err().contains("more than 20000 messages"));
    }

    #[test]
    fn a_void_with_wrong_contents_is_an_error_at_its_last_try_alone() {
        let order = order();
        let wrong = |attempt| Sample {
            values: [("speed".to_string(), 1.0)].into(),
            void: Some("a stall".into()),
            ..answer(&order, 0, attempt).sample
        };
        for attempt in 1..MAX_ATTEMPTS {
            let void = checked(wrong(attempt), &METRICS);
            assert!(void.error.is_none() && void.values.is_empty() && !void.is_final(), "{void:?}");
            assert_eq!(void.void.unwrap(), "a stall; 'speed' is no metric of its suite");
        }
        let last = checked(wrong(MAX_ATTEMPTS), &METRICS);
        assert!(last.void.is_none() && last.error.unwrap().why.starts_with("'speed' is no metric"));
    }

    #[test]
    fn contents_that_cannot_be_journalled_are_an_error_of_their_point() {
        let order = order();
        let fine =
            Sample { values: [("time".to_string(), 1.0)].into(), ..answer(&order, 0, 1).sample };
        assert_eq!(checked(fine.clone(), &METRICS), fine);
        let clock = Clock {
            tsc_hertz: 1e9,
            tsc_step: 1,
            tsc_overhead: 1,
            core_before: 1e9,
            core_after: 1e9,
            second_before: None,
            second_after: Some(f64::NAN),
        };
        let trial = |level| Trial { level, holds: None, void: None, values: Default::default() };
        let wrong: [(Sample, &str); 8] = [
            (
                Sample { values: [("speed".into(), 1.0)].into(), ..fine.clone() },
                "'speed' is no metric",
            ),
            (Sample { values: [("time".into(), f64::NAN)].into(), ..fine.clone() }, "as NaN"),
            (
                Sample { histograms: [("time".into(), "@".into())].into(), ..fine.clone() },
                "not base64",
            ),
            (
                Sample { histograms: [("time".into(), "AAAA".into())].into(), ..fine.clone() },
                "not an HdrHistogram",
            ),
            (Sample { histograms: [("x".into(), "".into())].into(), ..fine.clone() }, "no metric"),
            (
                Sample { trials: vec![trial(f64::INFINITY)], ..fine.clone() },
                "level' came out as inf",
            ),
            (Sample { seconds: 1e300, ..fine.clone() }, "'seconds' came out as"),
            (Sample { clock: Some(clock), ..fine.clone() }, "a clock came out as NaN Hz"),
        ];
        for (sample, told) in wrong {
            let sample = checked(sample, &METRICS);
            let error = sample.error.unwrap();
            assert_eq!(error.kind, FailureKind::Check);
            assert!(error.why.contains(told), "{error}");
            assert_eq!(sample.point, fine.point);
            assert!(sample.values.is_empty() && sample.histograms.is_empty());
        }
    }
}
