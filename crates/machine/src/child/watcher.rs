//! Watchers: small processes that kill a process group when the process that started it dies, also by SIGKILL.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

/// A process that kills a group when this process dies. It ends when this value is dropped.
///
/// The kernel's death signal reaches only a child, not what the child has started.
#[derive(Debug)]
pub(super) struct Watcher {
    process: Pid,
    pipe: File,
}

impl Watcher {
    /// Starts a watcher without a group.
    ///
    /// # Errors
    /// Returns the error of `pipe2(2)` or `fork(2)`.
    pub(super) fn start() -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        let (reader, writer) = (OwnedFd::from(reader), OwnedFd::from(writer));
        let input = reader.as_raw_fd();
        // SAFETY: the child executes `watch`, which makes async-signal-safe system calls only, and never returns.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => watch(input),
            raw => {
                let process = Pid::from_raw(raw).ok_or(io::ErrorKind::InvalidInput)?;
                Ok(Self { process, pipe: File::from(writer) })
            }
        }
    }

    /// Makes it watch the group of this leader.
    ///
    /// # Errors
    /// Returns the error of `write(2)`.
    pub(super) fn watch(&mut self, leader: u32) -> io::Result<()> {
        self.pipe.write_all(&leader.to_ne_bytes())
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // The process is not reaped yet, so the ID is valid. Errors cannot be reported here.
        let _ = kill_process(self.process, Signal::KILL);
        let _ = waitpid(Some(self.process), WaitOptions::empty());
    }
}

/// Reads the ID of a group, waits until the other end of the pipe closes, and kills the group.
fn watch(input: i32) -> ! {
    let mut group = [0u8; 4];
    let mut byte = 0u8;
    // SAFETY: these are system calls on integers and on the two buffers above, whose lengths are given. The child keeps
    // no descriptor but the pipe, so that it holds no lock or output of its parent open.
    unsafe {
        // Ctrl-C and a closing terminal are sent to the group of the parent.
        libc::setsid();
        libc::dup2(input, 0);
        libc::syscall(libc::SYS_close_range, 1, u32::MAX, 0);
        if libc::read(0, group.as_mut_ptr().cast(), group.len()) == 4 {
            loop {
                match libc::read(0, (&raw mut byte).cast(), 1) {
                    -1 if *libc::__errno_location() == libc::EINTR => {}
                    _ => break,
                }
            }
            libc::kill(-i32::from_ne_bytes(group), libc::SIGKILL);
        }
        libc::_exit(0)
    }
}
