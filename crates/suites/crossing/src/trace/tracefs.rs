//! The kernel's trace file system, reached without a change to any mount table.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use lab::sample::Failure;
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};
use rustix::thread::CapabilitySet;

/// What helps where the kernel does not let us.
const AS_ROOT: &str = "run as root, outside a container and without kernel lockdown";

/// More than any file that is read here holds.
const WHOLE: usize = 16 << 10;

/// A folder of the trace file system.
#[derive(Debug)]
pub struct Folder(OwnedFd);

impl Folder {
    /// The root: where it is mounted already, else in a mount of our own that hangs nowhere and goes
    /// with its last open file.
    ///
    /// # Errors
    /// Unavailable where the kernel has no such file system or does not let us.
    pub fn root() -> Result<Self, Failure> {
        let folder = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        match mounted() {
            Some(path) => rustix::fs::open(&path, folder, Mode::empty())
                .map(Self)
                .map_err(|why| refused(&path, why)),
            None => unattached().map(Self).map_err(|why| refused("mount tracefs", why)),
        }
    }

    /// A folder below.
    ///
    /// # Errors
    /// Where there is none, or the kernel does not let us.
    pub fn folder(&self, path: &str) -> Result<Self, Failure> {
        self.open(path, OFlags::DIRECTORY | OFlags::RDONLY).map(Self)
    }

    /// Opens a file below.
    ///
    /// # Errors
    /// Where there is none, or the kernel does not let us.
    pub fn open(&self, path: &str, flags: OFlags) -> Result<OwnedFd, Failure> {
        openat(&self.0, path, flags | OFlags::CLOEXEC, Mode::empty())
            .map_err(|why| refused(path, why))
    }

    /// What a file below says.
    ///
    /// # Errors
    /// Where it cannot be read.
    pub fn read(&self, path: &str) -> Result<String, Failure> {
        let file = self.open(path, OFlags::RDONLY)?;
        // Some files answer the first read alone, so that it must have room for all.
        let (mut text, mut part) = (Vec::new(), vec![0; WHOLE]);
        loop {
            match rustix::io::read(&file, &mut part) {
                Ok(0) => break,
                Ok(length) => text.extend_from_slice(&part[..length]),
                Err(Errno::INTR) => {}
                Err(why) => return Err(refused(path, why)),
            }
        }
        String::from_utf8(text).map_err(|_| Failure::failed(format!("tracefs: {path} is no text")))
    }

    /// Writes a setting below, in the place of what it was.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn write(&self, path: &str, setting: &str) -> Result<(), Failure> {
        let file = self.open(path, OFlags::WRONLY | OFlags::TRUNC)?;
        match rustix::io::write(&file, setting.as_bytes()) {
            Ok(written) if written == setting.len() => Ok(()),
            Ok(_) => Err(Failure::failed(format!("tracefs: {path}: only in part written"))),
            Err(why) => Err(refused(&format!("{path} = {setting}"), why)),
        }
    }

    /// The names of what is below.
    ///
    /// # Errors
    /// Where it cannot be read.
    pub fn names(&self) -> Result<Vec<String>, Failure> {
        let listed = rustix::fs::Dir::read_from(&self.0).and_then(Iterator::collect);
        let listed: Vec<rustix::fs::DirEntry> = listed.map_err(|why| refused("list", why))?;
        let name = |entry: &rustix::fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
        Ok(listed.iter().map(name).filter(|name| !name.starts_with('.')).collect())
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The failure that a refusal amounts to.
fn refused(what: &str, why: Errno) -> Failure {
    let text = format!("tracefs: {what}: {why}");
    match why {
        Errno::PERM | Errno::ACCESS => Failure::unavailable(text, AS_ROOT),
        Errno::NODEV | Errno::NOENT => {
            Failure::unavailable(text, "use a kernel with CONFIG_FTRACE_SYSCALLS")
        }
        Errno::NOSYS => Failure::unavailable(text, "use a kernel from 5.2, or mount tracefs"),
        _ => Failure::failed(text),
    }
}

/// Where it is mounted for this process.
fn mounted() -> Option<String> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
    let mut lines = mounts.lines().map(|line| line.split(' '));
    lines.find_map(|mut fields| match (fields.nth(1), fields.next()) {
        (Some(path), Some("tracefs")) => Some(path.to_owned()),
        _ => None,
    })
}

/// Mounts it without attaching it anywhere.
fn unattached() -> rustix::io::Result<OwnedFd> {
    let context = rustix::mount::fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_create(context.as_fd())?;
    rustix::mount::fsmount(
        context.as_fd(),
        FsMountFlags::FSMOUNT_CLOEXEC,
        MountAttrFlags::MOUNT_ATTR_NOEXEC | MountAttrFlags::MOUNT_ATTR_NOSUID,
    )
}

/// Whether the kernel has the file system, and lets us use it; changes and mounts nothing.
///
/// # Errors
/// Unavailable, with the reason.
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
    capable(
        &[CapabilitySet::SYS_ADMIN],
        "tracefs is not mounted, and mounting it takes CAP_SYS_ADMIN",
    )
}

/// Whether this process has all capabilities of one of these sets in effect.
///
/// # Errors
/// Unavailable, with the reason given.
pub(super) fn capable(any: &[CapabilitySet], otherwise: &str) -> Result<(), Failure> {
    let has = |sets: rustix::thread::CapabilitySets| {
        any.iter().any(|needed| sets.effective.contains(*needed))
    };
    if rustix::thread::capabilities(None).is_ok_and(has) {
        return Ok(());
    }
    Err(Failure::unavailable(otherwise, AS_ROOT))
}

/// Whether process numbers are here what tracepoints take them for.
///
/// # Errors
/// Unavailable in a container's PID namespace.
pub(super) fn numbers_of_the_host() -> Result<(), Failure> {
    /// `PROC_PID_INIT_INO` of the kernel: the namespace that the machine starts with.
    const FIRST: &str = "pid:[4026531836]";
    match std::fs::read_link("/proc/self/ns/pid") {
        Ok(namespace) if namespace.as_os_str() == FIRST => Ok(()),
        _ => Err(Failure::unavailable(
            "in a PID namespace a process does not know the number that tracepoints see",
            "run on the host, outside a container",
        )),
    }
}
