//! Simulated fleets: equal nodes are not called outliers, and planted ones are found.

use std::collections::BTreeMap;
use std::time::Duration;

use machine::environment::Environment;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::collect::Collector;
use super::values::node_run;
use super::{Direction, Fleet};
use crate::experiment::{Effort, Experiment, Profile};
use crate::journal::{FORMAT, Run, RunRecord, SessionRecord};
use crate::metric::{Better, MetricRecord};
use crate::point::Point;
use crate::sample::{Clock, Sample};

/// How the nodes of a simulated fleet vary, as standard deviations on the logarithmic scale.
#[derive(Debug, Clone, Copy)]
struct Machines {
    /// From node to node.
    nodes: f64,
    /// From one measurement to the next.
    noise: f64,
    /// Slow drift of a node, of which 99% remain at the next measurement.
    drift: f64,
    /// Share of the measurements that stall.
    stalls: f64,
}

const QUIET: Machines = Machines { nodes: 0.01, noise: 0.01, drift: 0.0, stalls: 0.0 };
/// Equal machines: all that differs is noise.
const EQUAL: Machines = Machines { nodes: 0.0, noise: 0.01, drift: 0.0, stalls: 0.0 };
const BUSY: Machines = Machines { nodes: 0.005, noise: 0.02, drift: 0.05, stalls: 0.05 };

const LENGTHS: [&str; 4] = ["16 B", "1 KiB", "64 KiB", "1 MiB"];

fn normal(random: &mut Pcg64Mcg) -> f64 {
    let (u, v): (f64, f64) = (random.random(), random.random());
    (-2.0 * (1.0 - u).ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}

fn experiment(rounds: u32) -> Experiment {
    let points: Vec<Point> =
        LENGTHS.iter().map(|length| Point::from([("length", *length), ("mode", "a")])).collect();
    Experiment {
        suite: "copy".into(),
        name: "throughput".into(),
        method: "throughput".into(),
        about: "made up".into(),
        metric: "time".into(),
        baseline: points[0].clone(),
        defaults: Point::from([("mode", "a")]),
        sweeps: Vec::new(),
        twins: vec![points[1].clone()],
        points,
        roles: Vec::new(),
        skipped: Vec::new(),
        blocking: Vec::new(),
        alternatives: None,
        compared: Vec::new(),
        batch: 1,
        limit: None,
        effort: Effort {
            min_rounds: rounds,
            rounds,
            budget: Duration::from_millis(1),
            resolve: 0.02,
        },
    }
}

/// A run of a node whose times are longer by a factor.
fn run(node: &str, seed: u64, rounds: u32, factor: f64, machines: Machines) -> Run {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let experiment = experiment(rounds);
    let level = machines.nodes * normal(&mut random);
    let mut drift = machines.drift * normal(&mut random);
    let mut samples = Vec::new();
    for round in 0..rounds {
        let once = experiment.points.iter().map(|point| (point, false));
        for (point, twin) in once.chain(experiment.twins.iter().map(|point| (point, true))) {
            let memory: f64 = 0.99;
            drift = memory * drift
                + machines.drift * (1.0 - memory * memory).sqrt() * normal(&mut random);
            let is_stalled = random.random::<f64>() < machines.stalls;
            let stall = if is_stalled { 1.0 - 5.0 * random.random::<f64>().ln() } else { 1.0 };
            let noise = machines.noise * normal(&mut random);
            let value = 100.0 * factor * (level + drift + noise).exp() * stall;
            samples.push(sample(node, point, twin, round, value));
        }
    }
    Run {
        folder: format!("all/{node}/{node}-quick-1").into(),
        record: record(node, seed, experiment),
        samples,
        inconsistencies: Vec::new(),
    }
}

fn sample(node: &str, point: &Point, twin: bool, round: u32, value: f64) -> Sample {
    Sample {
        experiment: "copy/throughput".into(),
        point: point.clone(),
        twin,
        round,
        session: 1,
        host: node.into(),
        environment: "e1".into(),
        attempt: 1,
        at: 1e9 + f64::from(round),
        seconds: 0.25,
        values: [("time".to_owned(), value)].into(),
        clock: Some(Clock {
            tsc_hertz: 2e9,
            tsc_step: 2,
            core_before: 4e9,
            core_after: 4e9,
            issue_before: Some(5.0),
            issue_after: Some(5.0),
            ..Clock::default()
        }),
        ..Sample::default()
    }
}

fn record(node: &str, seed: u64, experiment: Experiment) -> RunRecord {
    let time = MetricRecord {
        unit: "ns".into(),
        better: Better::Lower,
        about: String::new(),
        rate_of: None,
    };
    let environment = Environment {
        hostname: node.into(),
        boot_id: format!("boot of {node}"),
        governor: Some("performance".into()),
        memory: 64 << 30,
        ..Environment::default()
    };
    RunRecord {
        format: FORMAT,
        program: "0".into(),
        name: format!("{node}-quick-1"),
        host: node.into(),
        profile: Profile::Quick,
        seed,
        start: "2026-01-01T00:00:00Z".into(),
        options: BTreeMap::new(),
        nice: 0,
        code: BTreeMap::new(),
        sides: Vec::new(),
        guests: None,
        hosts: Vec::new(),
        sessions: vec![SessionRecord {
            start: "2026-01-01T00:00:00Z".into(),
            ..SessionRecord::starting(format!("boot of {node}"))
        }],
        environments: [("e1".to_owned(), environment)].into(),
        experiments: [("copy/throughput".to_owned(), experiment)].into(),
        metrics: [("copy".to_owned(), [("time".to_owned(), time)].into())].into(),
    }
}

/// Compares runs as if they were read.
fn compare(runs: impl Iterator<Item = Run>) -> Fleet {
    let mut collector = Collector::default();
    for run in runs {
        let identity = format!("{} {}", run.record.host, run.record.seed);
        let lines = run.samples.len() as u64;
        let one = node_run(&run, run.record.host.clone(), identity, lines);
        collector.add(Ok(Ok(vec![one])), None);
    }
    collector.finish().compare().unwrap()
}

/// A fleet of equal nodes, apart from a planted one.
fn fleet(seed: u64, nodes: u64, rounds: u32, machines: Machines, planted: f64) -> Fleet {
    let run = |node: u64| {
        let factor = if node == 3 { planted } else { 1.0 };
        run(&format!("n{node}"), seed * 10_000 + node, rounds, factor, machines)
    };
    compare((0..nodes).map(run))
}

/// Returns the number of fleets of equal nodes in which any node is an outlier.
fn false_alarms(fleets: u64, nodes: u64, rounds: u32, machines: Machines) -> u64 {
    let (mut alarms, mut judged) = (0, 0);
    for seed in 0..fleets {
        let fleet = fleet(seed, nodes, rounds, machines, 1.0);
        alarms += u64::from(!fleet.outliers.is_empty());
        judged += fleet.judged as u64;
    }
    // Values of correlated rounds, which are too few for an interval, are not judged: on busy machines, a quarter.
    let all = fleets * nodes * LENGTHS.len() as u64;
    assert!(judged * 10 >= all * 4, "{machines:?}, {nodes} nodes: {judged} of {all} are judged");
    alarms
}

#[test]
fn equal_nodes_are_no_outliers() {
    for (machines, nodes, rounds) in
        [(QUIET, 12, 10), (EQUAL, 12, 8), (EQUAL, 60, 6), (BUSY, 12, 12), (BUSY, 60, 10)]
    {
        const FLEETS: u64 = 40;
        let alarms = false_alarms(FLEETS, nodes, rounds, machines);
        println!("{machines:?}, {nodes} nodes, {rounds} rounds: {alarms} of {FLEETS} fleets");
        // Of 40 fleets with a rate of 5%, more than 6 are improbable (0.3%).
        assert!(alarms <= 6, "{machines:?}, {nodes} nodes: {alarms} of {FLEETS}");
    }
}

#[test]
#[ignore = "minutes"]
fn long_false_alarms_are_at_most_5_percent() {
    for (machines, nodes, rounds) in [
        (QUIET, 8, 10),
        (QUIET, 30, 10),
        (QUIET, 300, 6),
        (EQUAL, 8, 12),
        (EQUAL, 30, 20),
        (EQUAL, 300, 6),
        (BUSY, 14, 10),
        (BUSY, 30, 30),
        (BUSY, 300, 10),
    ] {
        let fleets = if nodes > 100 { 100 } else { 1000 };
        let alarms = false_alarms(fleets, nodes, rounds, machines);
        let rate = alarms as f64 / fleets as f64;
        println!("{machines:?}, {nodes} nodes, {rounds} rounds: {rate} of {fleets} fleets");
        // Three standard errors above 5%.
        let limit = 0.05 + 3.0 * (0.05 * 0.95 / fleets as f64).sqrt();
        assert!(rate <= limit, "{machines:?}, {nodes} nodes: {rate}");
    }
}

#[test]
fn a_slow_node_is_found_at_all_its_points() {
    for (nodes, rounds) in [(40, 10), (400, 10)] {
        let fleet = fleet(7, nodes, rounds, QUIET, 1.10);
        assert_eq!(fleet.outliers.len(), 1, "{nodes}: {:?}", fleet.outliers);
        let outlier = &fleet.outliers[0];
        assert_eq!(outlier.node, "n3");
        assert_eq!(outlier.count(Direction::Worse), LENGTHS.len(), "{nodes}: {outlier:?}");
        assert!((1.06..1.14).contains(&outlier.ratio()), "{outlier:?}");
        assert!(outlier.points.iter().all(|one| one.point.get("mode").is_none()));
        let [one] = &fleet.experiments[..] else { panic!("{:?}", fleet.experiments) };
        assert_eq!((one.points, one.outliers, one.nodes), (LENGTHS.len(), 1, nodes as usize));
        assert!(one.spread.is_some_and(|spread| (0.005..0.03).contains(&spread)), "{one:?}");
    }
}

/// Returns the number of fleets in which a node that is 10% slow is found.
fn found(fleets: u64, nodes: u64, rounds: u32) -> u64 {
    let is_found = |seed: &u64| {
        let outliers = fleet(*seed, nodes, rounds, QUIET, 1.10).outliers;
        outliers.iter().any(|one| one.node == "n3" && one.count(Direction::Worse) > 0)
    };
    (0..fleets).filter(is_found).count() as u64
}

#[test]
fn a_slow_node_is_found_among_few() {
    const FLEETS: u64 = 40;
    for (nodes, least) in [(8, 34), (10, 37)] {
        let found = found(FLEETS, nodes, 12);
        println!("{nodes} nodes: found in {found} of {FLEETS} fleets");
        assert!(found >= least, "{nodes} nodes: {found} of {FLEETS}");
    }
}

#[test]
#[ignore = "minutes"]
fn long_a_slow_node_is_found_as_often_as_documented() {
    for (fleets, nodes, rate) in [(1000, 8, 0.85), (1000, 10, 0.95), (200, 100, 0.98)] {
        let found = found(fleets, nodes, 12) as f64 / fleets as f64;
        println!("{nodes} nodes: found in {found} of {fleets} fleets");
        assert!(found >= rate, "{nodes} nodes: {found}");
    }
}

#[test]
fn several_outliers_do_not_hide_each_other() {
    let run = |node: u64| {
        let factor = if node < 6 { 1.15 } else { 1.0 };
        let mut run = run(&format!("n{node:02}"), node, 10, factor, QUIET);
        if node < 6 {
            let environment = run.record.environments.values_mut().next().unwrap();
            environment.governor = Some("powersave".into());
        }
        run
    };
    let fleet = compare((0..30).map(run));
    let names: Vec<_> = fleet.outliers.iter().map(|one| one.node.as_str()).collect();
    assert_eq!(names, ["n00", "n01", "n02", "n03", "n04", "n05"]);
    for outlier in &fleet.outliers {
        let [setting] = &outlier.settings[..] else { panic!("{outlier:?}") };
        assert_eq!(
            (setting.setting.as_str(), setting.value.as_str(), setting.others.as_str()),
            ("governor", "powersave", "performance")
        );
        assert_eq!(setting.share, 0.0);
    }
    assert_eq!(fleet.settings.len(), 1, "{:?}", fleet.settings);
    assert_eq!(fleet.settings[0].values[1].nodes, 6);
}

#[test]
fn a_busy_sibling_is_named() {
    let run = |node: u64| {
        let mut run = run(&format!("n{node}"), node, 12, 1.0, QUIET);
        if node == 3 {
            // In half of the rounds the core executes fewer adds per cycle, and half as much work.
            for sample in run.samples.iter_mut().filter(|sample| sample.round >= 6) {
                let clock = sample.clock.as_mut().unwrap();
                (clock.issue_before, clock.issue_after) = (Some(3.0), Some(3.0));
                sample.values.values_mut().for_each(|value| *value *= 2.0);
            }
            // Slower alone too.
            for sample in run.samples.iter_mut() {
                sample.values.values_mut().for_each(|value| *value *= 1.2);
            }
        }
        run
    };
    let fleet = compare((0..20).map(run));
    assert_eq!(fleet.outliers.len(), 1, "{:?}", fleet.outliers);
    let outlier = &fleet.outliers[0];
    assert!((1.15..1.25).contains(&outlier.ratio()), "rounds alone only: {outlier:?}");
    assert_eq!(outlier.settings[0].setting, "busy SMT sibling");
    assert_eq!(outlier.settings[0].value, "50% of samples");
}

#[test]
fn few_nodes_and_few_rounds_are_not_judged() {
    let few = fleet(1, 7, 10, QUIET, 2.0);
    assert_eq!((few.judged, few.outliers.len()), (0, 0));
    assert_eq!(few.unjudged.points_of_few_nodes, LENGTHS.len());
    assert_eq!(few.nodes_not_judged.len(), 7);
    let short = fleet(1, 20, 5, QUIET, 2.0);
    assert_eq!((short.judged, short.outliers.len()), (0, 0));
    assert_eq!(short.unjudged.points_without_value, 20 * LENGTHS.len());
    // Without twins there is no floor.
    let without_twins = |node: u64| {
        let mut run = run(&format!("n{node}"), node, 10, 1.0, QUIET);
        run.samples.retain(|sample| !sample.twin);
        run
    };
    let fleet = compare((0..10).map(without_twins));
    assert_eq!((fleet.judged, fleet.unjudged.values_without_floor), (0, 10 * LENGTHS.len()));
}

#[test]
fn the_newest_run_of_the_common_definition_counts() {
    let mut runs: Vec<Run> =
        (0..12).map(|node| run(&format!("n{node}"), node, 10, 1.0, QUIET)).collect();
    // An older, slow run of n1, and a newer one by another definition.
    let mut older = run("n1", 100, 10, 1.5, QUIET);
    older.samples.iter_mut().for_each(|sample| sample.at -= 1000.0);
    let mut other = run("n1", 101, 10, 1.5, QUIET);
    other.samples.iter_mut().for_each(|sample| sample.at += 1000.0);
    let experiment = other.record.experiments.values_mut().next().unwrap();
    experiment.effort.budget = Duration::from_millis(20);
    // A copy of the run of n2, made before its last round.
    let mut copy = runs[2].clone();
    copy.folder = "copy/n2-quick-1".into();
    copy.samples.retain(|sample| sample.round < 9);
    copy.samples.iter_mut().for_each(|sample| sample.values.values_mut().for_each(|it| *it *= 2.0));
    runs.extend([older, other, copy]);
    for order in [false, true] {
        if order {
            runs.reverse();
        }
        let fleet = compare(runs.iter().cloned());
        assert!(fleet.outliers.is_empty(), "{:?}", fleet.outliers);
        assert_eq!((fleet.nodes.len(), fleet.judged), (12, 12 * LENGTHS.len()));
        assert_eq!((fleet.unjudged.older_runs, fleet.unjudged.copies), (1, 1));
        let [line] = &fleet.unjudged.other_definitions[..] else { panic!("{:?}", fleet.unjudged) };
        assert_eq!(line, "copy/throughput: 1 node, budget of a sample 20ms instead of 1ms");
    }
}
