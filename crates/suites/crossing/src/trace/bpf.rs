//! Backend with a BPF program of some twenty instructions, loaded with bpf(2).
//!
//! The program reads the clock first, whereas tracefs reserves a record before its timestamp, so BPF gives a tighter
//! bound, even with the error of the clock conversion: see docs/crossing.md. The program, its map and its link are
//! descriptors of this process, so the kernel removes them when it ends.

mod call;
mod instructions;

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use lab::sample::Failure;
use machine::mapping::{Mapping, Sharing};
use rustix::thread::CapabilitySet;

use super::clocks::{self, Conversion, Pairing};
use super::events::TraceEvent;
use super::{BATCH, Event, Tracer, tracefs};

/// Capacity of the map, events: twice a batch, to allow for unrelated events.
const CAPACITY: usize = 2 * BATCH;

/// Value of the map: number of events, then time (ns) and mark of each.
#[repr(C)]
struct EventBuffer {
    count: AtomicU64,
    _padding: u64,
    events: [[AtomicU64; 2]; CAPACITY],
}

/// A program attached to one event of one thread, detached when dropped.
#[derive(Debug)]
pub struct Program {
    /// The value of the map, an [`EventBuffer`].
    buffer: Mapping,
    rate: f64,
    start: Option<Pairing>,
    _link: OwnedFd,
    _program: OwnedFd,
    _map: OwnedFd,
}

impl Program {
    /// Attaches a program to this thread's events.
    ///
    /// # Errors
    /// Returns `unavailable` if the kernel does not permit it.
    pub fn attach(event: Event) -> Result<Self, Failure> {
        let map = call::create_map(size_of::<EventBuffer>())?;
        let instructions = instructions::program(event, pid_tgid(), map.as_raw_fd(), CAPACITY);
        let program = call::load(&instructions)?;
        let tracepoint = match event {
            Event::PageFault => c"page_fault_user",
            Event::Syscall => c"sys_enter",
        };
        let link = call::attach(tracepoint, &program)?;
        let buffer = Mapping::open_file(&map, size_of::<EventBuffer>(), Sharing::SharedWritable)?;
        let rate = clocks::rate()?;
        Ok(Self { buffer, rate, start: None, _link: link, _program: program, _map: map })
    }

    fn buffer(&self) -> &EventBuffer {
        // SAFETY: the buffer is mapped while self exists, page-aligned and as large as EventBuffer; all that the
        // kernel may write at any time are atomics.
        unsafe { &*self.buffer.as_ptr().cast() }
    }
}

impl Tracer for Program {
    fn start(&mut self) -> Result<(), Failure> {
        self.start = Some(Pairing::now(self.rate)?);
        self.buffer().count.store(0, Ordering::Release);
        Ok(())
    }

    fn stop(&mut self, events: &mut Vec<TraceEvent>) -> Result<f64, Failure> {
        let count = self.buffer().count.load(Ordering::Acquire) as usize;
        let start = self.start.take();
        let start = start.ok_or_else(|| Failure::failed("BPF: stopped before it was started"))?;
        let conversion = Conversion::between(start, Pairing::now(self.rate)?)?;
        let recorded = self.buffer().events.iter().take(count);
        events.extend(recorded.map(|[time, mark]| TraceEvent {
            ticks: conversion.ticks(time.load(Ordering::Acquire)),
            mark: mark.load(Ordering::Acquire),
        }));
        Ok(conversion.uncertainty)
    }
}

/// Checks, without loading a program, that BPF programs may be loaded.
///
/// # Errors
/// Returns `unavailable` with the cause and the fix.
pub fn available() -> Result<(), Failure> {
    call::check_exists()?;
    tracefs::check_capabilities(
        &[CapabilitySet::SYS_ADMIN, CapabilitySet::BPF | CapabilitySet::PERFMON],
        "BPF programs on tracepoints need CAP_BPF and CAP_PERFMON",
    )
}

/// Returns process and thread ID as bpf_get_current_pid_tgid does: process in the upper half.
fn pid_tgid() -> u64 {
    u64::from(std::process::id()) << 32 | u64::from(super::thread_id())
}
