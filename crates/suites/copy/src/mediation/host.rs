//! A host: a process that has of the pool only what it was passed, and does what it is told with it,
//! forbidden things too.
//!
//! It is forked before the pool is made, so that it inherits nothing of it; it may not allocate.

use std::os::fd::RawFd;
use std::ptr;

use libc::{MAP_FAILED, MAP_FIXED, MAP_SHARED, O_RDWR, PROT_READ, PROT_WRITE};
use machine::mapping::PAGE;
use machine::pin::pin_to;
use machine::tsc;

use super::access;
use super::confine::confine;
use super::socket::{Message, receive, send};
use crate::functions::CopyFn;

/// What a host is told to do.
pub(super) mod order {
    /// Map the descriptor at `offset` for `length`; `value`: see [`WRITABLE`] and [`KEEP`].
    pub(crate) const MAP: u64 = 1;
    /// Load the word at `offset`.
    pub(crate) const LOAD: u64 = 2;
    /// Store `value` at `offset`.
    pub(crate) const STORE: u64 = 3;
    /// Copy `length` bytes to `offset` for `value` ticks; answers with the ticks a copy.
    pub(crate) const COPY: u64 = 4;
    /// Make the page at `offset` writable by mprotect.
    pub(crate) const PROTECT: u64 = 5;
    /// Map the kept descriptor anew, writable, and store there.
    pub(crate) const REMAP: u64 = 6;
    /// Open the kept descriptor anew, writable, through /proc.
    pub(crate) const REOPEN: u64 = 7;
    /// End.
    pub(crate) const END: u64 = 8;

    /// Of [`MAP`]: map it writable.
    pub(crate) const WRITABLE: u64 = 1;
    /// Of [`MAP`]: keep the descriptor, as a host that means to misuse it would.
    pub(crate) const KEEP: u64 = 2;
}

/// The answer's `kind` where what was told came through, or did not.
pub(super) const DONE: u64 = 1;
/// See [`DONE`].
pub(super) const STOPPED: u64 = 0;

/// Batches of copies whose median is taken.
const BATCHES: usize = 512;
/// Bytes of a batch at least.
const BATCH: usize = 64 << 10;

/// What a host is born with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Host {
    pub(super) socket: RawFd,
    pub(super) cpu: usize,
    /// The span of addresses where the pool lies; nothing is mapped there yet.
    pub(super) window: *mut u8,
    /// What it copies from.
    pub(super) source: *const u8,
    pub(super) copy: CopyFn,
    pub(super) confined: bool,
}

/// What a host exits with where it cannot begin.
pub(super) const CANNOT_BEGIN: i32 = 7;

impl Host {
    /// Answers until it is told to end; its exit status.
    pub(super) fn live(self) -> i32 {
        if pin_to(self.cpu).is_err() || self.close_all_but_the_socket().is_none() {
            return CANNOT_BEGIN;
        }
        if access::guard().is_err() || (self.confined && confine().is_err()) {
            return CANNOT_BEGIN;
        }
        let mut kept = -1;
        while let Ok((order, descriptor)) = receive(SOCKET) {
            if order.kind == order::END {
                return 0;
            }
            let answer = self.carry_out(&order, descriptor, &mut kept);
            if send(SOCKET, &answer, None).is_err() {
                break;
            }
        }
        1
    }

    /// Leaves the socket as descriptor 0 and nothing else: no other host's socket, no journal.
    fn close_all_but_the_socket(&self) -> Option<()> {
        // SAFETY: plain descriptor calls in a process whose every descriptor is a copy.
        let closed = unsafe {
            libc::dup2(self.socket, SOCKET) == SOCKET
                && libc::syscall(libc::SYS_close_range, SOCKET + 1, u32::MAX, 0) == 0
        };
        closed.then_some(())
    }

    fn carry_out(&self, order: &Message, descriptor: Option<RawFd>, kept: &mut RawFd) -> Message {
        let at = self.window.wrapping_add(order.offset as usize);
        let done = match order.kind {
            order::MAP => self.map(at, order, descriptor, kept),
            order::LOAD => match access::load(at.cast()) {
                Some(value) => return Message { kind: DONE, value, ..*order },
                None => false,
            },
            // SAFETY: the address lies in the window, which is meant for this.
            order::STORE => unsafe { access::store(at.cast(), order.value) },
            order::COPY => return Message { kind: DONE, value: self.copies(at, order), ..*order },
            order::PROTECT => protect(at),
            order::REMAP => remap(*kept, order.value),
            order::REOPEN => reopen(*kept),
            _ => false,
        };
        Message { kind: if done { DONE } else { STOPPED }, ..*order }
    }

    fn map(
        &self,
        at: *mut u8,
        order: &Message,
        descriptor: Option<RawFd>,
        kept: &mut RawFd,
    ) -> bool {
        let Some(descriptor) = descriptor else { return false };
        let rights =
            if order.value & order::WRITABLE != 0 { PROT_READ | PROT_WRITE } else { PROT_READ };
        let flags = MAP_SHARED | MAP_FIXED;
        // SAFETY: the span lies in the window, where nothing but the pool is mapped.
        let mapped =
            unsafe { libc::mmap(at.cast(), order.length as usize, rights, flags, descriptor, 0) };
        let unwanted = if order.value & order::KEEP != 0 {
            std::mem::replace(kept, descriptor)
        } else {
            descriptor
        };
        // SAFETY: a descriptor of this process that is used no more; -1 is refused without harm.
        unsafe { libc::close(unwanted) };
        mapped != MAP_FAILED
    }

    /// The median time of a copy, in 1/1024 ticks: short copies take few.
    fn copies(&self, at: *mut u8, order: &Message) -> u64 {
        let length = order.length as usize;
        let copies = (BATCH / length).max(1);
        let mut taken = [0u64; BATCHES];
        let mut batches = 0;
        // The first batch brings the pages in.
        self.batch(at, length, copies);
        let end = tsc::start().saturating_add(order.value);
        while batches < BATCHES && (batches < 5 || tsc::start() < end) {
            let begun = tsc::start();
            self.batch(at, length, copies);
            taken[batches] = tsc::stop() - begun;
            batches += 1;
        }
        let taken = &mut taken[..batches];
        taken.sort_unstable();
        taken[batches / 2] * 1024 / copies as u64
    }

    fn batch(&self, at: *mut u8, length: usize, copies: usize) {
        for _ in 0..copies {
            // SAFETY: the mediator asks for this only where the host may write `length` bytes, and
            // the source has as many.
            unsafe { (self.copy)(at, self.source, length) };
        }
    }
}

/// The socket's number in every host.
const SOCKET: RawFd = 0;

/// Tries to make a page writable.
fn protect(at: *mut u8) -> bool {
    // SAFETY: a page of the window, where only the pool is mapped.
    unsafe { libc::mprotect(at.cast(), PAGE, PROT_READ | PROT_WRITE) == 0 }
}

/// Tries to write through a descriptor that was kept.
fn remap(kept: RawFd, value: u64) -> bool {
    // SAFETY: the kernel chooses a new span; the store goes there or is stopped.
    unsafe {
        let page = libc::mmap(ptr::null_mut(), PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, kept, 0);
        if page == MAP_FAILED {
            return false;
        }
        let stored = access::store(page.cast(), value);
        libc::munmap(page, PAGE);
        stored
    }
}

/// Tries to open a descriptor that was kept for more than it was passed for.
fn reopen(kept: RawFd) -> bool {
    let Some(digit) = u8::try_from(kept).ok().filter(|number| *number < 10) else { return false };
    let mut path = *b"/proc/self/fd/0\0";
    path[path.len() - 2] += digit;
    // SAFETY: the path ends with a zero and lives through the call.
    let opened = unsafe { libc::openat(libc::AT_FDCWD, path.as_ptr().cast(), O_RDWR) };
    if opened >= 0 {
        // SAFETY: it has just been opened, and is used no more.
        unsafe { libc::close(opened) };
    }
    opened >= 0
}
