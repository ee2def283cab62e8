//! Processes that die with their parent.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpid, getppid, kill_process, pidfd_open,
    set_parent_process_death_signal, waitpid,
};

mod limited;

pub use limited::{KEPT_BYTES, output_within, run_within};

/// Has the kernel kill the command's process when the thread that spawns it ends, however that comes.
///
/// The signal follows the *thread*: spawn from one that outlives the child, such as the main thread.
/// Grandchildren need the same from their own parent.
pub fn die_with_parent(command: &mut Command) {
    let parent = getpid();
    // SAFETY: between fork and exec only two system calls run, both async-signal-safe, without allocation.
    unsafe { command.pre_exec(move || follow(parent)) };
}

/// Waits for a child to exit; returns `None` if it still runs after `timeout`.
///
/// # Errors
/// Returns the `errno` of `pidfd_open(2)`, `poll(2)` or `waitpid(2)`.
pub fn wait_within(child: &mut Child, timeout: Duration) -> io::Result<Option<ExitStatus>> {
    if let Some(status) = child.try_wait()? {
        return Ok(Some(status));
    }
    let handle = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    if ends_within(&handle, timeout)? { child.try_wait() } else { Ok(None) }
}

/// Waits until the process of a pidfd has exited, for at most `timeout`; returns whether it has.
fn ends_within(process: &OwnedFd, timeout: Duration) -> io::Result<bool> {
    let end = Instant::now() + timeout;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let milliseconds = left.as_micros().div_ceil(1000).try_into().unwrap_or(i32::MAX);
        let mut poll = libc::pollfd { fd: process.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: `poll` is one valid pollfd, which outlives the call.
        match unsafe { libc::poll(&mut poll, 1, milliseconds) } {
            -1 => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
            ready => return Ok(ready > 0),
        }
    }
}

/// Takes a relative `HOME` of this process from the command's environment, unless the command was given one: by
/// it a program would look for, and make, files below the folder that it runs in.
pub fn drop_relative_home(command: &mut Command) {
    drop_home(command, std::env::var_os("HOME").as_deref());
}

fn drop_home(command: &mut Command, home: Option<&OsStr>) {
    let is_own = command.get_envs().all(|(name, _)| name != "HOME");
    if is_own && home.is_some_and(|home| !Path::new(home).is_absolute()) {
        command.env_remove("HOME");
    }
}

/// Asks for the signal; fails where the parent has died before it could be asked for.
fn follow(parent: Pid) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid() == Some(parent) { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ESRCH)) }
}

/// A forked copy of this process, killed and reaped when dropped.
#[derive(Debug)]
pub struct Forked {
    pid: Pid,
    handle: OwnedFd,
    status: Option<ExitStatus>,
}

/// Forks; the child runs `body` and exits with what it returns, or 101 where it panics. It shares the
/// mappings that are shared, and dies with the thread that forked it.
///
/// # Safety
/// Where other threads exist, a lock that one of them held stays locked in the child for ever, the
/// allocator's included. So `body` may do only what is async-signal-safe: memory made before, atomics,
/// system calls. No allocation, no printing, no locks, no panics. Its descriptors are the parent's.
///
/// # Errors
/// The kernel's: too many processes, too little memory.
pub unsafe fn fork_child(body: impl FnOnce() -> i32) -> io::Result<Forked> {
    let parent = getpid();
    // SAFETY: the caller answers for what the child does; the parent only goes on.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let code = match follow(parent) {
                Ok(()) => catch_unwind(AssertUnwindSafe(body)).unwrap_or(101),
                Err(_) => 102,
            };
            // SAFETY: ends this process at once: no destructor or exit handler of the parent's runs here.
            unsafe { libc::_exit(code) }
        }
        raw => Forked::new(raw),
    }
}

impl Forked {
    fn new(raw: i32) -> io::Result<Self> {
        let pid = Pid::from_raw(raw).ok_or(io::ErrorKind::InvalidInput)?;
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(handle) => Ok(Self { pid, handle, status: None }),
            Err(errno) => {
                // Without a handle nobody could wait for it: leave no process behind.
                let _ = kill_process(pid, Signal::KILL);
                let _ = waitpid(Some(pid), WaitOptions::empty());
                Err(errno.into())
            }
        }
    }

    /// Its process number.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Waits for its end; none where it still runs after `timeout`.
    ///
    /// # Errors
    /// The kernel's.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<Option<ExitStatus>> {
        if self.status.is_some() || !ends_within(&self.handle, timeout)? {
            return Ok(self.status);
        }
        self.reap(WaitOptions::NOHANG)
    }

    fn reap(&mut self, options: WaitOptions) -> io::Result<Option<ExitStatus>> {
        if let Some((_, status)) = waitpid(Some(self.pid), options)? {
            self.status = Some(ExitStatus::from_raw(status.as_raw()));
        }
        Ok(self.status)
    }
}

impl Drop for Forked {
    fn drop(&mut self) {
        if self.status.is_none() {
            // Not reaped yet, so the number is still its own. Afterwards nothing is left to report.
            let _ = kill_process(self.pid, Signal::KILL);
            let _ = self.reap(WaitOptions::empty());
        }
    }
}

#[cfg(test)]
mod tests;
