//! The comparison of the nodes of a fleet.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Instant;

use machine::proximity::Class;
use schemars::JsonSchema;
use serde::Serialize;

use super::collect::{FleetError, NodeRuns, StoredExperiment, StoredRun, StoredValue};
use super::outlier::{
    Deviations, JudgedPoint, NodeValue, Selection, WholeNode, rejected_nodes, whole_nodes,
};
use super::settings::{Row, SettingDifference, SettingValues, Table};
use crate::point::Point;
use crate::schema::JsonOutput;
use crate::statistics::{CONFIDENCE, median};

/// Maximum distance whose ratio is stated, on the logarithmic scale: a larger one would have no number.
const MAX_DISTANCE: f64 = 700.0;

/// All nodes of a fleet, and those that differ.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Fleet {
    /// Names of all nodes with a run.
    pub nodes: Vec<String>,
    /// Number of runs whose values are used, or that have none.
    pub runs: usize,
    /// Experiments with their points, as most nodes measured them.
    pub experiments: Vec<FleetExperiment>,
    /// Number of values, each of one node at one point, that were judged.
    pub judged: usize,
    /// Nodes that differ from the others, the one that is worse at the most points first.
    pub outliers: Vec<Outlier>,
    /// Settings that differ between the nodes.
    pub settings: Vec<SettingValues>,
    /// Parts that were not judged.
    pub unjudged: Unjudged,
    /// Names of the nodes without a judged value.
    pub nodes_not_judged: Vec<String>,
    /// Nodes with failed samples, with their number.
    pub failed: Vec<NodeCounts>,
    /// Runs that cannot be read, one line each.
    pub unreadable: Vec<String>,
    /// Last sample of each node that has any.
    pub last_samples: Vec<LastSample>,
}

impl JsonOutput for Fleet {
    const NAME: &'static str = "fleet";
    const WRITTEN_BY: &'static str = "tollgate fleet DIR --json";
    const VERSION: u64 = 1;
}

/// Parts of a fleet that were not judged.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Unjudged {
    /// Number of points that too few nodes measured.
    pub points_of_few_nodes: usize,
    /// Number of values without a noise floor: the node did not measure twins, or in too few rounds.
    pub values_without_floor: usize,
    /// Number of points of a node that have no value with an interval, e.g. because of too few rounds.
    pub points_without_value: usize,
    /// Runs of nodes that measured an experiment in another way than most, one line for each way.
    pub other_definitions: Vec<String>,
    /// Number of runs that a newer one of the same node replaces.
    pub older_runs: usize,
    /// Number of runs that are copies of others.
    pub copies: usize,
    /// Number of runs that compare two sides.
    pub runs_of_sides: usize,
    /// Number of runs in guests.
    pub runs_in_guests: usize,
    /// Number of runs with roles on several hosts.
    pub runs_on_several_hosts: usize,
}

/// The time of the last sample of a node.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct LastSample {
    /// Name of the node.
    pub node: String,
    /// Start of its last sample of any selected experiment, in seconds since 1970.
    pub at: f64,
}

/// A number of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct NodeCounts {
    /// Name of the node.
    pub node: String,
    /// The number.
    pub count: usize,
}

/// An experiment of a fleet.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct FleetExperiment {
    /// ID of the experiment: `copy/throughput`.
    pub experiment: String,
    /// Name of the metric.
    pub metric: String,
    /// Number of nodes that measured it.
    pub nodes: usize,
    /// Number of points, of each proximity of the cores, that were judged.
    pub points: usize,
    /// Spread of equal nodes, as a share: the median over its points of the robust standard deviation; `None` without a
    /// judged point.
    pub spread: Option<f64>,
    /// Number of nodes that differ at a point of it.
    pub outliers: usize,
}

/// A node that differs from the others.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Outlier {
    /// Name of the node.
    pub node: String,
    /// Folder of its run.
    pub folder: String,
    /// Points at which it differs, the largest difference first.
    pub points: Vec<OutlierPoint>,
    /// Number of its points that were judged.
    pub judged: usize,
    /// Settings in which it differs from the nodes that are no outliers, the rarest value first.
    pub settings: Vec<SettingDifference>,
}

/// A point at which a node differs.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct OutlierPoint {
    /// ID of the experiment.
    pub experiment: String,
    /// Levels of the point that are not defaults of the method.
    pub point: Point,
    /// Proximity of the cores.
    pub class: Option<Class>,
    /// Name of the metric.
    pub metric: String,
    /// Unit of the values.
    pub unit: String,
    /// Median of the node.
    pub value: f64,
    /// Robust centre of the other nodes.
    pub others: f64,
    /// Value over that of the others.
    pub ratio: f64,
    /// Direction of the difference.
    pub direction: Direction,
    /// Probability that an equal node differs as much, before the correction for the number of judged values.
    pub p_value: f64,
}

/// Direction of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// The node is worse than the others.
    Worse,
    /// The metric has no better direction.
    Neither,
    /// The node is better than the others.
    Better,
}

impl Direction {
    fn of(ratio: f64, better: &str) -> Self {
        match (better, ratio > 1.0) {
            ("higher", true) | ("lower", false) => Self::Better,
            ("higher", false) | ("lower", true) => Self::Worse,
            _ => Self::Neither,
        }
    }

    /// Returns the name in messages.
    pub fn word(self) -> &'static str {
        match self {
            Self::Worse => "worse",
            Self::Neither => "different",
            Self::Better => "better",
        }
    }
}

impl Outlier {
    /// Returns the number of points with a difference in a direction.
    pub fn count(&self, direction: Direction) -> usize {
        self.points.iter().filter(|one| one.direction == direction).count()
    }

    /// Returns whether the node is only better than the others.
    pub fn is_better(&self) -> bool {
        self.points.iter().all(|one| one.direction == Direction::Better)
    }

    /// Returns the median over its points of the value over that of the others.
    pub fn ratio(&self) -> f64 {
        let logarithms: Vec<f64> = self.points.iter().map(|one| one.ratio.ln()).collect();
        median(&logarithms).map_or(1.0, f64::exp)
    }
}

/// Runs of a comparison while it is made.
struct Comparison<'r> {
    runs: &'r NodeRuns,
    nodes: Vec<&'r str>,
    numbers: HashMap<&'r str, u32>,
    /// Newest run of each node, with the start of its last sample.
    newest: Vec<Option<(f64, &'r StoredRun)>>,
    /// By node.
    judged: Vec<Vec<JudgedPoint>>,
    failed: Vec<usize>,
    selection: Selection,
    unjudged: Unjudged,
}

impl NodeRuns {
    /// Compares the nodes.
    ///
    /// # Errors
    /// Returns [`FleetError::Time`] if the time with which they were [read](super::read) is too short.
    pub fn compare(self) -> Result<Fleet, FleetError> {
        let mut comparison = Comparison::of(&self);
        let chosen = comparison.chosen_definitions();
        let mut experiments: Vec<(u32, FleetExperiment)> = Vec::new();
        for number in chosen {
            experiments.push((number, comparison.compare(number)?));
        }
        Ok(comparison.fleet(experiments))
    }
}

impl<'r> Comparison<'r> {
    fn of(runs: &'r NodeRuns) -> Self {
        let nodes: BTreeSet<&str> = runs.runs.iter().map(|run| run.node.as_str()).collect();
        let nodes: Vec<&str> = nodes.into_iter().collect();
        let unjudged = Unjudged {
            copies: runs.copies,
            runs_of_sides: runs.sides,
            runs_in_guests: runs.guests,
            runs_on_several_hosts: runs.several_hosts,
            ..Unjudged::default()
        };
        Self {
            runs,
            numbers: nodes.iter().copied().zip(0..).collect(),
            newest: vec![None; nodes.len()],
            judged: vec![Vec::new(); nodes.len()],
            failed: vec![0; nodes.len()],
            nodes,
            selection: Selection::default(),
            unjudged,
        }
    }

    /// Returns the number of each experiment in the definition by which most nodes measured it, sorted by ID.
    fn chosen_definitions(&mut self) -> Vec<u32> {
        let mut nodes: BTreeMap<u32, BTreeSet<&str>> = BTreeMap::new();
        for run in &self.runs.runs {
            for one in &run.experiments {
                nodes.entry(one.number).or_default().insert(&run.node);
            }
        }
        let mut by_id: BTreeMap<&str, Vec<(u32, usize)>> = BTreeMap::new();
        for (number, nodes) in nodes {
            let key = &self.runs.experiments[number as usize];
            by_id.entry(&key.id).or_default().push((number, nodes.len()));
        }
        let mut chosen = Vec::new();
        for (id, mut ways) in by_id {
            let key = |number: u32| &self.runs.experiments[number as usize];
            // The numbers depend on which run was read first; the definitions do not.
            ways.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| key(a.0).cmp(key(b.0))));
            let (first, _) = ways[0];
            for (number, nodes) in &ways[1..] {
                let difference = key(*number).definition.difference(&key(first).definition);
                let how = if difference.is_empty() { "other factors" } else { &difference };
                let line = format!("{id}: {}, {how}", crate::format::count(*nodes, "node"));
                self.unjudged.other_definitions.push(line);
            }
            chosen.push(first);
        }
        chosen
    }

    /// Compares the nodes at each point of an experiment.
    fn compare(&mut self, number: u32) -> Result<FleetExperiment, FleetError> {
        let (newest, older) = self.runs.newest(number);
        self.unjudged.older_runs += older;
        let mut points: BTreeMap<u32, Vec<(u32, StoredValue)>> = BTreeMap::new();
        for (node, (run, one)) in &newest {
            let node = self.numbers[node];
            self.add_run(node, run, one);
            for value in &one.values {
                points.entry(value.point).or_default().push((node, *value));
            }
        }
        let (mut scales, mut judged) = (Vec::new(), 0);
        for (point, values) in points {
            if let Some(limit) = self.runs.limit.as_ref().filter(|it| it.end <= Instant::now()) {
                return Err(limit.error(self.runs.runs.len(), self.runs.runs.len()));
            }
            match self.compare_point(point, &values) {
                Some(scale) => {
                    scales.push(scale);
                    judged += 1;
                }
                None => self.unjudged.points_of_few_nodes += 1,
            }
        }
        let key = &self.runs.experiments[number as usize];
        Ok(FleetExperiment {
            experiment: key.id.clone(),
            metric: key.definition.metric.clone(),
            nodes: newest.len(),
            points: judged,
            spread: median(&scales),
            outliers: 0,
        })
    }

    fn add_run(&mut self, node: u32, run: &'r StoredRun, one: &StoredExperiment) {
        self.unjudged.points_without_value += one.without_value as usize;
        let node = node as usize;
        self.failed[node] += one.failed as usize;
        if self.newest[node].is_none_or(|(at, _)| one.at > at) {
            self.newest[node] = Some((one.at, run));
        }
    }

    /// Compares the nodes at a point; returns their scale, or `None` with too few nodes.
    fn compare_point(&mut self, point: u32, values: &[(u32, StoredValue)]) -> Option<f64> {
        let value = |(_, one): &(u32, StoredValue)| NodeValue {
            value: one.value,
            below: one.below.into(),
            above: one.above.into(),
            floor: (!one.floor.is_nan()).then(|| one.floor.into()),
        };
        let nodes: Vec<NodeValue> = values.iter().map(value).collect();
        let deviations = Deviations::of(&nodes)?;
        let experiment = &self.runs.experiments[self.experiment(point) as usize];
        let is_higher_better = experiment.definition.better == "higher";
        for ((node, value), deviation) in values.iter().zip(deviations.nodes) {
            let Some(p_value) = deviation.p_value else {
                self.unjudged.values_without_floor += 1;
                continue;
            };
            self.judged[*node as usize].push(JudgedPoint {
                point,
                value: deviation.value,
                distance: deviation.distance,
                p_value,
                below: value.below,
                above: value.above,
                floor: value.floor,
                is_higher_better,
            });
            self.selection.add(p_value, *node, point);
        }
        Some(deviations.all.scale)
    }

    /// Returns the points at which each outlier differs: those that differ on their own, and of nodes that differ as a whole
    /// those that differ in the same direction.
    fn rejected(&mut self) -> BTreeMap<u32, BTreeSet<u32>> {
        let mut rejected = std::mem::take(&mut self.selection).rejected();
        for WholeNode { node, worse, .. } in rejected_nodes(&whole_nodes(&self.judged)) {
            let points = &self.judged[node as usize];
            let of_node = rejected.entry(node).or_default();
            let differs = |one: &&JudgedPoint| {
                one.p_value <= 1.0 - CONFIDENCE && one.worse().signum() == worse.signum()
            };
            of_node.extend(points.iter().filter(differs).map(|one| one.point));
            if of_node.is_empty() {
                // Together they differ, and none of them alone: the one that differs as the node does.
                let apart = |one: &JudgedPoint| (one.worse() - worse).abs();
                let nearest = points.iter().min_by(|a, b| apart(a).total_cmp(&apart(b)));
                of_node.extend(nearest.map(|one| one.point));
            }
        }
        rejected
    }

    /// Returns the result, once all experiments are compared.
    fn fleet(mut self, mut experiments: Vec<(u32, FleetExperiment)>) -> Fleet {
        let tests = self.selection.tests();
        let rejected = self.rejected();
        let rows = |is_outlier: bool| {
            let nodes = (0..).zip(&self.newest);
            let of_kind = nodes.filter(|(node, _)| rejected.contains_key(node) == is_outlier);
            of_kind.filter_map(|(_, newest)| newest.map(|(_, run)| &run.settings)).collect()
        };
        let others: Vec<&Row> = rows(false);
        let all: Vec<&Row> = others.iter().copied().chain(rows(true)).collect();
        let others = Table::counts(others.iter().copied());
        let mut outliers: Vec<Outlier> = Vec::new();
        for (node, points) in &rejected {
            let Some((_, run)) = self.newest[*node as usize] else { continue };
            let ids: BTreeSet<u32> = points.iter().map(|point| self.experiment(*point)).collect();
            for (_, one) in experiments.iter_mut().filter(|(number, _)| ids.contains(number)) {
                one.outliers += 1;
            }
            outliers.push(Outlier {
                node: self.nodes[*node as usize].to_owned(),
                folder: run.folder.display().to_string(),
                points: self.outlier_points(*node, points),
                judged: self.judged[*node as usize].len(),
                settings: self.runs.settings.differences(&run.settings, &others),
            });
        }
        let worse = |one: &Outlier| one.count(Direction::Worse);
        outliers.sort_by(|a, b| worse(b).cmp(&worse(a)).then_with(|| a.node.cmp(&b.node)));
        let not_judged =
            self.nodes.iter().zip(&self.judged).filter(|(_, judged)| judged.is_empty());
        let failed = self.nodes.iter().zip(&self.failed).filter(|(_, count)| **count > 0);
        let failed = failed.map(|(node, count)| NodeCounts { node: (*node).into(), count: *count });
        Fleet {
            nodes: self.nodes.iter().map(|node| (*node).to_owned()).collect(),
            runs: self.runs.runs.len(),
            experiments: experiments.into_iter().map(|(_, one)| one).collect(),
            judged: tests,
            outliers,
            settings: self.runs.settings.differing(&Table::counts(all.iter().copied())),
            unjudged: self.unjudged.clone(),
            nodes_not_judged: not_judged.map(|(node, _)| (*node).to_owned()).collect(),
            failed: failed.collect(),
            unreadable: self.runs.unreadable.clone(),
            last_samples: self.last_samples(),
        }
    }

    fn last_samples(&self) -> Vec<LastSample> {
        let mut last: BTreeMap<&str, f64> = BTreeMap::new();
        for run in &self.runs.runs {
            for one in &run.experiments {
                let at = last.entry(&run.node).or_default();
                *at = at.max(one.at);
            }
        }
        last.into_iter().map(|(node, at)| LastSample { node: node.into(), at }).collect()
    }

    /// Returns the number of the experiment of a point.
    fn experiment(&self, point: u32) -> u32 {
        self.runs.points[point as usize].experiment
    }

    fn outlier_points(&self, node: u32, points: &BTreeSet<u32>) -> Vec<OutlierPoint> {
        let one = |judged: &JudgedPoint| {
            let key = &self.runs.points[judged.point as usize];
            let experiment = &self.runs.experiments[key.experiment as usize];
            let ratio = judged.distance.clamp(-MAX_DISTANCE, MAX_DISTANCE).exp();
            OutlierPoint {
                experiment: experiment.id.clone(),
                point: key.point.without_levels(&experiment.defaults),
                class: key.class,
                metric: experiment.definition.metric.clone(),
                unit: experiment.definition.unit.clone(),
                value: judged.value.exp(),
                others: (judged.value - judged.distance).exp(),
                ratio,
                direction: Direction::of(ratio, experiment.definition.better),
                p_value: judged.p_value,
            }
        };
        let judged = self.judged[node as usize].iter();
        let mut found: Vec<_> = judged.filter(|it| points.contains(&it.point)).map(one).collect();
        let size = |one: &OutlierPoint| one.ratio.ln().abs();
        found.sort_by(|a, b| {
            size(b)
                .total_cmp(&size(a))
                .then_with(|| a.experiment.cmp(&b.experiment))
                .then_with(|| a.point.cmp(&b.point))
        });
        found
    }
}
