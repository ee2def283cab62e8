//! Linux in a virtual machine, with a worker inside.
//!
//! QEMU boots the kernel with this program as init ([`init`]), which serves orders through a virtio-serial
//! port. QEMU connects the port to its standard streams, so the lab's worker talks to the worker inside as to
//! any probe. Nothing is written to a disk.

pub mod init;
mod initramfs;
pub mod kernel;

use std::process::Command;
use std::sync::Arc;

use lab::artefact::{self, Artefacts};
use lab::guest::{Guest, Start};
use lab::program::Program;
use lab::sample::Failure;

use kernel::recipe;

/// The emulator and virtual machine monitor.
pub const QEMU: Program = Program {
    name: "qemu-system-x86_64",
    capability: "qemu",
    about: "virtual machines, accelerated or emulated",
    package: "qemu-system-x86",
};
/// Name of the virtio port of the worker inside.
const PORT: &str = "tollgate";
/// Memory of the virtual machine, MiB. It holds this program twice, and a debug build is large.
const MEMORY: &str = "1024";

/// Accelerator that executes the guest's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accelerator {
    /// The CPU, through KVM.
    Kvm,
    /// QEMU's emulator.
    Tcg,
}

impl Accelerator {
    fn arguments(self) -> [&'static str; 4] {
        match self {
            Self::Kvm => ["-accel", "kvm", "-cpu", "host"],
            Self::Tcg => ["-accel", "tcg", "-cpu", "max"],
        }
    }
}

/// A virtual machine that boots the patched Linux of [`kernel`] with two CPUs.
#[derive(Debug, Clone)]
pub struct LinuxVm {
    /// Unique name, by which points share the machine.
    pub name: String,
    /// Accelerator of its instructions.
    pub accelerator: Accelerator,
    /// Kernel parameters in addition to those of the console.
    pub parameters: String,
    /// Arguments with which this program, as init, calls [`init::main`].
    pub init: &'static [&'static str],
}

impl LinuxVm {
    /// Converts it to a guest of the lab.
    pub fn guest(self) -> Guest {
        let name = self.name.clone();
        let start = move |artefacts: &Artefacts| self.start(artefacts);
        Guest { name, artefacts: vec![recipe()], start: Arc::new(start) }
    }

    fn start(&self, artefacts: &Artefacts) -> Result<Start, Failure> {
        let kernel = artefact::find(artefacts, &recipe().name)?.join("bzImage");
        let initramfs = initramfs::of_this_program()?;
        let fd = initramfs.inherit()?;
        // The kernel passes NAME=VALUE parameters that it does not recognise to init's environment.
        let console =
            ["console=ttyS0 quiet panic=-1", &self.parameters, "LD_LIBRARY_PATH=/lib", "--"];
        let parameters = [&console[..], self.init].concat().join(" ");
        let mut command = Command::new(QEMU.find()?);
        command
            .args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"])
            .args(self.accelerator.arguments())
            .args(["-smp", "2", "-m", MEMORY])
            .arg("-kernel")
            .arg(kernel)
            .args(["-initrd", &format!("/proc/self/fd/{fd}")])
            .args(["-append", &parameters])
            // The last console output explains why a guest died.
            .args([
                "-chardev",
                "file,id=console,path=/proc/self/fd/2",
                "-serial",
                "chardev:console",
            ])
            .args(["-chardev", "stdio,id=worker,signal=off", "-device", "virtio-serial-pci"])
            .args(["-device", &format!("virtserialport,chardev=worker,name={PORT}")]);
        Ok(Start { command, held: vec![initramfs] })
    }
}
