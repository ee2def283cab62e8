//! Programs of others that suites start.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use machine::child;

use crate::capability::{Capability, state_of};
use crate::sample::{Failure, FailureKind};

/// A program of others.
#[derive(Debug, Clone, Copy)]
pub struct Program {
    /// Its file's name.
    pub name: &'static str,
    /// What the capability of having it is called.
    pub capability: &'static str,
    /// What it is, in a few words.
    pub about: &'static str,
    /// Debian's package that has it.
    pub package: &'static str,
}

impl Program {
    /// Where it lies, by the search path.
    ///
    /// # Errors
    /// Says how to install it.
    pub fn find(&self) -> Result<PathBuf, Failure> {
        let folders = std::env::var_os("PATH").unwrap_or_default();
        let mut files = std::env::split_paths(&folders).map(|folder| folder.join(self.name));
        files.find(|file| file.is_file()).ok_or_else(|| self.absent())
    }

    /// That it is not here, and how to install it.
    pub fn absent(&self) -> Failure {
        Failure::unavailable(
            format!("the program {} is not installed", self.name),
            format!("apt-get install {}", self.package),
        )
    }

    /// Runs it, without input, to a good end; what it printed.
    ///
    /// # Errors
    /// Says how to install it where it is absent. A timeout where it does not end within the limit: then it has
    /// been killed with all that it started. Else its status, and the first line of its errors.
    pub fn output(&self, command: &mut Command, limit: Duration) -> Result<String, Failure> {
        let output = match child::output_within(command, &[], limit) {
            Ok(output) => output,
            // A folder of the search path that may not be entered makes an absent program one that is refused.
            Err(why) if matches!(why.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => {
                return Err(self.find().err().unwrap_or_else(|| not_ended(command, &why)));
            }
            Err(why) => return Err(not_ended(command, &why)),
        };
        if !output.status.success() {
            let words = String::from_utf8_lossy(&output.stderr);
            let words = words.lines().next().unwrap_or_default();
            return Err(Failure::failed(format!(
                "{} ended with {}: {words}",
                self.name, output.status
            )));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// The capability of having it, for those who ask what this machine can measure.
    pub fn capability(&self) -> Capability {
        Capability {
            name: self.capability.into(),
            about: self.about.into(),
            state: state_of(self.find().map(|file| file.display().to_string())),
        }
    }
}

/// Runs a program that builds something, with this input; what it wrote to both streams.
///
/// # Errors
/// Where it does not start; a timeout where it does not end within the limit: then it has been killed with
/// all that it started.
pub fn build(command: &mut Command, input: &[u8], limit: Duration) -> Result<Output, Failure> {
    child::output_within(command, input, limit).map_err(|why| not_ended(command, &why))
}

/// Says why a program did not come to its end.
fn not_ended(command: &Command, why: &std::io::Error) -> Failure {
    let program = command.get_program().to_string_lossy();
    match why.kind() {
        ErrorKind::TimedOut => {
            let why = format!("{program} {why}; run it by hand to see what it waits for");
            Failure::new(FailureKind::Timeout, why)
        }
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
    fn what_builds_for_ever_is_a_timeout_in_one_line() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo 'linking...' >&2; sleep 1000"]);
        let failure = build(&mut command, b"", Duration::from_millis(300)).unwrap_err();
        let due = "timeout: sh did not end in 300 ms and was killed; its last line: linking...; run it by hand \
                   to see what it waits for";
        assert_eq!(failure.to_string(), due);
        let absent = build(&mut Command::new("/nowhere/cc"), b"", Duration::from_secs(1));
        assert!(absent.unwrap_err().why.starts_with("/nowhere/cc does not start: "));
    }

    #[test]
    fn a_program_that_does_not_end_well_in_time_is_told() {
        let run = |script: &str, limit: Duration| {
            let mut command = Command::new("sh");
            program("sh").output(command.args(["-c", script]), limit)
        };
        let patience = Duration::from_secs(60);
        assert_eq!(run("echo out; echo err >&2", patience).unwrap(), "out\n");
        let failure = run("echo bad >&2; echo more >&2; exit 3", patience).unwrap_err();
        assert_eq!(failure.why, "sh ended with exit status: 3: bad");
        let failure = run("sleep 1000", Duration::from_millis(300)).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Timeout);
        let mut absent = Command::new("no-such-program");
        let failure = program("no-such-program").output(&mut absent, patience).unwrap_err();
        assert_eq!(failure.remedy.as_deref(), Some("apt-get install the-package"));
        // As where a folder of the search path may not be entered.
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("no-such-program"), "").unwrap();
        absent.env("PATH", folder.path());
        let failure = program("no-such-program").output(&mut absent, patience).unwrap_err();
        assert_eq!(failure.remedy.as_deref(), Some("apt-get install the-package"));
        // What is there and does not start is not called absent.
        let mut refused = Command::new(folder.path().join("no-such-program"));
        let failure = program("sh").output(&mut refused, patience).unwrap_err();
        assert!(failure.why.contains("does not start: Permission denied"), "{failure}");
    }

    #[test]
    fn what_is_there_is_found_and_what_is_not_says_how_to_get_it() {
        assert!(program("sh").find().unwrap().is_file());
        assert!(program("sh").capability().state.is_present());
        let absent = program("no-such-program").find().unwrap_err();
        assert_eq!(absent.why, "the program no-such-program is not installed");
        assert_eq!(absent.remedy.as_deref(), Some("apt-get install the-package"));
    }
}
