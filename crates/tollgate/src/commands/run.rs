//! `tollgate run`

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use lab::claim::Claim;
use lab::comparison;
use lab::experiment::{Experiment, Profile};
use lab::format::count;
use lab::option;
use lab::quantity;
use lab::run::{LockRequest, MachineLock, RunError, RunRequest, RunSummary, purpose_of_run};
use lab::sample::Sample;
use lab::statistics::INTERVAL_ROUNDS;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use vm::declaration::NamedDeclaration;

use super::end::{self, Declared};
use super::forecast;
use crate::arguments::{PointArgs, Run, SelectionArgs};
use crate::error::CliError;
use crate::output::print_message;
use crate::progress::{MAX_REPORTED, Progress, failure_line};
use crate::select::{Place, Selected};
use crate::{LAB, SUITES, select};

/// Time of a run without arguments.
const DEFAULT_TIME: Duration = Duration::from_secs(180);
/// Half-width at which `--until-decided` ends, as a share.
const DECIDING_WIDTH: f64 = 0.005;
/// Maximum number of rounds with `--resolve`.
const MAX_ROUNDS: u32 = 1000;

/// Runs experiments and prints the results.
pub(crate) fn run(mut args: Run) -> Result<u8, CliError> {
    if args.slurm.slurm {
        return super::slurm::submit(&args);
    }
    let hosts = super::hosts::of_run(&args.hosts, &mut args.measure, args.priority)?;
    let args = &args;
    let guest = args.guest.guest.as_deref().map(vm::declaration::find).transpose();
    let guest = guest.map_err(CliError::usage)?;
    let options = options(args, guest.as_ref())?;
    let is_here = guest.is_none() && hosts.is_none();
    let place = if is_here { Place::Host } else { Place::Elsewhere };
    let catalogue = select::catalogue(&args.selection.points.files)?;
    let Selected { profile, mut experiments } =
        select::select_experiments(&catalogue, &args.selection, place)?;
    let roles = hosts.as_ref().map(|hosts| hosts.roles.as_slice()).unwrap_or_default();
    select::add_of_roles(&catalogue, &args.selection, (profile, roles), &mut experiments)?;
    let hosts = hosts.map(|hosts| hosts.in_order_of(select::roles(&experiments)));
    // How many cores another host has is not known yet.
    if is_default(args) && hosts.is_none() {
        let cores = machine::topology::Topology::detect().physical_cores();
        select::leave_out_larger(&mut experiments, &catalogue.claims()?, cores);
    }
    // Reports errors in the files before anything is measured.
    let declared = Declared::of(&catalogue, args)?;
    comparison::set(&mut experiments, &declared.claims, &declared.headlines);
    set_effort(args, &mut experiments)?;
    // On other hosts, the workers have it.
    let priority = args.priority.filter(|_| hosts.is_none());
    let _priority = priority.map(machine::priority::raise).transpose().map_err(CliError::failed)?;
    let time = args.until_decided.or(args.measure.time);
    let time = time.or_else(|| is_default(args).then_some(DEFAULT_TIME));
    let judged = rounds_to_judge(&experiments, &declared.claims);
    let target = resolve(args)?.unwrap_or(DECIDING_WIDTH);
    let is_precise = |folder: &Path| super::claims::are_precise(&declared.claims, folder, target);
    let lacking = |folder: &Path| super::claims::lacking_rounds(&declared.claims, folder);
    match (&args.resolve, time) {
        (Some(target), None) => {
            forecast::report_target(&experiments, target, args.measure.results())?
        }
        (_, Some(time)) => forecast::report_time(&experiments, time)?,
        (None, None) => {
            let accelerator = guest.is_some().then_some(args.guest.how.accelerator);
            forecast::report_rounds(&experiments, accelerator)?;
        }
    }
    let interrupted = interrupt_flag().map_err(CliError::failed)?;
    let mut progress = Progress::new(args.resolve.is_some(), declared.headlines.clone());
    // Before the backing files of guests are made, which a running guest may use.
    let lock = match &hosts {
        None => Some(Arc::new(lock(args, &interrupted, &mut progress)?)),
        Some(_) => None,
    };
    let guests = guest.map(|guest| super::guest::guests_of(&guest, &args.guest.how, &options));
    let guests = guests.transpose()?;
    let request = RunRequest {
        experiments,
        profile,
        results: args.measure.results().to_owned(),
        fresh: args.measure.fresh,
        seed: args.measure.seed,
        time,
        min_rounds: if is_default(args) { judged } else { BTreeMap::new() },
        is_enough: args.until_decided.is_some().then_some(&is_precise as &dyn Fn(&Path) -> bool),
        lacking: args.until_decided.is_none().then_some(&lacking),
        sides: Vec::new(),
        guests,
        hosts,
        waits: args.measure.wait,
        lock,
        options,
        interrupted: &interrupted,
    };
    let summary = LAB.run(&request, &mut progress);
    let reported = progress.finish();
    let summary = summary.map_err(error)?;
    report_interruption(&summary);
    report_failures(&request, &summary, &reported);
    if !args.quiet {
        end::print_results(args, &request, &summary, &declared)?;
    }
    status(&summary)
}

/// Takes the lock of the machine.
fn lock(
    args: &Run,
    interrupted: &AtomicBool,
    progress: &mut Progress,
) -> Result<MachineLock, CliError> {
    let purpose = purpose_of_run(args.measure.results()).map_err(error)?;
    let waits = args.measure.wait;
    let request = LockRequest { purpose: &purpose, is_shared: false, waits, interrupted };
    MachineLock::take(request, progress).map_err(error)
}

/// Returns the options of the user, and those of the guest that the user does not set.
fn options(
    args: &Run,
    guest: Option<&NamedDeclaration>,
) -> Result<BTreeMap<String, String>, CliError> {
    let (allow, set) = (&args.measure.allow, &args.measure.set);
    let Some(declared) = guest else {
        return option::read(SUITES, allow, set).map_err(CliError::usage);
    };
    let mut options = option::read_for_guest(SUITES, allow, set).map_err(CliError::usage)?;
    for (name, value) in super::guest::options(declared)? {
        options.entry(name).or_insert(value);
    }
    Ok(options)
}

/// Returns the error of a run with its exit status.
pub(super) fn error(error: RunError) -> CliError {
    match error {
        RunError::Journal(error) => CliError::from(error),
        RunError::Limits(_) | RunError::Changed { .. } => CliError::usage(error),
        RunError::Busy(_)
        | RunError::Lock { .. }
        | RunError::Start(_)
        | RunError::Lost(_)
        | RunError::Settings(_) => CliError::failed(error),
        RunError::Interrupted => CliError::interrupted(error),
    }
}

/// Returns whether all suites are measured with the default effort.
pub(super) fn is_default(args: &Run) -> bool {
    let SelectionArgs { names, points, claim } = &args.selection;
    let PointArgs { profile, filter, levels, each_level, files: _ } = points;
    let selects_all = names.is_empty()
        && filter.is_none()
        && levels.is_empty()
        && claim.is_empty()
        && !each_level;
    let is_default_effort = profile.unwrap_or_default() == Profile::Quick
        && args.measure.rounds.is_none()
        && args.resolve.is_none()
        && args.measure.time.is_none();
    selects_all && is_default_effort
}

/// Returns the rounds of each experiment without which its claims cannot be judged, by its ID.
fn rounds_to_judge(experiments: &[Experiment], claims: &[Claim]) -> BTreeMap<String, u32> {
    let needed = |experiment: &Experiment| {
        let id = experiment.id();
        let of_claims = claims.iter().filter(|claim| claim.experiment == id);
        let needed = of_claims.map(Claim::rounds_needed).max().unwrap_or_default();
        (id, u32::try_from(needed.max(INTERVAL_ROUNDS)).unwrap_or(u32::MAX))
    };
    experiments.iter().map(needed).collect()
}

/// Returns a flag that signals set to end the run; a second SIGINT or SIGTERM exits at once.
pub(super) fn interrupt_flag() -> std::io::Result<Arc<AtomicBool>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        flag::register_conditional_shutdown(signal, 130, interrupted.clone())?;
        flag::register(signal, interrupted.clone())?;
    }
    // A closing terminal sends SIGHUP, often twice. nohup(1) ignores it so that the run continues.
    if !is_ignored(SIGHUP) {
        flag::register(SIGHUP, interrupted.clone())?;
    }
    machine::child::interrupt_by(interrupted.clone());
    Ok(interrupted)
}

/// Returns whether this process was started with a signal ignored.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << (signal - 1)) != 0)
}

/// Returns the target width of intervals, as a share.
fn resolve(args: &Run) -> Result<Option<f64>, CliError> {
    let resolve = args.resolve.as_deref().map(quantity::share).transpose();
    resolve.map_err(|why| CliError::usage(format!("--resolve: {why}")))
}

/// Sets the target width and the number of rounds, and checks the experiments.
pub(super) fn set_effort(args: &Run, experiments: &mut [Experiment]) -> Result<(), CliError> {
    let resolve = resolve(args)?;
    if let (Some(resolve), None) = (resolve, args.until_decided) {
        for experiment in experiments.iter_mut() {
            (experiment.effort.resolve, experiment.effort.rounds) = (resolve, MAX_ROUNDS);
        }
    }
    set_rounds(args.measure.rounds, experiments)
}

/// Sets the number of rounds, if one is given, and checks the experiments.
pub(super) fn set_rounds(
    rounds: Option<u32>,
    experiments: &mut [Experiment],
) -> Result<(), CliError> {
    for experiment in experiments {
        if let Some(rounds) = rounds {
            (experiment.effort.rounds, experiment.effort.min_rounds) = (rounds, rounds);
        }
        let id = experiment.id();
        experiment
            .within_limits()
            .map_err(|what| CliError::usage(format!("experiment '{id}': {what}")))?;
    }
    Ok(())
}

/// Reports that the user interrupted a run.
pub(super) fn report_interruption(summary: &RunSummary) {
    if summary.interrupted {
        print_message("interrupted: samples are kept; run again to resume");
    }
}

/// Reports the first failures that were not reported during the run.
pub(super) fn report_failures(request: &RunRequest, summary: &RunSummary, reported: &[Sample]) {
    let unreported = summary.faults.iter().filter(|sample| !reported.contains(sample));
    let max = MAX_REPORTED.saturating_sub(reported.len());
    for sample in unreported.take(max) {
        let id = &sample.experiment;
        let experiment = request.experiments.iter().find(|one| one.id() == *id);
        print_message(&failure_line(sample, experiment));
    }
}

/// Returns the exit status of a run.
pub(super) fn status(summary: &RunSummary) -> Result<u8, CliError> {
    match summary.faults.len() {
        0 if summary.interrupted => Ok(130),
        0 => Ok(0),
        failures => {
            let failed = count(failures, "sample");
            Err(CliError::failed(format!("{failed} failed; the journal contains each cause")))
        }
    }
}
