//! The init process of a guest: mounts file systems, loads modules, prepares devices, and runs one command of this program.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, PipeReader, Write};
use std::os::unix::fs::chroot;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use machine::child;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind_recursive, unmount};
use rustix::system::finit_module;
use serde::{Deserialize, Serialize};

/// Command of this program that runs it as init.
pub const INIT: &str = "guest-init";
/// Name of the virtio port of the command inside.
pub(crate) const PORT: &str = "tollgate";
/// Mount tag of the files of the machine that runs QEMU, the host in this file.
pub(crate) const HOST_FILES_TAG: &str = "host";
/// File of the configuration of init in the initramfs.
pub(crate) const INIT_CONFIG: &str = "init.json";
/// Folder of the modules in the initramfs.
pub(crate) const MODULES: &str = "modules";
/// Prefix of the console's line that reports the exit status of the command. A guest that fails before its end prints none.
pub const STATUS: &str = lab::console::EXIT_STATUS;
/// Line before the command of a watched guest starts.
pub const STARTED: &str = "tollgate: the command starts";
/// Line of a watched guest after each interval of 10 s in which its CPUs were not idle.
pub const ALIVE: &str = "tollgate: at work";
/// Interval of [`ALIVE`].
const ALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// Minimum time of work in [`ALIVE_INTERVAL`], in ticks of `/proc/stat` (100 per second and CPU); with less the CPUs are
/// idle.
const MIN_TICKS: u64 = 50;
/// Folder in which the command starts, in the guest's memory, if the guest sees the host's files.
const SCRATCH: &str = "/tollgate-guest";
/// Functions for the scripts that prepare devices.
const PRELUDE: &str = include_str!("prelude.sh");
/// Maximum time to print the rest of the command's standard error.
const MAX_PRINT_TIME: Duration = Duration::from_secs(2);
/// Maximum time for the kernel to find the port.
const PORT_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// The kernel decompresses the module (`linux/module.h`).
const MODULE_INIT_COMPRESSED_FILE: i32 = 4;

/// Configuration of init.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct InitConfig {
    /// Host name of the guest.
    pub(crate) hostname: String,
    /// Files of the modules to load, in order: of each entry the first that the machine supports.
    pub(crate) modules: Vec<Vec<String>>,
    /// Whether the root becomes that of this machine, with changes in memory only.
    pub(crate) host_files: bool,
    /// Absolute path of the host's folder that is empty inside: its files are the memory of devices.
    pub(crate) hidden: Option<String>,
    /// Shell script that prepares devices.
    pub(crate) prepare: String,
    /// Arguments of this program.
    pub(crate) command: Vec<String>,
    /// Environment variables of the command.
    pub(crate) variables: BTreeMap<String, String>,
    /// Whether it prints [`STARTED`] and [`ALIVE`].
    pub(crate) is_watched: bool,
}

/// Returns whether this process is init of a guest. Linux precedes init's arguments by its own parameters that it does not
/// know.
pub fn is_init() -> bool {
    std::process::id() == 1 && std::env::args_os().skip(1).any(|argument| argument == INIT)
}

/// Runs the command with the port as its standard input and output, then restarts the machine, which ends QEMU.
///
/// # Errors
/// Returns an error if this process is not process 1, so it never restarts a host, and the `errno` of `reboot(2)`.
pub fn main() -> io::Result<()> {
    if std::process::id() != 1 {
        let why = "not process 1: this command runs only as init of a guest; use 'tollgate run --guest NAME'";
        return Err(io::Error::other(why));
    }
    // Only the console is left for a result.
    let _ = match set_up_and_run() {
        // The command's last line may be incomplete.
        Ok(status) => writeln!(io::stderr(), "\n{STATUS}{status}"),
        Err(why) => writeln!(io::stderr(), "\ntollgate: {why}"),
    };
    rustix::fs::sync();
    // QEMU runs with -no-reboot, so a restart ends it, without ACPI.
    rustix::system::reboot(rustix::system::RebootCommand::Restart)?;
    Ok(())
}

/// Returns the exit status of the command.
fn set_up_and_run() -> io::Result<i32> {
    for (kind, path) in
        [(c"devtmpfs", c"/dev"), (c"proc", c"/proc"), (c"sysfs", c"/sys"), (c"tmpfs", c"/tmp")]
    {
        mount_new(kind, path, None)?;
    }
    let path = Path::new("/").join(INIT_CONFIG);
    let text = in_step("read", &path, fs::read_to_string(&path))?;
    let config: InitConfig =
        in_step("parse", &path, serde_json::from_str(&text).map_err(io::Error::from))?;
    let named = rustix::system::sethostname(config.hostname.as_bytes());
    in_step("set the host name", &config.hostname, named.map_err(io::Error::from))?;
    for alternatives in &config.modules {
        load_one_of(alternatives)?;
    }
    if config.host_files {
        enter_host_files(config.hidden.as_deref())?;
    }
    if !config.prepare.is_empty() {
        prepare(&config.prepare)?;
    }
    let path = find_port()?;
    let port = in_step("open", &path, OpenOptions::new().read(true).write(true).open(&path))?;
    let mut command = Command::new("/proc/self/exe");
    command.args(&config.command).env("HOME", "/tmp").envs(&config.variables);
    if config.host_files {
        // It names the libraries of the initramfs.
        command.env_remove("LD_LIBRARY_PATH");
    }
    if config.is_watched {
        writeln!(io::stderr(), "\n{STARTED}")?;
        std::thread::spawn(report_work);
    }
    // The port stays open until the machine restarts.
    command.stdin(Stdio::from(port.try_clone()?)).stdout(Stdio::from(port.try_clone()?));
    // The console is a terminal, on which a command would draw. A command that fails reports its error there.
    let (errors, end) = io::pipe()?;
    command.stderr(Stdio::from(end));
    let is_printed = print_on_console(errors);
    let mut running = in_step("start", config.command.join(" "), command.spawn())?;
    // It keeps the other end of the pipe open.
    drop(command);
    let status = running.wait()?;
    // A process that the command left behind may keep the pipe open.
    let _ = is_printed.recv_timeout(MAX_PRINT_TIME);
    if status.signal().is_some() {
        writeln!(io::stderr(), "\ntollgate: the command {}", child::describe(status))?;
    }
    Ok(exit_status(status))
}

/// Returns the exit status of a command as a shell does: after a signal, 128 and its number.
fn exit_status(status: ExitStatus) -> i32 {
    status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(1)
}

/// Prints a pipe on the console, in a thread; the receiver's other end is dropped at the end of the pipe.
fn print_on_console(mut pipe: PipeReader) -> Receiver<()> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let _ = io::copy(&mut pipe, &mut io::stderr());
        drop(sender);
    });
    receiver
}

/// Prints a line in each interval in which the CPUs work. A command that waits forever prints none; one that spins does.
fn report_work() {
    let ticks = || busy_ticks(&fs::read_to_string("/proc/stat").unwrap_or_default());
    let mut before = ticks();
    loop {
        std::thread::sleep(ALIVE_INTERVAL);
        let now = ticks();
        if now.saturating_sub(before) >= MIN_TICKS {
            let _ = writeln!(io::stderr(), "\n{ALIVE}");
        }
        before = now;
    }
}

/// Returns the time that the CPUs have not been idle, in ticks, from the text of `/proc/stat`.
fn busy_ticks(stat: &str) -> u64 {
    let words = stat.lines().next().unwrap_or_default().split_whitespace().skip(1);
    let ticks: Vec<u64> = words.map(|word| word.parse().unwrap_or(0)).collect();
    // User, nice, system and interrupts; not idle time, waiting for disks and steal time. User time contains that of guests.
    [0, 1, 2, 5, 6].iter().filter_map(|at| ticks.get(*at)).sum()
}

/// Adds the step and the path to an error. The system's error alone does not state what failed.
fn in_step<T>(step: &str, path: impl AsRef<Path>, result: io::Result<T>) -> io::Result<T> {
    let path = path.as_ref().display();
    result.map_err(|why| io::Error::new(why.kind(), format!("{step} {path}: {why}")))
}

fn create_folder(path: &str) -> io::Result<()> {
    in_step("create the folder", path, fs::create_dir_all(path))
}

fn mount_new(kind: &CStr, path: &CStr, options: Option<&CStr>) -> io::Result<()> {
    let mounted = mount(kind, path, kind, MountFlags::empty(), options);
    let step = format!("mount {} on", kind.to_string_lossy());
    in_step(&step, &*path.to_string_lossy(), mounted.map_err(io::Error::from))
}

/// Loads the first module that the machine supports.
fn load_one_of(alternatives: &[String]) -> io::Result<()> {
    let mut failures = Vec::new();
    for module in alternatives {
        match load(&Path::new("/").join(MODULES).join(module)) {
            Ok(()) => return Ok(()),
            Err(why) => failures.push(format!("load module {module}: {why}")),
        }
    }
    Err(io::Error::other(failures.join("; ")))
}

/// Loads a module, compressed or not.
fn load(path: &Path) -> io::Result<()> {
    let file = in_step("open", path, File::open(path))?;
    let is_compressed = path.extension().is_some_and(|extension| extension != "ko");
    let flags = if is_compressed { MODULE_INIT_COMPRESSED_FILE } else { 0 };
    Ok(finit_module(&file, c"", flags)?)
}

/// Makes the host's files the root, with the changes of this guest in memory; a hidden folder is empty.
fn enter_host_files(hidden: Option<&str>) -> io::Result<()> {
    for folder in ["/host", "/changes", "/root"] {
        create_folder(folder)?;
    }
    let tag = CString::new(HOST_FILES_TAG)?;
    // The host's files do not change during a run, so the kernel may keep them in its cache.
    let options = c"trans=virtio,version=9p2000.L,msize=262144,cache=loose,ro";
    let mounted = mount(tag.as_c_str(), c"/host", c"9p", MountFlags::RDONLY, Some(options));
    in_step("mount 9p on", "/host", mounted.map_err(io::Error::from))?;
    mount_new(c"tmpfs", c"/changes", None)?;
    for folder in ["/changes/upper", "/changes/work"] {
        create_folder(folder)?;
    }
    let layers = c"lowerdir=/host,upperdir=/changes/upper,workdir=/changes/work";
    mount_new(c"overlay", c"/root", Some(layers))?;
    // The overlay keeps its layer. The other path to the files, e.g. by the root of a thread of the kernel, ends here.
    unmount(c"/host", UnmountFlags::DETACH)?;
    for folder in ["dev", "proc", "sys"] {
        let to = format!("/root/{folder}");
        let mounted = mount_bind_recursive(format!("/{folder}"), &to).map_err(io::Error::from);
        in_step("bind the guest's folder to", &to, mounted)?;
    }
    // The host's shared memory and the records of its changed settings have no meaning here.
    for (folder, options) in
        [(SCRATCH, None), ("/dev/shm", None), ("/run/tollgate", Some(c"mode=700"))]
    {
        let folder = format!("/root{folder}");
        create_folder(&folder)?;
        mount_new(c"tmpfs", &CString::new(folder)?, options)?;
    }
    if let Some(folder) = hidden {
        mount_new(c"tmpfs", &CString::new(format!("/root{folder}"))?, None)?;
    }
    in_step("change the root to", "/root", chroot("/root"))?;
    in_step("change the folder to", SCRATCH, std::env::set_current_dir(SCRATCH))
}

/// Runs the script that prepares devices; its output goes to the console.
fn prepare(script: &str) -> io::Result<()> {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-ec", &[PRELUDE, script].concat()]).stdin(Stdio::null());
    let status = in_step("start", "/bin/sh", shell.status())?;
    match status.success() {
        true => Ok(()),
        false => {
            let why = child::describe(status);
            let fix = "its output on the console precedes this line";
            Err(io::Error::other(format!(
                "'prepare' of the guest's declaration failed: it {why}; {fix}"
            )))
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_status_is_that_of_a_shell() {
        let of_shell = |script: &str| {
            let status = Command::new("sh").args(["-c", script]).status().unwrap();
            exit_status(status)
        };
        assert_eq!(of_shell("exit 3"), 3);
        assert_eq!(of_shell("kill -KILL $$"), 128 + 9);
        assert_eq!(of_shell("kill -TERM $$"), 128 + 15);
    }

    #[test]
    fn time_of_work_is_without_idle_and_waiting_time() {
        // User, nice, system, idle, I/O wait, interrupts, soft interrupts, steal, guest, nice guest.
        let stat =
            "cpu  1 20 300 4000 50000 600000 7000000 80000000 1 1\ncpu0 9 9 9 9 9 9 9 9 9 9\n";
        assert_eq!(busy_ticks(stat), 7_600_321);
        assert_eq!(busy_ticks(""), 0);
        assert!(busy_ticks(&fs::read_to_string("/proc/stat").unwrap()) > 0);
    }
}
