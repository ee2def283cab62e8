//! Linux guests with a worker inside: virtual machines of QEMU, by KVM or by emulation.
//!
//! A declared guest is one or more virtual machines, its *hosts*. *This machine* runs QEMU.
//!
//! QEMU boots a kernel with this program as init ([`init`]), which executes one command: a worker, or any other command of
//! this program. QEMU connects a virtio port to its own standard streams, so the process that starts QEMU talks to the
//! command inside as to a child process. The kernel is Debian's ([`debian_linux`]), or one that is built with a suite's
//! patch ([`patched_linux`]).
//!
//! A suite starts a guest for points that need one ([`guest::LinuxGuest`]). A user runs whole experiments in guests that
//! are declared in TOML ([`declaration`]). Its hosts can share a pool of memory behind an address filter, which
//! enforces [`rules`] outside of them. [`counter`] counts the instructions of a program and of its kernel in a guest.

mod backing_file;
pub mod compiler;
pub mod counter;
pub mod debian_linux;
pub mod declaration;
pub mod forwarder;
pub mod guest;
pub mod init;
mod initramfs;
pub mod patched_linux;
mod pool;
pub mod rules;

use std::process::Command;

use lab::program::Program;
use lab::sample::Failure;

/// The emulator and virtual machine monitor.
pub const QEMU: Program = Program {
    name: "qemu-system-x86_64",
    capability: "qemu",
    about: "virtual machines, accelerated or emulated",
    package: "qemu-system-x86",
};

/// Returns the command of QEMU for a machine without default devices, display and user configuration, which ends when it
/// restarts.
///
/// # Errors
/// Returns `unavailable` if QEMU is not installed.
pub fn qemu() -> Result<Command, Failure> {
    let mut command = Command::new(QEMU.find()?);
    command.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
    Ok(command)
}
