//! Commands of Slurm, in an environment without variables that change what they do.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use machine::child::{complete_within, output_within};

/// Prefixes of variables that set options of Slurm's commands. A shell within a job has them, of that job.
const PREFIXES: [&str; 8] =
    ["SLURM_", "SLURMD_", "SBATCH_", "SALLOC_", "SRUN_", "SINFO_", "SQUEUE_", "SCONTROL_"];
/// Variables that name the cluster's configuration.
const KEPT: [&str; 3] = ["SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT"];

/// Time limit of a command. Slurm's own limit of an answer is 10 s, and `sbatch` repeats its request.
const MAX_TIME: Duration = Duration::from_secs(180);

/// Maximum length of quoted output, in characters.
const MAX_QUOTED: usize = 200;

/// A refusal of a command of Slurm.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) command: &'static str,
    /// Last line of its standard error.
    pub(crate) why: String,
}

/// Why no job was submitted, or why it is unknown what became of one.
#[derive(Debug)]
pub(crate) enum SlurmError {
    /// A command cannot be started.
    Missing(&'static str, std::io::Error),
    /// A command failed.
    Refused(Refused),
    /// A command did not answer within its time, so that it is unknown what it did.
    NoAnswer(&'static str),
    /// A command printed something else than expected.
    Output(&'static str, String),
    /// The selected nodes do not exist, or cannot run jobs.
    Nodes(String),
    /// The folder of the logs cannot be created.
    Folder(PathBuf, std::io::Error),
    /// A path that is not UTF-8 cannot be a word of the job's script.
    Path(PathBuf),
    /// An option of the user would replace the job.
    Option(String),
    /// The user interrupted the submission, and all jobs are cancelled.
    Interrupted,
    /// The user interrupted the submission, and jobs with this name may be left.
    NotCancelled(String),
}

impl std::fmt::Display for SlurmError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Missing(command, why) if why.kind() == ErrorKind::NotFound => write!(
                f,
                "{command}: not found; run this where Slurm's commands are installed (Debian: slurm-client)"
            ),
            Self::Missing(command, why) => write!(f, "{command}: {why}; repair Slurm's commands"),
            Self::Refused(Refused { command: "sbatch", why }) => write!(
                f,
                "Slurm refuses the job: {why}; choose another --partition, or add what it requires, e.g. \
                 --sbatch=--account=NAME"
            ),
            Self::Refused(Refused { command, why }) => {
                write!(f, "{command}: {why}; check the cluster with 'sinfo'")
            }
            Self::NoAnswer(command) => write!(
                f,
                "{command}: no answer within {} s; check the cluster with 'sinfo', and 'squeue --me' for jobs that are \
                 left",
                MAX_TIME.as_secs()
            ),
            Self::Output(command, text) => write!(
                f,
                "{command}: unexpected output '{text}'; this version of Slurm may not be supported"
            ),
            Self::Nodes(line) | Self::Option(line) => f.write_str(line),
            Self::Path(path) => {
                write!(f, "{}: not UTF-8, as the script of a job is; rename it", path.display())
            }
            Self::Interrupted => f.write_str("interrupted; no job is left"),
            Self::NotCancelled(name) => {
                write!(f, "interrupted; jobs may be left: scancel --name={name}")
            }
            Self::Folder(folder, why) => write!(
                f,
                "{}: {why}; choose a folder that all nodes share with --results",
                folder.display()
            ),
        }
    }
}

/// Returns whether a variable of the environment would change what a command of Slurm does.
fn leaks(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    let is_kept = KEPT.iter().any(|kept| kept.as_bytes() == name);
    !is_kept && PREFIXES.iter().any(|prefix| name.starts_with(prefix.as_bytes()))
}

fn command(name: &'static str) -> Command {
    let mut command = Command::new(name);
    for (variable, _) in std::env::vars_os().filter(|(variable, _)| leaks(variable)) {
        command.env_remove(variable);
    }
    // Messages are parsed.
    command.env("LC_ALL", "C");
    command
}

/// Runs a command that changes nothing; returns what it printed. An interruption by the user ends it.
fn ask(name: &'static str, arguments: &[&str]) -> Result<String, SlurmError> {
    let output = output_within(command(name).args(arguments), b"", MAX_TIME);
    printed(name, output.map_err(|why| not_run(name, why))?)
}

/// Runs a command to its end, also if the user interrupts: otherwise it is unknown what it did.
fn change(name: &'static str, arguments: &[&str]) -> Result<String, SlurmError> {
    let output = complete_within(command(name).args(arguments), b"", MAX_TIME);
    printed(name, output.map_err(|why| not_run(name, why))?)
}

fn not_run(name: &'static str, why: std::io::Error) -> SlurmError {
    match why.kind() {
        ErrorKind::Interrupted => SlurmError::Interrupted,
        ErrorKind::TimedOut => SlurmError::NoAnswer(name),
        _ => SlurmError::Missing(name, why),
    }
}

fn printed(name: &'static str, output: Output) -> Result<String, SlurmError> {
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let errors = [&output.stderr, &output.stdout].map(|text| String::from_utf8_lossy(text));
    let last = errors.iter().flat_map(|text| text.lines()).rfind(|line| !line.trim().is_empty());
    let why = last.map_or_else(|| output.status.to_string(), |line| without_prefix(name, line));
    Err(SlurmError::Refused(Refused { command: name, why }))
}

/// Removes the command's name and the level of a message.
fn without_prefix(name: &str, line: &str) -> String {
    let line = line.trim();
    let line = line.strip_prefix(name).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(line);
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

/// Runs `scontrol` to show something.
pub(super) fn show(arguments: &[&str]) -> Result<String, SlurmError> {
    ask("scontrol", &[&["show"], arguments].concat())
}

/// Runs `scontrol` to change something.
pub(super) fn scontrol(arguments: &[&str]) -> Result<String, SlurmError> {
    change("scontrol", arguments)
}

/// Runs `sinfo`.
pub(super) fn sinfo(arguments: &[&str]) -> Result<String, SlurmError> {
    ask("sinfo", arguments)
}

/// Cancels all jobs with a name after an error of their submission; returns that error, or that jobs may be left.
pub(super) fn cancel(name: &str, error: SlurmError) -> SlurmError {
    let cancelled = change("scancel", &[&format!("--name={name}")]);
    match (cancelled, error) {
        (Err(_), SlurmError::Interrupted) => SlurmError::NotCancelled(name.to_owned()),
        (_, error) => error,
    }
}

/// Submits a job with the script; returns its ID.
///
/// # Errors
/// Returns why it is not known that there is such a job: there may be one, e.g. if the answer of the controller was lost.
pub(super) fn sbatch(options: &[String], script: &str) -> Result<u32, SlurmError> {
    const NAME: &str = "sbatch";
    let mut command = command(NAME);
    // The jobs inherit the environment; their messages may be in any language.
    match std::env::var_os("LC_ALL") {
        Some(language) => command.env("LC_ALL", language),
        None => command.env_remove("LC_ALL"),
    };
    // If it refuses its options it does not read the script; its message states why.
    let output = complete_within(command.args(options), script.as_bytes(), MAX_TIME);
    let text = printed(NAME, output.map_err(|why| not_run(NAME, why))?)?;
    job_id(&text)
        .ok_or_else(|| SlurmError::Output(NAME, text.trim().chars().take(MAX_QUOTED).collect()))
}

/// Parses what `sbatch --parsable` prints: the ID. With the name of a cluster it is not an ID of this one.
fn job_id(text: &str) -> Option<u32> {
    text.trim().parse().ok()
}

/// Returns the maximum number of tasks of an array.
pub(super) fn max_array_size() -> Result<usize, SlurmError> {
    let config = show(&["config"])?;
    array_size(&config).ok_or_else(|| SlurmError::Output("scontrol", "no MaxArraySize".into()))
}

fn array_size(config: &str) -> Option<usize> {
    let value = |line: &str| {
        line.strip_prefix("MaxArraySize")?.trim().strip_prefix('=')?.trim().parse().ok()
    };
    config.lines().find_map(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn variables_of_another_job_do_not_leak() {
        for name in ["SLURM_JOB_ID", "SBATCH_PARTITION", "SLURMD_NODENAME", "SQUEUE_FORMAT"] {
            assert!(leaks(OsStr::new(name)), "{name}");
        }
        for name in ["SLURM_CONF", "PATH", "TOLLGATE_LOCK", "MY_SLURM_X"] {
            assert!(!leaks(OsStr::new(name)), "{name}");
        }
    }

    #[test]
    fn outputs_are_parsed() {
        // Job 12 of another cluster is not job 12 of this one.
        assert_eq!((job_id("12\n"), job_id("12;other\n"), job_id("x")), (Some(12), None, None));
        let config = "Configuration data\nMaxArraySize            = 1001\nMaxDBDMsgs = 1\n";
        assert_eq!((array_size(config), array_size("")), (Some(1001), None));
        let line = "sbatch: error: Batch job submission failed: Invalid partition name specified";
        assert_eq!(
            without_prefix("sbatch", line),
            "Batch job submission failed: Invalid partition name specified"
        );
    }

    proptest! {
        #[test]
        fn no_text_makes_a_parser_panic(text in any::<String>()) {
            let _ = (job_id(&text), array_size(&text), without_prefix("sbatch", &text));
        }
    }
}
