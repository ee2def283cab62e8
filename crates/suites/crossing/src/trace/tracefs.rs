//! Access to the kernel's trace file system without a change to any mount table.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use lab::sample::Failure;
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};
use rustix::thread::CapabilitySet;

/// Fix if the kernel denies access.
const AS_ROOT: &str = "run as root, outside a container and without kernel lockdown";

/// Buffer size, bytes, larger than any file that is read here.
const BUFFER_SIZE: usize = 16 << 10;

/// A folder of the trace file system.
#[derive(Debug)]
pub struct Folder(OwnedFd);

impl Folder {
    /// Opens the root: the existing mount, or a new detached mount that is removed with its last open file.
    ///
    /// # Errors
    /// Returns `unavailable` if the kernel lacks the file system or denies access.
    pub fn root() -> Result<Self, Failure> {
        let folder = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        match mounted() {
            Some(path) => rustix::fs::open(&path, folder, Mode::empty())
                .map(Self)
                .map_err(|why| to_failure(&path, why)),
            None => mount_detached().map(Self).map_err(|why| to_failure("mount tracefs", why)),
        }
    }

    /// Opens a subfolder.
    ///
    /// # Errors
    /// Returns `unavailable` if it does not exist or the kernel denies access.
    pub fn folder(&self, path: &str) -> Result<Self, Failure> {
        self.open(path, OFlags::DIRECTORY | OFlags::RDONLY).map(Self)
    }

    /// Opens a file in this folder.
    ///
    /// # Errors
    /// Returns `unavailable` if it does not exist or the kernel denies access.
    pub fn open(&self, path: &str, flags: OFlags) -> Result<OwnedFd, Failure> {
        openat(&self.0, path, flags | OFlags::CLOEXEC, Mode::empty())
            .map_err(|why| to_failure(path, why))
    }

    /// Reads a file in this folder.
    ///
    /// # Errors
    /// Returns `unavailable` or `failed` if it cannot be read.
    pub fn read(&self, path: &str) -> Result<String, Failure> {
        let file = self.open(path, OFlags::RDONLY)?;
        // Some files answer only the first read, so its buffer must be large enough for the whole text.
        let (mut text, mut part) = (Vec::new(), vec![0; BUFFER_SIZE]);
        loop {
            match rustix::io::read(&file, &mut part) {
                Ok(0) => break,
                Ok(length) => text.extend_from_slice(&part[..length]),
                Err(Errno::INTR) => {}
                Err(why) => return Err(to_failure(path, why)),
            }
        }
        String::from_utf8(text).map_err(|_| Failure::failed(format!("tracefs: {path}: not UTF-8")))
    }

    /// Replaces the contents of a file in this folder.
    ///
    /// # Errors
    /// Returns `unavailable` or `failed` if the kernel refuses.
    pub fn write(&self, path: &str, text: &str) -> Result<(), Failure> {
        let file = self.open(path, OFlags::WRONLY | OFlags::TRUNC)?;
        match rustix::io::write(&file, text.as_bytes()) {
            Ok(written) if written == text.len() => Ok(()),
            Ok(_) => Err(Failure::failed(format!("tracefs: {path}: partial write"))),
            Err(why) => Err(to_failure(&format!("{path} = {text}"), why)),
        }
    }

    /// Returns the names of the entries.
    ///
    /// # Errors
    /// Returns `unavailable` or `failed` if the folder cannot be read.
    pub fn names(&self) -> Result<Vec<String>, Failure> {
        let listed = rustix::fs::Dir::read_from(&self.0).and_then(Iterator::collect);
        let listed: Vec<rustix::fs::DirEntry> = listed.map_err(|why| to_failure("list", why))?;
        let name = |entry: &rustix::fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
        Ok(listed.iter().map(name).filter(|name| !name.starts_with('.')).collect())
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Converts an error of the kernel to a failure.
fn to_failure(what: &str, why: Errno) -> Failure {
    let text = format!("tracefs: {what}: {why}");
    match why {
        Errno::PERM | Errno::ACCESS => Failure::unavailable(text, AS_ROOT),
        Errno::NODEV | Errno::NOENT => {
            Failure::unavailable(text, "use a kernel with CONFIG_FTRACE_SYSCALLS")
        }
        Errno::NOSYS => Failure::unavailable(text, "use Linux 5.2 or later, or mount tracefs"),
        _ => Failure::failed(text),
    }
}

/// Returns the path of an existing mount of tracefs.
fn mounted() -> Option<String> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
    let mut lines = mounts.lines().map(|line| line.split(' '));
    lines.find_map(|mut fields| match (fields.nth(1), fields.next()) {
        (Some(path), Some("tracefs")) => Some(path.to_owned()),
        _ => None,
    })
}

/// Creates a detached mount.
fn mount_detached() -> rustix::io::Result<OwnedFd> {
    let context = rustix::mount::fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_create(context.as_fd())?;
    rustix::mount::fsmount(
        context.as_fd(),
        FsMountFlags::FSMOUNT_CLOEXEC,
        MountAttrFlags::MOUNT_ATTR_NOEXEC | MountAttrFlags::MOUNT_ATTR_NOSUID,
    )
}

/// Checks, without mounting it, that tracefs has this event and that this process may use it.
///
/// # Errors
/// Returns `unavailable` with the cause and the fix.
pub fn available(event: &str) -> Result<(), Failure> {
    if let Some(path) = mounted() {
        let event = format!("{path}/events/{event}");
        return std::fs::metadata(&event).map(drop).map_err(|why| {
            Failure::unavailable(
                format!("{event}: {why}"),
                "run as root, on a kernel with CONFIG_FTRACE_SYSCALLS",
            )
        });
    }
    let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    if !known.lines().any(|line| line.ends_with("\ttracefs")) {
        return Err(Failure::unavailable(
            "the kernel has no tracefs",
            "use a kernel with CONFIG_FTRACE_SYSCALLS",
        ));
    }
    check_capabilities(
        &[CapabilitySet::SYS_ADMIN],
        "tracefs is not mounted, and mounting it needs CAP_SYS_ADMIN",
    )
}

/// Checks that this process has all effective capabilities of one of these sets.
///
/// # Errors
/// Returns `unavailable` with the given cause.
pub(super) fn check_capabilities(any: &[CapabilitySet], cause: &str) -> Result<(), Failure> {
    let has = |sets: rustix::thread::CapabilitySets| {
        any.iter().any(|required| sets.effective.contains(*required))
    };
    if rustix::thread::capabilities(None).is_ok_and(has) {
        return Ok(());
    }
    Err(Failure::unavailable(cause, AS_ROOT))
}

/// Checks that thread IDs here are those that tracepoints see.
///
/// # Errors
/// Returns `unavailable` in the PID namespace of a container.
pub(super) fn check_pid_namespace() -> Result<(), Failure> {
    /// `PROC_PID_INIT_INO` of the kernel: the initial namespace.
    const INITIAL: &str = "pid:[4026531836]";
    match std::fs::read_link("/proc/self/ns/pid") {
        Ok(namespace) if namespace.as_os_str() == INITIAL => Ok(()),
        _ => Err(Failure::unavailable(
            "in a PID namespace the thread IDs differ from those of tracepoints",
            "run outside a container",
        )),
    }
}
