//! A program as a child of the probe.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use lab::program::Program;
use lab::sample::Failure;
use machine::child::die_with_parent;

use super::manifest::Mechanism;

/// Memory that is left to everything else on the machine, bytes.
const LEFT: u64 = 256 << 20;

/// How a program ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) status: ExitStatus,
    pub(super) output: String,
    pub(super) errors: String,
}

impl Ended {
    /// How it ended, in words.
    pub(super) fn told(&self) -> String {
        let first = self.errors.lines().find(|line| !line.trim().is_empty());
        let first = first.map_or_else(String::new, |line| format!(": {}", line.trim()));
        let short: String = first.chars().take(200).collect();
        format!("{}{short}", self.status)
    }

    /// Whether the mechanism itself stopped it or reported what it did, and by what.
    pub(super) fn caught_by(&self, mechanism: &Mechanism) -> Option<&'static str> {
        if mechanism.reports(&self.errors) {
            return Some("report");
        }
        (mechanism.traps && self.status.signal() == Some(libc::SIGILL)).then_some("signal")
    }
}

/// Runs a program under a mechanism and waits for its end.
///
/// # Errors
/// It does not start.
pub(super) fn run(
    mechanism: &Mechanism,
    program: &Path,
    arguments: &[&str],
) -> Result<Ended, Failure> {
    let mut command = match mechanism.runner.split_first() {
        Some((runner, words)) => {
            let mut command = Command::new(runner);
            command.args(words).arg(program);
            command
        }
        None => Command::new(program),
    };
    command.args(arguments).envs(&mechanism.environment);
    command.stdin(Stdio::null());
    die_with_parent(&mut command);
    let output = command.output();
    let output = output.map_err(|e| Failure::failed(format!("{}: {e}", program.display())))?;
    Ok(Ended {
        status: output.status,
        output: String::from_utf8_lossy(&output.stdout).into_owned(),
        errors: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

/// Whether the program that runs a mechanism's programs is here.
///
/// # Errors
/// The package that brings it.
pub(super) fn runs(mechanism: &'static Mechanism) -> Result<(), Failure> {
    let Some(name) = mechanism.runner.first() else { return Ok(()) };
    let package = &mechanism.runner_package;
    Program { name, capability: "", about: "", package }.find().map(drop)
}

/// Whether so many bytes of memory can be had now.
///
/// # Errors
/// How much there is, and what to do.
pub(super) fn has_memory(bytes: u64) -> Result<(), Failure> {
    let free = available(&std::fs::read_to_string("/proc/meminfo")?);
    enough(bytes, free.unwrap_or(u64::MAX))
}

fn enough(bytes: u64, free: u64) -> Result<(), Failure> {
    if bytes.saturating_add(LEFT) <= free {
        return Ok(());
    }
    let mib = |bytes: u64| format!("{} MiB", bytes >> 20);
    Err(Failure::unavailable(
        format!("the program needs up to {} and {} are free", mib(bytes), mib(free)),
        "stop other programs or choose a smaller size",
    ))
}

fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.split_whitespace()
        .next()?
        .parse::<u64>()
        .ok()
        .map(|kilobytes| kilobytes.saturating_mul(1024))
}

#[cfg(test)]
mod tests {
    use super::super::manifest::mechanism;
    use super::*;

    fn ended(script: &str, under: &str) -> (Ended, Option<&'static str>) {
        let mechanism = mechanism(under).unwrap();
        let ended = run(mechanism, Path::new("/bin/sh"), &["-c", script]).unwrap();
        let by = ended.caught_by(mechanism);
        (ended, by)
    }

    #[test]
    fn only_a_mechanisms_own_sign_counts() {
        assert_eq!(
            ended("echo 'x.c:1: runtime error: index' >&2; exit 1", "clang-ubsan").1,
            Some("report")
        );
        assert_eq!(ended("kill -ILL $$", "clang-ubsan").1, Some("signal"));
        assert_eq!(ended("kill -SEGV $$", "clang-ubsan").1, None);
        assert_eq!(ended("kill -ILL $$", "gcc-ubsan").1, None);
        let (crashed, by) = ended("echo 'warning' >&2; kill -SEGV $$", "gcc");
        assert_eq!(by, None);
        assert_eq!(crashed.told(), "signal: 11 (SIGSEGV): warning");
    }

    #[test]
    fn variables_of_a_mechanism_are_set() {
        let (ended, _) = ended("echo $ASAN_OPTIONS", "gcc-asan");
        assert!(ended.output.contains("detect_leaks=0"), "{}", ended.output);
    }

    #[test]
    fn memory_is_looked_at_before() {
        assert_eq!(available("MemTotal: 9 kB\nMemAvailable:    2048 kB\n"), Some(2 << 20));
        assert_eq!(available("MemAvailable: 18446744073709551615 kB"), Some(u64::MAX));
        assert!(enough(1 << 30, 2 << 30).is_ok());
        let failure = enough(5 << 30, 2 << 30).unwrap_err();
        assert_eq!(failure.why, "the program needs up to 5120 MiB and 2048 MiB are free");
        assert!(has_memory(0).is_ok() && has_memory(u64::MAX).is_err());
    }
}
