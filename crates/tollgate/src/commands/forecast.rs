//! How long a run takes, before it begins.

use std::path::Path;
use std::time::Duration;

use lab::experiment::Experiment;
use lab::journal::{self, Run};
use lab::quantity::format_duration;
use lab::statistics::rounds_needed;
use lab::summary::{Unit, summarise};

use crate::fault::Fault;
use crate::output::{count_of, tell};
use crate::select::{method_of, suite_of};

/// Says how long the rounds of a profile take at most.
pub(crate) fn of_rounds(experiments: &[Experiment]) -> Result<(), Fault> {
    let points: usize = experiments.iter().map(|one| one.points.len()).sum();
    let time = format_duration(most(experiments)?);
    let (points, experiments) =
        (count_of(points as u64, "point"), count_of(experiments.len() as u64, "experiment"));
    tell(&format!("{points} in {experiments}: about {time} at most"));
    Ok(())
}

/// Says how long it takes until every interval is as narrow as wished: from the rounds that an
/// earlier run measured, where there is one, else at most.
pub(crate) fn of_wish(experiments: &[Experiment], wish: &str, results: &Path) -> Result<(), Fault> {
    let before = journal::newest(results).ok().and_then(|folder| journal::open(&folder).ok());
    let time = match &before {
        Some(run) => from_before(experiments, run)?,
        None => None,
    };
    match time {
        Some(time) => tell(&format!(
            "every interval within {wish}: about {} in all, by the rounds so far",
            format_duration(time)
        )),
        None => tell(&format!(
            "every interval within {wish}: about {} at most; the first rounds tell more",
            format_duration(most(experiments)?)
        )),
    }
    Ok(())
}

fn most(experiments: &[Experiment]) -> Result<Duration, Fault> {
    let mut time = Duration::ZERO;
    for experiment in experiments {
        time += lab::plan::expected(experiment, suite_of(experiment)?);
    }
    Ok(time)
}

/// Nothing where a point was not measured before.
fn from_before(experiments: &[Experiment], run: &Run) -> Result<Option<Duration>, Fault> {
    let mut time = Duration::ZERO;
    for experiment in experiments {
        let method = method_of(experiment)?;
        let Ok(summary) = summarise(run, &experiment.id(), &experiment.metric, Unit::Own) else {
            return Ok(None);
        };
        for point in &experiment.points {
            let row = summary.rows.iter().find(|row| row.point == *point);
            let Some(row) = row else { return Ok(None) };
            // What cannot be measured here takes no time.
            let Some(estimate) = &row.estimate else { continue };
            let effort = &experiment.effort;
            let needed = rounds_needed(estimate, effort.resolve).unwrap_or(usize::MAX);
            let rounds = needed.clamp(effort.min_rounds as usize, effort.rounds as usize);
            let one = method.expected(point, effort.budget);
            time += one * u32::try_from(rounds).unwrap_or(u32::MAX);
        }
    }
    Ok(Some(time))
}
