//! Journals with the experiments of the suites and made-up values, so that a page shows all kinds of figures and verdicts.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use lab::catalogue::Catalogue;
use lab::experiment::{Experiment, Profile};
use lab::journal::{FORMAT, Run, RunRecord, SAMPLES, SessionRecord};
use lab::metric::{MetricRecord, RESOLUTION, STEP};
use lab::point::Point;
use lab::sample::{Clock, Failure, Sample};
use lab::suite::{self, Suite};
use machine::environment::Environment;

/// The suites that measure boundaries.
pub(crate) static SUITES: &[&Suite] =
    &[&copy::SUITE, &crossing::SUITE, &enclave::SUITE, &bounds::SUITE, &stream::SUITE];

/// A run without samples of the experiments of a profile that `is_wanted` selects.
pub(crate) fn empty(profile: Profile, is_wanted: impl Fn(&Experiment) -> bool) -> Run {
    let catalogue = Catalogue::load(SUITES, &[]).unwrap();
    let experiments = catalogue.experiments(profile).unwrap().into_iter().filter(is_wanted);
    let experiments: BTreeMap<String, Experiment> =
        experiments.map(|one| (one.id(), one)).collect();
    let metrics = |suite: &&&Suite| -> (String, BTreeMap<String, MetricRecord>) {
        let all = suite::metrics(suite);
        let records = all.iter().map(|metric| (metric.name.to_owned(), MetricRecord::from(metric)));
        (suite.name().to_owned(), records.collect())
    };
    let environment = Environment::capture();
    Run {
        folder: PathBuf::new(),
        record: RunRecord {
            format: FORMAT,
            program: "0.1.0".into(),
            name: format!("testbed-{}-1", profile.name()),
            host: "testbed".into(),
            profile,
            seed: 7,
            start: "2026-01-01T00:00:00Z".into(),
            options: BTreeMap::new(),
            nice: 0,
            code: BTreeMap::new(),
            sides: Vec::new(),
            guests: None,
            hosts: Vec::new(),
            sessions: vec![SessionRecord {
                command: ["run", "copy", "bounds", "--rounds", "10"].map(String::from).to_vec(),
                ..SessionRecord::starting(environment.boot_id.clone())
            }],
            environments: [("e1".to_owned(), environment)].into(),
            metrics: SUITES.iter().map(|suite| metrics(&suite)).collect(),
            experiments,
        },
        samples: Vec::new(),
        inconsistencies: Vec::new(),
    }
}

/// Returns a share of 0 to 1 that depends only on the text.
fn share(text: &str) -> f64 {
    let hash = text.bytes().fold(14_695_981_039_346_656_037u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(1_099_511_628_211)
    });
    ((hash ^ (hash >> 31)) % 1_000_003) as f64 / 1_000_003.0
}

/// Returns a sample with a value of every metric of its experiment's figures and claims.
pub(crate) fn sample(
    experiment: &Experiment,
    point: &Point,
    twin: bool,
    round: u32,
    metrics: &[&str],
) -> Sample {
    let value = |metric: &&str| {
        let centre = match *metric {
            // They widen the intervals of other metrics.
            RESOLUTION | STEP => 0.01,
            _ => 10f64.powf(1.0 + 4.0 * share(&format!("{metric} {point}"))),
        };
        let noise = share(&format!("{metric} {point} {twin} {round}")) - 0.5;
        ((*metric).to_owned(), centre * (1.0 + 0.04 * noise))
    };
    Sample {
        experiment: experiment.id(),
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
        values: metrics.iter().map(value).collect(),
        clock: Some(Clock {
            tsc_hertz: 2.5e9,
            core_before: 4.4e9,
            core_after: 4.41e9,
            ..Clock::default()
        }),
        ..Sample::default()
    }
}

/// Adds rounds of all experiments. In one point of each, a round is void and repeated; points with the level `device` or
/// `apex` are unavailable.
pub(crate) fn measure(
    run: &mut Run,
    rounds: u32,
    metrics: &dyn Fn(&Experiment) -> Vec<&'static str>,
) {
    let mut samples = Vec::new();
    for experiment in run.record.experiments.values() {
        let metrics = metrics(experiment);
        for round in 0..rounds {
            for point in &experiment.points {
                let one = sample(experiment, point, false, round, &metrics);
                let is_missing =
                    point.levels().any(|(_, level)| ["device", "apex"].contains(&level.as_str()));
                if is_missing {
                    let why = Failure::unavailable("there is no such device", "add it <b>here</b>");
                    let (values, clock) = (BTreeMap::new(), None);
                    samples.extend((round == 0).then_some(Sample {
                        error: Some(why),
                        values,
                        clock,
                        ..one
                    }));
                    continue;
                }
                if round == 1 && *point == experiment.baseline {
                    samples
                        .push(Sample { void: Some("the core clock moved".into()), ..one.clone() });
                    samples.push(Sample { attempt: 2, ..one });
                    continue;
                }
                samples.push(one);
            }
            let twins = experiment.twins.iter();
            samples.extend(twins.map(|point| sample(experiment, point, true, round, &metrics)));
        }
    }
    run.samples.extend(samples);
}

/// Returns the metrics that figures and claims are about, and the experiment's.
pub(crate) fn metrics_shown(experiment: &Experiment) -> Vec<&'static str> {
    let catalogue = Catalogue::load(SUITES, &[]).unwrap();
    let id = experiment.id();
    let figures = catalogue.figures().unwrap();
    let of_figures = figures.iter().filter(|it| it.figure.experiment == id);
    let of_figures =
        of_figures.flat_map(|it| it.figure.metric.iter().chain(&it.figure.more_metrics));
    let claims = catalogue.claims().unwrap();
    let of_claims =
        claims.iter().filter(|it| it.experiment == id).filter_map(|it| it.metric.as_ref());
    let named: Vec<&String> = of_figures.chain(of_claims).chain([&experiment.metric]).collect();
    all_metrics(experiment).into_iter().filter(|name| named.iter().any(|it| it == name)).collect()
}

/// Returns all metrics of the method of an experiment.
pub(crate) fn all_metrics(experiment: &Experiment) -> Vec<&'static str> {
    let method = suite::find_method(SUITES, &experiment.suite, &experiment.method).unwrap();
    method.metrics().iter().map(|metric| metric.name).collect()
}

/// Writes a run to a folder within `results` and returns the folder.
pub(crate) fn write(run: &Run, results: &Path) -> PathBuf {
    let folder = results.join(&run.record.name);
    std::fs::create_dir_all(&folder).unwrap();
    run.record.write(&folder).unwrap();
    let mut lines = String::new();
    for sample in &run.samples {
        writeln!(lines, "{}", serde_json::to_string(sample).unwrap()).unwrap();
    }
    std::fs::write(folder.join(SAMPLES), lines).unwrap();
    folder
}
