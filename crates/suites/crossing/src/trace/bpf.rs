//! A BPF program of some twenty instructions on the same tracepoints, by bpf(2) alone.
//!
//! Program, map and link are descriptors of this process: they go with it, however it ends.

mod call;
mod instructions;

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use lab::sample::Failure;
use rustix::thread::CapabilitySet;

use super::clocks::{self, Conversion, Pairing};
use super::events::Traced;
use super::{BATCH, Event, Tracer, tracefs};

/// Events that the map holds; twice a batch, for events of other causes.
const ROOM: usize = 2 * BATCH;

/// What the map holds: how many events, then of each the time in ns and the mark.
#[repr(C)]
struct Seen {
    count: AtomicU64,
    _aligned: u64,
    events: [[AtomicU64; 2]; ROOM],
}

/// A program attached to one event of one thread; detached when dropped.
#[derive(Debug)]
pub struct Program {
    seen: NonNull<Seen>,
    rate: f64,
    begin: Option<Pairing>,
    _link: OwnedFd,
    _program: OwnedFd,
    _map: OwnedFd,
}

impl Program {
    /// Attaches it to this thread's events.
    ///
    /// # Errors
    /// Unavailable where the kernel does not let us.
    pub fn attach(event: Event) -> Result<Self, Failure> {
        let map = call::create_map(size_of::<Seen>())?;
        let instructions = instructions::program(event, thread(), map.as_raw_fd(), ROOM);
        let program = call::load(&instructions)?;
        let tracepoint = match event {
            Event::PageFault => c"page_fault_user",
            Event::Syscall => c"sys_enter",
        };
        let link = call::attach(tracepoint, &program)?;
        let seen = share(&map).map_err(|why| call::refused("map a BPF map", &why))?;
        let rate = clocks::rate()?;
        Ok(Self { seen, rate, begin: None, _link: link, _program: program, _map: map })
    }

    fn seen(&self) -> &Seen {
        // SAFETY: mapped as long as self lives, page-aligned and as large as Seen; what the kernel's side
        // may write at any time is atomics.
        unsafe { self.seen.as_ref() }
    }
}

impl Tracer for Program {
    fn begin(&mut self) -> Result<(), Failure> {
        self.begin = Some(Pairing::now(self.rate)?);
        self.seen().count.store(0, Ordering::Release);
        Ok(())
    }

    fn end(&mut self, traced: &mut Vec<Traced>) -> Result<f64, Failure> {
        let count = self.seen().count.load(Ordering::Acquire) as usize;
        let begin = self.begin.take();
        let begin = begin.ok_or_else(|| Failure::failed("the clocks were not paired before"))?;
        let conversion = Conversion::between(begin, Pairing::now(self.rate)?)?;
        let events = self.seen().events.iter().take(count);
        traced.extend(events.map(|[time, mark]| Traced {
            ticks: conversion.ticks(time.load(Ordering::Acquire)),
            mark: mark.load(Ordering::Acquire),
        }));
        Ok(conversion.uncertainty)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: mapped by `share` with this length, and nothing refers to it any more.
        unsafe { libc::munmap(self.seen.as_ptr().cast(), size_of::<Seen>()) };
    }
}

/// Whether BPF programs may be loaded; loads none.
///
/// # Errors
/// Unavailable, with the reason.
pub fn available() -> Result<(), Failure> {
    call::known()?;
    tracefs::capable(
        &[CapabilitySet::SYS_ADMIN, CapabilitySet::BPF | CapabilitySet::PERFMON],
        "BPF programs on tracepoints take CAP_BPF and CAP_PERFMON",
    )
}

/// Maps the map's value into this process.
fn share(map: &OwnedFd) -> io::Result<NonNull<Seen>> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new range of the kernel's choice.
    let address = unsafe {
        let length = size_of::<Seen>();
        libc::mmap(std::ptr::null_mut(), length, access, libc::MAP_SHARED, map.as_raw_fd(), 0)
    };
    match NonNull::new(address.cast()) {
        Some(seen) if address != libc::MAP_FAILED => Ok(seen),
        _ => Err(io::Error::last_os_error()),
    }
}

/// What the kernel's helper tells of this thread: its process in the upper half, itself in the lower.
fn thread() -> u64 {
    u64::from(std::process::id()) << 32 | u64::from(super::thread_id())
}
