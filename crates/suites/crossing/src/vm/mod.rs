//! A patched Linux in a virtual machine, with a worker inside.
//!
//! QEMU starts the kernel with this very program as its first process ([`inside`]), which serves
//! orders through a virtio-serial port; QEMU passes the port's bytes to its own standard streams. So
//! the lab's worker talks to the one inside as to any probe. Nothing is written to a disk.

mod initramfs;
pub mod inside;

use std::process::Command;
use std::sync::Arc;

use lab::artefact::{self, Artefacts};
use lab::guest::{Guest, Start};
use lab::program::Program;
use lab::sample::Failure;

use crate::params::{OneWayParams, Route};
use crate::patched::build::recipe;

/// The emulator and virtual machine monitor.
pub const QEMU: Program = Program {
    name: "qemu-system-x86_64",
    capability: "qemu",
    about: "virtual machines, real and emulated",
    package: "qemu-system-x86",
};
/// The name of the port through which the worker inside talks.
const PORT: &str = "tollgate";
/// Memory of the guest: this program lies in it twice, and a debug build is large.
const MEMORY: &str = "1024";

/// Whether the virtual machine that a route asks for can be started here.
///
/// # Errors
/// The reason why not, and the remedy.
pub fn available(route: Route) -> Result<(), Failure> {
    QEMU.find()?;
    if route == Route::PatchedVm { crate::guest::ring_0() } else { Ok(()) }
}

/// The guest in which a point is measured, where it asks for one that can be started here.
pub fn guest(params: &OneWayParams) -> Option<Guest> {
    let processor = match params.route {
        Route::PatchedVm => ["-accel", "kvm", "-cpu", "host"],
        Route::PatchedEmulated => ["-accel", "tcg", "-cpu", "max"],
        Route::Guest | Route::BareMetal | Route::Patched | Route::GuestEmulated => return None,
    };
    available(params.route).ok()?;
    let isolation = format!("pti={}", params.isolation);
    let name = format!("{}, {isolation}", params.route);
    let start = move |artefacts: &Artefacts| start(artefacts, processor, &isolation);
    Some(Guest { name, artefacts: vec![recipe()], start: Arc::new(start) })
}

fn start(artefacts: &Artefacts, processor: [&str; 4], isolation: &str) -> Result<Start, Failure> {
    let kernel = artefact::find(artefacts, &recipe().name)?.join("bzImage");
    let initramfs = initramfs::of_this_program()?;
    let number = initramfs.inherit()?;
    let words = [
        "console=ttyS0 quiet panic=-1",
        isolation,
        // To the first process the kernel hands what it does not know itself.
        "LD_LIBRARY_PATH=/lib",
        "--",
        inside::WORDS[0],
        inside::WORDS[1],
    ];
    let mut command = Command::new(QEMU.find()?);
    command
        .args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"])
        .args(processor)
        .args(["-smp", "2", "-m", MEMORY])
        .arg("-kernel")
        .arg(kernel)
        .args(["-initrd", &format!("/proc/self/fd/{number}")])
        .args(["-append", &words.join(" ")])
        // What the kernel says last is why the guest died.
        .args(["-chardev", "file,id=console,path=/proc/self/fd/2", "-serial", "chardev:console"])
        .args(["-chardev", "stdio,id=worker,signal=off", "-device", "virtio-serial-pci"])
        .args(["-device", &format!("virtserialport,chardev=worker,name={PORT}")]);
    Ok(Start { command, held: vec![initramfs] })
}
