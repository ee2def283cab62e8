//! One thread takes away the right to write pages that others hold in their TLBs.
//!
//! The others read these pages in a steady loop. Each change of protection must reach every CPU that
//! may hold the old one: by an interrupt, or on recent AMD processors outside virtual machines by a
//! broadcast (INVLPGB), which interrupts nobody and so counts no interrupt.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lab::sample::Failure;
use machine::pin::spawn_pinned;
use machine::tsc::{self, Tsc};

use super::backing::Pages;

/// The most changes that are timed.
const CHANGES: usize = 1 << 16;
/// The least.
const LEAST: usize = 16;
/// How long victims may take to start.
const START: Duration = Duration::from_secs(10);

/// What victims do: run alone, run while pages change, end.
const ALONE: u32 = 0;
const DISTURBED: u32 = 1;
const OVER: u32 = 2;

/// What the changes took, and did.
#[derive(Debug, Clone, Default)]
pub struct Shot {
    /// Each change to read-only, ticks.
    pub changes: Vec<u64>,
    /// How long the disturbed time was, ticks.
    pub span: u64,
    /// By victim: loops a tick alone over loops a tick disturbed.
    pub slowdowns: Vec<f64>,
}

#[derive(Debug, Default)]
struct Signals {
    phase: AtomicU32,
    running: AtomicU32,
}

/// Half of the budget the victims run alone, half with the changes. `victims` are the CPUs of the
/// victims; the changes are made on `cpu`.
///
/// # Errors
/// Where a thread cannot be had or protection cannot be changed.
pub fn shootdown(
    pages: &Arc<Pages>,
    cpu: usize,
    victims: &[usize],
    budget: Duration,
) -> Result<Shot, Failure> {
    let tsc = Tsc::get().map_err(|why| Failure::failed(why.to_string()))?;
    let signals = Arc::new(Signals::default());
    // Written before, so that the pages are there and their entries writable.
    pages.touch();
    let mut threads = Vec::new();
    for victim in victims {
        let (pages, signals) = (Arc::clone(pages), Arc::clone(&signals));
        threads.push(spawn_pinned(*victim, move || suffer(&pages, &signals))?);
    }
    let (own, all, count) = (Arc::clone(pages), Arc::clone(&signals), victims.len() as u32);
    let initiator = spawn_pinned(cpu, move || initiate(&own, &all, count, budget / 2, tsc));
    let shot = initiator.map(|thread| thread.join());
    signals.phase.store(OVER, Ordering::Release);
    let slowdowns: Result<Vec<_>, _> = threads.into_iter().map(|thread| thread.join()).collect();
    let early = |_| Failure::failed("a thread ended early");
    let (changes, span) = shot?.map_err(early)??;
    let slowdowns = slowdowns.map_err(early)?.into_iter().flatten().collect();
    Ok(Shot { changes, span, slowdowns })
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
            return Err(Failure::failed("the threads that read did not start; free CPUs"));
        }
        std::thread::yield_now();
    }
    if victims > 0 {
        std::thread::sleep(half);
    }
    let mut changes = Vec::with_capacity(CHANGES);
    signals.phase.store(DISTURBED, Ordering::Release);
    let begun = tsc::start();
    let end = begun + tsc.ticks(half);
    while changes.len() < CHANGES && (changes.len() < LEAST || tsc::start() < end) {
        let before = tsc::start();
        pages.protect(false)?;
        changes.push((tsc::stop() - before).saturating_sub(tsc.overhead));
        pages.protect(true)?;
        // The entries must be writable again, or the next change has nothing to take back.
        pages.touch();
    }
    let span = tsc::stop() - begun;
    signals.phase.store(OVER, Ordering::Release);
    Ok((changes, span))
}

/// Reads the pages until it is over; by how much it was slower disturbed than alone.
fn suffer(pages: &Pages, signals: &Signals) -> Option<f64> {
    signals.running.fetch_add(1, Ordering::AcqRel);
    let alone = loops_a_tick(pages, signals, ALONE);
    let disturbed = loops_a_tick(pages, signals, DISTURBED);
    Some(alone? / disturbed?)
}

fn loops_a_tick(pages: &Pages, signals: &Signals, phase: u32) -> Option<f64> {
    let begun = tsc::start();
    let mut loops = 0u64;
    while signals.phase.load(Ordering::Acquire) == phase {
        pages.read();
        loops += 1;
    }
    let ticks = tsc::stop() - begun;
    (loops > 0).then(|| loops as f64 / ticks as f64)
}
