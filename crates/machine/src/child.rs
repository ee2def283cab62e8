//! Child processes that end with their parent.

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
    set_parent_process_death_signal, setpriority_process, waitpid,
};

use crate::signal;

mod console;
mod limited;
mod watcher;

pub use console::Console;
pub use limited::{
    KEPT_BYTES, complete_within, interrupt_by, interruption, is_interrupted, output_within,
    run_within,
};

/// Makes the kernel kill the command's process when the thread that spawns it ends for any reason.
///
/// The signal follows the *thread*: spawn from one that outlives the child, e.g. the main thread.
/// Grandchildren need the same from their own parent.
pub fn die_with_parent(command: &mut Command) {
    let parent = getpid();
    // SAFETY: between fork and exec only two system calls run, both async-signal-safe, without allocation.
    unsafe { command.pre_exec(move || follow(parent)) };
}

/// Sets the nice value with which the command's process starts, from -20 (highest priority) to 19. To lower it, the
/// process needs CAP_SYS_NICE or RLIMIT_NICE, without which it does not start.
pub fn set_nice(command: &mut Command, nice: i32) {
    // SAFETY: between fork and exec only one system call runs, without allocation.
    unsafe { command.pre_exec(move || Ok(setpriority_process(None, nice)?)) };
}

/// Describes how a process ended, as what it did: "exited with status 3" or "was killed by SIGSEGV".
pub fn describe(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("was killed by {}", signal::name(signal)),
        (None, Some(code)) => format!("exited with status {code}"),
        (None, None) => "exited".into(),
    }
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

/// Removes a relative `HOME` of this process from the command's environment, unless the command sets its own:
/// a program would create files relative to its working directory.
pub fn drop_relative_home(command: &mut Command) {
    drop_home(command, std::env::var_os("HOME").as_deref());
}

fn drop_home(command: &mut Command, home: Option<&OsStr>) {
    let is_own = command.get_envs().all(|(name, _)| name != "HOME");
    if is_own && home.is_some_and(|home| !Path::new(home).is_absolute()) {
        command.env_remove("HOME");
    }
}

/// Requests the signal. Fails if the parent died before the request.
fn follow(parent: Pid) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid() == Some(parent) { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ESRCH)) }
}

/// A forked copy of this process. It is killed and reaped when dropped.
#[derive(Debug)]
pub struct Forked {
    pid: Pid,
    handle: OwnedFd,
    status: Option<ExitStatus>,
}

/// Forks. The child runs `body` and exits with its result, or with 101 if it panics. It shares the shared
/// mappings and dies with the thread that forked it.
///
/// # Safety
/// If other threads exist, a lock that one of them held stays locked in the child forever, including the
/// allocator's. `body` may therefore only use what is async-signal-safe: existing memory, atomics and system
/// calls, but no allocation, output, locks or panics. It inherits the parent's descriptors.
///
/// # Errors
/// Returns the error of `fork(2)`, e.g. too many processes or too little memory.
pub unsafe fn fork_child(body: impl FnOnce() -> i32) -> io::Result<Forked> {
    let parent = getpid();
    // SAFETY: the caller guarantees what the child does; the parent only continues.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let code = match follow(parent) {
                Ok(()) => catch_unwind(AssertUnwindSafe(body)).unwrap_or(101),
                Err(_) => 102,
            };
            // SAFETY: this ends the process at once, without destructors or exit handlers of the parent.
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
                // Without a handle the child could not be waited for: end it.
                let _ = kill_process(pid, Signal::KILL);
                let _ = waitpid(Some(pid), WaitOptions::empty());
                Err(errno.into())
            }
        }
    }

    /// Returns the process ID.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Waits for the process to end; `None` if it still runs after `timeout`.
    ///
    /// # Errors
    /// Returns the error of `poll(2)` or `waitid(2)`.
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
            // The process is not reaped yet, so the ID is still valid. Errors cannot be reported here.
            let _ = kill_process(self.pid, Signal::KILL);
            let _ = self.reap(WaitOptions::empty());
        }
    }
}

#[cfg(test)]
mod tests;
