//! Commands that print or export results: `tollgate show` and `export`.

use std::io::{ErrorKind, IsTerminal, stdout};

use lab::journal::Run;
use lab::point::Filter;
use lab::sample::Sample;
use lab::terminal::Plain;
use machine::file::Output;
use report::export::{self, ExportError};
use report::table::{self, Page, ShowOptions};

use crate::arguments::{Export, Show};
use crate::error::CliError;
use crate::output::{print, print_json};
use crate::select;
use crate::stored_run;

/// Prints the newest run as tables.
pub(crate) fn show(args: &Show) -> Result<u8, CliError> {
    let run = stored_run::open(&args.results.folder)?;
    let experiments = stored_run::resolve_names(&run, &args.names)?;
    let experiments = stored_run::with_metric([&run], experiments, args.metric.as_deref())?;
    let options = ShowOptions {
        metric: args.metric.clone(),
        unit: args.unit,
        filter: filter(&args.levels, &run, &experiments)?,
    };
    if args.json {
        print_json(&table::show_json(&run, &experiments, &options)?)?;
    } else {
        print(&table::show(&run, &experiments, &options, Page::stdout())?)?;
        stored_run::print_inconsistencies(&run)?;
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

/// Exports the samples of the newest run.
pub(crate) fn export(args: &Export) -> Result<u8, CliError> {
    let run = stored_run::open(&args.results.folder)?;
    stored_run::resolve_names(&run, &args.names)?;
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
