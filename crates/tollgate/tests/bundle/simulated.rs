//! Journals of simulated machines: values with drift, stalls and steps, near and far cores, busy siblings, sessions, other
//! environments, void, failed and limited samples. Everything follows from a seed.

use lab::experiment::{Experiment, Profile};
use lab::journal::{Run, SessionRecord};
use lab::metric::{Better, RESOLUTION, STEP};
use lab::point::Point;
use lab::sample::{Clock, Failure, FailureKind, Part, Sample};
use machine::environment::Environment;
use machine::noise::NoiseDelta;
use machine::topology::{Core, Topology};
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

use crate::journal::{all_metrics, empty};

/// Maximum number of points of a simulated run, which a Python program judges: as many as the largest experiment with claims
/// on shapes and winners has.
const MAX_POINTS: usize = 160;
/// Physical cores of a simulated machine: enough for each claim, however few this one has.
const CORES: usize = 64;
/// Environment of an emulated guest of a point.
const INSIDE: &str = "inside";

/// How a machine behaves, drawn from a seed.
struct Machine {
    random: Pcg64Mcg,
    /// Number of sessions, each of which measures a part of the rounds.
    sessions: u32,
    rounds: u32,
    /// Share of samples on a shared core.
    shared: f64,
    void: f64,
    failed: f64,
    /// Share of values that a search or the instrument limits.
    limited: f64,
    /// Share of samples on far cores.
    far: f64,
    /// Whether samples use two cores.
    has_two_cores: bool,
    /// Relative spread of values.
    noise: f64,
    /// Step of values, as a share of them; 0 without.
    step: f64,
    /// State of the machine, which changes slowly.
    drift: f64,
}

impl Machine {
    fn new(seed: u64) -> Self {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let mut one_of = |choices: &[f64]| choices[random.random_range(0..choices.len())];
        Self {
            sessions: one_of(&[1.0, 1.0, 2.0, 3.0]) as u32,
            rounds: one_of(&[3.0, 7.0, 10.0, 14.0, 25.0]) as u32,
            shared: one_of(&[0.0, 0.0, 0.3, 0.7]),
            void: one_of(&[0.0, 0.02, 0.1]),
            failed: one_of(&[0.0, 0.0, 0.01, 0.1]),
            limited: one_of(&[0.0, 0.0, 0.1, 0.5]),
            far: one_of(&[0.0, 0.4]),
            has_two_cores: one_of(&[0.0, 1.0]) > 0.0,
            noise: one_of(&[0.0, 0.003, 0.02, 0.1]),
            step: one_of(&[0.0, 0.0, 0.01]),
            drift: 1.0,
            random,
        }
    }

    fn happens(&mut self, share: f64) -> bool {
        self.random.random::<f64>() < share
    }

    /// Returns a value around a centre: with noise, sometimes with a stall.
    fn value(&mut self, centre: f64, unit: &str) -> f64 {
        let noise: f64 = (0..4).map(|_| self.random.random::<f64>() - 0.5).sum();
        let stall = if self.happens(0.03) { 1.5 } else { 1.0 };
        let value = centre * (1.0 + self.noise * noise) * stall * self.drift;
        match unit {
            // Counts, some of which are 0.
            "1" => (value / 50.0).round(),
            "share" => (value / 1e4).min(1.0),
            _ if self.step > 0.0 => (value / (self.step * centre)).round() * self.step * centre,
            _ => value,
        }
    }

    fn clock(&mut self) -> Clock {
        let is_shared = self.happens(self.shared);
        let changes = self.shared > 0.0 && self.happens(0.1);
        let mut rate = |is_shared| {
            let noise = 0.05 * self.random.random::<f64>();
            if is_shared { 3.1 + noise } else { 5.0 + noise }
        };
        let (issue_before, issue_after) = (Some(rate(is_shared)), Some(rate(is_shared != changes)));
        let hertz = 4e9 * (1.0 + 0.02 * self.random.random::<f64>());
        Clock {
            tsc_hertz: 2.5e9,
            tsc_step: 26,
            core_before: hertz,
            core_after: hertz * 1.001,
            issue_before,
            issue_after,
            ..Clock::default()
        }
    }

    fn noise(&mut self) -> NoiseDelta {
        let is_busy = self.happens(0.2);
        NoiseDelta {
            involuntary_switches: u64::from(is_busy),
            steal_ns: Some(0),
            waited_ns: Some(if is_busy { 1_000_000 } else { 0 }),
            ..NoiseDelta::default()
        }
    }
}

/// Returns the run of a simulated machine. Its experiments are those that the seed draws.
pub(crate) fn run(seed: u64) -> Run {
    let mut machine = Machine::new(seed);
    let mut run = drawn_experiments(&mut machine);
    let boot = run.record.sessions[0].boot_id.clone();
    run.record.sessions = (1..=machine.sessions)
        .map(|session| SessionRecord {
            start: format!("2026-01-0{session}T00:00:00Z"),
            ..SessionRecord::starting(boot.clone())
        })
        .collect();
    run.record.environments.values_mut().for_each(|one| one.topology = large());
    // A setting changed after some rounds.
    let mut other = run.record.environments["e1"].clone();
    other.governor = Some("simulated".into());
    run.record.environments.insert("e2".into(), other);
    let inside = Environment { emulated: true, ..run.record.environments["e1"].clone() };
    run.record.environments.insert(INSIDE.into(), inside);
    let has_other = machine.happens(0.3);
    let experiments = run.record.experiments.values().cloned();
    let experiments: Vec<_> = experiments.map(|one| (all_metrics(&one), one)).collect();
    for round in 0..machine.rounds {
        machine.drift *= 1.0 + 0.01 * (machine.random.random::<f64>() - 0.5);
        for (metrics, experiment) in &experiments {
            let environment = if has_other && round < machine.rounds / 2 { "e2" } else { "e1" };
            measure(&mut run, &mut machine, (experiment, metrics), round, environment);
        }
    }
    run
}

/// Returns the topology of a machine with [`CORES`].
fn large() -> Topology {
    let core = |cpu| Core { package: 0, id: cpu, cpus: vec![cpu] };
    Topology {
        online: (0..CORES).collect(),
        cores: (0..CORES).map(core).collect(),
        packages: 1,
        nodes: Vec::new(),
    }
}

/// Returns a run without samples of experiments that have at most [`MAX_POINTS`] points together.
fn drawn_experiments(machine: &mut Machine) -> Run {
    let mut run = empty(Profile::Quick, |_| true);
    let mut ids: Vec<String> = run.record.experiments.keys().cloned().collect();
    let (mut kept, mut points) = (Vec::new(), 0);
    while !ids.is_empty() {
        let id = ids.swap_remove(machine.random.random_range(0..ids.len()));
        let count = run.record.experiments[&id].points.len();
        if points + count <= MAX_POINTS {
            points += count;
            kept.push(id);
        }
    }
    run.record.experiments.retain(|id, _| kept.contains(id));
    run
}

/// Adds the samples of one round of an experiment.
fn measure(
    run: &mut Run,
    machine: &mut Machine,
    (experiment, metrics): (&Experiment, &[&str]),
    round: u32,
    environment: &str,
) {
    let points = experiment.points.iter().map(|point| (point, false));
    let twins = experiment.twins.iter().map(|point| (point, true));
    for (point, twin) in points.chain(twins).collect::<Vec<_>>() {
        // Some points are missing on the machine, and some are narrow enough before the last rounds.
        let place = share(&point.to_string());
        if place < 0.02 {
            let missing = Failure::unavailable("there is no such device", "add it");
            let all = Sample { error: Some(missing), ..blank(experiment, point, twin, round) };
            run.samples.extend((round == 0 && !twin).then_some(all));
            continue;
        }
        if place > 0.95 && round > 6 {
            continue;
        }
        let sample = sample(run, machine, (experiment, point, twin), round, metrics);
        let sample = Sample { environment: environment.into(), ..sample };
        if machine.happens(machine.void) {
            let void = Some("the core clock moved".into());
            run.samples.push(Sample { void, ..sample.clone() });
            run.samples.push(Sample { attempt: 2, ..sample });
        } else if machine.happens(machine.failed) {
            let error = Some(Failure::new(FailureKind::Crashed, "it crashed"));
            run.samples.push(Sample { error, values: Default::default(), ..sample });
        } else {
            run.samples.push(sample);
        }
    }
}

fn blank(experiment: &Experiment, point: &Point, twin: bool, round: u32) -> Sample {
    Sample {
        experiment: experiment.id(),
        point: point.clone(),
        twin,
        round,
        session: 1,
        host: "testbed".into(),
        environment: "e1".into(),
        attempt: 1,
        at: 1_767_225_600.25 + f64::from(round),
        seconds: 0.0125,
        ..Sample::default()
    }
}

/// Returns a valid sample with a value of every metric.
fn sample(
    run: &Run,
    machine: &mut Machine,
    (experiment, point, twin): (&Experiment, &Point, bool),
    round: u32,
    metrics: &[&str],
) -> Sample {
    let id = experiment.id();
    let mut sample = blank(experiment, point, twin, round);
    sample.session = 1 + round * machine.sessions / machine.rounds;
    for metric in metrics {
        let record = run.record.metric(&id, metric).unwrap();
        let value = match *metric {
            RESOLUTION | STEP => 0.01,
            _ => {
                let place = share(&format!("{metric} {point}"));
                machine.value(10f64.powf(1.0 + 2.0 * place), &record.unit)
            }
        };
        sample.values.insert((*metric).to_owned(), value);
        if record.better != Better::Neither && machine.happens(machine.limited) {
            let name = if machine.happens(0.5) { "capped" } else { "limited_by_instrument" };
            sample.covariates.insert(name.into(), (*metric).into());
        }
    }
    if machine.has_two_cores {
        let nanoseconds = if machine.happens(machine.far) { 350.0 } else { 90.0 };
        let nanoseconds = nanoseconds * (1.0 + 0.1 * machine.random.random::<f64>());
        sample
            .covariates
            .insert("round_trip_ns".into(), format!("{nanoseconds:.1}").as_str().into());
    }
    // An emulator executed a few points: in a guest, or in the probe.
    match share(&format!("emulated {point}")) {
        place if place < 0.02 => {
            let part = Part { environment: INSIDE.into(), ..Part::default() };
            sample.parts.insert("guest".into(), part);
        }
        place if place < 0.04 => {
            sample.covariates.insert("executed_by".into(), "tcg".into());
        }
        _ => {}
    }
    sample.clock = Some(machine.clock());
    sample.noise = Some(machine.noise());
    sample
}

/// Returns a share of 0 to 1 that depends only on the text.
fn share(text: &str) -> f64 {
    let hash = text.bytes().fold(14_695_981_039_346_656_037u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(1_099_511_628_211)
    });
    ((hash ^ (hash >> 31)) % 1_000_003) as f64 / 1_000_003.0
}
