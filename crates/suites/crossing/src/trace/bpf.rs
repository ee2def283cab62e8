//! Backend with a BPF program of some twenty instructions, loaded with bpf(2).
//!
//! The program reads the clock first, whereas tracefs reserves a record before its timestamp, so BPF gives a tighter
//! bound, even with the error of the clock conversion: see docs/crossing.md. The program, its map and its link are
//! descriptors of this process, so the kernel removes them when it ends.

mod instructions;

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use lab::sample::Failure;
use machine::bpf::{self, MMAPABLE, MapType, ProgramType};
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
        let map = bpf::create_map(MapType::Array, size_of::<EventBuffer>() as u32, 1, MMAPABLE);
        let map = map.map_err(|why| to_failure("create a BPF map", &why))?;
        let instructions = instructions::program(event, pid_tgid(), map.as_raw_fd(), CAPACITY);
        let program = bpf::load(ProgramType::RawTracepoint, &instructions)
            .map_err(|why| to_failure(&format!("load a BPF program ({})", why.log), &why.source))?;
        let tracepoint = match event {
            Event::PageFault => c"page_fault_user",
            Event::Syscall => c"sys_enter",
        };
        let link = bpf::attach_to_tracepoint(tracepoint, &program).map_err(|why| {
            to_failure(&format!("attach BPF to {}", tracepoint.to_string_lossy()), &why)
        })?;
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
    bpf::check_exists().map_err(|why| to_failure("bpf(2)", &why))?;
    tracefs::check_capabilities(
        &[CapabilitySet::SYS_ADMIN, CapabilitySet::BPF | CapabilitySet::PERFMON],
        "BPF programs on tracepoints need CAP_BPF and CAP_PERFMON",
    )
}

/// Converts an error of the kernel to a failure.
fn to_failure(what: &str, why: &io::Error) -> Failure {
    let text = format!("{what}: {why}");
    match why.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => Failure::unavailable(
            text,
            "run as root, without kernel lockdown; before kernel 5.11 also run 'ulimit -l unlimited'",
        ),
        Some(libc::ENOSYS | libc::ENOENT | libc::EINVAL | libc::EOPNOTSUPP) => {
            Failure::unavailable(
                text,
                "use a kernel from 5.8 with CONFIG_BPF_SYSCALL and CONFIG_BPF_EVENTS",
            )
        }
        _ => Failure::failed(text),
    }
}

/// Returns process and thread ID as bpf_get_current_pid_tgid does: process in the upper half.
fn pid_tgid() -> u64 {
    u64::from(std::process::id()) << 32 | u64::from(super::thread_id())
}
