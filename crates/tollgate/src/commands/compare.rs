//! `tollgate compare`: repeated runs, or two sides within one run.

use std::collections::BTreeMap;
use std::path::Path;

use lab::compare;
use lab::journal::{self, Run};
use lab::option;
use lab::run::{RunRequest, is_lab_experiment};
use lab::side::{self, Side};
use lab::summary::Unit;
use report::table::{self, Page};

use super::{forecast, run};
use crate::arguments::{Compare, MeasureArgs, SelectionArgs};
use crate::error::CliError;
use crate::output::{print, print_json, print_plain};
use crate::progress::Progress;
use crate::select::{Place, Selected};
use crate::stored_run;
use crate::{LAB, SUITES, select};

/// Prints the ratio of every point that two sides share: repeated runs, or with `--run` programs or settings that it
/// measures.
pub(crate) fn compare(args: Compare) -> Result<u8, CliError> {
    if args.run { compare_sides(args) } else { compare_runs(&args) }
}

/// Measures both sides within one run and prints the ratio of every point.
fn compare_sides(mut args: Compare) -> Result<u8, CliError> {
    let hosts = super::hosts::of_run(&args.hosts, &mut args.measure, None)?;
    let args = &args;
    let sides = [&args.a, &args.b].map(|text| side_of(text));
    let sides = sides.into_iter().collect::<Result<Vec<_>, _>>()?;
    let MeasureArgs { results: _, rounds: _, time, fresh, seed, wait, allow, set } = &args.measure;
    let options = option::read(SUITES, allow, set);
    let place = if hosts.is_some() { Place::Elsewhere } else { Place::Host };
    let Selected { profile, experiments } = crossed_experiments(args, place)?;
    let hosts = hosts.map(|hosts| hosts.in_order_of(select::roles(&experiments)));
    match time {
        Some(time) => forecast::report_time(&experiments, *time)?,
        None => forecast::report_rounds(&experiments, None)?,
    }
    let interrupted = run::interrupt_flag().map_err(CliError::failed)?;
    let request = RunRequest {
        experiments,
        profile,
        results: side::results(args.measure.results()),
        fresh: *fresh,
        seed: *seed,
        time: *time,
        min_rounds: BTreeMap::new(),
        is_enough: None,
        lacking: None,
        sides,
        guests: None,
        hosts,
        waits: *wait,
        lock: None,
        options: options.map_err(CliError::usage)?,
        interrupted: &interrupted,
    };
    let mut progress = Progress::new(false, Vec::new());
    let summary = LAB.run(&request, &mut progress);
    let reported = progress.finish();
    let summary = summary.map_err(run::error)?;
    run::report_interruption(&summary);
    run::report_failures(&request, &summary, &reported);
    print_sides(args, &request, &journal::open(&summary.folder)?)?;
    run::status(&summary)
}

/// Returns the selected experiments, measured by both sides.
fn crossed_experiments(args: &Compare, place: Place) -> Result<Selected, CliError> {
    let selection =
        SelectionArgs { names: args.names.clone(), points: args.points.clone(), claim: Vec::new() };
    let catalogue = select::catalogue(&args.points.files)?;
    let mut selected = select::select_experiments(&catalogue, &selection, place)?;
    selected.experiments.iter_mut().for_each(side::cross);
    run::set_rounds(args.measure.rounds, &mut selected.experiments)?;
    Ok(selected)
}

/// Parses a side.
fn side_of(text: &Path) -> Result<Side, CliError> {
    let utf_8 = text.to_str();
    let unusable = || CliError::usage(format!("{}: not UTF-8; rename it", text.display()));
    Side::parse(utf_8.ok_or_else(unusable)?).map_err(CliError::usage)
}

/// Prints the ratios of the experiments of a request that have samples.
fn print_sides(args: &Compare, request: &RunRequest, run: &Run) -> Result<(), CliError> {
    let metric = args.metric.as_deref();
    let measured = stored_run::measured(run, &request.experiments);
    let measured = stored_run::with_metric([run], measured, metric)?;
    let compared = measured.iter().map(|id| compare::compare_sides(run, id, metric));
    let compared = compared.collect::<Result<Vec<_>, _>>()?;
    if args.json {
        return print_json(&table::sides_output(&compared, run));
    }
    print(&table::sides(&compared, run, Page::stdout()))?;
    print_plain(&format!("\nrun: {}", run.folder.display()))
}

/// Prints the ratio of every point that two sides share; each side is one run or several.
fn compare_runs(args: &Compare) -> Result<u8, CliError> {
    let (a, b) = (open_side(&args.a)?, open_side(&args.b)?);
    let metric = args.metric.as_deref();
    let shared = compare::experiments(&a, &b);
    let is_selected = |id: &&str| select::is_selected(&args.names, id) && !is_lab_experiment(id);
    let selected: Vec<String> = shared.into_iter().filter(is_selected).map(String::from).collect();
    if selected.is_empty() {
        let (a, b) = (args.a.display(), args.b.display());
        return Err(CliError::usage(format!("{a} and {b} have no selected experiment in common")));
    }
    let selected = stored_run::with_metric(a.iter().chain(&b), selected, metric)?;
    let selected: Vec<&str> = selected.iter().map(String::as_str).collect();
    let compared = compare::compare(&a, &b, &selected, metric, Unit::Own)?;
    if args.json {
        print_json(&table::CompareOutput { comparisons: &compared })?;
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

/// Opens the runs of a side: one, given its folder or bundle, or all in a folder of runs.
pub(super) fn open_side(folder: &Path) -> Result<Vec<Run>, CliError> {
    if report::bundle::is_bundle(folder) {
        return Ok(vec![stored_run::open_run(folder)?]);
    }
    let runs = journal::runs(folder)?;
    if runs.is_empty() {
        let folder = folder.display();
        return Err(CliError::usage(format!(
            "{folder}: no run here; name the folder of a run or of runs"
        )));
    }
    runs.iter().map(|run| stored_run::open_run(run)).collect()
}
