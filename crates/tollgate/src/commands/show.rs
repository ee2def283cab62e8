//! `tollgate show`

use lab::journal::Run;
use lab::point::Filter;
use report::table::{self, Page, ShowOptions};

use crate::arguments::Show;
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
        print_json(&table::show_output(&run, &experiments, &options)?)?;
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
