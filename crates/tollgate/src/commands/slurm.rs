//! `tollgate run --slurm`: submits jobs, and waits for them or prints how to follow them.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use lab::format::count;
use lab::option;

use super::run;
use crate::arguments::Run;
use crate::error::CliError;
use crate::output::{print, print_message};
use crate::select::{self, Place, quoted};
use crate::slurm::{self, Job, Outcome, Request, SlurmError, Submitted};
use crate::suites::SUITES;

/// Pause between two looks at the jobs.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Pause in which an interruption is not noticed.
const STEP: Duration = Duration::from_millis(100);
/// Number of consecutive failures after which the cluster is given up: it is restarted within minutes.
const MAX_FAILURES: u32 = 150;
/// Maximum number of names in a line.
const MAX_NAMES: usize = 8;

/// Submits a job for each node.
pub(super) fn submit(args: &Run) -> Result<u8, CliError> {
    check(args)?;
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let program = std::env::current_exe().map_err(CliError::failed)?;
    let folder = std::env::current_dir().map_err(CliError::failed)?;
    // Words of the script and options of sbatch are texts.
    let is_text = |path: &&PathBuf| path.to_str().is_some();
    if let Some(path) =
        args.selection.points.files.iter().chain([&folder]).find(|path| !is_text(path))
    {
        return Err(error(SlurmError::Path(path.clone())));
    }
    let interrupted = run::interrupt_flag().map_err(CliError::failed)?;
    let request = Request {
        program,
        arguments: slurm::run_arguments(args, |file| absolute(file).display().to_string()),
        fresh: args.measure.fresh,
        results: absolute(args.measure.results()),
        folder,
        partition: args.slurm.partition.as_deref(),
        count: args.slurm.nodes.map(|nodes| nodes.get() as usize),
        nodelist: args.slurm.nodelist.as_deref(),
        options: &args.slurm.sbatch,
        interrupted: &interrupted,
    };
    let submitted = slurm::submit(&request).map_err(error)?;
    for node in &submitted.waiting {
        print_message(&format!("{node}: its job waits until the node can run jobs"));
    }
    print(&lab::terminal::lines(&described(&submitted, &request.results)))?;
    if args.measure.wait { wait(&submitted, &request.results, &interrupted) } else { Ok(0) }
}

/// Checks the selection and the options before a job is submitted, so that an error is one line here.
fn check(args: &Run) -> Result<(), CliError> {
    option::read(SUITES, &args.measure.allow, &args.measure.set).map_err(CliError::usage)?;
    let catalogue = select::catalogue(&args.selection.points.files)?;
    // Not those of this machine: a node may have more cores.
    let mut experiments =
        select::select_experiments(&catalogue, &args.selection, Place::Host)?.experiments;
    run::set_effort(args, &mut experiments)
}

fn error(error: SlurmError) -> CliError {
    match error {
        SlurmError::Nodes(_) | SlurmError::Path(_) | SlurmError::Option(_) => {
            CliError::usage(error)
        }
        SlurmError::Interrupted | SlurmError::NotCancelled(_) => CliError::interrupted(error),
        SlurmError::Missing(..)
        | SlurmError::Refused(_)
        | SlurmError::Output(..)
        | SlurmError::NoAnswer(_)
        | SlurmError::Folder(..) => CliError::failed(error),
    }
}

/// Describes the jobs, and the commands that follow them.
fn described(submitted: &Submitted, results: &Path) -> String {
    let ids = submitted.ids();
    let names: Vec<&str> = submitted.nodes.iter().flatten().map(String::as_str).collect();
    let more = names.len().saturating_sub(MAX_NAMES);
    let listed = names[..names.len() - more].join(", ");
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    let quote = |path: &Path| quoted(&path.to_string_lossy());
    format!(
        "job {ids}: {} ({listed}{more})\n\
         results in {}, logs in {}\n\
         squeue --jobs={ids}  shows its progress\n\
         scancel {}  ends it; the next run resumes\n\
         tollgate fleet {}  compares the nodes\n",
        count(names.len(), "node"),
        results.join("NODE").display(),
        submitted.logs.display(),
        ids.replace(',', " "),
        quote(results)
    )
}

/// Waits until all jobs have ended.
fn wait(submitted: &Submitted, results: &Path, interrupted: &AtomicBool) -> Result<u8, CliError> {
    let (mut failures, mut ended, mut before) = (0, 0, Vec::new());
    loop {
        match submitted.jobs(&before) {
            Ok(jobs) => {
                failures = 0;
                let is_pending = |job: &&Job| job.outcome() == Outcome::Pending;
                // Twice in succession: a job whose node failed has ended for a moment before it is requeued.
                ended = if jobs.iter().any(|job| is_pending(&job)) { 0 } else { ended + 1 };
                if ended == 2 {
                    return report(submitted, &jobs, results);
                }
                before = jobs;
            }
            Err(why) if failures == MAX_FAILURES => return Err(error(why)),
            Err(_) => failures += 1,
        }
        for _ in 0..POLL_INTERVAL.as_millis() / STEP.as_millis() {
            if interrupted.load(Ordering::Relaxed) {
                let ids = submitted.ids().replace(',', " ");
                return Err(CliError::interrupted(format!(
                    "interrupted; the jobs go on: 'scancel {ids}' ends them"
                )));
            }
            thread::sleep(STEP);
        }
    }
}

/// Returns the exit status after all jobs have ended: 1 if one failed, with its log.
fn report(submitted: &Submitted, jobs: &[Job], results: &Path) -> Result<u8, CliError> {
    let failed: Vec<&Job> = jobs.iter().filter(|job| job.outcome() == Outcome::Failed).collect();
    let Some(first) = failed.first() else {
        print_message(&format!("{}: all nodes have measured", results.display()));
        return Ok(0);
    };
    for job in failed.iter().take(MAX_NAMES) {
        let log: PathBuf = submitted.log(job);
        let exit = match job.exit.split(':').next().unwrap_or_default() {
            "" => String::new(),
            status => format!(", exit status {status}"),
        };
        let state = job.state.to_lowercase();
        print_message(&format!("{}: {state}{exit}; see {}", job.node, log.display()));
    }
    Err(CliError::failed(format!(
        "{} of {} failed, e.g. {}; the logs state why, and the next run resumes",
        failed.len(),
        count(jobs.len(), "job"),
        first.node
    )))
}
