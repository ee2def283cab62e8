//! One thread revokes write permission from pages that other threads have in their TLBs.
//!
//! The other threads, the victims, read these pages in a steady loop. Each change of protection must
//! reach every CPU that may have the old entry: by an interrupt, or on recent AMD CPUs outside
//! VMs by a broadcast (INVLPGB), which interrupts no CPU and so counts no interrupt.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lab::sample::Failure;
use machine::pin::spawn_pinned;
use machine::tsc::{self, Tsc};

use super::backing::Pages;

/// Maximum timed changes.
const MAX_CHANGES: usize = 1 << 16;
/// Minimum timed changes.
const MIN_CHANGES: usize = 16;
/// Time limit for the victims' start.
const START: Duration = Duration::from_secs(10);

/// Phases of the victims: undisturbed, while pages change, end.
const UNDISTURBED: u32 = 0;
const DISTURBED: u32 = 1;
const END: u32 = 2;

/// Results of a series of protection changes.
#[derive(Debug, Clone, Default)]
pub struct ShootdownTimes {
    /// Duration of each change to read-only, in ticks.
    pub changes: Vec<u64>,
    /// Duration of the disturbed phase, in ticks.
    pub span: u64,
    /// For each victim: its undisturbed rate divided by its disturbed rate.
    pub slowdowns: Vec<f64>,
}

#[derive(Debug, Default)]
struct Signals {
    phase: AtomicU32,
    running: AtomicU32,
}

/// Lets the victims run undisturbed for half of the budget and with changes for the other half.
/// `victims` are their CPUs; the changes are made on `cpu`.
///
/// # Errors
/// Returns an error if a thread cannot be created or protection cannot be changed.
pub fn shootdown(
    pages: &Arc<Pages>,
    cpu: usize,
    victims: &[usize],
    budget: Duration,
) -> Result<ShootdownTimes, Failure> {
    let tsc = Tsc::get()?;
    let signals = Arc::new(Signals::default());
    // The pages must be present and their entries writable.
    pages.touch();
    let mut threads = Vec::new();
    for victim in victims {
        let (pages, signals) = (Arc::clone(pages), Arc::clone(&signals));
        threads.push(spawn_pinned(*victim, move || run_victim(&pages, &signals))?);
    }
    let (shared_pages, shared_signals, count) =
        (Arc::clone(pages), Arc::clone(&signals), victims.len() as u32);
    let initiator =
        spawn_pinned(cpu, move || initiate(&shared_pages, &shared_signals, count, budget / 2, tsc));
    let times = initiator.map(|thread| thread.join());
    signals.phase.store(END, Ordering::Release);
    let slowdowns: Result<Vec<_>, _> = threads.into_iter().map(|thread| thread.join()).collect();
    let early = |_| Failure::failed("a thread exited early");
    let (changes, span) = times?.map_err(early)??;
    let slowdowns = slowdowns.map_err(early)?.into_iter().flatten().collect();
    Ok(ShootdownTimes { changes, span, slowdowns })
}

fn initiate(
    pages: &Pages,
    signals: &Signals,
    victims: u32,
    half: Duration,
    tsc: &Tsc,
) -> Result<(Vec<u64>, u64), Failure> {
    let late = tsc::start() + tsc.ticks(START);
    while signals.running.load(Ordering::Acquire) < victims {
        if tsc::start() > late {
            return Err(Failure::failed("the reading threads did not start; free CPUs"));
        }
        std::thread::yield_now();
    }
    if victims > 0 {
        std::thread::sleep(half);
    }
    let mut changes = Vec::with_capacity(MAX_CHANGES);
    signals.phase.store(DISTURBED, Ordering::Release);
    let start = tsc::start();
    let end = start + tsc.ticks(half);
    while changes.len() < MAX_CHANGES && (changes.len() < MIN_CHANGES || tsc::start() < end) {
        let before = tsc::start();
        pages.protect(false)?;
        changes.push((tsc::stop() - before).saturating_sub(tsc.overhead));
        pages.protect(true)?;
        // The entries must be writable again, or the next change revokes nothing.
        pages.touch();
    }
    let span = tsc::stop() - start;
    signals.phase.store(END, Ordering::Release);
    Ok((changes, span))
}

/// Reads the pages until the end phase. Returns the undisturbed rate divided by the disturbed one.
fn run_victim(pages: &Pages, signals: &Signals) -> Option<f64> {
    signals.running.fetch_add(1, Ordering::AcqRel);
    let undisturbed = loops_per_tick(pages, signals, UNDISTURBED);
    let disturbed = loops_per_tick(pages, signals, DISTURBED);
    Some(undisturbed? / disturbed?)
}

fn loops_per_tick(pages: &Pages, signals: &Signals, phase: u32) -> Option<f64> {
    let start = tsc::start();
    let mut loops = 0u64;
    while signals.phase.load(Ordering::Acquire) == phase {
        pages.read();
        loops += 1;
    }
    let ticks = tsc::stop() - start;
    (loops > 0).then(|| loops as f64 / ticks as f64)
}
