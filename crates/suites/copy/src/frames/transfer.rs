//! One transfer of frames through the ring, from one process to the other.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use lab::sample::Failure;
use machine::tsc::{self, Tsc};

use super::Setup;
use super::frame::Source;
use super::pair::Pair;
use super::pool::Pool;
use super::reader::Reader;
use super::writer::{Line, Writer};
use crate::functions::CopyFn;

/// Beyond ten times what it should take, a transfer is given up after this.
const PATIENCE: Duration = Duration::from_secs(20);

/// What came of a transfer.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Frames sent.
    pub sent: u64,
    /// Frames that came.
    pub received: u64,
    /// Frames that never came.
    pub lost: u64,
    /// Frames that were not whole.
    pub torn: u64,
    /// Frames that came again, or late.
    pub repeated: u64,
    /// The time-stamp counters of the two CPUs differ, so that latencies mean nothing.
    pub backwards: bool,
    /// Ticks: of each chunk of frames (throughput), or from sending to checked of each (latency).
    pub ticks: Vec<u64>,
    /// Ticks from sending each frame to sending the next, where one is in flight.
    pub trips: Vec<u64>,
}

impl Outcome {
    pub(super) fn of(pool: &Pool, sent: u64) -> Self {
        let found = &pool.control().found;
        let records = (found.records.load(Relaxed) as usize).min(pool.records().len());
        Self {
            sent,
            received: found.received.load(Relaxed),
            lost: found.lost.load(Relaxed),
            torn: found.torn.load(Relaxed),
            repeated: found.repeated.load(Relaxed),
            backwards: found.backwards.load(Relaxed) != 0,
            ticks: pool.records()[..records].iter().map(|ticks| ticks.load(Relaxed)).collect(),
            trips: Vec::new(),
        }
    }

    /// Nothing was lost, torn or repeated.
    ///
    /// # Errors
    /// Says how many were.
    pub fn faultless(&self) -> Result<(), Failure> {
        let Self { sent, received, lost, torn, repeated, .. } = self;
        if [lost, torn, repeated] == [&0; 3] && received == sent {
            return Ok(());
        }
        Err(Failure::check(format!(
            "of {sent} frames {received} came, {lost} were lost, {torn} torn, {repeated} repeated"
        )))
    }
}

/// The moment after which a transfer is given up, as a time stamp.
///
/// # Errors
/// Where the counter gives no time.
pub(super) fn deadline(budget: Duration) -> Result<u64, Failure> {
    let tsc = Tsc::get().map_err(|why| Failure::failed(why.to_string()))?;
    let patience = budget.saturating_mul(10).saturating_add(PATIENCE);
    Ok(tsc::start().saturating_add(tsc.ticks(patience)))
}

/// Passes frames for as long as the budget says, writer here and reader in a child.
///
/// # Errors
/// Where either side could not start or end. Faulty frames are no error here: see [`Outcome`].
pub fn transfer(
    pool: &mut Pool,
    setup: &Setup,
    copy: CopyFn,
    pair: Pair,
    budget: Duration,
    line: &mut impl Line,
) -> Result<Outcome, Failure> {
    let tsc = Tsc::get().map_err(|why| Failure::failed(why.to_string()))?;
    let source = Source::new(setup.length).map_err(|why| Failure::failed(why.to_string()))?;
    let expected = source.expected();
    let deadline = deadline(budget)?;
    pool.clear();
    let pool: &Pool = pool;
    let reader = Reader { pool, setup, expected, deadline };
    let mut writer = Writer { pool, setup, source: &source, copy, line, deadline };
    let mut trips = Vec::new();
    // SAFETY: the reader only touches memory made before.
    let sent = unsafe {
        pair.run(pool, setup.bytes(), || reader.run(), || writer.run(tsc.ticks(budget), &mut trips))
    }?;
    Ok(Outcome { trips, ..Outcome::of(pool, sent) })
}
