//! Ratios of the two sides of a run, paired within rounds.

use std::collections::BTreeSet;

use machine::proximity::Class;
use schemars::JsonSchema;
use serde::Serialize;

use crate::format;
use crate::journal::Run;
use crate::metric::MetricRecord;
use crate::point::Point;
use crate::side::{FACTOR, LEVELS};
use crate::statistics::{Estimate, NoiseFloor, Ratio, Resolution, resolve};
use crate::summary::{
    Floors, Observed, Rounds, Row, Summary, SummaryError, TwinAlarm, Unit, in_state, pairs,
    summarise,
};

/// One metric of an experiment, measured by both sides.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct SideComparison {
    /// ID of the experiment: `copy/throughput`.
    pub experiment: String,
    /// Name of the metric.
    pub metric: String,
    /// Unit and direction of the metric.
    pub record: MetricRecord,
    /// A row per point with samples, in the order of the declaration; one per proximity of its cores, if they were near
    /// in some rounds and far in others.
    pub rows: Vec<ComparedSides>,
    /// Twins that differ.
    pub alarms: Vec<TwinAlarm>,
}

/// One point, measured by both sides.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ComparedSides {
    /// The point, without the side.
    pub point: Point,
    /// Proximity of the cores in the rounds of this row, if there are rounds of several.
    pub class: Option<Class>,
    /// Median over rounds with its interval, of the old and the new side; `None` without values.
    pub values: [Option<Estimate>; 2],
    /// The ratio new / old within rounds; `None` if no round has two values above zero.
    pub ratio: Option<Ratio>,
    /// Noise floor of the ratio.
    pub floor: Option<NoiseFloor>,
    /// Whether the new side is higher or lower; `None` without a ratio, or if too many rounds of a side failed.
    pub resolution: Option<Resolution>,
    /// Why there is no ratio, and what failed in some rounds, in one line.
    pub lacks: Option<String>,
}

/// Compares the sides of a run in one metric of an experiment, by default the experiment's.
///
/// # Errors
/// Returns an error if the run has no samples of the experiment or no such metric.
pub fn compare_sides(
    run: &Run,
    experiment: &str,
    metric: Option<&str>,
) -> Result<SideComparison, SummaryError> {
    let declared = run.record.experiments.get(experiment).map(|one| one.metric.as_str());
    let metric = metric.or(declared).unwrap_or_default();
    let summary = summarise(run, experiment, metric, Unit::Own)?;
    let mut seen = BTreeSet::new();
    let points = summary.rows.iter().map(|row| row.point.without([FACTOR]));
    let points: Vec<Point> = points.filter(|point| seen.insert(point.clone())).collect();
    let rows = points.iter().flat_map(|point| compared(&summary, point)).collect();
    let Summary { experiment, metric, record, alarms, .. } = summary;
    Ok(SideComparison { experiment, metric, record, rows, alarms })
}

/// Returns the rows of a point.
fn compared(summary: &Summary, point: &Point) -> Vec<ComparedSides> {
    let sides = LEVELS.map(|level| point.with(FACTOR, level));
    let rows = sides.each_ref().map(|side| summary.rows.iter().find(|row| row.point == *side));
    let lacks = lacks(rows);
    let is_judged = !rows.into_iter().flatten().any(|row| row.counts.fails_too_often());
    let rounds = sides.iter().filter_map(|side| summary.observed.points.get(side));
    let classes: BTreeSet<Class> =
        rounds.flat_map(Rounds::values).filter_map(|one| one.class).collect();
    let has_several = classes.len() > 1;
    let of_class = |class: Option<Class>| {
        let mut observed = summary.observed.clone();
        if class.is_some() {
            // Rounds without a class are of points on one core, whose twins may be the nearest.
            observed.keep(|one| one.class.is_none() || one.class == class);
        }
        let row = row(&observed, point, &sides, is_judged);
        let (class, lacks) = (class.filter(|_| has_several), lacks.clone().or(row.lacks));
        ComparedSides { class, lacks, ..row }
    };
    match classes.is_empty() {
        true => vec![of_class(None)],
        false => classes.into_iter().map(Some).map(of_class).collect(),
    }
}

/// Returns the row of a point for some observations; the ratio is judged only if `is_judged`.
fn row(observed: &Observed, point: &Point, sides: &[Point; 2], is_judged: bool) -> ComparedSides {
    let none = Rounds::new();
    let [old, new] = [0, 1].map(|side| observed.points.get(&sides[side]).unwrap_or(&none));
    // If the instrument limited both sides, which are perhaps builds of it, their ratio is that of the instrument.
    let pairs = pairs(new, old).with_common_limits();
    // The medians and the noise floor are of the same state of the core as the ratio.
    let summarised = |rounds: &Rounds| observed.estimate(&in_state(rounds, pairs.state));
    let floors = Floors::of(observed);
    let floor = floors.near(&[&sides[0], &sides[1]], pairs.state);
    let ratio = pairs.ratio();
    ComparedSides {
        point: point.clone(),
        class: None,
        values: [summarised(old), summarised(new)],
        floor: floor.copied(),
        resolution: ratio.ok().filter(|_| is_judged).map(|ratio| resolve(&ratio, floor)),
        lacks: ratio.err().map(|why| why.to_string()),
        ratio: ratio.ok(),
    }
}

/// Returns the failures of a point, or that all of its rounds are void, by side.
fn lacks(rows: [Option<&Row>; 2]) -> Option<String> {
    let [old, new] = rows.map(|row| row.map_or_else(|| Some("not measured".into()), failures));
    if let Some(why) = old.as_ref().filter(|_| old == new) {
        return Some(format!("both sides: {why}"));
    }
    let lack = |(why, level): (Option<String>, &str)| Some(format!("{level}: {}", why?));
    let lacks: Vec<String> = [old, new].into_iter().zip(LEVELS).filter_map(lack).collect();
    (!lacks.is_empty()).then(|| lacks.join("; "))
}

fn failures(row: &Row) -> Option<String> {
    let Row { errors, estimate, void_rounds, .. } = row;
    let failures: Vec<String> = errors
        .iter()
        .map(|(kind, failure)| match kind.is_fault() {
            true => {
                let rounds = format::count(failure.count, "round");
                format!("{} in {rounds}: {}", kind.name(), failure.why)
            }
            false => format!("{}: {}", kind.name(), failure.why),
        })
        .collect();
    match estimate {
        _ if !failures.is_empty() => Some(failures.join(", ")),
        None if *void_rounds > 0 => Some("void in all rounds".into()),
        _ => None,
    }
}
