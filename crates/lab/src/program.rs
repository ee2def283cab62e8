//! Programs of others that suites start.

use std::path::PathBuf;

use crate::capability::{Capability, state_of};
use crate::sample::Failure;

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

    /// The same for those who ask what this machine can measure.
    pub fn capability(&self) -> Capability {
        Capability {
            name: self.capability.into(),
            about: self.about.into(),
            state: state_of(self.find().map(|file| file.display().to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(name: &'static str) -> Program {
        Program { name, capability: "it", about: "a program", package: "the-package" }
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
