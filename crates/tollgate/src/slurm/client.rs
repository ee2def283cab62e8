//! Commands of Slurm, in an environment without variables that change what they do.

use std::ffi::OsStr;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// Prefixes of variables that set options of Slurm's commands. A shell within a job has them, of that job.
const PREFIXES: [&str; 8] =
    ["SLURM_", "SLURMD_", "SBATCH_", "SALLOC_", "SRUN_", "SINFO_", "SQUEUE_", "SCONTROL_"];
/// Variables that name the cluster's configuration.
const KEPT: [&str; 3] = ["SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT"];

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
    /// The user interrupted the submission.
    Interrupted,
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
            Self::Output(command, text) => write!(
                f,
                "{command}: unexpected output '{text}'; this version of Slurm may not be supported"
            ),
            Self::Nodes(line) | Self::Option(line) => f.write_str(line),
            Self::Path(path) => {
                write!(f, "{}: not UTF-8, as the script of a job is; rename it", path.display())
            }
            Self::Interrupted => f.write_str("interrupted; no job is left"),
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

/// Runs a command; returns what it printed.
fn run(name: &'static str, arguments: &[&str]) -> Result<String, SlurmError> {
    let output = command(name).args(arguments).stdin(Stdio::null()).output();
    printed(name, output.map_err(|why| SlurmError::Missing(name, why))?)
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

/// Runs `scontrol`.
pub(super) fn scontrol(arguments: &[&str]) -> Result<String, SlurmError> {
    run("scontrol", arguments)
}

/// Runs `sinfo`.
pub(super) fn sinfo(arguments: &[&str]) -> Result<String, SlurmError> {
    run("sinfo", arguments)
}

/// Cancels a job. An error is ignored: another one is reported.
pub(super) fn scancel(job: u32) {
    let _ = run("scancel", &[&job.to_string()]);
}

/// Submits a job with the script; returns its ID.
pub(super) fn sbatch(options: &[String], script: &str) -> Result<u32, SlurmError> {
    const NAME: &str = "sbatch";
    let mut command = command(NAME);
    // The jobs inherit the environment; their messages may be in any language.
    match std::env::var_os("LC_ALL") {
        Some(language) => command.env("LC_ALL", language),
        None => command.env_remove("LC_ALL"),
    };
    let child = command
        .args(options)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.map_err(|why| SlurmError::Missing(NAME, why))?;
    if let Some(mut input) = child.stdin.take() {
        // If it refuses its options it does not read the script; its message states why.
        let _ = input.write_all(script.as_bytes());
    }
    let output = child.wait_with_output().map_err(|why| SlurmError::Missing(NAME, why))?;
    let text = printed(NAME, output)?;
    job_id(&text).ok_or_else(|| {
        // An option of the user may change what it prints: the job must not stay.
        mentioned_job(&text).into_iter().for_each(scancel);
        let text = text.trim().chars().take(MAX_QUOTED).collect();
        SlurmError::Output(NAME, text)
    })
}

/// Returns the ID in a text like 'Submitted batch job 12'.
fn mentioned_job(text: &str) -> Option<u32> {
    let mut words = text.split_whitespace().skip_while(|word| *word != "job").skip(1);
    words.next()?.parse().ok()
}

/// Checks that the options of the user are options, and that they do not replace the job: a word without `-` would be
/// another script.
pub(super) fn check_options(options: &[String]) -> Result<(), SlurmError> {
    for option in options {
        let name = option.split('=').next().unwrap_or_default();
        let refused = |why: &str| Err(SlurmError::Option(format!("--sbatch '{option}': {why}")));
        if name.len() < 2 || !name.starts_with('-') || name == "--" {
            return refused("not an option; write it as one word, e.g. --sbatch=--account=physics");
        }
        // sbatch accepts the start of a name.
        let is_start_of = |long: &str| name.len() > 3 && long.starts_with(name);
        if is_start_of("--wrap") || is_start_of("--test-only") {
            return refused("it replaces the job; omit it");
        }
    }
    Ok(())
}

/// Parses what `sbatch --parsable` prints: the ID, and perhaps the name of the cluster.
fn job_id(text: &str) -> Option<u32> {
    text.trim().split(';').next()?.parse().ok()
}

/// Returns the maximum number of tasks of an array.
pub(super) fn max_array_size() -> Result<usize, SlurmError> {
    let config = scontrol(&["show", "config"])?;
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
        assert_eq!(mentioned_job("sbatch: Submitted batch job 12 on x\n"), Some(12));
        assert_eq!(mentioned_job("no job"), None);
        assert_eq!((job_id("12\n"), job_id("12;other\n"), job_id("x")), (Some(12), Some(12), None));
        let config = "Configuration data\nMaxArraySize            = 1001\nMaxDBDMsgs = 1\n";
        assert_eq!((array_size(config), array_size("")), (Some(1001), None));
        let line = "sbatch: error: Batch job submission failed: Invalid partition name specified";
        assert_eq!(
            without_prefix("sbatch", line),
            "Batch job submission failed: Invalid partition name specified"
        );
    }

    #[test]
    fn options_that_replace_the_job_are_refused() {
        let check = |option: &str| check_options(&[option.to_owned()]).map_err(|it| it.to_string());
        for option in
            ["--account=x", "-Ax", "-A x", "--time=30", "--wait", "--wckey=x", "--tmp=1", "-W"]
        {
            assert_eq!(check(option), Ok(()), "{option}");
        }
        for option in ["/path/x.sh", "x", "", "-", "--"] {
            assert!(check(option).unwrap_err().contains("not an option; "), "{option}");
        }
        for option in ["--wrap=true", "--wrap", "--wra=x", "--test-only", "--test", "--te"] {
            assert!(check(option).unwrap_err().contains("it replaces the job"), "{option}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_a_parser_panic(text in any::<String>()) {
            let _ = mentioned_job(&text);
            let _ = (job_id(&text), array_size(&text), without_prefix("sbatch", &text));
        }
    }
}
