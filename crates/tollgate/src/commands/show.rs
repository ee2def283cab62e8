//! `tollgate show`

use std::path::Path;

use lab::experiment::Experiment;
use lab::journal::{self, Run};
use lab::point::Filter;
use lab::summary::Unit;
use report::table::{self, Page, ShowOptions};

use crate::arguments::{Show, UnitName};
use crate::fault::Fault;
use crate::output::{print, print_json, print_plain};
use crate::select;

impl From<UnitName> for Unit {
    fn from(name: UnitName) -> Self {
        match name {
            UnitName::Own => Self::Own,
            UnitName::Ticks => Self::Ticks,
            UnitName::Cycles => Self::Cycles,
        }
    }
}

/// Prints the newest run as tables.
pub(crate) fn run(given: &Show) -> Result<u8, Fault> {
    let run = open(&given.place.results)?;
    let experiments = meant(&run, &given.names)?;
    let options = ShowOptions {
        metric: given.metric.clone(),
        unit: given.unit.into(),
        filter: filter(&given.levels, &run, &experiments)?,
    };
    if given.json {
        let value = table::show_json(&run, &experiments, &options)?;
        print_json(&value)?;
    } else {
        let text = table::show(&run, &experiments, &options, Page::stdout())?;
        print(&text)?;
        print_inconsistencies(&run)?;
    }
    Ok(0)
}

/// Those of some experiments that a run has samples of.
pub(crate) fn measured(run: &Run, experiments: &[Experiment]) -> Vec<String> {
    let measured = table::measured(run);
    experiments.iter().map(Experiment::id).filter(|id| measured.contains(id)).collect()
}

/// Says which figures of a run cannot all be right.
pub(crate) fn print_inconsistencies(run: &Run) -> Result<(), Fault> {
    for line in inconsistencies(run) {
        print_plain(&format!("inconsistent: {line}"))?;
    }
    Ok(())
}

/// Which figures of a run cannot all be right, as its suites see it.
pub(crate) fn inconsistencies(run: &Run) -> Vec<String> {
    crate::SUITES.iter().flat_map(|suite| suite.inconsistencies(run)).collect()
}

/// The run in a folder, or the newest in a folder of runs.
pub(crate) fn open(results: &Path) -> Result<Run, Fault> {
    Ok(journal::open(&journal::newest(results)?)?)
}

/// The measured experiments of a run that the names mean.
pub(crate) fn meant(run: &Run, names: &[String]) -> Result<Vec<String>, Fault> {
    let measured = table::measured(run);
    for name in names {
        if !measured.iter().any(|id| select::is_meant(std::slice::from_ref(name), id)) {
            let line = format!(
                "{}: nothing of '{name}' is measured here; there are: {}",
                run.folder.display(),
                measured.join(", ")
            );
            return Err(Fault::usage(line));
        }
    }
    // What the lab itself cost is shown where it is asked for by name.
    let wanted =
        |id: &String| select::is_meant(names, id) && (!names.is_empty() || !id.starts_with("lab/"));
    Ok(measured.into_iter().filter(wanted).collect())
}

/// `--where` in the spelling of the suites whose experiments are meant.
fn filter(levels: &[String], run: &Run, experiments: &[String]) -> Result<Filter, Fault> {
    let mut filter = Filter::default();
    for text in levels {
        filter.add(text).map_err(Fault::usage)?;
    }
    let suites = experiments.iter().filter_map(|id| run.record.experiments.get(id));
    let mut why = String::new();
    for experiment in suites {
        match filter.canonical(select::method_of(experiment)?.factors()) {
            Ok(filter) => return Ok(filter),
            Err(error) => why = error,
        }
    }
    if filter.0.is_empty() { Ok(filter) } else { Err(Fault::usage(format!("--where: {why}"))) }
}
