//! Stored runs that commands read: which one to open, and what it has of what the command line names.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use lab::catalogue::Catalogue;
use lab::experiment::{Experiment, Profile};
use lab::format::count;
use lab::journal::{self, JournalError, Run, RunRecord};
use lab::run::is_lab_experiment;
use lab::sample::Sample;
use report::bundle;
use report::table;

use crate::error::CliError;
use crate::output::{print_message, print_plain};
use crate::select::{arguments_of, is_selected};
use crate::suites::SUITES;

/// Opens a run, given its folder, its bundle or a folder of runs, of which the newest is opened; warns if it was edited.
pub(crate) fn open(results: &Path) -> Result<Run, CliError> {
    match bundle::is_bundle(results) {
        true => open_run(results),
        false => open_run(&journal::newest(results)?),
    }
}

/// Opens a run, given its folder, its bundle or a folder of runs; `None` without a run.
pub(crate) fn open_any(results: &Path) -> Result<Option<Run>, CliError> {
    if bundle::is_bundle(results) {
        return open_run(results).map(Some);
    }
    match journal::newest(results) {
        Ok(folder) => open_run(&folder).map(Some),
        Err(JournalError::NoRun(_)) => Ok(None),
        Err(other) => Err(other.into()),
    }
}

/// Opens the run in a folder or bundle; warns if it was edited.
pub(crate) fn open_run(path: &Path) -> Result<Run, CliError> {
    let run = match bundle::is_bundle(path) {
        true => bundle::open_run(path).map_err(CliError::failed)?,
        false => journal::open(path)?,
    };
    run.inconsistencies.iter().for_each(|line| print_message(&format!("warning: {line}")));
    Ok(run)
}

/// Checks that a run has no sides: claims and figures are about one program.
pub(crate) fn check_one_program(run: &Run) -> Result<(), CliError> {
    if run.record.sides.is_empty() {
        return Ok(());
    }
    let folder = run.folder.display();
    let line = format!("{folder}: this run compares two sides; 'tollgate show' prints its values");
    Err(CliError::usage(line))
}

/// Describes the run that verdicts are based on: `results/vm-quick-1: 6260 samples of 37 experiments, the last session from
/// 2026-11-23T09:23:05Z`, or states that there is none.
pub(crate) fn origin(run: Option<&Run>, results: &Path) -> String {
    let Some(run) = run else {
        let arguments = arguments_of(results, &[]);
        let results = results.display();
        return format!("{results}: no run here, so nothing is measured; tollgate run{arguments}");
    };
    let experiments: BTreeSet<_> = samples(run).map(|one| &one.experiment).collect();
    let last = run.record.sessions.last().map_or(&run.record.start, |session| &session.start);
    let guests = run.record.guests.as_ref();
    format!(
        "{}: {} of {}{}, the last session from {last}",
        run.folder.display(),
        count(samples(run).count(), "sample"),
        count(experiments.len(), "experiment"),
        guests.map(|guests| format!(" in {guests}")).unwrap_or_default(),
    )
}

/// Returns the samples of a run without those of the lab itself.
pub(crate) fn samples(run: &Run) -> impl Iterator<Item = &Sample> {
    run.samples.iter().filter(|one| !is_lab_experiment(&one.experiment))
}

/// Names where a run was measured: `on HOST`, or in which guests.
pub(crate) fn place(record: &RunRecord) -> String {
    let guests = record.guests.as_ref();
    guests.map_or_else(|| format!("on {}", record.host), |guests| format!("in {guests}"))
}

/// Returns the IDs of the given experiments of which the run has samples.
pub(crate) fn measured(run: &Run, experiments: &[Experiment]) -> Vec<String> {
    let measured = table::measured(run);
    experiments.iter().map(Experiment::id).filter(|id| measured.contains(id)).collect()
}

/// Returns the measured experiments of a run that `names` select. Experiments of the lab itself must
/// be named.
pub(crate) fn resolve_names(run: &Run, names: &[String]) -> Result<Vec<String>, CliError> {
    let measured = table::measured(run);
    for name in names {
        if !measured.iter().any(|id| is_selected(std::slice::from_ref(name), id)) {
            let line = format!(
                "{}: no samples of '{name}'; available: {}",
                run.folder.display(),
                measured.join(", ")
            );
            return Err(CliError::usage(line));
        }
    }
    let is_selected =
        |id: &String| is_selected(names, id) && (!names.is_empty() || !is_lab_experiment(id));
    Ok(measured.into_iter().filter(is_selected).collect())
}

/// Returns the measured experiments in the order of lists; those that the catalogue lacks follow.
pub(crate) fn listed(run: &Run, catalogue: &Catalogue) -> Result<Vec<String>, CliError> {
    let declared: Vec<String> =
        catalogue.experiments(Profile::Full)?.iter().map(Experiment::id).collect();
    let position = |id: &String| declared.iter().position(|one| one == id).unwrap_or(usize::MAX);
    let mut experiments = resolve_names(run, &[])?;
    experiments.sort_by_key(position);
    Ok(experiments)
}

/// Returns the experiments of which runs have values of a metric, and reports the others; all without a metric.
///
/// # Errors
/// Returns a usage error if the runs have values of it for no experiment.
pub(crate) fn with_metric<'r>(
    runs: impl IntoIterator<Item = &'r Run>,
    experiments: Vec<String>,
    metric: Option<&str>,
) -> Result<Vec<String>, CliError> {
    let Some(metric) = metric else { return Ok(experiments) };
    let mut metrics: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for sample in runs.into_iter().flat_map(|run| &run.samples) {
        let of_experiment = metrics.entry(&sample.experiment).or_default();
        of_experiment.extend(sample.values.keys().map(String::as_str));
    }
    metrics.retain(|id, _| experiments.iter().any(|selected| selected == id));
    let has = |id: &String| metrics.get(id.as_str()).is_some_and(|known| known.contains(metric));
    let (with, without): (Vec<_>, Vec<_>) = experiments.iter().cloned().partition(has);
    if with.is_empty() {
        let known: BTreeSet<&str> = metrics.values().flatten().copied().collect();
        let known = known.into_iter().collect::<Vec<_>>().join(", ");
        let line = format!(
            "--metric: no selected experiment has values of '{metric}'; expected one of {known}"
        );
        return Err(CliError::usage(line));
    }
    if !without.is_empty() {
        print_message(&format!("no values of '{metric}', so not shown: {}", without.join(", ")));
    }
    Ok(with)
}

/// Returns what shows that a run was edited, and contradictions between its values that the suites detect.
pub(crate) fn inconsistencies(run: &Run) -> Vec<String> {
    let of_suites = SUITES.iter().flat_map(|suite| suite.inconsistencies(run));
    run.inconsistencies.iter().cloned().chain(of_suites).collect()
}

/// Prints what [`inconsistencies`] returns.
pub(crate) fn print_inconsistencies(run: &Run) -> Result<(), CliError> {
    for line in inconsistencies(run) {
        print_plain(&format!("inconsistent: {line}"))?;
    }
    Ok(())
}
