//! Programs as child processes of the probe.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use lab::program::Program;
use lab::sample::Failure;
use machine::child::{self, die_with_parent};

use super::manifest::Mechanism;

/// Bytes of memory reserved for other processes.
const RESERVED: u64 = 256 << 20;

/// Exit status and output of a program.
#[derive(Debug)]
pub(super) struct ProgramExit {
    pub(super) status: ExitStatus,
    pub(super) output: String,
    pub(super) errors: String,
}

impl ProgramExit {
    /// Describes the status and the first line of the errors.
    pub(super) fn describe(&self) -> String {
        let first = self.errors.lines().find(|line| !line.trim().is_empty());
        let first = first.map_or_else(String::new, |line| format!(": {}", line.trim()));
        let first: String = first.chars().take(200).collect();
        format!("{}{first}", child::describe(self.status))
    }

    /// Returns how the mechanism stopped the program or reported the bug; `None` if it did neither.
    pub(super) fn caught_by(&self, mechanism: &Mechanism) -> Option<&'static str> {
        if mechanism.reports(&self.errors) {
            return Some("report");
        }
        (mechanism.traps && self.status.signal() == Some(libc::SIGILL)).then_some("signal")
    }
}

/// Runs a program under a mechanism and waits for its exit.
///
/// # Errors
/// Returns `failed` if the program does not start.
pub(super) fn run(
    mechanism: &Mechanism,
    program: &Path,
    arguments: &[&str],
) -> Result<ProgramExit, Failure> {
    let mut command = match mechanism.runner.split_first() {
        Some((runner, options)) => {
            let mut command = Command::new(runner);
            command.args(options).arg(program);
            command
        }
        None => Command::new(program),
    };
    command.args(arguments).envs(&mechanism.environment);
    command.stdin(Stdio::null());
    die_with_parent(&mut command);
    let output = command.output();
    let output = output.map_err(|e| Failure::failed(format!("{}: {e}", program.display())))?;
    Ok(ProgramExit {
        status: output.status,
        output: String::from_utf8_lossy(&output.stdout).into_owned(),
        errors: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

/// Checks that the command that runs a mechanism's programs is installed.
///
/// # Errors
/// Returns `unavailable` with the package to install.
pub(super) fn find_runner(mechanism: &'static Mechanism) -> Result<(), Failure> {
    let Some(name) = mechanism.runner.first() else { return Ok(()) };
    let package = &mechanism.runner_package;
    Program { name, capability: "", about: "", package }.find().map(drop)
}

/// Checks that `bytes` of memory are available.
///
/// # Errors
/// Returns `unavailable` with the free memory.
pub(super) fn has_memory(bytes: u64) -> Result<(), Failure> {
    check_memory(bytes, machine::proc::available_memory())
}

fn check_memory(bytes: u64, free: u64) -> Result<(), Failure> {
    if bytes.saturating_add(RESERVED) <= free {
        return Ok(());
    }
    let mib = |bytes: u64| format!("{} MiB", bytes >> 20);
    Err(Failure::unavailable(
        format!("the program needs up to {}; {} are free", mib(bytes), mib(free)),
        "stop other programs or choose a smaller size",
    ))
}

#[cfg(test)]
mod tests {
    use super::super::manifest::mechanism;
    use super::*;

    fn run_shell(script: &str, under: &str) -> (ProgramExit, Option<&'static str>) {
        let mechanism = mechanism(under).unwrap();
        let exit = run(mechanism, Path::new("/bin/sh"), &["-c", script]).unwrap();
        let by = exit.caught_by(mechanism);
        (exit, by)
    }

    #[test]
    fn a_bug_is_caught_only_by_the_report_or_signal_of_its_mechanism() {
        assert_eq!(
            run_shell("echo 'x.c:1: runtime error: index' >&2; exit 1", "clang-ubsan").1,
            Some("report")
        );
        assert_eq!(run_shell("kill -ILL $$", "clang-ubsan").1, Some("signal"));
        assert_eq!(run_shell("kill -SEGV $$", "clang-ubsan").1, None);
        assert_eq!(run_shell("kill -ILL $$", "gcc-ubsan").1, None);
        let (crashed, by) = run_shell("echo 'warning' >&2; kill -SEGV $$", "gcc");
        assert_eq!(by, None);
        assert_eq!(crashed.describe(), "was killed by SIGSEGV: warning");
    }

    #[test]
    fn environment_variables_of_a_mechanism_are_set() {
        let (exit, _) = run_shell("echo $ASAN_OPTIONS", "gcc-asan");
        assert!(exit.output.contains("detect_leaks=0"), "{}", exit.output);
    }

    #[test]
    fn a_program_that_does_not_fit_into_free_memory_is_unavailable() {
        assert!(check_memory(1 << 30, 2 << 30).is_ok());
        let failure = check_memory(5 << 30, 2 << 30).unwrap_err();
        assert_eq!(failure.why, "the program needs up to 5120 MiB; 2048 MiB are free");
        assert!(has_memory(0).is_ok() && has_memory(u64::MAX).is_err());
    }
}
