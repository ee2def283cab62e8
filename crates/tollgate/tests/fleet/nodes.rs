//! Simulated nodes: the journal of each, with the same experiment and small differences.

use std::path::{Path, PathBuf};

use lab::experiment::Profile;
use lab::journal::Run;
use lab::point::Point;
use lab::sample::Sample;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::journal;

/// The experiment of all nodes.
pub(crate) const EXPERIMENT: &str = "crossing/round-trips";
/// Number of its points.
pub(crate) const POINTS: usize = 3;

/// Nodes of one fleet, from the same description.
pub(crate) struct Nodes {
    template: Run,
    pub(crate) rounds: u32,
}

/// How a node differs from the others.
#[derive(Clone, Copy)]
pub(crate) struct Node<'a> {
    pub(crate) name: &'a str,
    /// Factor of its times.
    pub(crate) factor: f64,
    pub(crate) governor: &'a str,
    /// Seed of its values and of its run.
    pub(crate) seed: u64,
}

impl<'a> Node<'a> {
    /// A node like the others.
    pub(crate) fn new(name: &'a str, seed: u64) -> Self {
        Self { name, factor: 1.0, governor: "performance", seed }
    }
}

impl Nodes {
    pub(crate) fn new(rounds: u32) -> Self {
        let mut template = journal::empty(Profile::Quick, |one| one.id() == EXPERIMENT);
        let experiment = template.record.experiments.get_mut(EXPERIMENT).unwrap();
        let twin = experiment.twins[0].clone();
        experiment.points.retain(|point| *point != twin);
        experiment.points.truncate(POINTS - 1);
        experiment.points.push(twin.clone());
        experiment.twins = vec![twin];
        template.record.metrics.retain(|suite, _| suite == "crossing");
        template.record.start = "2026-01-01T00:00:00Z".into();
        Self { template, rounds }
    }

    /// Returns the run of a node: times that differ by 1% from node to node and from round to round.
    pub(crate) fn run(&self, node: &Node) -> Run {
        let mut run = self.template.clone();
        let mut random = Pcg64Mcg::seed_from_u64(node.seed);
        let mut noise = || 0.01 * ((0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0);
        let level = noise();
        let record = &mut run.record;
        record.name = format!("{}-quick-1", node.name);
        (record.host, record.seed) = (node.name.into(), node.seed);
        record.sessions[0].boot_id = format!("boot of {}", node.name);
        let environment = record.environments.values_mut().next().unwrap();
        (environment.hostname, environment.boot_id) =
            (node.name.into(), format!("boot of {}", node.name));
        (environment.governor, environment.memory) = (Some(node.governor.into()), 64 << 30);
        let experiment = &record.experiments[EXPERIMENT];
        let once = experiment.points.iter().map(|point| (point, false));
        let items: Vec<(&Point, bool)> =
            once.chain(experiment.twins.iter().map(|point| (point, true))).collect();
        for round in 0..self.rounds {
            for (point, twin) in &items {
                let value = 200.0 * node.factor * (level + noise()).exp();
                let mut sample = journal::sample(experiment, point, *twin, round, &[]);
                sample.values = [(experiment.metric.clone(), value)].into();
                run.samples.push(Sample { host: node.name.into(), ..sample });
            }
        }
        run
    }

    /// Writes the run of a node to the folder of its name.
    pub(crate) fn write(&self, folder: &Path, node: &Node) -> PathBuf {
        journal::write(&self.run(node), &folder.join(node.name))
    }

    /// Writes a fleet of equal nodes and one, `n003`, that is 10% slow.
    pub(crate) fn write_fleet(&self, folder: &Path, count: u64) {
        for seed in 0..count {
            let name = format!("n{seed:03}");
            let node = Node::new(&name, seed);
            let slow = Node { factor: 1.1, governor: "powersave", ..node };
            self.write(folder, if seed == 3 { &slow } else { &node });
        }
    }
}
