//! EAL, the part of DPDK that starts it: memory, cores, and drivers of ports.

use std::ffi::{CString, c_char, c_int};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering};

use machine::SysError;
use tempfile::TempDir;

use super::ffi;
use super::output::{Captured, cause};

/// Options of EAL that exclude `--in-memory`.
const OTHER_MEMORY: [&str; 5] =
    ["--in-memory", "--no-huge", "--legacy-mem", "--huge-unlink", "--huge-dir"];
/// Options by which EAL prints its usage and ends the process.
const HELP: [&str; 2] = ["-h", "--help"];

/// The environment variable that names the folder of EAL's files.
const FOLDER: &str = "RUNTIME_DIRECTORY";

/// A running EAL. It can run once in a process.
pub struct Eal {
    /// Its files at run time, which are removed at the end; `None` if the user has chosen their folder.
    _folder: Option<TempDir>,
    /// Warnings and errors of the drivers.
    messages: Vec<String>,
}

impl Eal {
    /// Starts EAL with the user's options.
    ///
    /// Nothing remains of it: its files are in a temporary folder unless `RUNTIME_DIRECTORY` is set, and no files are left in a
    /// file system of huge pages (`--in-memory`) unless an option requests another kind of memory.
    ///
    /// This thread is pinned to EAL's main core. Its messages are captured while it starts.
    ///
    /// # Errors
    /// Returns what EAL printed.
    pub fn start(options: &[&str]) -> Result<Self, SysError> {
        static STARTED: AtomicBool = AtomicBool::new(false);
        let attempt = "start DPDK's EAL";
        let refused = |why: String, remedy: &str| SysError {
            attempt: attempt.into(),
            source: io::Error::other(why),
            remedy: remedy.into(),
        };
        let failed =
            |why: io::Error| refused(why.to_string(), "free some memory and file descriptors");
        if options.iter().any(|option| HELP.contains(option)) {
            let remedy = "read DPDK's guide 'EAL parameters' instead";
            return Err(refused(
                "with the option for help it only prints its usage".into(),
                remedy,
            ));
        }
        if STARTED.swap(true, Ordering::Relaxed) {
            return Err(refused("it was started before".into(), "start another process"));
        }
        let folder = folder().map_err(failed)?;
        let mut arguments = arguments(options).map_err(failed)?;
        let captured = Captured::start(folder.as_ref().map(TempDir::path)).map_err(failed)?;
        // SAFETY: the function accesses only DPDK's log.
        unsafe { ffi::tollgate_dpdk_log_to_stderr() };
        let count = c_int::try_from(arguments.len().saturating_sub(1)).unwrap_or(c_int::MAX);
        // SAFETY: there are `count` strings, which are never freed; EAL reorders them and keeps references.
        let status = unsafe { ffi::rte_eal_init(count, arguments.as_mut_ptr()) };
        // SAFETY: the function reads a variable of this thread.
        let error = unsafe { ffi::tollgate_dpdk_errno() };
        let messages = captured.end().map_err(failed)?;
        if status < 0 {
            let remedy = match error {
                // Without permission, and without huge pages.
                libc::EACCES | libc::EPERM => {
                    "run as root, reserve huge pages (sysctl vm.nr_hugepages=1024), or use --no-huge \
                     with a software port"
                }
                _ => "correct the options of --dpdk",
            };
            return Err(refused(cause(&messages), remedy));
        }
        Ok(Self { _folder: folder, messages })
    }

    /// Returns the warnings and errors that EAL and the drivers have printed.
    pub fn messages(&self) -> &[String] {
        &self.messages
    }

    /// Returns the CPUs of the first `cores` of EAL's cores, without the main one unless it is the only one.
    ///
    /// # Errors
    /// Returns an error if there are fewer, or two have the same CPU: cores poll, so one would wait for the other.
    pub fn cpus(&self, cores: usize) -> Result<Vec<usize>, SysError> {
        // SAFETY: EAL runs.
        let cpu = |index| usize::try_from(unsafe { ffi::tollgate_dpdk_cpu(index) }).ok();
        let cpus: Vec<_> = (0..).map_while(cpu).take(cores).collect();
        let shared = cpus.iter().enumerate().find(|(index, cpu)| cpus[..*index].contains(cpu));
        let why = match shared {
            Some((_, cpu)) => format!("two of EAL's cores share CPU {cpu}"),
            None if cpus.len() == cores => return Ok(cpus),
            None => format!("EAL has {} for it", cpus.len()),
        };
        let needed = cores.saturating_add(1);
        Err(SysError {
            attempt: format!("run the application on {cores} cores"),
            source: io::Error::other(why),
            remedy: format!("give EAL {needed} CPUs, e.g. -l 0-{cores}"),
        })
    }

    /// Returns the number of the only port.
    ///
    /// # Errors
    /// Returns an error if there is none, or several.
    pub(super) fn only_port(&self) -> Result<u16, SysError> {
        let mut ports = [0; 8];
        // SAFETY: EAL runs, and the array has this length.
        let count = unsafe { ffi::tollgate_dpdk_ports(ports.as_mut_ptr(), ports.len() as u32) };
        let refused = |why: String, remedy: &str| SysError {
            attempt: "use a port of DPDK".into(),
            source: io::Error::other(why),
            remedy: remedy.into(),
        };
        match (count, self.messages.as_slice()) {
            (1, _) => Ok(ports[0]),
            (0, []) => Err(refused(
                "there is none".into(),
                "bind one (dpdk-devbind.py --bind=vfio-pci ADDRESS), and select it (-a ADDRESS)",
            )),
            (0, messages) => Err(refused(
                format!("there is none: {}", cause(messages)),
                "correct the options of --dpdk",
            )),
            (several, _) => {
                let known = ports.iter().take(several as usize);
                let names: Vec<_> = known.filter_map(|port| super::port::name(*port)).collect();
                let why = format!("there are {several}: {}", names.join(", "));
                Err(refused(why, "select one, e.g. -a ADDRESS, or one --vdev and --no-pci"))
            }
        }
    }
}

impl Drop for Eal {
    fn drop(&mut self) {
        // SAFETY: EAL runs, and its ports are closed: each has a reference to it.
        unsafe { ffi::rte_eal_cleanup() };
    }
}

/// Returns the folder of EAL's files, of which EAL is told; `None` if the user has chosen one.
fn folder() -> io::Result<Option<TempDir>> {
    if std::env::var_os(FOLDER).is_some() {
        return Ok(None);
    }
    let prefix = format!("tollgate-dpdk-{}-", std::process::id());
    let private = std::fs::Permissions::from_mode(0o700);
    let folder = tempfile::Builder::new().prefix(&prefix).permissions(private).tempdir()?;
    // SAFETY: the command has started no thread yet; signal handlers do not access the environment.
    unsafe { std::env::set_var(FOLDER, folder.path()) };
    Ok(Some(folder))
}

/// Returns the arguments of EAL as strings of C. They are never freed.
fn arguments(options: &[&str]) -> io::Result<Vec<*mut c_char>> {
    let is_other =
        |option: &&str| OTHER_MEMORY.contains(&option.split('=').next().unwrap_or_default());
    let memory = (!options.iter().any(is_other)).then_some("--in-memory");
    let all = ["tollgate"].into_iter().chain(memory).chain(options.iter().copied());
    let mut arguments =
        all.map(|one| CString::new(one).map(CString::into_raw)).collect::<Result<Vec<_>, _>>()?;
    // As in `main`.
    arguments.push(std::ptr::null_mut());
    Ok(arguments)
}
