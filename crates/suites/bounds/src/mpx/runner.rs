//! What runs the program: a processor with MPX, or QEMU's emulator of one.

use std::io::ErrorKind;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use lab::program::Program;
use lab::sample::{Failure, FailureKind};
use machine::child::run_within;
use machine::memfd::Memfd;

use super::image::Image;
use super::layout::{EXIT_FAULT, EXIT_REFUSED};

/// QEMU's emulator of single programs.
pub(super) const QEMU: Program = Program {
    name: "qemu-x86_64",
    capability: "mpx-emulated",
    about: "bounds registers emulated, for function alone",
    package: "qemu-user",
};

/// What runs the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Machine {
    /// This processor.
    Native,
    /// QEMU: its times mean nothing.
    Emulated,
}

impl Machine {
    /// Whether it is here.
    ///
    /// # Errors
    /// Why not, and the remedy.
    pub(crate) fn available(self) -> Result<(), Failure> {
        match self {
            Self::Native => lab::capability::has("mpx"),
            Self::Emulated => QEMU.find().map(drop),
        }
    }

    /// Runs the program to its end; what it wrote.
    ///
    /// # Errors
    /// Where it cannot be started, does not end within the limit, or says that it could not go on.
    pub(super) fn run(self, image: &Image, limit: Duration) -> Result<Vec<u8>, Failure> {
        self.available()?;
        let file = loaded(&image.bytes())?;
        let path = format!("/proc/self/fd/{}", file.inherit()?);
        let mut command = match self {
            Self::Native => Command::new(path),
            Self::Emulated => {
                let mut command = Command::new(QEMU.find()?);
                command.args(["-cpu", "max", &path]);
                command
            }
        };
        // What QEMU says of features that it lacks is of no interest.
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let output = run_within(&mut command, &[], limit).map_err(|why| match why.kind() {
            ErrorKind::TimedOut => {
                let why = format!("the MPX program did not end in {} s", limit.as_secs());
                Failure::new(FailureKind::Timeout, why)
            }
            _ => Failure::failed(format!("the MPX program: {why}")),
        })?;
        verdict(output.status).map(|()| output.stdout)
    }
}

/// The program as a file that needs no folder.
fn loaded(bytes: &[u8]) -> Result<Memfd, Failure> {
    let memory = Memfd::create("mpx", bytes.len())?;
    let file = std::fs::File::from(memory.as_fd().try_clone_to_owned()?);
    file.write_all_at(bytes, 0)?;
    Ok(memory)
}

fn verdict(status: ExitStatus) -> Result<(), Failure> {
    let failed = |why: String| Err(Failure::failed(format!("the MPX program {why}")));
    match (status.code(), status.signal()) {
        (Some(0), _) => Ok(()),
        (Some(EXIT_REFUSED), _) => {
            failed("was refused memory or a thread; allow 4 GiB that is only reserved".into())
        }
        (Some(EXIT_FAULT), _) => failed("met a fault that is no #BR".into()),
        (Some(code), _) => failed(format!("ended with {code}")),
        (None, signal) => failed(format!("was ended by signal {}", signal.unwrap_or(0))),
    }
}
