//! Synthetic runs: known values with deterministic jitter.

#![allow(dead_code)]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use hdrhistogram::Histogram;
use lab::experiment::{Effort, Experiment, Profile};
use lab::journal::{FORMAT, Run, RunRecord, SessionRecord};
use lab::measure::Measurement;
use lab::metric::{Better, MetricRecord};
use lab::point::{Level, Point};
use lab::proximity::ROUND_TRIP;
use lab::sample::{Clock, Failure, Sample};

pub(crate) const LENGTHS: [&str; 4] = ["16 B", "4 KiB", "64 KiB", "16 MiB"];
pub(crate) const FUNCTIONS: [&str; 3] = ["glibc", "naive", "rep"];
pub(crate) const THREADS: [&str; 3] = ["0", "2", "8"];

/// Returns a small version of the experiment `copy/throughput`.
pub(crate) fn experiment() -> Experiment {
    let baseline = Point::from([
        ("direction", "write"),
        ("memory", "heap"),
        ("length", "64 KiB"),
        ("function", "glibc"),
        ("threads", "0"),
    ]);
    let sweeps =
        [vec!["length", "function"], vec!["threads"], vec!["memory", "direction", "length"]];
    let levels = |factor: &str| -> Vec<&str> {
        match factor {
            "length" => LENGTHS.to_vec(),
            "function" => FUNCTIONS.to_vec(),
            "threads" => THREADS.to_vec(),
            "memory" => vec!["heap", "shared", "device"],
            _ => vec!["write", "read"],
        }
    };
    let mut points: Vec<Point> = Vec::new();
    for sweep in &sweeps {
        let mut product = vec![baseline.clone()];
        for factor in sweep {
            let vary = |point: &Point| -> Vec<Point> {
                levels(factor).iter().map(|level| point.with(factor, *level)).collect()
            };
            product = product.iter().flat_map(vary).collect();
        }
        for point in product {
            if !points.contains(&point) {
                points.push(point);
            }
        }
    }
    Experiment {
        suite: "copy".into(),
        name: "throughput".into(),
        method: "throughput".into(),
        about: "How fast each function moves bytes into and out of each kind of memory".into(),
        metric: "throughput".into(),
        twins: vec![baseline.clone()],
        baseline,
        defaults: Point::default(),
        sweeps: sweeps.iter().map(|s| s.iter().map(|f| f.to_string()).collect()).collect(),
        points,
        roles: Vec::new(),
        skipped: Vec::new(),
        blocking: Vec::new(),
        alternatives: Some("function".into()),
        compared: Vec::new(),
        batch: 64,
        limit: None,
        effort: Effort {
            min_rounds: 12,
            rounds: 12,
            budget: Duration::from_millis(2),
            resolve: 0.02,
        },
    }
}

/// Returns the true throughput of a point in B/s.
pub(crate) fn truth(point: &Point) -> f64 {
    let length = match point.text("length") {
        "16 B" => 5e9,
        "4 KiB" => 150e9,
        "64 KiB" => 100e9,
        _ => 20e9,
    };
    // At 64 KiB 'rep' is half a per cent faster, which is below the noise floor.
    let function = match (point.text("function"), point.text("length")) {
        ("naive", _) => 0.6,
        ("rep", "16 B") => 0.5,
        ("rep", "64 KiB") => 1.005,
        ("rep", _) => 1.4,
        _ => 1.0,
    };
    let threads = match point.text("threads") {
        "2" => 1.7,
        "8" => 3.0,
        _ => 1.0,
    };
    let memory = if point.text("memory") == "shared" { 0.9 } else { 1.0 };
    length * function * threads * memory
}

/// Returns a factor of 0.99 to 1.01 that depends only on point, twin and round.
fn jitter(point: &Point, twin: bool, round: u32) -> f64 {
    let mut state =
        format!("{point} {twin} {round}").bytes().fold(14_695_981_039_346_656_037u64, |h, b| {
            (h ^ u64::from(b)).wrapping_mul(1_099_511_628_211)
        });
    state ^= state >> 29;
    1.0 + ((state % 2001) as f64 / 1000.0 - 1.0) * 0.01
}

/// Returns a sample as in a journal.
pub(crate) fn sample(point: &Point, twin: bool, round: u32) -> Sample {
    Sample {
        experiment: "copy/throughput".into(),
        point: point.clone(),
        twin,
        round,
        session: 1,
        position: round % 7,
        host: "testbed".into(),
        environment: "e1".into(),
        attempt: 1,
        at: 1_767_225_600.25 + f64::from(round),
        seconds: 0.0125,
        values: [("throughput".to_string(), truth(point) * jitter(point, twin, round))].into(),
        clock: Some(Clock {
            tsc_hertz: 2.5e9,
            tsc_step: 26,
            tsc_overhead: 26,
            core_before: 4.4e9,
            core_after: 4.6e9,
            second_before: Some(4.42e9),
            second_after: Some(4.58e9),
            ..Clock::default()
        }),
        noise: Some(machine::noise::NoiseDelta { minor_faults: 3, ..Default::default() }),
        ..Sample::default()
    }
}

/// Returns a run of an experiment without samples.
pub(crate) fn empty(experiment: &Experiment) -> Run {
    let metric = |unit: &str, better| MetricRecord {
        unit: unit.into(),
        better,
        about: "synthetic".into(),
        rate_of: None,
    };
    let metrics = BTreeMap::from([
        ("throughput".to_string(), metric("B/s", Better::Higher)),
        ("latency".to_string(), metric("ns", Better::Lower)),
    ]);
    let mut environment = machine::environment::Environment::capture();
    environment.cpu.brand = "Test CPU".into();
    Run {
        folder: PathBuf::from("testbed-quick-1"),
        record: RunRecord {
            format: FORMAT,
            program: "0.1.0".into(),
            name: "testbed-quick-1".into(),
            host: "testbed".into(),
            profile: Profile::Quick,
            seed: 7,
            start: "2026-01-01T00:00:00Z".into(),
            options: BTreeMap::new(),
            nice: 0,
            code: BTreeMap::new(),
            sides: Vec::new(),
            guests: None,
            hosts: Vec::new(),
            sessions: vec![SessionRecord::starting(String::new())],
            environments: [("e1".to_string(), environment)].into(),
            experiments: [(experiment.id(), experiment.clone())].into(),
            metrics: [("copy".to_string(), metrics)].into(),
        },
        samples: Vec::new(),
        inconsistencies: Vec::new(),
    }
}

/// Returns a run of `copy/throughput` in which device memory is unavailable, one sample is void and
/// was repeated, one crashed, and one is an outlier.
pub(crate) fn run(rounds: u32) -> Run {
    let experiment = experiment();
    let mut run = empty(&experiment);
    for round in 0..rounds {
        for point in &experiment.points {
            if point.text("memory") == "device" {
                if round == 0 {
                    run.samples.push(Sample {
                        error: Some(Failure::unavailable(
                            "there is no /dev/mem",
                            "boot a kernel with CONFIG_DEVMEM",
                        )),
                        values: BTreeMap::new(),
                        clock: None,
                        noise: None,
                        ..sample(point, false, round)
                    });
                }
                continue;
            }
            run.samples.push(sample(point, false, round));
        }
        run.samples.push(sample(&experiment.baseline, true, round));
    }
    disturb(&mut run, &experiment.baseline);
    run
}

fn disturb(run: &mut Run, baseline: &Point) {
    let two = baseline.with("threads", "2");
    let eight = baseline.with("threads", "8");
    let mut repeated = sample(&two, false, 1);
    repeated.attempt = 2;
    for sample in &mut run.samples {
        match (&sample.point, sample.round) {
            (point, 1) if *point == two => sample.void = Some("the core clock moved".into()),
            (point, 2) if *point == two => {
                sample.values.insert("throughput".into(), 1e9);
            }
            (point, 3) if *point == eight => {
                sample.values.clear();
                sample.error = Some(Failure::new(
                    lab::sample::FailureKind::Crashed,
                    "the process died of SIGSEGV",
                ));
            }
            _ => {}
        }
    }
    if run.samples.iter().any(|sample| sample.void.is_some()) {
        run.samples.push(repeated);
    }
}

/// Returns a run of an experiment with one factor, in ns, with a histogram in each sample.
pub(crate) fn latencies(rounds: u32) -> Run {
    let levels = ["near", "far"];
    let baseline = Point::from([("distance", "near")]);
    let experiment = Experiment {
        name: "latency".into(),
        method: "latency".into(),
        about: "What a message costs".into(),
        metric: "latency".into(),
        defaults: Point::default(),
        sweeps: vec![vec!["distance".into()]],
        points: levels.map(|level| baseline.with("distance", level)).to_vec(),
        twins: Vec::new(),
        baseline: baseline.clone(),
        ..experiment()
    };
    let mut run = empty(&experiment);
    for round in 0..rounds {
        for level in levels {
            let centre = if level == "near" { 100 } else { 500 };
            let point = baseline.with("distance", level);
            let mut histogram = Histogram::<u64>::new(3).unwrap();
            for step in 0..100u64 {
                histogram.record(centre + step + u64::from(round)).unwrap();
            }
            let measured = Measurement::default().histogram("latency", &histogram).unwrap();
            let value = (centre as f64 + 50.0) * jitter(&point, false, round);
            run.samples.push(Sample {
                experiment: experiment.id(),
                values: [("latency".to_string(), value)].into(),
                histograms: measured.histograms,
                covariates: [(ROUND_TRIP.to_string(), Level::from(centre.to_string()))].into(),
                ..sample(&point, false, round)
            });
        }
    }
    run
}
