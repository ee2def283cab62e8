//! Synthetic runs: a true value per point, seeded noise, and drift shared by all points of a round.

use std::collections::BTreeMap;
use std::time::Duration;

use lab::experiment::{Effort, Experiment, Profile};
use lab::journal::{FORMAT, Run, RunRecord, SessionRecord};
use lab::metric::{Better, MetricRecord};
use lab::point::Point;
use lab::sample::{Clock, Failure, Sample};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

pub(crate) const EXPERIMENT: &str = "copy/throughput";

/// Parameters of a synthetic run.
pub(crate) struct MadeUp {
    pub(crate) points: Vec<Point>,
    pub(crate) twins: Vec<Point>,
    pub(crate) rounds: u32,
    pub(crate) seed: u64,
    /// The relative spread of one measurement.
    pub(crate) noise: f64,
    pub(crate) metric: &'static str,
    pub(crate) profile: Profile,
}

impl MadeUp {
    pub(crate) fn new(points: Vec<Point>) -> Self {
        let twins = points.first().cloned().into_iter().collect();
        let (metric, profile) = ("throughput", Profile::Standard);
        Self { points, twins, rounds: 20, seed: 1, noise: 0.01, metric, profile }
    }

    /// Returns a run whose points follow `truth`, with noise and drift.
    pub(crate) fn run(&self, truth: impl Fn(&Point) -> f64) -> Run {
        let mut random = Pcg64Mcg::seed_from_u64(self.seed);
        let mut samples = Vec::new();
        for round in 0..self.rounds {
            let drift = 1.0 + 0.2 * random.random::<f64>();
            let once = self.points.iter().map(|point| (point, false));
            for (point, twin) in once.chain(self.twins.iter().map(|point| (point, true))) {
                let noise =
                    1.0 + self.noise * (random.random::<f64>() + random.random::<f64>() - 1.0);
                samples.push(self.sample(point, twin, round, truth(point) * drift * noise));
            }
        }
        Run {
            folder: "results/here-standard-1".into(),
            record: self.record(),
            samples,
            inconsistencies: Vec::new(),
        }
    }

    /// Lets the core clock drift: half of the rounds are 1% below its mean, half 1% above.
    pub(crate) fn drifting(mut run: Run) -> Run {
        for sample in &mut run.samples {
            let clock = sample.clock.as_mut().unwrap();
            let factor = if sample.round % 2 == 0 { 0.99 } else { 1.01 };
            (clock.core_before, clock.core_after) = (factor * 4e9, factor * 4e9);
        }
        run
    }

    pub(crate) fn sample(&self, point: &Point, twin: bool, round: u32, value: f64) -> Sample {
        Sample {
            experiment: EXPERIMENT.into(),
            point: point.clone(),
            twin,
            round,
            session: 1,
            host: "here".into(),
            environment: "e1".into(),
            attempt: 1,
            seconds: 0.25,
            values: [(self.metric.to_string(), value)].into(),
            clock: Some(Clock {
                tsc_hertz: 2e9,
                tsc_step: 2,
                core_before: 3.9e9,
                core_after: 4.1e9,
                second_before: Some(3.9e9),
                second_after: Some(4.1e9),
                ..Clock::default()
            }),
            ..Sample::default()
        }
    }

    pub(crate) fn experiment(&self) -> Experiment {
        Experiment {
            suite: "copy".into(),
            name: "throughput".into(),
            method: "throughput".into(),
            about: "made up".into(),
            metric: self.metric.into(),
            baseline: self.points.first().cloned().unwrap_or_default(),
            defaults: Point::default(),
            sweeps: Vec::new(),
            points: self.points.clone(),
            twins: self.twins.clone(),
            roles: Vec::new(),
            skipped: Vec::new(),
            blocking: Vec::new(),
            alternatives: None,
            compared: Vec::new(),
            batch: 1,
            limit: None,
            effort: Effort {
                min_rounds: 1,
                rounds: self.rounds,
                budget: Duration::from_millis(1),
                resolve: 0.02,
            },
        }
    }

    fn record(&self) -> RunRecord {
        let metric = |unit: &str, better| MetricRecord {
            unit: unit.into(),
            better,
            about: String::new(),
            rate_of: None,
        };
        let rate = MetricRecord { rate_of: Some("time".into()), ..metric("B/s", Better::Higher) };
        let metrics = BTreeMap::from([
            ("throughput".to_string(), rate),
            ("time".to_string(), metric("ns", Better::Lower)),
            ("latency".to_string(), metric("ns", Better::Lower)),
            ("calls".to_string(), metric("1", Better::Neither)),
            ("ticks".to_string(), metric("ticks", Better::Lower)),
            ("pause".to_string(), metric("us", Better::Lower)),
            ("clock".to_string(), metric("Hz", Better::Neither)),
            ("own_cycles".to_string(), metric("cycles", Better::Lower)),
        ]);
        RunRecord {
            format: FORMAT,
            program: "0".into(),
            name: "here-standard-1".into(),
            host: "here".into(),
            profile: self.profile,
            seed: self.seed,
            start: "2026-01-01T00:00:00Z".into(),
            options: BTreeMap::new(),
            nice: 0,
            code: BTreeMap::new(),
            sides: Vec::new(),
            guests: None,
            hosts: Vec::new(),
            sessions: vec![SessionRecord::starting(String::new())],
            environments: BTreeMap::new(),
            experiments: [(EXPERIMENT.to_string(), self.experiment())].into(),
            metrics: [("copy".to_string(), metrics)].into(),
        }
    }
}

/// Returns all combinations of functions, lengths and threads.
pub(crate) fn product(functions: &[&str], lengths: &[&str], threads: &[&str]) -> Vec<Point> {
    let mut points = Vec::new();
    for function in functions {
        for length in lengths {
            for count in threads {
                points.push(Point::from([
                    ("function", *function),
                    ("length", *length),
                    ("threads", *count),
                ]));
            }
        }
    }
    points
}

/// Replaces all samples of the selected points by one failure, as a run does.
pub(crate) fn fail(run: &mut Run, failure: &Failure, which: impl Fn(&Point) -> bool) {
    run.samples.retain(|sample| !which(&sample.point) || sample.round == 0);
    for sample in run.samples.iter_mut().filter(|sample| which(&sample.point)) {
        sample.values.clear();
        sample.error = Some(failure.clone());
    }
}
