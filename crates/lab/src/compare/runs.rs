//! The runs of a comparison: whether they can be compared, what else differs between them, and their summaries with
//! common limits.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::CompareError;
use crate::journal::{Run, RunRecord, SessionRecord};
use crate::option;
use crate::summary::{Limits, Samples, Summary, SummaryError, Unit, summarise_samples};

/// Summarises an experiment in each run. Runs of one machine have common limits: with separate limits, the rounds of
/// a run could be of another class or state than equal rounds of another run.
///
/// # Errors
/// Returns an error if a run has no samples of the experiment or no such metric, or if the metric cannot be converted
/// into the unit.
pub(super) fn summarise(
    runs: &[&Run],
    experiment: &str,
    metric: &str,
    unit: Unit,
) -> Result<Vec<Summary>, SummaryError> {
    let all = runs.iter().map(|run| Samples::of(run, experiment));
    let all: Vec<Samples> = all.collect::<Result<_, _>>()?;
    let mut limits: Vec<Limits> = Vec::new();
    for (at, one) in all.iter().enumerate() {
        let of_machine = || all.iter().filter(|other| is_same_machine(one, other));
        let earlier = all[..at].iter().position(|earlier| is_same_machine(one, earlier));
        limits.push(earlier.map_or_else(|| Limits::of(of_machine()), |earlier| limits[earlier]));
    }
    let limited = all.into_iter().zip(limits).map(|(samples, limits)| samples.with_limits(limits));
    limited.map(|samples| summarise_samples(&samples, metric, unit)).collect()
}

/// Returns whether the samples of two runs are of one machine: of one host, with the same processor if both runs record
/// it.
fn is_same_machine(one: &Samples, other: &Samples) -> bool {
    let processors = one.machine().zip(other.machine());
    one.run.record.host == other.run.record.host
        && processors.is_none_or(|(one, other)| one.has_same_processor(other))
}

/// Checks that no two runs are copies of one: these have the samples of a session in common, or its start and the seed.
pub(super) fn check_distinct<'r>(runs: impl Iterator<Item = &'r Run>) -> Result<(), CompareError> {
    let mut known: BTreeMap<String, &Path> = BTreeMap::new();
    for run in runs {
        let marks = |one: &'r SessionRecord| {
            let SessionRecord { start, boot_id, written, .. } = one;
            let samples = written.as_ref().filter(|written| written.lines > 0);
            let start = format!("{} {start} {boot_id}", run.record.seed);
            [Some(start), samples.map(|written| written.digest.clone())].into_iter().flatten()
        };
        let sessions: BTreeSet<_> = run.record.sessions.iter().flat_map(marks).collect();
        for session in sessions {
            if let Some(first) = known.insert(session, &run.folder) {
                let name = |folder: &Path| folder.display().to_string();
                return Err(CompareError::SameRun {
                    first: name(first),
                    second: name(&run.folder),
                });
            }
        }
    }
    Ok(())
}

/// Checks that all runs were measured on hosts, or all in guests by one accelerator and with the same kind of clock. Guests
/// may differ, as hosts may.
pub(super) fn check_places<'r>(
    mut runs: impl Iterator<Item = &'r Run>,
) -> Result<(), CompareError> {
    let Some(first) = runs.next() else { return Ok(()) };
    let kind =
        |run: &'r Run| run.record.guests.as_ref().map(|guests| (&guests.accelerator, guests.clock));
    match runs.find(|run| kind(run) != kind(first)) {
        None => Ok(()),
        Some(second) => Err(CompareError::Elsewhere {
            first: first.record.name.clone(),
            one: first.record.place(),
            second: second.record.name.clone(),
            other: second.record.place(),
        }),
    }
}

/// Checks that all runs define the experiment and the metric as the first does.
pub(super) fn check_definitions(runs: &[(&Run, &Summary)]) -> Result<(), CompareError> {
    let Some(((first, of_first), others)) = runs.split_first() else { return Ok(()) };
    for (run, summary) in others {
        let (id, metric) = (&summary.experiment, &summary.metric);
        let method = |run: &Run| run.record.experiments.get(id).map(|one| one.method.clone());
        let methods = method(first).zip(method(run)).unwrap_or_default();
        let units = (of_first.record.unit.clone(), summary.record.unit.clone());
        let word = |summary: &Summary| summary.record.better.word().to_owned();
        for (what, (one, other)) in [
            ("the method".into(), methods),
            (format!("the unit of '{metric}'"), units),
            (format!("the better direction of '{metric}'"), (word(of_first), word(summary))),
        ] {
            if one != other {
                let (first, second) = (&first.record.name, &run.record.name);
                return Err(CompareError::Differ {
                    experiment: id.clone(),
                    difference: format!("{what} is '{one}' in {first} and '{other}' in {second}"),
                });
            }
        }
    }
    Ok(())
}

/// Returns the differences of the sides in place, budget, options and nice value.
pub(super) fn differences(a: &[Run], b: &[Run], experiment: &str) -> Vec<String> {
    let (Some(one), Some(other)) = (a.first(), b.first()) else { return Vec::new() };
    let (one, other) = (&one.record, &other.record);
    let budget = |run: &RunRecord| {
        let budget = run.experiments.get(experiment).map(|one| one.effort.budget);
        budget.map_or_else(String::new, |budget| format!("{budget:?}"))
    };
    let declaration = |run: &RunRecord| match &run.guests {
        Some(guests) => guests.declaration.clone(),
        None => String::new(),
    };
    let mut all = vec![
        ("the place".into(), one.place(), other.place()),
        ("the budget of a sample".into(), budget(one), budget(other)),
        ("the nice value".into(), one.nice.to_string(), other.nice.to_string()),
    ];
    let options = option::differences(&one.options, &other.options).into_iter();
    all.extend(options.map(|(name, a, b)| (format!("--set {name}"), a, b)));
    let different = all.into_iter().filter(|(_, a, b)| a != b);
    let mut notes: Vec<_> =
        different.map(|(what, a, b)| format!("note: {what} is {a} in A and {b} in B")).collect();
    if one.place() == other.place() && one.guests.is_some() {
        let is_equal = declaration(one) == declaration(other);
        let declarations = if is_equal { "" } else { ", whose declarations differ" };
        notes.push(format!("note: both sides are of {}{declarations}", one.place()));
    }
    notes
}
