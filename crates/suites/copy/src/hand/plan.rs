//! From options to an experiment, and to the rows of its table.

use std::time::Duration;

use lab::experiment::{Effort, Experiment};
use lab::method::{Params, complete};
use lab::point::Point;
use lab::quantity::format_bytes;

use super::options::{Options, Pair};
use crate::metrics;
use crate::throughput::ThroughputParams;

/// Time measured in a sample.
const BUDGET: Duration = Duration::from_millis(2);

/// A row of the table: one length and one function of one of the seed's experiments.
pub(super) struct Row {
    pub(super) pair: Pair,
    pub(super) length: u64,
    pub(super) function: String,
    pub(super) point: Point,
}

/// The rows in the seed's order.
pub(super) fn rows(options: &Options, pairs: &[Pair]) -> Vec<Row> {
    let mut rows = Vec::new();
    for pair in pairs {
        for length in options.lengths().iter().filter(|length| **length <= pair.mapped) {
            for function in options.functions() {
                let point = Point::from([
                    ("direction", pair.direction),
                    ("memory", &pair.memory.to_string()),
                    ("length", &format_bytes(*length)),
                    ("function", &function),
                    ("threads", &options.threads.to_string()),
                    ("mode", "jobs"),
                ]);
                let point = complete(ThroughputParams::FACTORS, &point);
                rows.push(Row { pair: *pair, length: *length, function, point });
            }
        }
    }
    rows
}

/// How long slow copies sleep in all.
pub(super) fn asleep(options: &Options, pairs: &[Pair]) -> Duration {
    let sleeps: u64 = rows(options, pairs).iter().map(|row| row.length.div_ceil(4)).sum();
    Duration::from_secs(sleeps.saturating_mul(options.sleep))
}

/// The experiment that measures them.
pub(super) fn experiment(options: &Options, pairs: &[Pair]) -> Experiment {
    let rows = rows(options, pairs);
    let points: Vec<Point> = rows.iter().map(|row| row.point.clone()).collect();
    // A slow copy is watched, once.
    let slow = options.sleep > 0;
    let rounds = if slow { 1 } else { options.rounds };
    let longest = rows.iter().map(|row| row.length).max().unwrap_or(0);
    let asleep = longest.div_ceil(4).saturating_mul(options.sleep);
    let limit = Duration::from_secs(asleep.saturating_add(60));
    Experiment {
        suite: "copy".into(),
        name: "throughput".into(),
        method: "throughput".into(),
        about: "by hand, with the options of the seed's tool".into(),
        metric: metrics::THROUGHPUT.into(),
        baseline: points.first().cloned().unwrap_or_default(),
        defaults: Point::default(),
        sweeps: vec![["direction", "memory", "length", "function"].map(String::from).into()],
        twins: if slow { Vec::new() } else { points.first().cloned().into_iter().collect() },
        points,
        roles: Vec::new(),
        blocking: Vec::new(),
        batch: 64,
        limit: slow.then_some(limit),
        effort: Effort { min_rounds: rounds, rounds, budget: BUDGET, resolve: 0.02 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[test]
    fn points_are_spelled_as_the_suite_spells_them() {
        let options = Options::try_parse_from(["copy", "-n", "10", "-t", "2"]).unwrap();
        let pairs = options.pairs().unwrap();
        let experiment = experiment(&options, &pairs);
        // Ten lengths, but six of the host's physical memory.
        assert_eq!(experiment.points.len(), 3 * (4 * 10 + 2 * 6));
        for point in &experiment.points {
            for (name, level) in point.0.iter() {
                let factor = lab::factor::find(ThroughputParams::FACTORS, name).unwrap();
                assert_eq!(&factor.level(level.as_str()).unwrap(), level);
            }
        }
    }
}
