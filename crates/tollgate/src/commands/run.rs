//! `tollgate run`

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anstream::{eprintln, println};
use lab::experiment::Experiment;
use lab::quantity;
use lab::run::{Ended, RunError, Wanted};
use report::export::{Format, to_file};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::LAB;
use crate::arguments::Run;
use crate::fault::Fault;
use crate::progress::Progress;
use crate::select;

/// A wished interval may take more rounds than a profile has, but not without end.
const MOST_ROUNDS: u32 = 1000;

/// Measures; then shows what was found.
pub(crate) fn run(given: &Run) -> Result<u8, Fault> {
    let mut experiments = select::chosen(&given.choice)?;
    change_effort(given, &mut experiments)?;
    let _priority =
        given.priority.map(machine::priority::raise).transpose().map_err(Fault::failed)?;
    tell_beforehand(given, &experiments)?;
    let interrupted = std::sync::Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // The second Ctrl-C ends at once.
        signal_hook::flag::register_conditional_shutdown(signal, 130, interrupted.clone())
            .and_then(|_| signal_hook::flag::register(signal, interrupted.clone()))
            .map_err(Fault::failed)?;
    }
    let wanted = Wanted {
        experiments,
        profile: given.choice.profile.into(),
        results: given.place.results.clone(),
        fresh: given.fresh,
        seed: given.seed,
        options: options(given)?,
        interrupted: &interrupted,
    };
    let mut progress = Progress::new(given.resolve.is_some());
    let ended = LAB.run(&wanted, &mut progress);
    progress.finish();
    let ended = ended.map_err(|error| match error {
        RunError::Journal(error) => Fault::from(error),
        RunError::Worker(_) => Fault::failed(error),
    })?;
    finish(given, &wanted, &ended)
}

fn change_effort(given: &Run, experiments: &mut [Experiment]) -> Result<(), Fault> {
    let resolve =
        given.resolve.as_deref().map(quantity::share).transpose().map_err(Fault::usage)?;
    for experiment in experiments {
        let effort = &mut experiment.effort;
        if let Some(rounds) = given.rounds {
            (effort.rounds, effort.min_rounds) = (rounds, rounds);
        }
        if let Some(resolve) = resolve {
            effort.resolve = resolve;
            effort.rounds = MOST_ROUNDS;
        }
    }
    Ok(())
}

/// How long it takes at most, before it begins.
fn tell_beforehand(given: &Run, experiments: &[Experiment]) -> Result<(), Fault> {
    let mut time = Duration::ZERO;
    for experiment in experiments {
        time += lab::plan::expected(experiment, select::suite_of(experiment)?);
    }
    let points: usize = experiments.iter().map(|one| one.points.len()).sum();
    let most = quantity::format_duration(time);
    match &given.resolve {
        Some(resolve) => eprintln!(
            "{points} points until each is within {resolve}: about {most} at most; the first rounds tell more"
        ),
        None => {
            eprintln!("{points} points in {} experiments: about {most} at most", experiments.len())
        }
    }
    Ok(())
}

fn options(given: &Run) -> Result<BTreeMap<String, String>, Fault> {
    let mut options: BTreeMap<_, _> =
        given.allow.iter().map(|what| (format!("allow-{what}"), "yes".to_string())).collect();
    for text in &given.set {
        let (name, value) = text
            .split_once('=')
            .ok_or_else(|| Fault::usage(format!("--set: '{text}' is not NAME=VALUE")))?;
        options.insert(name.into(), value.into());
    }
    Ok(options)
}

fn finish(given: &Run, wanted: &Wanted, ended: &Ended) -> Result<u8, Fault> {
    if ended.interrupted {
        eprintln!("interrupted: what was measured is kept, and the next run goes on from there");
    }
    if !given.quiet {
        leave(given, wanted, ended)?;
    }
    for sample in ended.faults.iter().take(10) {
        if let Some(error) = &sample.error {
            eprintln!("{} {}, round {}: {error}", sample.experiment, sample.point, sample.round);
        }
    }
    match ended.faults.len() {
        0 if ended.interrupted => Ok(130),
        0 => Ok(0),
        faults => {
            Err(Fault::failed(format!("{faults} samples failed; the others are in the journal")))
        }
    }
}

/// Tables, verdicts, figures and a CSV of what was asked for, and where they lie.
fn leave(given: &Run, wanted: &Wanted, ended: &Ended) -> Result<(), Fault> {
    super::show::after_run(&ended.folder, &wanted.experiments)?;
    super::claims::after_run(&ended.folder, &wanted.experiments, &given.choice.files)?;
    let run = super::show::open(&ended.folder)?;
    let figures = super::plot::after_run(&run, &wanted.experiments, &given.choice.files)?;
    let table = ended.folder.join("samples.csv");
    to_file(&[run], &|_| true, Format::Csv, &table).map_err(Fault::failed)?;
    println!("{} samples measured; the run is in {}", ended.samples, ended.folder.display());
    println!("samples as a table: {}", table.display());
    if let Some(folder) = figures.first().and_then(|path| path.parent()) {
        println!("{} figures, each as SVG, PDF and PNG: {}", figures.len() / 3, folder.display());
    }
    Ok(())
}
