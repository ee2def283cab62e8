//! `tollgate run`

use std::sync::atomic::AtomicBool;

use lab::catalogue::DeclaredFigure;
use lab::claim::Claim;
use lab::experiment::Experiment;
use lab::option;
use lab::quantity;
use lab::run::{RunError, RunRequest, RunSummary};
use lab::sample::Sample;
use machine::file::Output;
use report::export::{Format, to_file};
use report::table::{self, Page, ShowOptions};
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::forecast;
use crate::arguments::Run;
use crate::fault::Fault;
use crate::output::{count_of, print, print_json, print_plain, tell};
use crate::progress::Progress;
use crate::select;
use crate::{LAB, SUITES};

/// A wished interval may take more rounds than a profile has, but not without end.
const MOST_ROUNDS: u32 = 1000;

/// Measures; then shows what was found.
pub(crate) fn run(given: &Run) -> Result<u8, Fault> {
    let options = option::read(SUITES, &given.allow, &given.set).map_err(Fault::usage)?;
    let catalogue = select::catalogue(&given.choice.files)?;
    let mut experiments = select::chosen(&catalogue, &given.choice)?;
    // Reports errors in the files before anything is measured.
    let (claims, figures) = (catalogue.claims()?, catalogue.figures()?);
    change_effort(given, &mut experiments)?;
    let _priority =
        given.priority.map(machine::priority::raise).transpose().map_err(Fault::failed)?;
    match &given.resolve {
        Some(wish) => forecast::of_wish(&experiments, wish, &given.place.results)?,
        None => forecast::of_rounds(&experiments)?,
    }
    let interrupted = std::sync::Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // The second Ctrl-C ends at once.
        signal_hook::flag::register_conditional_shutdown(signal, 130, interrupted.clone())
            .and_then(|_| signal_hook::flag::register(signal, interrupted.clone()))
            .map_err(Fault::failed)?;
    }
    // A terminal that goes away sends it, often twice. Whoever ignores it (nohup) wants the run to go on.
    if !is_ignored(SIGHUP) {
        signal_hook::flag::register(SIGHUP, interrupted.clone()).map_err(Fault::failed)?;
    }
    let wanted = RunRequest {
        experiments,
        profile: given.choice.profile.into(),
        results: given.place.results.clone(),
        fresh: given.fresh,
        seed: given.seed,
        options,
        interrupted: &interrupted,
    };
    let mut progress = Progress::new(given.resolve.is_some());
    let ended = LAB.run(&wanted, &mut progress);
    progress.finish();
    let ended = ended.map_err(|error| match error {
        RunError::Journal(error) => Fault::from(error),
        RunError::Limits(_) | RunError::Changed { .. } => Fault::usage(error),
        RunError::Worker(_) | RunError::Lost(_) | RunError::Settings(_) => Fault::failed(error),
    })?;
    finish(given, &wanted, &ended, claims, &figures)
}

/// Whether this process was started with a signal ignored.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << (signal - 1)) != 0)
}

fn change_effort(given: &Run, experiments: &mut [Experiment]) -> Result<(), Fault> {
    let resolve = given.resolve.as_deref().map(quantity::share).transpose();
    let resolve = resolve.map_err(|why| Fault::usage(format!("--resolve: {why}")))?;
    for experiment in experiments {
        let effort = &mut experiment.effort;
        if let Some(rounds) = given.rounds {
            (effort.rounds, effort.min_rounds) = (rounds, rounds);
        }
        if let Some(resolve) = resolve {
            effort.resolve = resolve;
            effort.rounds = MOST_ROUNDS;
        }
        let id = experiment.id();
        experiment
            .within_limits()
            .map_err(|what| Fault::usage(format!("experiment '{id}': {what}")))?;
    }
    Ok(())
}

fn finish(
    given: &Run,
    wanted: &RunRequest,
    ended: &RunSummary,
    claims: Vec<Claim>,
    figures: &[DeclaredFigure],
) -> Result<u8, Fault> {
    if ended.interrupted {
        tell("interrupted: what was measured is kept, and the next run goes on from there");
    }
    let left = if given.quiet { Ok(()) } else { leave(given, wanted, ended, claims, figures) };
    for sample in ended.faults.iter().take(10) {
        if let Some(error) = &sample.error {
            let Sample { experiment, round, .. } = sample;
            let declared = wanted.experiments.iter().find(|one| one.id() == *experiment);
            let point =
                declared.map_or(sample.point.clone(), |declared| declared.brief(&sample.point));
            tell(&format!("{experiment} {point}, round {round}: {error}"));
        }
    }
    left?;
    match ended.faults.len() {
        0 if ended.interrupted => Ok(130),
        0 => Ok(0),
        faults => {
            let (failed, each) =
                (count_of(faults as u64, "sample"), if faults == 1 { "it" } else { "each" });
            Err(Fault::failed(format!("{failed} failed; the journal holds {each} with its cause")))
        }
    }
}

/// Tables, verdicts, figures and a CSV of what was asked for, and where they lie; at the end, what is wrong with a
/// figure of a person's own.
fn leave(
    given: &Run,
    wanted: &RunRequest,
    ended: &RunSummary,
    claims: Vec<Claim>,
    figures: &[DeclaredFigure],
) -> Result<(), Fault> {
    let run = super::show::open(&ended.folder)?;
    let experiments = super::show::measured(&run, &wanted.experiments);
    let judged = super::claims::on(&run, &wanted.experiments, claims);
    let (figures, drawn) = super::plot::after_run(&run, &wanted.experiments, figures)?;
    let samples = ended.folder.join("samples.csv");
    // A run that is interrupted before its first sample leaves nothing to export or to show.
    let is_empty = run.samples.is_empty();
    if !is_empty {
        to_file(std::slice::from_ref(&run), &|_| true, Format::Csv, &samples, Output::replace)
            .map_err(Fault::failed)?;
    }
    let options_shown = ShowOptions::default();
    if given.json {
        let shown = table::show_json(&run, &experiments, &options_shown)?;
        print_json(&json!({
            "folder": ended.folder,
            "samples": ended.samples,
            "tables": shown,
            "claims": table::verdicts_json(&judged),
            "figures": figures,
            "inconsistencies": super::show::inconsistencies(&run),
        }))?;
        return drawn;
    }
    if is_empty {
        return drawn;
    }
    print(&table::show(&run, &experiments, &options_shown, Page::stdout())?)?;
    super::show::print_inconsistencies(&run)?;
    if !judged.is_empty() {
        print("")?;
        print(&table::verdicts(&judged, Page::stdout()))?;
    }
    let mut told = format!(
        "\n{} measured; the run is in {}\nsamples as a table: {}\n",
        count_of(ended.samples, "sample"),
        ended.folder.display(),
        samples.display()
    );
    if let Some(folder) = figures.first().and_then(|path| path.parent()) {
        let count = figures.len() / 3;
        let figures = if count == 1 { "figure" } else { "figures, each" };
        told += &format!("{count} {figures} as SVG, PDF and PNG: {}\n", folder.display());
    }
    print_plain(&told)?;
    drawn
}
