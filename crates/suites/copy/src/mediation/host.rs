//! A host of the pool: a process that can access only what it was passed, and executes the mediator's
//! commands, including forbidden accesses. [`Peer`] is the mediator's handle of one.
//!
//! It is forked before the pool is created, so that it inherits no part of it; it must not allocate.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr;
use std::time::Duration;

use lab::sample::Failure;
use libc::{MAP_FAILED, MAP_FIXED, MAP_SHARED, O_RDWR, PROT_READ, PROT_WRITE};
use machine::child::{Forked, fork_child};
use machine::mapping::{Mapping, PAGE};
use machine::pin::pin_to;
use machine::tsc;
use seccompiler::sock_filter;
use vm::rules::HOSTS;

use super::guard::{self, confine};
use super::socket::{Message, pair, receive, send};
use crate::functions::CopyFn;

/// Commands to a host.
pub(super) mod command {
    /// Map the descriptor at `offset` for `length`; `value` is a set of [`WRITABLE`] and [`KEEP`].
    pub(crate) const MAP: u64 = 1;
    /// Load the word at `offset`.
    pub(crate) const LOAD: u64 = 2;
    /// Store `value` at `offset`.
    pub(crate) const STORE: u64 = 3;
    /// Copy `length` bytes to `offset` for `value` ticks; answers with the time of a copy.
    pub(crate) const COPY: u64 = 4;
    /// Make the page at `offset` writable by mprotect.
    pub(crate) const PROTECT: u64 = 5;
    /// Map the kept descriptor again, writable, and store there.
    pub(crate) const REMAP: u64 = 6;
    /// Open the kept descriptor again, writable, through /proc.
    pub(crate) const REOPEN: u64 = 7;
    /// Exit.
    pub(crate) const END: u64 = 8;

    /// Flag of [`MAP`]: map writable.
    pub(crate) const WRITABLE: u64 = 1;
    /// Flag of [`MAP`]: keep the descriptor, as a host that intends to misuse it would.
    pub(crate) const KEEP: u64 = 2;
}

/// Kind of an answer: the command succeeded.
pub(super) const DONE: u64 = 1;
/// Kind of an answer: the access was stopped.
pub(super) const STOPPED: u64 = 0;

/// Maximum batches of copies; the result is their median.
const BATCHES: usize = 512;
/// Minimum bytes of a batch.
const BATCH: usize = 64 << 10;

/// Initial state of a host.
#[derive(Debug, Clone, Copy)]
struct Host<'a> {
    socket: RawFd,
    cpu: usize,
    /// The address window of the pool; unmapped at first.
    window: *mut u8,
    /// Source of its copies.
    source: *const u8,
    copy: CopyFn,
    filter: Option<&'a [sock_filter]>,
}

/// Exit status of a host that cannot start.
const START_FAILED: i32 = 7;

impl Host<'_> {
    /// Executes commands until told to end. Returns the exit status.
    fn run(self) -> i32 {
        if pin_to(self.cpu).is_err() || self.close_all_but_socket().is_none() {
            return START_FAILED;
        }
        if guard::guard().is_err() || self.filter.is_some_and(|filter| confine(filter).is_err()) {
            return START_FAILED;
        }
        let mut kept = -1;
        while let Ok((command, descriptor)) = receive(SOCKET) {
            if command.kind == command::END {
                return 0;
            }
            let answer = self.execute(&command, descriptor, &mut kept);
            if send(SOCKET, &answer, None).is_err() {
                break;
            }
        }
        1
    }

    /// Keeps the socket as descriptor 0 and closes all others, such as other hosts' sockets.
    fn close_all_but_socket(&self) -> Option<()> {
        // SAFETY: the calls take integers only; every descriptor of this process is a copy.
        let closed = unsafe {
            libc::dup2(self.socket, SOCKET) == SOCKET
                && libc::syscall(libc::SYS_close_range, SOCKET + 1, u32::MAX, 0) == 0
        };
        closed.then_some(())
    }

    fn execute(&self, command: &Message, descriptor: Option<RawFd>, kept: &mut RawFd) -> Message {
        let at = self.window.wrapping_add(command.offset as usize);
        let done = match command.kind {
            command::MAP => self.map(at, command, descriptor, kept),
            command::LOAD => match guard::load(at.cast()) {
                Some(value) => return Message { kind: DONE, value, ..*command },
                None => false,
            },
            // SAFETY: the address is in the window, which is meant for this.
            command::STORE => unsafe { guard::store(at.cast(), command.value) },
            command::COPY => {
                return Message { kind: DONE, value: self.copies(at, command), ..*command };
            }
            command::PROTECT => protect(at),
            command::REMAP => remap(*kept, command.value),
            command::REOPEN => reopen(*kept),
            _ => false,
        };
        Message { kind: if done { DONE } else { STOPPED }, ..*command }
    }

    fn map(
        &self,
        at: *mut u8,
        command: &Message,
        descriptor: Option<RawFd>,
        kept: &mut RawFd,
    ) -> bool {
        let Some(descriptor) = descriptor else { return false };
        let permissions =
            if command.value & command::WRITABLE != 0 { PROT_READ | PROT_WRITE } else { PROT_READ };
        let flags = MAP_SHARED | MAP_FIXED;
        // SAFETY: the span is in the window, where only the pool is mapped.
        let mapped = unsafe {
            libc::mmap(at.cast(), command.length as usize, permissions, flags, descriptor, 0)
        };
        let unwanted = if command.value & command::KEEP != 0 {
            std::mem::replace(kept, descriptor)
        } else {
            descriptor
        };
        // SAFETY: this process owns the descriptor and no longer uses it; -1 is refused without effect.
        unsafe { libc::close(unwanted) };
        mapped != MAP_FAILED
    }

    /// Returns the median time of a copy in 1/1024 ticks, because short copies take few ticks.
    fn copies(&self, at: *mut u8, command: &Message) -> u64 {
        let length = command.length as usize;
        let copies = (BATCH / length).max(1);
        let mut times = [0u64; BATCHES];
        let mut batches = 0;
        // The first batch makes the pages present.
        self.batch(at, length, copies);
        let end = tsc::start().saturating_add(command.value);
        while batches < BATCHES && (batches < 5 || tsc::start() < end) {
            let start = tsc::start();
            self.batch(at, length, copies);
            times[batches] = tsc::stop() - start;
            batches += 1;
        }
        let times = &mut times[..batches];
        times.sort_unstable();
        times[batches / 2] * 1024 / copies as u64
    }

    fn batch(&self, at: *mut u8, length: usize, copies: usize) {
        for _ in 0..copies {
            // SAFETY: the mediator sends this command only if the host may write `length` bytes, and the
            // source has as many.
            unsafe { (self.copy)(at, self.source, length) };
        }
    }
}

/// Descriptor of the socket in every host.
const SOCKET: RawFd = 0;

/// Tries to make a page writable.
fn protect(at: *mut u8) -> bool {
    // SAFETY: the page is in the window, where only the pool is mapped.
    unsafe { libc::mprotect(at.cast(), PAGE, PROT_READ | PROT_WRITE) == 0 }
}

/// Tries to write through a kept descriptor.
fn remap(kept: RawFd, value: u64) -> bool {
    // SAFETY: the kernel chooses an unused span; the store goes there or is stopped.
    unsafe {
        let page = libc::mmap(ptr::null_mut(), PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, kept, 0);
        if page == MAP_FAILED {
            return false;
        }
        let stored = guard::store(page.cast(), value);
        libc::munmap(page, PAGE);
        stored
    }
}

/// Tries to open a kept descriptor with more permissions than it was passed with.
fn reopen(kept: RawFd) -> bool {
    let Some(digit) = u8::try_from(kept).ok().filter(|number| *number < 10) else { return false };
    let mut path = *b"/proc/self/fd/0\0";
    path[path.len() - 2] += digit;
    // SAFETY: the path is null-terminated and outlives the call.
    let opened = unsafe { libc::openat(libc::AT_FDCWD, path.as_ptr().cast(), O_RDWR) };
    if opened >= 0 {
        // SAFETY: the descriptor was just opened and is not used again.
        unsafe { libc::close(opened) };
    }
    opened >= 0
}

/// Time limit of a host's answer, including a copy.
const TIME_LIMIT: Duration = Duration::from_secs(10);

/// Resources of the hosts, and whether they are confined.
#[derive(Debug, Clone, Copy)]
pub struct HostConfig<'a> {
    /// CPU of each host.
    pub cpus: [usize; HOSTS],
    /// Copy function.
    pub copy: CopyFn,
    /// Source of their copies.
    pub source: &'a Mapping,
    /// Restrict their system calls, so that they cannot bypass the rules.
    pub confined: bool,
}

/// Handle of a running host.
#[derive(Debug)]
pub(super) struct Peer {
    socket: OwnedFd,
    process: Forked,
}

impl Peer {
    /// Forks a host that maps the pool at `window`, restricted to a filter of its system calls.
    ///
    /// # Errors
    /// Returns an error if a process or a socket cannot be created.
    pub(super) fn start(
        cpu: usize,
        window: *mut u8,
        config: &HostConfig,
        filter: Option<&[sock_filter]>,
    ) -> Result<Self, Failure> {
        let (socket, theirs) = pair(TIME_LIMIT)?;
        let host = Host {
            socket: theirs.as_raw_fd(),
            cpu,
            window,
            source: config.source.as_ptr(),
            copy: config.copy,
            filter,
        };
        // SAFETY: a host allocates no memory and makes system calls only.
        let process = unsafe { fork_child(move || host.run()) }?;
        Ok(Self { socket, process })
    }

    /// Sends a command to the host and waits for the answer.
    ///
    /// # Errors
    /// Returns an error if the host has exited or does not answer in time.
    pub(super) fn ask(
        &mut self,
        message: &Message,
        descriptor: Option<RawFd>,
    ) -> Result<Message, Failure> {
        let socket = self.socket.as_raw_fd();
        let answer = send(socket, message, descriptor).and_then(|()| receive(socket));
        answer.map(|(answer, _)| answer).map_err(|why| self.no_answer(&why))
    }

    fn no_answer(&mut self, why: &io::Error) -> Failure {
        let status = self.process.wait(Duration::from_millis(100)).ok().flatten();
        match status.and_then(|status| status.code()) {
            Some(START_FAILED) => Failure::unavailable(
                "cannot confine a host to its CPU and its system calls",
                "use Linux 5.9 or later with CONFIG_SECCOMP_FILTER, and CPUs that are allowed",
            ),
            _ => Failure::failed(format!("a host does not answer: {why}, {status:?}")),
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // A host that does not receive this is killed when its process is dropped.
        let end = Message { kind: command::END, ..Message::default() };
        let _ = send(self.socket.as_raw_fd(), &end, None);
        let _ = self.process.wait(Duration::from_millis(100));
    }
}
