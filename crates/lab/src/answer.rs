//! Checks of what a worker or probe sends: whether it answers its order, and whether its sample can be journalled.

use crate::histogram::decode_histogram;
use crate::message::{Answer, Order, OrderedPoint, SampleAnswer};
use crate::metric::Metric;
use crate::point::Level;
use crate::proximity::ROUND_TRIP;
use crate::sample::{Failure, MAX_ATTEMPTS, Sample};
use crate::search::DURATION;

/// The maximum number of messages of a probe before one sample, e.g. `ready` in each step of a search.
const MAX_PROBE_MESSAGES: u32 = 10_000;
/// The same for a worker, which forwards the messages of its probe and adds more, e.g. `preparing`. It is larger, so
/// that the lab does not kill a worker because of its probe.
const MAX_WORKER_MESSAGES: u32 = 2 * MAX_PROBE_MESSAGES;

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
}

impl OrderProgress {
    /// Starts the order of a probe.
    pub(crate) fn of_probe(order: &Order) -> Self {
        let (first_attempt, max_messages) = (order.attempt, MAX_PROBE_MESSAGES);
        Self { answered: 0, attempt: first_attempt, first_attempt, messages: 0, max_messages }
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
        match answer {
            Answer::Sample(answer) => self.accept_sample(order, answer),
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

/// What a sample may contain.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Permitted<'m> {
    /// The metrics of its method.
    pub(crate) metrics: &'m [Metric],
    /// Whether no time is measured where the worker runs, whatever the worker sends.
    pub(crate) lacks_time: bool,
    /// Whether it may have no value: as the part of a role, others of which have values.
    pub(crate) may_be_empty: bool,
}

/// Returns the sample as it can be journalled. Invalid contents are dropped and make it an error of its point; a void
/// sample that will be repeated stays void, so that its point gets one final row.
pub(crate) fn checked(mut sample: Sample, permitted: Permitted) -> Sample {
    if permitted.lacks_time {
        without_times_of_noise(&mut sample);
    }
    if let Err(why) = check_contents(&sample, permitted) {
        sample.values.clear();
        sample.histograms.clear();
        sample.trials.clear();
        sample.covariates.clear();
        sample.parts.values_mut().for_each(|part| {
            part.values.clear();
            part.covariates.clear();
        });
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

/// Removes the times from the counts of disturbances.
fn without_times_of_noise(sample: &mut Sample) {
    let parts = sample.parts.values_mut().filter_map(|part| part.noise.as_mut());
    for noise in sample.noise.iter_mut().chain(parts) {
        (noise.steal_ns, noise.waited_ns) = (None, None);
    }
}

/// Returns what in a sample is a time or derives from one; `None` without any. The duration of the sample itself is no
/// measurement.
pub(crate) fn time_in(sample: &Sample, metrics: &[Metric]) -> Option<String> {
    let is_timed = |name: &str| metrics.iter().any(|one| one.name == name && one.is_timed());
    let of_parts = || sample.parts.values();
    let mut values = sample.values.keys().chain(of_parts().flat_map(|part| part.values.keys()));
    let mut covariates =
        sample.covariates.iter().chain(of_parts().flat_map(|part| &part.covariates));
    let covariate = |(name, _): &(&String, &Level)| name.as_str() == ROUND_TRIP;
    // The levels of trials with a duration are loads.
    let mut of_trials = sample.trials.iter().flat_map(|trial| trial.values.keys());
    let first = || sample.histograms.keys().next();
    if let Some(name) = values.find(|name| is_timed(name)).or_else(first) {
        Some(format!("'{name}'"))
    } else if let Some((name, _)) = covariates.find(covariate) {
        Some(format!("the covariate '{name}'"))
    } else if let Some(name) = of_trials.find(|name| is_timed(name) || *name == DURATION) {
        Some(format!("'{name}' of a trial"))
    } else {
        sample.clock.map(|_| "a clock".into())
    }
}

fn check_contents(sample: &Sample, permitted: Permitted) -> Result<(), String> {
    let Permitted { metrics, lacks_time, may_be_empty } = permitted;
    let declared = |name: &str| {
        metrics.iter().find(|metric| metric.name == name).ok_or_else(|| {
            let name: String = name.chars().take(60).collect();
            format!("'{name}' is not a metric of its method")
        })
    };
    let finite = |what: &str, value: f64| match value.is_finite() {
        true => Ok(()),
        false => Err(format!("'{what}' is {value}")),
    };
    if let Some(time) = time_in(sample, metrics).filter(|_| lacks_time) {
        return Err(format!("{time} is a time, and the CPU that sent it is emulated"));
    }
    let is_settled = sample.error.is_none() && sample.void.is_none();
    if is_settled && sample.values.is_empty() && !may_be_empty {
        return Err("it has no value".into());
    }
    let of_parts = sample.parts.values().flat_map(|part| &part.values);
    for (metric, value) in sample.values.iter().chain(of_parts) {
        let declared = declared(metric)?;
        finite(metric, *value)?;
        if *value < 0.0 && !declared.may_be_negative() {
            return Err(format!("'{metric}' is {value}, which is below zero"));
        }
    }
    for (metric, text) in &sample.histograms {
        declared(metric)?;
        decode_histogram(text).map_err(|why| format!("the histogram '{metric}' is {why}"))?;
    }
    for trial in &sample.trials {
        finite("a trial's level", trial.level)?;
        trial.values.iter().try_for_each(|(name, value)| finite(name, *value))?;
    }
    sample.check_ranges()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{HostData, RoleMessage};
    use crate::point::Point;
    use crate::sample::{Clock, FailureKind, Part, Trial};
    use machine::noise::NoiseDelta;
    use std::collections::BTreeMap;
    use std::time::Duration;

    const METRICS: [Metric; 4] = [
        Metric::time("time", ""),
        Metric::count("calls", ""),
        Metric::count("ratio", "").from_time(),
        Metric::count("difference", "").signed(),
    ];

    const PERMITTED: Permitted =
        Permitted { metrics: &METRICS, lacks_time: false, may_be_empty: false };

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

    #[test]
    fn a_void_sample_with_invalid_contents_is_an_error_at_its_last_attempt() {
        let order = order();
        let wrong = |attempt| Sample {
            values: [("speed".to_string(), 1.0)].into(),
            void: Some("a stall".into()),
            ..answer(&order, 0, attempt).sample
        };
        for attempt in 1..MAX_ATTEMPTS {
            let void = checked(wrong(attempt), PERMITTED);
            assert!(void.error.is_none() && void.values.is_empty() && !void.is_final(), "{void:?}");
            assert_eq!(void.void.unwrap(), "a stall; 'speed' is not a metric of its method");
        }
        let last = checked(wrong(MAX_ATTEMPTS), PERMITTED);
        assert!(
            last.void.is_none() && last.error.unwrap().why.starts_with("'speed' is not a metric")
        );
    }

    #[test]
    fn invalid_contents_are_an_error_of_their_point() {
        let order = order();
        let fine =
            Sample { values: [("time".to_string(), 1.0)].into(), ..answer(&order, 0, 1).sample };
        assert_eq!(checked(fine.clone(), PERMITTED), fine);
        // An overhead is subtracted from times.
        let negative = [("time".into(), -1.0), ("difference".into(), -0.5)].into();
        let negative = Sample { values: negative, ..fine.clone() };
        assert_eq!(checked(negative.clone(), PERMITTED), negative);
        let clock = Clock {
            tsc_hertz: 1e9,
            core_before: 1e9,
            core_after: 1e9,
            second_after: Some(f64::NAN),
            ..Clock::default()
        };
        let trial = |level| Trial { level, holds: None, void: None, values: Default::default() };
        let wrong: [(Sample, &str); 9] = [
            (Sample { values: [("calls".into(), -3.0)].into(), ..fine.clone() }, "below zero"),
            (
                Sample { values: [("speed".into(), 1.0)].into(), ..fine.clone() },
                "'speed' is not a metric",
            ),
            (Sample { values: [("time".into(), f64::NAN)].into(), ..fine.clone() }, "is NaN"),
            (
                Sample { histograms: [("time".into(), "@".into())].into(), ..fine.clone() },
                "not base64",
            ),
            (
                Sample { histograms: [("time".into(), "AAAA".into())].into(), ..fine.clone() },
                "not an HdrHistogram",
            ),
            (
                Sample { histograms: [("x".into(), "".into())].into(), ..fine.clone() },
                "not a metric",
            ),
            (Sample { trials: vec![trial(f64::INFINITY)], ..fine.clone() }, "level' is inf"),
            (Sample { seconds: 1e300, ..fine.clone() }, "'seconds' is"),
            (Sample { clock: Some(clock), ..fine.clone() }, "a clock is NaN Hz"),
        ];
        for (sample, expected) in wrong {
            let sample = checked(sample, PERMITTED);
            let error = sample.error.unwrap();
            assert_eq!(error.kind, FailureKind::Check);
            assert!(error.why.contains(expected), "{error}");
            assert_eq!(sample.point, fine.point);
            assert!(sample.values.is_empty() && sample.histograms.is_empty());
        }
    }

    #[test]
    fn whatever_an_emulated_cpu_sends_no_time_is_journalled() {
        let values = |name: &str| BTreeMap::from([(name.to_owned(), 1.0)]);
        let counts = Sample { values: values("calls"), ..answer(&order(), 0, 1).sample };
        let trial = |name| Trial { level: 1.0, holds: None, void: None, values: values(name) };
        let counts = Sample { trials: vec![trial("nulls")], ..counts };
        let covariates = BTreeMap::from([(ROUND_TRIP.to_owned(), Level::from("98.1"))]);
        let clock = Clock { tsc_hertz: 1e9, core_before: 1e9, core_after: 1e9, ..Clock::default() };
        let histograms = BTreeMap::from([("calls".to_owned(), String::new())]);
        let part = |part: Part| BTreeMap::from([("guest".to_owned(), part)]);
        let lacking = Permitted { lacks_time: true, ..PERMITTED };
        for (sample, time) in [
            (Sample { values: values("time"), ..counts.clone() }, "'time'"),
            (Sample { values: values("ratio"), ..counts.clone() }, "'ratio'"),
            (Sample { histograms, ..counts.clone() }, "'calls'"),
            (Sample { clock: Some(clock), ..counts.clone() }, "a clock"),
            (Sample { trials: vec![trial("time")], ..counts.clone() }, "'time' of a trial"),
            (Sample { trials: vec![trial(DURATION)], ..counts.clone() }, "'duration' of a trial"),
            (
                Sample { covariates: covariates.clone(), ..counts.clone() },
                "the covariate 'round_trip_ns'",
            ),
            (
                Sample {
                    parts: part(Part { values: values("time"), ..Part::default() }),
                    ..counts.clone()
                },
                "'time'",
            ),
            (
                Sample { parts: part(Part { covariates, ..Part::default() }), ..counts.clone() },
                "the covariate 'round_trip_ns'",
            ),
        ] {
            assert_eq!(time_in(&sample, &METRICS).as_deref(), Some(time));
            let refused = checked(sample, lacking);
            let failure = refused.error.as_ref().unwrap();
            assert_eq!(failure.kind, FailureKind::Check);
            let expected = format!("{time} is a time, and the CPU that sent it is emulated");
            assert_eq!(failure.why, expected);
            assert_eq!(time_in(&refused, &METRICS), None, "{refused:?}");
        }
        assert_eq!(checked(counts.clone(), lacking), counts);
        let noise = NoiseDelta { waited_ns: Some(5), steal_ns: Some(5), ..NoiseDelta::default() };
        let noisy = Sample { noise: Some(noise), ..counts };
        assert_eq!(checked(noisy, lacking).noise, Some(NoiseDelta::default()));
    }

    #[test]
    fn a_valid_sample_has_a_value_unless_another_role_may_have_it() {
        let empty = answer(&order(), 0, 1).sample;
        let failure = checked(empty.clone(), PERMITTED).error.unwrap();
        assert_eq!(failure, Failure::check("it has no value"));
        let of_role = Permitted { may_be_empty: true, ..PERMITTED };
        assert_eq!(checked(empty.clone(), of_role), empty);
        let void = Sample { void: Some("a stall".into()), ..empty };
        assert_eq!(checked(void.clone(), PERMITTED), void);
    }
}
