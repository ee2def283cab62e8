//! Batches of points on their way to the workers, and their samples on the way back.

use std::collections::BTreeMap;
use std::slice;
use std::time::Duration;

use super::execution::{OrderEvent, execute};
use super::location::Location;
use super::sink::JournalSink;
use super::supervisor::Supervisor;
use super::{Event, Lab, RunError};
use crate::experiment::Experiment;
use crate::link::Origin;
use crate::measure::{BOTTLENECK, BUSY_CORES, CAPPED, EXECUTED_BY, LIMITED};
use crate::message::{Counter, HostData, Order, OrderedPoint};
use crate::metric::Metric;
use crate::point::Level;
use crate::probe::empty_sample;
use crate::proximity::{ROUND_TRIP, SIBLINGS};
use crate::sample::{Failure, Item, MAX_ATTEMPTS, Part, Sample};
use crate::side;
use crate::suite;

/// The maximum number of consecutive workers that are lost without a sample between.
const MAX_LOSSES: u32 = 3;

/// Turns batches into orders and journals their samples.
pub(super) struct Dispatcher<'a> {
    lab: &'a Lab<'a>,
    /// The options of the run, with defaults.
    options: BTreeMap<String, String>,
    /// What workers in the lab's boot need not determine.
    host: HostData,
    /// Where all workers run.
    location: Location,
    /// One per side; a single one without sides.
    supervisors: Vec<Supervisor<'a>>,
    /// Consecutive orders in which a worker was lost; a sample sets it back.
    losses: u32,
}

impl<'a> Dispatcher<'a> {
    pub(super) fn new(
        lab: &'a Lab<'a>,
        options: BTreeMap<String, String>,
        location: Location,
        supervisors: Vec<Supervisor<'a>>,
    ) -> Self {
        let counter = Counter::calibrate(machine::environment::boot_id());
        let host = HostData { counter, ..HostData::default() };
        Self { lab, options, host, location, supervisors, losses: 0 }
    }

    /// Returns whether the user interrupted the run.
    pub(super) fn is_interrupted(&self) -> bool {
        self.supervisors.iter().any(Supervisor::is_interrupted)
    }

    /// Ends all workers.
    pub(super) fn end(&mut self) {
        self.supervisors.iter_mut().for_each(Supervisor::end);
    }

    /// Measures a batch of points of one side, each with its position in the round, and journals the samples.
    ///
    /// # Errors
    /// Returns an error if no worker starts, consecutive workers are lost, or the journal cannot be written.
    pub(super) fn execute(
        &mut self,
        experiment: &Experiment,
        round: u32,
        batch: &[(u32, Item)],
        sink: &mut JournalSink,
    ) -> Result<(), RunError> {
        let points =
            batch.iter().map(|(position, item)| self.ordered_point(experiment, *position, item));
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
            seed: sink.seed(),
            options: self.options.clone(),
            host: self.host.clone(),
            inside: false,
        };
        let side = batch.first().map_or(0, |(_, item)| side::index(&item.point));
        if let Err(failure) = self.location.check_roles(experiment.roles.len()) {
            let origin = self.origin_of(side, 0);
            let samples = order.points.iter().map(|point| {
                labelled(failed(&origin, &order, point, failure.clone()), self.label(side))
            });
            return samples.into_iter().try_for_each(|sample| sink.keep(sample));
        }
        if experiment.roles.is_empty() {
            return self.run_single(side, order, sink);
        }
        // Roles measure one point at a time.
        for point in &order.points {
            let order = Order { points: vec![point.clone()], ..order.clone() };
            self.run_roles(side, &experiment.roles, order, sink)?;
        }
        Ok(())
    }

    fn ordered_point(&self, experiment: &Experiment, position: u32, item: &Item) -> OrderedPoint {
        let budget = experiment.effort.budget;
        let method = suite::find_method(self.lab.suites, &experiment.suite, &experiment.method);
        let expected = method.map_or(budget, |method| method.expected(&item.point, budget));
        // Generous, so that only a process that hangs reaches it.
        let limit = experiment
            .limit
            .unwrap_or(expected.saturating_mul(10).saturating_add(Duration::from_secs(10)))
            .saturating_mul(self.location.slowdown());
        // The workers do not know the side.
        let point = item.point.without([side::FACTOR]);
        OrderedPoint { position, point, twin: item.twin, limit }
    }

    /// Runs an order on one worker of a side. If the worker is lost, the point that it was measuring fails, and another
    /// worker measures the remaining points.
    fn run_single(
        &mut self,
        side: usize,
        mut order: Order,
        sink: &mut JournalSink,
    ) -> Result<(), RunError> {
        let (metrics, label) = (self.metrics(&order), self.label(side));
        // The attempt at the first point if the connection to its host was lost: it is measured again, once, because the
        // connection is not part of the measurement.
        let mut repeated: Option<u32> = None;
        while !order.points.is_empty() && !self.is_interrupted() {
            let supervisor = &mut self.supervisors[side];
            order.id = supervisor.next_id();
            let sent =
                repeated.map_or_else(|| order.clone(), |attempt| first_point(&order, attempt));
            let orders = slice::from_ref(&sent);
            let location = &self.location;
            let results = execute(supervisor, orders, metrics, &mut |event| match event {
                OrderEvent::Sample { sample, .. } => {
                    sink.keep(labelled(location.explained(sample), label))
                }
                event => observe(event, sink),
            })?;
            let Some(result) = results.into_iter().next() else { break };
            order.points.drain(..result.answered);
            let was_repeated = repeated.take().is_some();
            if result.answered == sent.points.len() {
                // Also if the worker was lost after its last sample.
                self.count_loss(result.lost.as_ref(), true)?;
                continue;
            }
            if result.is_disconnected && (!was_repeated || result.answered > 0) {
                repeated = Some(result.attempt);
                continue;
            }
            let too_many = self.count_loss(result.lost.as_ref(), result.answered > 0);
            let Some(failure) = result.lost else { break };
            if !order.points.is_empty() {
                let point = order.points.remove(0);
                let failed = failed(&self.origin_of(side, 0), &order, &point, failure);
                sink.keep(labelled(self.location.explained(failed), label))?;
            }
            too_many?;
        }
        Ok(())
    }

    /// Runs an order of one point on a worker per role of a side and joins their samples. If the joined sample is void,
    /// all roles repeat it.
    fn run_roles(
        &mut self,
        side: usize,
        roles: &[String],
        order: Order,
        sink: &mut JournalSink,
    ) -> Result<(), RunError> {
        let (metrics, label) = (self.metrics(&order), self.label(side));
        let point = &order.points[0];
        let (mut attempt, mut is_repeated) = (1, false);
        while attempt <= MAX_ATTEMPTS {
            let supervisor = &mut self.supervisors[side];
            let id = supervisor.next_id();
            let of_role =
                |role: &String| Order { id, role: role.clone(), attempt, ..order.clone() };
            let orders: Vec<_> = roles.iter().map(of_role).collect();
            let mut samples: Vec<Option<Sample>> = vec![None; roles.len()];
            // The failures of other roles follow from this one.
            let mut first_failed = None;
            let results = execute(supervisor, &orders, metrics, &mut |event| match event {
                OrderEvent::Sample { worker, sample } => {
                    if sample.error.is_some() {
                        first_failed.get_or_insert(worker);
                    }
                    samples[worker] = Some(sample);
                    Ok(())
                }
                event => {
                    if let OrderEvent::WorkerLost { worker, .. } = event {
                        first_failed.get_or_insert(worker);
                    }
                    observe(event, sink)
                }
            })?;
            if self.is_interrupted() {
                break;
            }
            if results.iter().any(|result| result.is_disconnected) && !is_repeated {
                is_repeated = true;
                continue;
            }
            let lost = results.iter().find_map(|result| result.lost.as_ref());
            let too_many = self.count_loss(lost, samples.iter().any(Option::is_some));
            let samples = samples.into_iter().zip(results).enumerate();
            let samples = samples.map(|(index, (sample, result))| {
                let origin = self.origin_of(side, index);
                let failed = |failure| failed(&origin, &orders[index], point, failure);
                let missing = || Failure::failed("it sent no sample");
                // A worker that is lost after its sample costs nothing.
                sample.unwrap_or_else(|| failed(result.lost.unwrap_or_else(missing)))
            });
            let Some(sample) = join(roles, samples.collect(), first_failed) else { break };
            let is_final = sample.is_final();
            sink.keep(labelled(self.location.explained(sample), label))?;
            too_many?;
            if is_final {
                break;
            }
            attempt += 1;
        }
        Ok(())
    }

    /// Returns the host and environment of the samples of each side: those of its worker, or of the worker of its first
    /// role.
    pub(super) fn origins(&self) -> Vec<Origin> {
        (0..self.supervisors.len()).map(|side| self.origin_of(side, 0)).collect()
    }

    fn origin_of(&self, side: usize, worker: usize) -> Origin {
        self.supervisors[side].origin(worker).cloned().unwrap_or_default()
    }

    /// Returns the level of a side in the journal; `None` without sides.
    fn label(&self, side: usize) -> Option<&'static str> {
        (self.supervisors.len() > 1).then_some(side::LEVELS[side])
    }

    /// Counts the workers that are lost without a sample between.
    ///
    /// # Errors
    /// Returns [`RunError::Lost`] if they are too many.
    fn count_loss(&mut self, lost: Option<&Failure>, has_sample: bool) -> Result<(), RunError> {
        let before = if has_sample { 0 } else { self.losses };
        self.losses = lost.map_or(0, |_| before + 1);
        match lost {
            Some(last) if self.losses >= MAX_LOSSES => Err(RunError::Lost(format!(
                "{MAX_LOSSES} consecutive workers were lost, the last: {}; {}",
                last.why,
                self.location.loss_remedy()
            ))),
            _ => Ok(()),
        }
    }

    fn metrics(&self, order: &Order) -> &'static [Metric] {
        suite::find_method(self.lab.suites, &order.suite, &order.method)
            .map_or(&[], |method| method.metrics())
    }
}

/// Returns the order of the first point only, from an attempt on.
fn first_point(order: &Order, attempt: u32) -> Order {
    let points = order.points.iter().take(1).cloned().collect();
    Order { points, attempt, ..order.clone() }
}

/// Returns a failed sample of an order of the worker with this origin.
fn failed(origin: &Origin, order: &Order, point: &OrderedPoint, failure: Failure) -> Sample {
    let Origin { host, environment } = origin.clone();
    Sample { host, environment, error: Some(failure), ..empty_sample(order, point, order.attempt) }
}

/// Adds the level of its side to a sample.
fn labelled(sample: Sample, label: Option<&str>) -> Sample {
    match label {
        Some(level) => Sample { point: sample.point.with(side::FACTOR, level), ..sample },
        None => sample,
    }
}

/// Passes an event that is not a sample to the sink.
fn observe(event: OrderEvent, sink: &mut JournalSink) -> Result<(), RunError> {
    match event {
        OrderEvent::Preparing(artefact) => sink.observe(Event::Preparing(&artefact)),
        OrderEvent::Delayed(delay) => sink.observe(Event::Delayed(&delay)),
        OrderEvent::WorkerLost { failure, .. } => sink.observe(Event::WorkerLost(&failure.why)),
        OrderEvent::Environment(environment) => sink.record_environment(environment)?,
        OrderEvent::Code(code) => sink.keep_code(*code)?,
        OrderEvent::Sample { .. } => {}
    }
    Ok(())
}

/// Joins the samples of all roles into one; `None` without roles. A failed or void sample of a role makes the joined
/// sample failed or void; of several failures that of the role `first_failed` counts. Each metric must come from one role.
fn join(roles: &[String], samples: Vec<Sample>, first_failed: Option<usize>) -> Option<Sample> {
    let mut joined = Sample {
        values: BTreeMap::new(),
        histograms: BTreeMap::new(),
        covariates: BTreeMap::new(),
        trials: Vec::new(),
        void: None,
        error: None,
        ..samples.first()?.clone()
    };
    let differing = differing_covariates(roles, &samples);
    let interpreted = differing.iter().find(|(name, _)| INTERPRETED.contains(&name.as_str()));
    let duplicate =
        duplicate_metric(roles, &samples).or_else(|| interpreted.map(|(_, why)| why.clone()));
    for (index, (role, sample)) in roles.iter().zip(samples).enumerate() {
        add_role(&mut joined, role, sample, first_failed == Some(index));
    }
    joined.covariates.retain(|name, _| !differing.contains_key(name));
    if joined.is_valid() && joined.values.is_empty() {
        joined.error = Some(Failure::check("no role has a value"));
    }
    if let (None, Some(why)) = (&joined.error, duplicate) {
        joined.values.clear();
        joined.histograms.clear();
        joined.covariates.clear();
        joined.error = Some(Failure::check(why));
    }
    Some(joined)
}

/// Returns which metric two roles measured; `None` if each metric is from one role.
fn duplicate_metric(roles: &[String], samples: &[Sample]) -> Option<String> {
    let mut sources: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, (role, sample)) in roles.iter().zip(samples).enumerate() {
        for metric in sample.values.keys().chain(sample.histograms.keys()) {
            if let Some(other) = sources.insert(metric, index).filter(|it| *it != index) {
                let other = &roles[other];
                return Some(format!("{other} and {role} both measured '{metric}'"));
            }
        }
    }
    None
}

/// Covariates by which the lab judges a sample. Two roles must not differ in one; in another the sample has that of each role
/// in its part only.
const INTERPRETED: [&str; 7] =
    [CAPPED, BOTTLENECK, LIMITED, BUSY_CORES, EXECUTED_BY, ROUND_TRIP, SIBLINGS];

/// Returns the covariates that two roles sent with different levels, each with the reason why that may be an error.
fn differing_covariates(roles: &[String], samples: &[Sample]) -> BTreeMap<String, String> {
    let mut differing = BTreeMap::new();
    let mut sources: BTreeMap<&str, (&Level, &str)> = BTreeMap::new();
    for (role, sample) in roles.iter().zip(samples) {
        for (name, level) in &sample.covariates {
            if let Some((other, by)) = sources.insert(name, (level, role))
                && other != level
            {
                let why =
                    format!("{by} and {role} sent different levels of the covariate '{name}'");
                differing.entry(name.clone()).or_insert(why);
            }
        }
    }
    differing
}

/// Adds the sample of a role to the joined one. Its failure replaces that of other roles if it was the first.
fn add_role(joined: &mut Sample, role: &str, sample: Sample, is_first_failed: bool) {
    // The joined sample belongs to the host of the first role.
    let source = match sample.host == joined.host {
        true => role.to_owned(),
        false => format!("{role} on {}", sample.host),
    };
    let part = Part {
        host: sample.host,
        environment: sample.environment,
        values: sample.values.clone(),
        noise: sample.noise,
        clock: sample.clock,
        covariates: sample.covariates.clone(),
    };
    joined.seconds = joined.seconds.max(sample.seconds);
    joined.attempt = joined.attempt.max(sample.attempt);
    joined.parts.insert(role.to_owned(), part);
    joined.values.extend(sample.values);
    joined.histograms.extend(sample.histograms);
    joined.covariates.extend(sample.covariates);
    joined.trials.extend(sample.trials);
    let by_role = |why: &str| format!("{source}: {why}");
    joined.void = joined.void.take().or(sample.void.as_deref().map(by_role));
    if let Some(error) = sample.error
        && (joined.error.is_none() || is_first_failed)
    {
        joined.error = Some(error.clone().with_details(by_role(&error.why)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Clock;
    use crate::summary;

    fn roles() -> Vec<String> {
        ["nic", "application"].map(String::from).to_vec()
    }

    fn sample(metric: &str) -> Sample {
        Sample { values: [(metric.to_owned(), 1.0)].into(), attempt: 1, ..Sample::default() }
    }

    #[test]
    fn the_metrics_of_all_roles_are_joined_and_kept_by_role() {
        let joined = join(&roles(), vec![sample("sent"), sample("echoed")], None).unwrap();
        assert_eq!(joined.error, None);
        assert_eq!(joined.values.keys().collect::<Vec<_>>(), ["echoed", "sent"]);
        assert_eq!(joined.parts["nic"].values, sample("sent").values);
        assert_eq!(join(&[], Vec::new(), None), None);
    }

    #[test]
    fn a_metric_of_two_roles_is_an_error() {
        let joined = join(&roles(), vec![sample("sent"), sample("sent")], None).unwrap();
        let error = joined.error.unwrap();
        assert_eq!(error, Failure::check("nic and application both measured 'sent'"));
        assert!(joined.values.is_empty());
        assert_eq!(joined.parts["application"].values, sample("sent").values);
        let same = ["a", "a"].map(String::from);
        let joined = join(&same, vec![sample("sent"), sample("sent")], None).unwrap();
        assert!(joined.error.is_some(), "also if the roles have one name");
    }

    #[test]
    fn each_role_keeps_its_clock_which_converts_its_metrics() {
        let clock = |core: f64| {
            let (core_before, core_after) = (core, core);
            Some(Clock { tsc_hertz: 1e9, core_before, core_after, ..Clock::default() })
        };
        let on = |host: &str, metric: &str, core| Sample {
            host: host.into(),
            environment: host.into(),
            clock: clock(core),
            ..sample(metric)
        };
        let samples = vec![on("one", "sent", 1e9), on("two", "echoed", 3e9)];
        let joined = join(&roles(), samples, None).unwrap();
        assert_eq!(joined.clock, clock(1e9));
        let of = |metric| joined.clock_of(metric).map(|(clock, by)| (clock.core_before, by));
        assert_eq!((of("sent"), of("echoed")), (Some((1e9, "one")), Some((3e9, "two"))));
        assert_eq!(summary::recorded(&joined, "echoed", summary::Unit::Cycles), Some(3.0));
        // Earlier versions kept the clock of the first role only, which is none of another host.
        let mut earlier = joined.clone();
        earlier.parts.values_mut().for_each(|part| part.clock = None);
        assert_eq!(earlier.clock_of("echoed"), None);
        assert_eq!(earlier.clock_of("sent").map(|(_, by)| by), Some("one"));
    }

    #[test]
    fn a_covariate_with_two_levels_is_kept_by_role_and_an_error_if_it_is_interpreted() {
        let with = |name: &str, metric: &str, level: &str| Sample {
            covariates: [(name.to_owned(), Level::from(level))].into(),
            ..sample(metric)
        };
        let join = |name: &str, other: &str| {
            let samples = vec![with(name, "sent", "a"), with(name, "echoed", other)];
            join(&roles(), samples, None).unwrap()
        };
        for name in [CAPPED, "memory"] {
            assert_eq!(join(name, "a").error, None);
            assert_eq!(join(name, "a").covariates[name], Level::from("a"));
        }
        let joined = join("memory", "b");
        assert_eq!((joined.error, joined.covariates.len(), joined.values.len()), (None, 0, 2));
        assert_eq!(joined.parts["application"].covariates["memory"], Level::from("b"));
        let joined = join(CAPPED, "b");
        let why = "nic and application sent different levels of the covariate 'capped'";
        assert_eq!(joined.error, Some(Failure::check(why)));
        assert!(joined.values.is_empty() && joined.covariates.is_empty());
        assert_eq!(joined.parts["application"].covariates[CAPPED], Level::from("b"));
    }

    #[test]
    fn a_failure_on_another_host_names_it() {
        let at = |host: &str, error| Sample { host: host.into(), error, ..Sample::default() };
        let error = Failure::unavailable("no NIC", "plug one in");
        let samples = vec![at("one", None), at("two", Some(error.clone()))];
        let joined = join(&roles(), samples, Some(1)).unwrap();
        assert_eq!(joined.host, "one");
        let expected = error.with_details("application on two: no NIC".into());
        assert_eq!(joined.error.as_ref().map(Failure::cause), Some("no NIC"));
        assert_eq!(joined.error, Some(expected));
        assert_eq!(joined.parts["application"].host, "two");
    }

    #[test]
    fn the_first_failure_and_the_first_void_are_named_by_role() {
        let void = |why: &str| Sample { void: Some(why.into()), ..sample("sent") };
        let failed = |why: &str| Sample { error: Some(Failure::failed(why)), ..Sample::default() };
        let joined = join(&roles(), vec![void("stall"), void("steal")], None).unwrap();
        assert_eq!(joined.void.as_deref(), Some("nic: stall"));
        let joined =
            |one, other, first| join(&roles(), vec![failed(one), failed(other)], first).unwrap();
        let error = joined("no NIC", "cancelled", Some(0)).error;
        assert_eq!(error, Some(Failure::failed("nic: no NIC").with_cause("no NIC")));
        let error = joined("cancelled", "no memory", Some(1)).error;
        assert_eq!(error, Some(Failure::failed("application: no memory").with_cause("no memory")));
    }
}
