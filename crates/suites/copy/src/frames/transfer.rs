//! One transfer of frames through the ring, and the two CPUs between which they pass.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use lab::sample::Failure;
use machine::child::{Forked, fork_child};
use machine::pin::pin_to;
use machine::tsc::{self, Tsc};

use super::TransferParams;
use super::frame::Source;
use super::reader::Reader;
use super::shared::{SharedFrames, spin};
use super::writer::{FaultInjector, Writer};
use crate::functions::CopyFn;

/// Time limit of a transfer in addition to ten times its budget.
const TIME_LIMIT: Duration = Duration::from_secs(20);

/// Ticks of the time limit on an emulated CPU: minutes at the rates of the emulator's hosts.
const UNTIMED_LIMIT: u64 = 1 << 39;

/// Results of a transfer.
#[derive(Debug, Clone, PartialEq)]
pub struct TransferOutcome {
    /// Frames sent.
    pub sent: u64,
    /// Frames that arrived.
    pub received: u64,
    /// Frames that did not arrive.
    pub lost: u64,
    /// Frames that arrived incomplete.
    pub torn: u64,
    /// Frames that arrived again, or late.
    pub repeated: u64,
    /// Whether the time-stamp counters of the two CPUs differ, so that latencies are meaningless.
    pub backwards: bool,
    /// Ticks per chunk of frames (throughput), or from send to check of each frame (latency).
    pub ticks: Vec<u64>,
    /// Ticks from each frame to the next, with one frame in flight.
    pub trips: Vec<u64>,
}

impl TransferOutcome {
    pub(super) fn of(shared: &SharedFrames, sent: u64) -> Self {
        let found = &shared.control().found;
        let records = (found.records.load(Relaxed) as usize).min(shared.records().len());
        Self {
            sent,
            received: found.received.load(Relaxed),
            lost: found.lost.load(Relaxed),
            torn: found.torn.load(Relaxed),
            repeated: found.repeated.load(Relaxed),
            backwards: found.backwards.load(Relaxed) != 0,
            ticks: shared.records()[..records].iter().map(|ticks| ticks.load(Relaxed)).collect(),
            trips: Vec::new(),
        }
    }

    /// Checks that no frame was lost, torn or repeated.
    ///
    /// # Errors
    /// Returns the counts.
    pub fn check(&self) -> Result<(), Failure> {
        let Self { sent, received, lost, torn, repeated, .. } = self;
        if [lost, torn, repeated] == [&0; 3] && received == sent {
            return Ok(());
        }
        Err(Failure::check(format!(
            "{sent} frames sent: {received} arrived, {lost} lost, {torn} torn, {repeated} repeated"
        )))
    }
}

/// Returns the timestamp after which a transfer is aborted.
///
/// # Errors
/// Returns an error if the counter is unusable.
pub(super) fn deadline(budget: Duration) -> Result<u64, Failure> {
    after(budget.saturating_mul(10).saturating_add(TIME_LIMIT))
}

/// Returns the timestamp after some time. On an emulated CPU, whose counter has no known rate, it limits only how long a side
/// that lost the other one waits.
///
/// # Errors
/// Returns an error if another CPU has no usable counter.
fn after(time: Duration) -> Result<u64, Failure> {
    let ticks = match Tsc::get() {
        Err(_) if machine::cpu::lacks_time() => UNTIMED_LIMIT,
        tsc => tsc?.ticks(time),
    };
    Ok(tsc::start().saturating_add(ticks))
}

/// Passes frames for the budget, at least a fixed number, with the writer here and the reader in a child.
///
/// # Errors
/// Returns an error if either side could not start or end. Faulty frames are not an error here: see
/// [`TransferOutcome`].
pub fn transfer(
    shared: &mut SharedFrames,
    params: &TransferParams,
    copy: CopyFn,
    pair: CpuPair,
    budget: Duration,
    faults: &mut impl FaultInjector,
) -> Result<TransferOutcome, Failure> {
    let ticks = if budget.is_zero() { 0 } else { Tsc::get()?.ticks(budget) };
    let source = Source::new(params.length)?;
    let expected = source.expected();
    let deadline = deadline(budget)?;
    shared.clear();
    let shared: &SharedFrames = shared;
    let reader = Reader { shared, params, expected, deadline };
    let mut writer = Writer { shared, params, source: &source, copy, faults, deadline };
    let mut trips = Vec::new();
    // SAFETY: the reader only accesses existing memory.
    let sent = unsafe {
        pair.run(shared, params.bytes(), || reader.run(), || writer.run(ticks, &mut trips))
    }?;
    Ok(TransferOutcome { trips, ..TransferOutcome::of(shared, sent) })
}

/// Time limit for the reader's start.
const START: Duration = Duration::from_secs(10);
/// Time limit for the reader's exit after its work is done or its deadline has passed.
const END: Duration = Duration::from_secs(10);

/// The CPUs of writer and reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuPair {
    /// CPU of the writer.
    pub writer: usize,
    /// CPU of the reader.
    pub reader: usize,
}

impl CpuPair {
    /// Returns the first CPU and the next one, on another core if possible.
    ///
    /// # Errors
    /// Returns an error if there are fewer than two CPUs.
    pub fn choose(cpus: &[usize]) -> Result<Self, Failure> {
        let (writer, reader) = lab::proximity::pair(cpus)?;
        Ok(Self { writer, reader })
    }

    /// Runs `read` in a process on the reader's CPU, and then `write` here on the writer's CPU. The
    /// first `bytes` bytes of slots are in the reader's page tables before `write` starts.
    ///
    /// # Errors
    /// Returns an error if a CPU is not allowed, or either side does not end in time.
    ///
    /// # Safety
    /// `read` must be async-signal-safe: see [`fork_child`].
    pub(super) unsafe fn run<T>(
        self,
        shared: &SharedFrames,
        bytes: usize,
        read: impl FnOnce() -> bool,
        write: impl FnOnce() -> Option<T>,
    ) -> Result<T, Failure> {
        pin_to(self.writer)?;
        let reader = move || {
            if pin_to(self.reader).is_err() {
                return NOT_PINNED;
            }
            shared.touch(bytes);
            shared.control().ready.set(1);
            if read() { 0 } else { TOO_LATE }
        };
        // SAFETY: pinning and touching are async-signal-safe, and the caller guarantees it for `read`.
        let mut child = unsafe { fork_child(reader) }?;
        let started = spin(after(START)?, || shared.control().ready.get() == 1);
        let written = if started { write() } else { None };
        let code = exit_code(&mut child)?;
        match (code, written) {
            (Some(0), Some(written)) => Ok(written),
            (Some(NOT_PINNED), _) => {
                Err(Failure::failed(format!("the reader cannot run on CPU {}", self.reader)))
            }
            (Some(TOO_LATE) | None, _) | (Some(0), None) => Err(Failure::failed(format!(
                "writer and reader on CPUs {} and {} did not end in time; free these CPUs",
                self.writer, self.reader
            ))),
            (Some(code), _) => Err(Failure::failed(format!("the reader exited with {code}"))),
        }
    }
}

const NOT_PINNED: i32 = 3;
const TOO_LATE: i32 = 4;

fn exit_code(child: &mut Forked) -> Result<Option<i32>, Failure> {
    use std::os::unix::process::ExitStatusExt;
    let Some(status) = child.wait(END)? else {
        return Ok(None);
    };
    Ok(Some(status.code().unwrap_or_else(|| -status.signal().unwrap_or(0))))
}
