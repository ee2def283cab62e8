//! Intel MPX: a small static program, run by a CPU with MPX, or by QEMU to check function only. It is never run on other
//! CPUs, where the instructions are NOPs.

mod image;
mod layout;
mod operation;
mod proof;
mod race;
#[cfg(test)]
mod tests;

use std::io::ErrorKind;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use lab::capability::{self, Capability};
use lab::program::Program;
use lab::sample::{Failure, FailureKind};
use machine::child::{self, run_within};
use machine::memfd::Memfd;

use image::Image;
use layout::{EXIT_FAULT, EXIT_REFUSED};
pub(crate) use race::Race;

use crate::bounds_registers::has_mpx;

/// Returns MPX under QEMU as a capability of this machine, with the state of its known faults.
pub(crate) fn capability() -> Capability {
    let verified = proof::verify(Machine::Emulated);
    let result = verified.and_then(|()| operation::faults(Machine::Emulated)).map(|faults| {
        match faults.fixed().as_slice() {
            [] => "workarounds for two known faults".to_owned(),
            fixed => format!("known faults that are fixed: {}", fixed.join(", ")),
        }
    });
    capability::checked(QEMU.capability, QEMU.about, result)
}

/// User-mode emulator of QEMU.
const QEMU: Program = Program {
    name: "qemu-x86_64",
    capability: "mpx-emulated",
    about: "emulates bounds registers, for function only",
    package: "qemu-user",
};

/// Machine that runs the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Machine {
    /// This CPU.
    Native,
    /// QEMU, whose times are not meaningful.
    Emulated,
}

impl Machine {
    /// Checks that the machine is available.
    ///
    /// # Errors
    /// Returns `unavailable` with the remedy if it is not.
    pub(crate) fn available(self) -> Result<(), Failure> {
        match self {
            Self::Native => has_mpx(),
            Self::Emulated => QEMU.find().map(drop),
        }
    }

    /// Runs the program and returns its output.
    ///
    /// # Errors
    /// Returns `failed` if it cannot start or reports an error, `timeout` if it does not end within the limit.
    fn run(self, image: &Image, limit: Duration) -> Result<Vec<u8>, Failure> {
        self.available()?;
        let file = Memfd::with_content("mpx", &image.bytes())?;
        let path = format!("/proc/self/fd/{}", file.inherit()?);
        let mut command = match self {
            Self::Native => Command::new(path),
            Self::Emulated => {
                let mut command = Command::new(QEMU.find()?);
                command.args(["-cpu", "max", &path]);
                command
            }
        };
        // QEMU prints irrelevant warnings about unsupported features.
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let output = run_within(&mut command, &[], limit).map_err(|why| {
            if why.kind() == ErrorKind::TimedOut {
                let why = format!("the MPX program did not exit in {} s", limit.as_secs());
                return Failure::new(FailureKind::Timeout, why);
            }
            Failure::failed(format!("the MPX program: {why}"))
        })?;
        check_status(output.status).map(|()| output.stdout)
    }
}

fn check_status(status: ExitStatus) -> Result<(), Failure> {
    let failed = |why: String| Err(Failure::failed(format!("the MPX program {why}")));
    match status.code() {
        Some(0) => Ok(()),
        Some(EXIT_REFUSED) => {
            failed("got no memory or thread; allow 4 GiB of reserved address space".into())
        }
        Some(EXIT_FAULT) => failed("had a fault other than #BR".into()),
        _ => failed(child::describe(status)),
    }
}
