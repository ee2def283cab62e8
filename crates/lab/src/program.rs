//! External programs that suites start.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use machine::child;

use crate::capability::{self, Capability};
use crate::sample::{Failure, FailureKind};

/// An external program.
#[derive(Debug, Clone, Copy)]
pub struct Program {
    /// The file name.
    pub name: &'static str,
    /// The name of its capability.
    pub capability: &'static str,
    /// A short description.
    pub about: &'static str,
    /// The Debian package that contains it.
    pub package: &'static str,
}

impl Program {
    /// Finds it in `PATH`.
    ///
    /// # Errors
    /// Returns `unavailable` with the command that installs it.
    pub fn find(&self) -> Result<PathBuf, Failure> {
        find(self.name).ok_or_else(|| self.absent())
    }

    /// Finds it in `PATH` or in the system's folders of administrative programs, which are often not in `PATH`.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub fn find_in_system(&self) -> Result<PathBuf, Failure> {
        let folders = ["/usr/sbin", "/sbin"].map(|folder| PathBuf::from(folder).join(self.name));
        let found = folders.into_iter().find(|file| file.is_file());
        self.find().or_else(|absent| found.ok_or(absent))
    }

    /// Returns `unavailable` with the command that installs it.
    pub fn absent(&self) -> Failure {
        Failure::unavailable(
            format!("the program {} is not installed", self.name),
            format!("apt-get install {}", self.package),
        )
    }

    /// Runs it without input and returns its standard output.
    ///
    /// # Errors
    /// Returns `unavailable` if it is not installed, `timeout` if it did not end within the limit and was killed with
    /// all that it started, and `failed` with the first line of its standard error if its exit status is not 0.
    pub fn output(&self, command: &mut Command, limit: Duration) -> Result<String, Failure> {
        let output = match child::output_within(command, &[], limit) {
            Ok(output) => output,
            // If a folder of PATH is not accessible, an absent program is reported as a denied one.
            Err(why) if matches!(why.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => {
                return Err(self
                    .find()
                    .err()
                    .unwrap_or_else(|| run_failure(command, &why, DIRECTLY)));
            }
            Err(why) => return Err(run_failure(command, &why, DIRECTLY)),
        };
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr);
            let line = errors.lines().next().unwrap_or_default();
            return Err(Failure::failed(format!(
                "{} failed ({}): {line}",
                self.name, output.status
            )));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Returns the capability of having it.
    pub fn capability(&self) -> Capability {
        let found = self.find().map(|file| file.display().to_string());
        capability::checked(self.capability, self.about, found)
    }
}

/// Returns the file of a program in `PATH`.
pub fn find(name: &str) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let mut files = std::env::split_paths(&folders).map(|folder| folder.join(name));
    files.find(|file| file.is_file())
}

/// Remedy for a program that does not end.
const DIRECTLY: &str = "run it directly to see what it waits for";

/// Runs a program with this input and returns its output.
///
/// # Errors
/// Returns `failed` if it does not start, and `timeout` if it did not end within the limit and was killed with all that
/// it started.
pub fn run(command: &mut Command, input: &[u8], limit: Duration) -> Result<Output, Failure> {
    child::output_within(command, input, limit).map_err(|why| run_failure(command, &why, DIRECTLY))
}

/// Returns why a program did not run to its end; `advice` says what to do after a timeout.
pub fn run_failure(command: &Command, why: &std::io::Error, advice: &str) -> Failure {
    let program = command.get_program().to_string_lossy();
    match why.kind() {
        ErrorKind::TimedOut => {
            let why = format!("{program} {why}; {advice}");
            Failure::new(FailureKind::Timeout, why)
        }
        ErrorKind::Interrupted => Failure::failed(format!("{program}: {why}")),
        _ => Failure::failed(format!("{program} does not start: {why}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(name: &'static str) -> Program {
        Program { name, capability: "it", about: "a program", package: "the-package" }
    }

    #[test]
    fn a_program_that_never_ends_is_a_timeout() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo 'linking...' >&2; sleep 1000"]);
        let failure = run(&mut command, b"", Duration::from_millis(300)).unwrap_err();
        let expected = "timeout: sh did not exit in 300 ms and was killed; its last line: linking...; run it directly \
                   to see what it waits for";
        assert_eq!(failure.to_string(), expected);
        let absent = run(&mut Command::new("/nowhere/cc"), b"", Duration::from_secs(1));
        assert!(absent.unwrap_err().why.starts_with("/nowhere/cc does not start: "));
    }

    #[test]
    fn a_program_that_fails_or_hangs_is_an_error() {
        let run = |script: &str, limit: Duration| {
            let mut command = Command::new("sh");
            program("sh").output(command.args(["-c", script]), limit)
        };
        let limit = Duration::from_secs(60);
        assert_eq!(run("echo out; echo err >&2", limit).unwrap(), "out\n");
        let failure = run("echo bad >&2; echo more >&2; exit 3", limit).unwrap_err();
        assert_eq!(failure.why, "sh failed (exit status: 3): bad");
        let failure = run("sleep 1000", Duration::from_millis(300)).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Timeout);
        let mut absent = Command::new("no-such-program");
        let failure = program("no-such-program").output(&mut absent, limit).unwrap_err();
        assert_eq!(failure.remedy.as_deref(), Some("apt-get install the-package"));
        // A file that is not executable in PATH.
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("no-such-program"), "").unwrap();
        absent.env("PATH", folder.path());
        let failure = program("no-such-program").output(&mut absent, limit).unwrap_err();
        assert_eq!(failure.remedy.as_deref(), Some("apt-get install the-package"));
        // A program that is present but does not start is not reported as absent.
        let mut refused = Command::new(folder.path().join("no-such-program"));
        let failure = program("sh").output(&mut refused, limit).unwrap_err();
        assert!(failure.why.contains("does not start: Permission denied"), "{failure}");
    }

    #[test]
    fn an_installed_program_is_found_and_an_absent_one_names_its_package() {
        assert!(program("sh").find().unwrap().is_file());
        assert!(program("sh").capability().state.is_present());
        let absent = program("no-such-program").find().unwrap_err();
        assert_eq!(absent.why, "the program no-such-program is not installed");
        assert_eq!(absent.remedy.as_deref(), Some("apt-get install the-package"));
    }
}
