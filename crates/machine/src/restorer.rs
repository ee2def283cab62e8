//! A helper process that restores a change when the process that made it is gone for any reason.

use std::ffi::{CStr, CString};
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use rustix::pipe::PipeFlags;
use rustix::process::{
    PidfdFlags, Signal, WaitId, WaitIdOptions, getpid, pidfd_open, pidfd_send_signal, waitid,
};

/// The process name of a restorer.
const NAME: &CStr = c"tollgate-undo";

/// How often, and with which pause in ns, a removal is attempted while files are still being closed.
const MAX_ATTEMPTS: u32 = 500;
const PAUSE: i64 = 10_000_000;
/// How long a restorer may take once the process it watches is gone.
pub const MAX_TIME: Duration = Duration::from_nanos(MAX_ATTEMPTS as u64 * PAUSE as u64);

/// A change to be reverted.
#[derive(Debug)]
pub struct Restore {
    target: OwnedFd,
    how: How,
    /// The record that is removed once the target is restored.
    record: Option<Record>,
}

/// The record of a change: a file that is removed if it still has its name.
#[derive(Debug)]
struct Record {
    parent: OwnedFd,
    name: CString,
    file: OwnedFd,
}

#[derive(Debug)]
enum How {
    /// The target is a file; these bytes are written at its start.
    Write(Vec<u8>),
    /// The target is a folder; the empty folder of this name is removed from it.
    RemoveFolder(CString),
}

impl Restore {
    /// Writes a text to the start of a file, as for a kernel setting.
    ///
    /// # Errors
    /// Fails if the file cannot be opened for writing.
    pub fn file(path: &Path, text: &str) -> io::Result<Self> {
        let file = OpenOptions::new().write(true).open(path)?;
        Ok(Self { target: file.into(), how: How::Write(text.as_bytes().into()), record: None })
    }

    /// Also removes `file`, the record of the change, once the change is reverted. If `name` no longer
    /// refers to this file, nothing is reverted, because the change belongs to another process. A lock of
    /// the file is held until the restorer ends.
    ///
    /// # Errors
    /// Fails if a name contains a zero byte.
    pub fn and_remove(self, parent: OwnedFd, name: &str, file: OwnedFd) -> io::Result<Self> {
        Ok(Self { record: Some(Record { parent, name: CString::new(name)?, file }), ..self })
    }

    /// Removes the folder `name` from `parent`.
    ///
    /// # Errors
    /// Fails if a name contains a zero byte.
    pub fn folder(parent: OwnedFd, name: &Path) -> io::Result<Self> {
        let name = CString::new(name.as_os_str().as_bytes())?;
        Ok(Self { target: parent, how: How::RemoveFolder(name), record: None })
    }
}

/// The process that waits for the end of this one. Dropping it ends it without restoring anything.
#[derive(Debug)]
pub struct Restorer {
    /// Its pidfd. A process ID could be reused once another part of this process has reaped all children.
    process: OwnedFd,
}

impl Restorer {
    /// Starts the process. When this process ends, even by SIGKILL, it reverts the change.
    ///
    /// # Errors
    /// Returns the kernel's error; kernels before 5.9 lack a required call.
    pub fn start(restore: Restore) -> io::Result<Self> {
        let ourselves = pidfd_open(getpid(), PidfdFlags::empty())?;
        // The highest descriptor is never open: this only checks that the call exists.
        close_range(u32::MAX, u32::MAX)?;
        let (ready, says_ready) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        let mut process: RawFd = -1;
        const NONE: libc::c_long = 0;
        let how = libc::c_long::from(libc::CLONE_PIDFD | libc::SIGCHLD);
        // SAFETY: without CLONE_VM and a stack this is a fork, which also writes the child's pidfd into
        // `process`. The child only makes system calls on existing data and never returns.
        let restorer = match unsafe {
            libc::syscall(libc::SYS_clone, how, NONE, &raw mut process, NONE, NONE)
        } {
            -1 => return Err(io::Error::last_os_error()),
            0 => wait_and_restore(ourselves.as_raw_fd(), says_ready.as_raw_fd(), &restore),
            // SAFETY: the kernel created this descriptor for us, and nothing else owns it.
            _ => Self { process: unsafe { OwnedFd::from_raw_fd(process) } },
        };
        drop(says_ready);
        // Until it has its name it could be killed like any other process.
        match rustix::io::retry_on_intr(|| rustix::io::read(&ready, &mut [0_u8])) {
            Ok(1) => Ok(restorer),
            _ => Err(io::Error::other("it exited before it was ready")),
        }
    }

    /// Kills the process and waits until it is gone. Does nothing if it is gone already, reaped or not.
    pub(crate) fn kill(&self) {
        let _ = pidfd_send_signal(&self.process, Signal::KILL);
        let child = WaitId::PidFd(self.process.as_fd());
        let _ = rustix::io::retry_on_intr(|| waitid(child.clone(), WaitIdOptions::EXITED));
    }
}

/// Returns whether a process is a restorer, by its name. Code that ends all processes gives restorers some
/// time: they end by themselves once the process that they watch is gone.
pub fn is_restorer(process: u32) -> bool {
    let name = std::fs::read(format!("/proc/{process}/comm")).unwrap_or_default();
    name.trim_ascii_end() == NAME.to_bytes()
}

impl Drop for Restorer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The body of the child.
fn wait_and_restore(ourselves: RawFd, says_ready: RawFd, restore: &Restore) -> ! {
    // It sleeps until the end and must then act before anything kills it too.
    let first = libc::sched_param { sched_priority: 1 };
    // Signals of the terminal or a shell to the group must not reach this process.
    // SAFETY: system calls on numbers and on structures that live through them.
    unsafe {
        libc::setsid();
        libc::sched_setscheduler(0, libc::SCHED_FIFO, &first);
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::sigprocmask(libc::SIG_BLOCK, &all, std::ptr::null_mut());
        libc::prctl(libc::PR_SET_NAME, NAME.as_ptr(), 0, 0, 0);
        libc::write(says_ready, [1_u8].as_ptr().cast(), 1);
    }
    let target = restore.target.as_raw_fd();
    let record = restore.record.as_ref();
    let [parent, file] =
        record.map_or([target; 2], |record| [record.parent.as_raw_fd(), record.file.as_raw_fd()]);
    // Copies of the parent's files would keep its pipes open and removed files in use.
    keep_only([ourselves, target, parent, file]);
    let mut gone = libc::pollfd { fd: ourselves, events: libc::POLLIN, revents: 0 };
    // SAFETY: one valid pollfd. No signal can interrupt the call.
    unsafe { libc::poll(&mut gone, 1, -1) };
    match &restore.how {
        // Only the holder of the record's lock may remove it. This process has it, so the name stays.
        How::Write(_) if record.is_some_and(|record| !has_its_name(record)) => {}
        How::Write(bytes) => {
            // SAFETY: the descriptor is open and the bytes live through the call.
            let put = unsafe { libc::pwrite(target, bytes.as_ptr().cast(), bytes.len(), 0) };
            if let (true, Some(record)) = (put == bytes.len() as isize, record) {
                // SAFETY: the descriptor is open and the name ends in zero.
                unsafe { libc::unlinkat(parent, record.name.as_ptr(), 0) };
            }
        }
        How::RemoveFolder(name) => remove(target, name),
    }
    // SAFETY: ends this process at once, without the parent's destructors.
    unsafe { libc::_exit(0) }
}

/// Returns whether a record's name still refers to this record. Makes only system calls.
fn has_its_name(record: &Record) -> bool {
    let (parent, file) = (record.parent.as_raw_fd(), record.file.as_raw_fd());
    // SAFETY: the descriptors are open, the name ends in zero, and each call fills the structure passed to it.
    unsafe {
        let mut held: libc::stat = std::mem::zeroed();
        let mut named: libc::stat = std::mem::zeroed();
        let name = record.name.as_ptr();
        libc::fstat(file, &raw mut held) == 0
            && libc::fstatat(parent, name, &raw mut named, libc::AT_SYMLINK_NOFOLLOW) == 0
            && (held.st_dev, held.st_ino) == (named.st_dev, named.st_ino)
    }
}

fn remove(parent: RawFd, name: &CString) {
    let pause = libc::timespec { tv_sec: 0, tv_nsec: PAUSE };
    for _ in 0..MAX_ATTEMPTS {
        // SAFETY: the descriptor is open and the name ends in zero; the time lives through the call.
        unsafe {
            if libc::unlinkat(parent, name.as_ptr(), libc::AT_REMOVEDIR) == 0
                || *libc::__errno_location() != libc::EBUSY
            {
                return;
            }
            libc::nanosleep(&pause, std::ptr::null_mut());
        }
    }
}

/// Closes all descriptors except these, some of which may be equal.
fn keep_only(mut kept: [RawFd; 4]) {
    kept.sort_unstable();
    // `start` checked before the fork that the call exists.
    let mut first = 0;
    for one in kept.map(|one| one as u32) {
        if one > first {
            let _ = close_range(first, one - 1);
        }
        first = first.max(one + 1);
    }
    let _ = close_range(first, u32::MAX);
}

fn close_range(first: u32, last: u32) -> io::Result<()> {
    // SAFETY: takes only numbers; closes descriptors that this process no longer uses.
    match unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forked;

    /// Runs a body in a child that then dies by SIGKILL, and waits until a condition is true.
    fn after_a_sudden_death(body: impl FnOnce(), is_true: impl Fn() -> bool) {
        forked::die_after(body);
        forked::wait("its change is reverted", is_true);
    }

    #[test]
    fn a_setting_is_restored_after_a_sudden_death() {
        let folder = tempfile::tempdir().unwrap();
        let setting = folder.path().join("setting");
        std::fs::write(&setting, "before").unwrap();
        let change = || {
            let restorer = Restorer::start(Restore::file(&setting, "before").unwrap()).unwrap();
            std::fs::write(&setting, "change").unwrap();
            std::mem::forget(restorer);
        };
        after_a_sudden_death(change, || std::fs::read_to_string(&setting).unwrap() == "before");
    }

    #[test]
    fn a_change_recorded_by_another_process_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let [setting, record, held] =
            ["setting", "record", "held"].map(|name| folder.path().join(name));
        for replaced in [false, true] {
            std::fs::write(&setting, "before").unwrap();
            std::fs::write(&record, "ours").unwrap();
            std::fs::hard_link(&record, &held).unwrap();
            let change = || {
                let parent = std::fs::File::open(folder.path()).unwrap();
                let file = std::fs::File::open(&record).unwrap();
                file.lock().unwrap();
                let restore = Restore::file(&setting, "before").unwrap();
                let restore = restore.and_remove(parent.into(), "record", file.into()).unwrap();
                std::mem::forget(Restorer::start(restore).unwrap());
                std::fs::write(&setting, "change").unwrap();
                if replaced {
                    std::fs::remove_file(&record).unwrap();
                    std::fs::write(&record, "another's").unwrap();
                }
            };
            // Unlocked once the restorer has exited.
            let exited = || std::fs::File::open(&held).unwrap().try_lock().is_ok();
            after_a_sudden_death(change, exited);
            let left = std::fs::read_to_string(&record).unwrap_or_default();
            let value = std::fs::read_to_string(&setting).unwrap();
            let expected = if replaced { ("another's", "change") } else { ("", "before") };
            assert_eq!((left.as_str(), value.as_str()), expected);
            std::fs::remove_file(&held).unwrap();
        }
    }

    #[test]
    fn a_folder_is_removed_after_a_sudden_death() {
        let folder = tempfile::tempdir().unwrap();
        let made = folder.path().join("made");
        let make = || {
            let parent = std::fs::File::open(folder.path()).unwrap();
            let restore = Restore::folder(parent.into(), Path::new("made")).unwrap();
            std::fs::create_dir(&made).unwrap();
            std::mem::forget(Restorer::start(restore).unwrap());
        };
        after_a_sudden_death(make, || !made.exists());
    }

    #[test]
    fn a_dropped_restorer_restores_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let setting = folder.path().join("setting");
        std::fs::write(&setting, "before").unwrap();
        drop(Restorer::start(Restore::file(&setting, "wrong!").unwrap()).unwrap());
        assert_eq!(std::fs::read_to_string(&setting).unwrap(), "before");
        // Nor does one that was reaped elsewhere, whose ID may have been reused by then.
        let reaped = Restorer::start(Restore::file(&setting, "wrong!").unwrap()).unwrap();
        reaped.kill();
        let signalled = pidfd_send_signal(&reaped.process, Signal::KILL);
        assert_eq!(signalled, Err(rustix::io::Errno::SRCH));
        drop(reaped);
        assert_eq!(std::fs::read_to_string(&setting).unwrap(), "before");
    }
}
