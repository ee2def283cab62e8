//! Runs on the nodes of a Slurm cluster: a job for each, in which the node's own lab measures.
//!
//! All jobs are tasks of an array. Each is bound to its node before it may start, so that a job that is requeued, because
//! its node failed, resumes the journal of this node.

mod client;
mod jobs;
mod nodes;
mod options;
mod script;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use lab::format::random_id;

pub(crate) use client::SlurmError;
pub(crate) use jobs::{Job, Outcome};
pub(crate) use script::run_arguments;

use client::{Refused, cancel, max_array_size, scontrol};

/// Folder of the logs of jobs in the results folder.
const LOGS: &str = "slurm";

/// Jobs to submit.
pub(crate) struct Request<'a> {
    /// Absolute path of this program.
    pub(crate) program: PathBuf,
    /// Its arguments on each node, without the results folder.
    pub(crate) arguments: Vec<String>,
    /// Whether each node starts a new run.
    pub(crate) fresh: bool,
    /// Absolute path of the results folder, which all nodes share.
    pub(crate) results: PathBuf,
    /// Current folder of the jobs.
    pub(crate) folder: PathBuf,
    pub(crate) partition: Option<&'a str>,
    pub(crate) count: Option<usize>,
    pub(crate) nodelist: Option<&'a str>,
    /// Further options of sbatch.
    pub(crate) options: &'a [String],
    /// Set when the user interrupts the submission.
    pub(crate) interrupted: &'a AtomicBool,
}

/// Submitted jobs.
pub(crate) struct Submitted {
    /// IDs of the job arrays: one, unless there are more nodes than tasks in an array.
    pub(crate) arrays: Vec<u32>,
    /// The node of each task, by array.
    pub(crate) nodes: Vec<Vec<String>>,
    /// Chosen nodes that cannot run jobs now, with their states.
    pub(crate) waiting: Vec<String>,
    /// Folder of the logs.
    pub(crate) logs: PathBuf,
}

impl Submitted {
    /// Returns the log of a task.
    pub(crate) fn log(&self, job: &Job) -> PathBuf {
        self.logs.join(format!("{}_{}.log", job.array, job.task))
    }

    /// Returns the IDs for a command of Slurm.
    pub(crate) fn ids(&self) -> String {
        self.arrays.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
    }

    /// Returns the tasks with their present states; `before` are those of the call before.
    pub(crate) fn jobs(&self, before: &[Job]) -> Result<Vec<Job>, SlurmError> {
        let mut all = Vec::new();
        for (array, nodes) in self.arrays.iter().zip(&self.nodes) {
            let text = match client::show(&["job", "--oneliner", &array.to_string()]) {
                // It forgot all tasks.
                Err(SlurmError::Refused(Refused { why, .. })) if why.contains("Invalid job id") => {
                    String::new()
                }
                text => text?,
            };
            let status = |node: &str| {
                let file = self.logs.join(script::status_file(&array.to_string(), node));
                std::fs::read_to_string(file).ok()?.trim().parse().ok()
            };
            all.extend(jobs::with_ended(&text, *array, nodes, before, status));
        }
        Ok(all)
    }
}

/// Submits a job for each chosen node. If one is refused, or the user interrupts, all are cancelled.
pub(crate) fn submit(request: &Request<'_>) -> Result<Submitted, SlurmError> {
    options::check(request.options)?;
    // Before anything is created.
    script::of_job(request, &request.results.join(LOGS))?;
    let known = nodes::of_partition(request.partition)?;
    let nodes::Chosen { nodes, waiting } = match request.nodelist {
        Some(list) => nodes::named(&known, &nodes::expand(list)?)?,
        None => nodes::usable(&known, request.count)?,
    };
    let logs = request.results.join(LOGS);
    std::fs::create_dir_all(&logs).map_err(|why| SlurmError::Folder(logs.clone(), why))?;
    let script = script::of_job(request, &logs)?;
    let mut submitted = Submitted { arrays: Vec::new(), nodes: Vec::new(), waiting, logs };
    let max_tasks = max_array_size()?.max(1);
    // By it, a job is cancelled whose ID is unknown.
    let name = format!("tollgate-{}", random_id());
    let result = submit_arrays(request, &script, &name, nodes.chunks(max_tasks), &mut submitted);
    result.map_err(|error| cancel(&name, error))?;
    Ok(submitted)
}

/// Submits an array for each part of the nodes, and releases all of them.
fn submit_arrays<'n>(
    request: &Request<'_>,
    script: &str,
    name: &str,
    parts: impl Iterator<Item = &'n [String]>,
    submitted: &mut Submitted,
) -> Result<(), SlurmError> {
    for nodes in parts {
        let id = submit_array(request, script, name, nodes, &submitted.logs)?;
        submitted.arrays.push(id);
        submitted.nodes.push(nodes.to_vec());
    }
    // Only now, and by one command, so that either all jobs start or none.
    check_interrupted(request)?;
    scontrol(&["release", &submitted.ids()])?;
    check_interrupted(request)
}

/// Returns an error if the user interrupted the submission.
fn check_interrupted(request: &Request<'_>) -> Result<(), SlurmError> {
    match request.interrupted.load(Ordering::Relaxed) {
        true => Err(SlurmError::Interrupted),
        false => Ok(()),
    }
}

/// Submits an array that is held, and binds each task to its node. Returns the ID of the array.
fn submit_array(
    request: &Request<'_>,
    script: &str,
    name: &str,
    nodes: &[String],
    logs: &Path,
) -> Result<u32, SlurmError> {
    check_interrupted(request)?;
    let mut options = request.options.to_vec();
    options.extend([
        "--parsable".into(),
        "--hold".into(),
        format!("--array=0-{}", nodes.len() - 1),
        "--nodes=1".into(),
        "--ntasks=1".into(),
        "--exclusive".into(),
        "--mem=0".into(),
        "--requeue".into(),
        "--open-mode=append".into(),
        // Also the token in SLURM_JWT, by any list: the script removes it.
        "--export=ALL".into(),
        format!("--job-name={name}"),
        format!("--chdir={}", request.folder.display()),
        // A '%' starts a placeholder.
        format!("--output={}/%A_%a.log", logs.display().to_string().replace('%', "%%")),
    ]);
    options.extend(request.partition.map(|name| format!("--partition={name}")));
    let id = client::sbatch(&options, script)?;
    for (task, node) in nodes.iter().enumerate() {
        check_interrupted(request)?;
        scontrol(&["update", &format!("JobId={id}_{task}"), &format!("ReqNodeList={node}")])?;
    }
    Ok(id)
}
