//! Runs in the results folder.

use std::path::Path;

use lab::experiment::Experiment;
use lab::journal::{self, Run};
use report::table;

use crate::error::CliError;
use crate::output::print_plain;
use crate::select;

/// Opens a run, given its folder or a folder of runs, of which the newest is opened.
pub(crate) fn open(results: &Path) -> Result<Run, CliError> {
    Ok(journal::open(&journal::newest(results)?)?)
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
        if !measured.iter().any(|id| select::is_selected(std::slice::from_ref(name), id)) {
            let line = format!(
                "{}: no samples of '{name}'; available: {}",
                run.folder.display(),
                measured.join(", ")
            );
            return Err(CliError::usage(line));
        }
    }
    let is_selected = |id: &String| {
        select::is_selected(names, id) && (!names.is_empty() || !id.starts_with("lab/"))
    };
    Ok(measured.into_iter().filter(is_selected).collect())
}

/// Returns contradictions between values of a run that the suites detect.
pub(crate) fn inconsistencies(run: &Run) -> Vec<String> {
    crate::suites::SUITES.iter().flat_map(|suite| suite.inconsistencies(run)).collect()
}

/// Prints contradictions between values of a run.
pub(crate) fn print_inconsistencies(run: &Run) -> Result<(), CliError> {
    for line in inconsistencies(run) {
        print_plain(&format!("inconsistent: {line}"))?;
    }
    Ok(())
}
