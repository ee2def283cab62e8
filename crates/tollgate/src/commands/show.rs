//! `tollgate show`

use std::collections::{BTreeMap, BTreeSet};

use lab::journal::Run;
use lab::point::{Filter, Point};
use lab::run::is_lab_experiment;
use report::table::{self, BY_VALUE, Groups, Order, Page, ShowOptions};

use crate::arguments::Show;
use crate::error::CliError;
use crate::output::{print, print_json, print_message};
use crate::select;
use crate::stored_run;

/// Prints the newest run as tables.
pub(crate) fn show(args: &Show) -> Result<u8, CliError> {
    let run = stored_run::open(&args.results.folder)?;
    let experiments = stored_run::resolve_names(&run, &args.names)?;
    let experiments = stored_run::with_metric([&run], experiments, args.metric.as_deref())?;
    let experiments = sortable(&run, experiments, args.sort.as_deref())?;
    let order = args.sort.as_ref().map(|by| Order {
        by: by.clone(),
        reversed: args.reverse,
        top: args.top.map(|top| usize::try_from(top).unwrap_or(usize::MAX)),
    });
    let options = ShowOptions {
        metric: args.metric.clone(),
        unit: args.unit,
        filter: filter(&args.levels, &run, &experiments)?,
        order,
        groups: groups(&run, &experiments),
    };
    if args.json {
        print_json(&table::show_output(&run, &experiments, &options)?)?;
    } else {
        print(&table::show(&run, &experiments, &options, Page::stdout())?)?;
        stored_run::print_inconsistencies(&run)?;
    }
    Ok(0)
}

/// Returns the experiments that can be sorted by a word, and reports the others; all without a word.
fn sortable(
    run: &Run,
    experiments: Vec<String>,
    by: Option<&str>,
) -> Result<Vec<String>, CliError> {
    let Some(by) = by else { return Ok(experiments) };
    let (with, without): (Vec<_>, Vec<_>) =
        experiments.iter().cloned().partition(|id| table::can_sort(run, id, by));
    if with.is_empty() && !without.is_empty() {
        let samples = run.samples.iter().filter(|sample| experiments.contains(&sample.experiment));
        let known: BTreeSet<&str> = samples
            .flat_map(|it| it.point.factors().chain(it.values.keys().map(String::as_str)))
            .collect();
        let known = [BY_VALUE].into_iter().chain(known).collect::<Vec<_>>().join(", ");
        let line = format!(
            "--sort: no selected experiment has a factor or values of '{by}'; expected one of {known}"
        );
        return Err(CliError::usage(line));
    }
    if !without.is_empty() {
        print_message(&format!("nothing named '{by}', so not shown: {}", without.join(", ")));
    }
    Ok(with)
}

/// Returns the groups by which the methods divide long tables of their points.
pub(super) fn groups(run: &Run, experiments: &[String]) -> Groups {
    let groups = |id: &String| {
        let experiment = run.record.experiments.get(id)?;
        let method = select::method_of(experiment).ok()?;
        let group = |point: &Point| Some((point.clone(), method.group(point)?));
        let groups: BTreeMap<_, _> = experiment.points.iter().filter_map(group).collect();
        (!groups.is_empty()).then(|| (id.clone(), groups))
    };
    experiments.iter().filter_map(groups).collect()
}

/// Returns the filter of `--where`, with levels in the canonical spelling of the first experiment that
/// has its factors.
fn filter(levels: &[String], run: &Run, experiments: &[String]) -> Result<Filter, CliError> {
    let filter = select::filter(levels)?;
    let mut why = String::new();
    // No suite has the method of the lab's own experiments.
    let of_suites: Vec<&String> = experiments.iter().filter(|id| !is_lab_experiment(id)).collect();
    if of_suites.is_empty() {
        return Ok(filter);
    }
    for experiment in of_suites.into_iter().filter_map(|id| run.record.experiments.get(id)) {
        match filter.canonical(select::method_of(experiment)?.factors()) {
            Ok(filter) => return Ok(filter),
            Err(error) => why = error,
        }
    }
    if filter.0.is_empty() { Ok(filter) } else { Err(CliError::usage(format!("--where: {why}"))) }
}
