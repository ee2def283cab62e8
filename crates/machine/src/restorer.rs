//! A process that puts something back when the one that changed it is gone, however it went.

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

/// By what a restorer is known: the name of its process.
const NAME: &CStr = c"tollgate-undo";

/// How often, and after which pause in ns, a removal is tried while files are still being closed.
const TRIES: u32 = 500;
const PAUSE: i64 = 10_000_000;
/// How long a restorer may take once what it waits for is gone.
pub const LONGEST: Duration = Duration::from_nanos(TRIES as u64 * PAUSE as u64);

/// What is put back.
#[derive(Debug)]
pub struct Restore {
    target: OwnedFd,
    how: How,
    /// What is removed once the target is as it was.
    record: Option<Record>,
}

/// The record of a change: a file that is removed, as long as it still has its name.
#[derive(Debug)]
struct Record {
    parent: OwnedFd,
    name: CString,
    file: OwnedFd,
}

#[derive(Debug)]
enum How {
    /// The target is a file, and these bytes are written at its beginning.
    Write(Vec<u8>),
    /// The target is a folder, and the empty folder of this name is removed from it.
    RemoveFolder(CString),
}

impl Restore {
    /// Writes a text to the beginning of a file, as the kernel's settings take it.
    ///
    /// # Errors
    /// Where the file cannot be opened for writing.
    pub fn file(path: &Path, text: &str) -> io::Result<Self> {
        let file = OpenOptions::new().write(true).open(path)?;
        Ok(Self { target: file.into(), how: How::Write(text.as_bytes().into()), record: None })
    }

    /// Also removes a file, where what was changed could be put back: the record of the change, which is
    /// `file`. If `name` is no longer this file, nothing is put back: the change is another's. A lock of the
    /// file is held until the restorer ends.
    ///
    /// # Errors
    /// Where a name holds a zero byte.
    pub fn and_remove(self, parent: OwnedFd, name: &str, file: OwnedFd) -> io::Result<Self> {
        Ok(Self { record: Some(Record { parent, name: CString::new(name)?, file }), ..self })
    }

    /// Removes the folder `name` from `parent`.
    ///
    /// # Errors
    /// Where a name holds a zero byte.
    pub fn folder(parent: OwnedFd, name: &Path) -> io::Result<Self> {
        let name = CString::new(name.as_os_str().as_bytes())?;
        Ok(Self { target: parent, how: How::RemoveFolder(name), record: None })
    }
}

/// The process that waits for our end; sent away when dropped, with nothing put back.
#[derive(Debug)]
pub struct Restorer {
    /// Its pidfd, and not its number, which may be another process's once a reaper of all children was here.
    process: OwnedFd,
}

impl Restorer {
    /// Starts it. When this process ends, by SIGKILL too, it puts back what it was given.
    ///
    /// # Errors
    /// The kernel's; a kernel before 5.9 has not all that it takes.
    pub fn start(restore: Restore) -> io::Result<Self> {
        let ourselves = pidfd_open(getpid(), PidfdFlags::empty())?;
        // The highest descriptor, which is never open: asks only whether the call exists.
        close_range(u32::MAX, u32::MAX)?;
        let (ready, says_ready) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        let mut process: RawFd = -1;
        const NONE: libc::c_long = 0;
        let how = libc::c_long::from(libc::CLONE_PIDFD | libc::SIGCHLD);
        // SAFETY: without CLONE_VM and a stack this is a fork, which also writes the child's pidfd into
        // `process`. The child only makes system calls, on what was made before, and never returns.
        let restorer = match unsafe {
            libc::syscall(libc::SYS_clone, how, NONE, &raw mut process, NONE, NONE)
        } {
            -1 => return Err(io::Error::last_os_error()),
            0 => wait_and_restore(ourselves.as_raw_fd(), says_ready.as_raw_fd(), &restore),
            // SAFETY: the kernel made this descriptor for us, and nobody else has it.
            _ => Self { process: unsafe { OwnedFd::from_raw_fd(process) } },
        };
        drop(says_ready);
        // Until it is known by its name it could be killed like any other process.
        match rustix::io::retry_on_intr(|| rustix::io::read(&ready, &mut [0_u8])) {
            Ok(1) => Ok(restorer),
            _ => Err(io::Error::other("it ended before it was ready")),
        }
    }

    /// Kills it, and waits until it is gone. Does nothing if it is gone already, reaped or not.
    pub(crate) fn kill(&self) {
        let _ = pidfd_send_signal(&self.process, Signal::KILL);
        let child = WaitId::PidFd(self.process.as_fd());
        let _ = rustix::io::retry_on_intr(|| waitid(child.clone(), WaitIdOptions::EXITED));
    }
}

/// Whether a process is a restorer, by its name. One that ends all processes leaves those some time: they
/// end by themselves when what they wait for is gone.
pub fn is_restorer(process: u32) -> bool {
    let name = std::fs::read(format!("/proc/{process}/comm")).unwrap_or_default();
    name.trim_ascii_end() == NAME.to_bytes()
}

impl Drop for Restorer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The child's whole life.
fn wait_and_restore(ourselves: RawFd, says_ready: RawFd, restore: &Restore) -> ! {
    // It sleeps until the end, and must then be quicker than who may kill it along with us.
    let first = libc::sched_param { sched_priority: 1 };
    // What the terminal or a shell sends to the group is not for this process.
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
    // Copies of the other's files would keep its pipes open and what is removed in use.
    keep_only([ourselves, target, parent, file]);
    let mut gone = libc::pollfd { fd: ourselves, events: libc::POLLIN, revents: 0 };
    // SAFETY: one valid pollfd. No signal can interrupt.
    unsafe { libc::poll(&mut gone, 1, -1) };
    match &restore.how {
        // Whoever holds the record's lock may remove it: this process, so that it keeps its name.
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
    // SAFETY: ends this process at once, without the other's destructors.
    unsafe { libc::_exit(0) }
}

/// Whether a record's name is still this record. Makes system calls only.
fn has_its_name(record: &Record) -> bool {
    let (parent, file) = (record.parent.as_raw_fd(), record.file.as_raw_fd());
    // SAFETY: the descriptors are open, the name ends in zero, and each call fills the structure it is given.
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
    for _ in 0..TRIES {
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

/// Closes all descriptors but these, of which some may be the same.
fn keep_only(mut kept: [RawFd; 4]) {
    kept.sort_unstable();
    // That the call exists was tried before the fork.
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
    // SAFETY: only numbers; closes descriptors that nobody in the calling process uses any more.
    match unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forked;

    /// Runs a body in a child that then dies by SIGKILL, and waits until a condition holds.
    fn after_a_sudden_death(body: impl FnOnce(), holds: impl Fn() -> bool) {
        forked::die_after(body);
        forked::wait("what it changed is put back", holds);
    }

    #[test]
    fn a_setting_is_put_back_after_a_sudden_death() {
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
    fn a_change_whose_record_is_another_s_is_left_alone() {
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
            // Unlocked once the restorer has ended.
            let ended = || std::fs::File::open(&held).unwrap().try_lock().is_ok();
            after_a_sudden_death(change, ended);
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
    fn one_that_is_sent_away_puts_nothing_back() {
        let folder = tempfile::tempdir().unwrap();
        let setting = folder.path().join("setting");
        std::fs::write(&setting, "before").unwrap();
        drop(Restorer::start(Restore::file(&setting, "wrong!").unwrap()).unwrap());
        assert_eq!(std::fs::read_to_string(&setting).unwrap(), "before");
        // Nor does one that somebody else has reaped, whose number may be another process's by then.
        let reaped = Restorer::start(Restore::file(&setting, "wrong!").unwrap()).unwrap();
        reaped.kill();
        let signalled = pidfd_send_signal(&reaped.process, Signal::KILL);
        assert_eq!(signalled, Err(rustix::io::Errno::SRCH));
        drop(reaped);
        assert_eq!(std::fs::read_to_string(&setting).unwrap(), "before");
    }
}
