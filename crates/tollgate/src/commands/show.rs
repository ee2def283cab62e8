//! Commands that print or export results: `tollgate show`, `compare` and `export`.

use std::io::{ErrorKind, IsTerminal, stdout};
use std::path::Path;

use lab::compare;
use lab::journal::{self, Run};
use lab::point::Filter;
use lab::run::is_lab_experiment;
use lab::sample::Sample;
use lab::summary::Unit;
use lab::terminal::Plain;
use machine::file::Output;
use report::export::{self, ExportError};
use report::table::{self, Page, ShowOptions};

use crate::arguments::{Compare, Export, Show};
use crate::error::CliError;
use crate::output::{print, print_json};
use crate::select;

/// Prints the newest run as tables.
pub(crate) fn show(args: &Show) -> Result<u8, CliError> {
    let run = select::open(&args.results.folder)?;
    let experiments = select::resolve_names(&run, &args.names)?;
    let options = ShowOptions {
        metric: args.metric.clone(),
        unit: args.unit,
        filter: filter(&args.levels, &run, &experiments)?,
    };
    if args.json {
        print_json(&table::show_json(&run, &experiments, &options)?)?;
    } else {
        print(&table::show(&run, &experiments, &options, Page::stdout())?)?;
        select::print_inconsistencies(&run)?;
    }
    Ok(0)
}

/// Returns the filter of `--where`, with levels in the canonical spelling of the first experiment that
/// has its factors.
fn filter(levels: &[String], run: &Run, experiments: &[String]) -> Result<Filter, CliError> {
    let filter = select::filter(levels)?;
    let mut why = String::new();
    for experiment in experiments.iter().filter_map(|id| run.record.experiments.get(id)) {
        match filter.canonical(select::method_of(experiment)?.factors()) {
            Ok(filter) => return Ok(filter),
            Err(error) => why = error,
        }
    }
    if filter.0.is_empty() { Ok(filter) } else { Err(CliError::usage(format!("--where: {why}"))) }
}

/// Prints the ratio of every point that two sides share; each side is one run or several.
pub(crate) fn compare(args: &Compare) -> Result<u8, CliError> {
    let (a, b) = (open_side(&args.a)?, open_side(&args.b)?);
    let metric = args.metric.as_deref();
    let shared = compare::experiments(&a, &b);
    let compared: Result<Vec<_>, _> = shared
        .iter()
        .filter(|id| select::is_selected(&args.names, id) && !is_lab_experiment(id))
        .map(|id| compare::compare(&a, &b, id, metric, Unit::Own))
        .collect();
    let compared = compared?;
    if compared.is_empty() {
        let (a, b) = (args.a.display(), args.b.display());
        return Err(CliError::usage(format!("{a} and {b} have no selected experiment in common")));
    }
    if args.json {
        print_json(&table::compare_json(&compared))?;
    } else {
        print(&table::compare(&compared, &a[0], Page::stdout()))?;
        if a.len().min(b.len()) < compare::MIN_RUNS {
            print(&format!(
                "\nTo judge differences, repeat each side at least {} times: tollgate run --fresh --results FOLDER\n",
                compare::MIN_RUNS
            ))?;
        }
    }
    Ok(0)
}

/// Opens the runs of a side: one, given its folder, or all in a folder of runs.
fn open_side(folder: &Path) -> Result<Vec<Run>, CliError> {
    let runs = journal::runs(folder)?;
    if runs.is_empty() {
        let folder = folder.display();
        return Err(CliError::usage(format!(
            "{folder}: no run here; name the folder of a run or of runs"
        )));
    }
    Ok(runs.iter().map(|run| journal::open(run)).collect::<Result<_, _>>()?)
}

/// Exports the samples of the newest run.
pub(crate) fn export(args: &Export) -> Result<u8, CliError> {
    let run = select::open(&args.results.folder)?;
    select::resolve_names(&run, &args.names)?;
    let filter = |sample: &Sample| select::is_selected(&args.names, &sample.experiment);
    let written = match &args.output {
        Some(path) => export::to_file(&[run], &filter, args.format, path, Output::create),
        // Files keep control characters; a terminal would act on them.
        None if stdout().is_terminal() => {
            export::write(&[run], &filter, args.format, &mut Plain::new(stdout()))
        }
        None => export::write(&[run], &filter, args.format, &mut stdout()),
    };
    match written {
        Err(ExportError::Write(e)) if e.kind() == ErrorKind::BrokenPipe => Ok(0),
        Err(error) => Err(CliError::failed(error)),
        Ok(()) => Ok(0),
    }
}
