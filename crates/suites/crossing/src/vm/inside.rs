//! The first process of the virtual machine: mounts what a worker reads, and runs one.

use std::ffi::CStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, mount};

use super::PORT;

/// The words behind the program's name that make it the first process.
pub const WORDS: [&str; 2] = ["crossing", "guest-init"];
/// What the machine is called.
const HOST: &str = "guest";
/// How long the kernel may take to find the port.
const PORT_COMES: Duration = Duration::from_secs(30);

/// Runs a worker on the port and powers the machine off behind it. Never called on a host.
///
/// # Errors
/// When this is not the first process of a machine.
pub fn main() -> io::Result<()> {
    if std::process::id() != 1 {
        let what = "this is what runs first inside a virtual machine; use 'tollgate crossing' here";
        return Err(io::Error::other(what));
    }
    if let Err(why) = serve() {
        // The console is all that is left to be heard by.
        let _ = writeln!(io::stderr(), "tollgate: {why}");
    }
    rustix::fs::sync();
    // A restart ends QEMU, which was told not to restart; it needs no ACPI.
    rustix::system::reboot(rustix::system::RebootCommand::Restart)?;
    Ok(())
}

fn serve() -> io::Result<()> {
    for (kind, place) in
        [(c"devtmpfs", c"/dev"), (c"proc", c"/proc"), (c"sysfs", c"/sys"), (c"tmpfs", c"/tmp")]
    {
        let none: Option<&CStr> = None;
        mount(kind, place, kind, MountFlags::empty(), none)?;
    }
    rustix::system::sethostname(HOST.as_bytes())?;
    let path = port()?;
    let port = OpenOptions::new().read(true).write(true).open(path)?;
    let output: File = port.try_clone()?;
    // Where it fails it says so itself, on the console.
    Command::new("/proc/self/exe")
        .args(lab::worker::WORKER)
        .env("HOME", "/tmp")
        .stdin(Stdio::from(port))
        .stdout(Stdio::from(output))
        .status()
        .map(drop)
}

/// The port of our name, once the kernel has found it.
fn port() -> io::Result<PathBuf> {
    let begun = Instant::now();
    while begun.elapsed() < PORT_COMES {
        for entry in fs::read_dir("/sys/class/virtio-ports").into_iter().flatten().flatten() {
            let name = fs::read_to_string(entry.path().join("name")).unwrap_or_default();
            if name.trim() == PORT {
                return Ok(PathBuf::from("/dev").join(entry.file_name()));
            }
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Err(io::Error::other(format!("there is no virtio port '{PORT}'")))
}
