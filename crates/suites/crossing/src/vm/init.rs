//! The init process of the virtual machine: mounts the file systems that a worker reads, and runs one.

use std::ffi::CStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, mount};

use super::PORT;

/// Host name inside the machine.
const HOST: &str = "guest";
/// Maximum time for the kernel to find the port.
const PORT_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Runs a worker on the port, then restarts the machine, which ends QEMU.
///
/// # Errors
/// Returns an error if this process is not process 1, so it never restarts a host.
pub fn main() -> io::Result<()> {
    if std::process::id() != 1 {
        let why = "not process 1: this command runs only as init of a virtual machine; use 'tollgate run'";
        return Err(io::Error::other(why));
    }
    if let Err(why) = serve() {
        // Only the console is left to report an error.
        let _ = writeln!(io::stderr(), "tollgate: {why}");
    }
    rustix::fs::sync();
    // QEMU runs with -no-reboot, so a restart ends it, without ACPI.
    rustix::system::reboot(rustix::system::RebootCommand::Restart)?;
    Ok(())
}

fn serve() -> io::Result<()> {
    for (kind, path) in
        [(c"devtmpfs", c"/dev"), (c"proc", c"/proc"), (c"sysfs", c"/sys"), (c"tmpfs", c"/tmp")]
    {
        let options: Option<&CStr> = None;
        mount(kind, path, kind, MountFlags::empty(), options)?;
    }
    rustix::system::sethostname(HOST.as_bytes())?;
    let port = OpenOptions::new().read(true).write(true).open(find_port()?)?;
    let output: File = port.try_clone()?;
    // A worker that fails reports its error on the console.
    Command::new("/proc/self/exe")
        .args(lab::worker::WORKER)
        .env("HOME", "/tmp")
        .stdin(Stdio::from(port))
        .stdout(Stdio::from(output))
        .status()
        .map(drop)
}

/// Waits until the kernel has found the port, and returns its path.
fn find_port() -> io::Result<PathBuf> {
    let start = Instant::now();
    while start.elapsed() < PORT_TIMEOUT {
        for entry in fs::read_dir("/sys/class/virtio-ports").into_iter().flatten().flatten() {
            let name = fs::read_to_string(entry.path().join("name")).unwrap_or_default();
            if name.trim() == PORT {
                return Ok(PathBuf::from("/dev").join(entry.file_name()));
            }
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    Err(io::Error::other(format!("no virtio port '{PORT}' in {} s", PORT_TIMEOUT.as_secs())))
}
