//! `copy/throughput`, `copy/functions`, `copy/limit`: how fast bytes pass into and out of memory.
//!
//! A sample copies in batches until its time is spent. Before, the source is filled with bytes that
//! no earlier sample left behind; after, every byte that should have arrived is verified. In memory
//! that is shared with another process, that process fills and verifies.
//!
//! Threads: in mode `jobs` each job is a whole copy, as in the seed, but jobs are handed out by one
//! atomic counter, several at a time where they are short, instead of a locked queue that is polled;
//! and each thread copies within a lane of its own while 256 MiB have room for it, where the seed's
//! threads all copy the same bytes to the same place. In mode `split` all threads copy a slice each of
//! one copy and meet before the next.

mod compiled;
mod expected;
mod layout;
mod placed;
mod queue;
mod regions;
mod runner;
mod settings;
mod summary;
mod timed;
mod timing;
mod verify;

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use lab::measure::{Context, Measurement};
use lab::method::Probe;
use lab::point::Point;
use lab::sample::Failure;
use machine::cache::Caches;
use machine::tsc::Tsc;

use crate::functions::{self, CopyFn};
use crate::limit::mbw;
use crate::memory::Kind;
use crate::metrics;
use crate::pattern::Pattern;
use crate::pool::Pool;
use compiled::NaiveCompiled;
use layout::Layout;
use placed::{NOTHING, Places};
use regions::{Pair, Regions};
use runner::{Runner, Spans};
use settings::{Choices, Direction, Settings, Touch};
use timed::{FileCalls, Slowly};
use timing::Timing;

pub(crate) use compiled::NAIVE_COMPILED;
pub use expected::expected;
pub use settings::{KEEP_MEMORY, MOST_PAUSE, MOST_RUNS, PAUSE, RUNS, SOURCE_OFFSET};
pub use timed::Call;

static LAST_LEVEL: LazyLock<u64> =
    LazyLock::new(|| Caches::detect().last_level().unwrap_or(32 << 20));

/// Whether a point can be measured here.
///
/// # Errors
/// The reason why not, and the remedy.
pub fn available(point: &Point) -> Result<(), Failure> {
    let settings = Settings::of(point)?;
    settings.consistent()?;
    settings.memory.available()?;
    if settings.mbw().is_some() {
        return mbw::PROGRAM.find().map(drop);
    }
    if settings.function == NAIVE_COMPILED {
        return Ok(());
    }
    Ok(functions::check(&settings.function)?)
}

/// What measures the points of one order.
pub fn probe() -> Box<dyn Probe> {
    Box::new(Copies::default())
}

#[derive(Default)]
struct Copies {
    regions: Regions,
    places: Places,
    pool: Option<Pool>,
    /// What the last sample added to each byte of its source.
    data: u8,
}

/// Under which conditions a sample is taken: what the lab says, without its means of speech.
struct Conditions<'a> {
    budget: Duration,
    seed: u64,
    cpus: &'a [usize],
    tsc: &'static Tsc,
    options: &'a BTreeMap<String, String>,
}

impl Probe for Copies {
    fn measure(&mut self, context: &mut Context, point: &Point) -> Result<Measurement, Failure> {
        let conditions = Conditions {
            budget: context.budget,
            seed: context.seed,
            cpus: context.cpus,
            tsc: context.tsc()?,
            options: context.options,
        };
        self.measure_under(&conditions, point)
    }
}

impl Copies {
    fn measure_under(
        &mut self,
        conditions: &Conditions,
        point: &Point,
    ) -> Result<Measurement, Failure> {
        available(point)?;
        let settings = Settings::of(point)?;
        if let Some(method) = settings.mbw() {
            let length = settings.lengths.longest();
            return Ok(summary::of_mbw(&mbw::run(method, length)?, length));
        }
        // The compiled loop is no function to call; what it stands beside is never called.
        let called = if settings.function == NAIVE_COMPILED { "naive" } else { &settings.function };
        let function = functions::find(called)?;
        self.with_function(conditions, &settings, function.pointer())
    }

    fn with_function(
        &mut self,
        conditions: &Conditions,
        settings: &Settings,
        copy: CopyFn,
    ) -> Result<Measurement, Failure> {
        let choices = Choices::of(conditions.options)?;
        let layout = Layout::of(settings, *LAST_LEVEL, settings.memory == Kind::HeapHuge);
        let bytes = layout.bytes() + settings.offset;
        let mut pair = self.regions.take(settings, bytes, conditions.options)?;
        let measurement = self.sample(conditions, settings, &choices, layout, &mut pair, copy)?;
        self.regions.put(pair);
        Ok(measurement)
    }

    fn sample(
        &mut self,
        conditions: &Conditions,
        settings: &Settings,
        choices: &Choices,
        layout: Layout,
        pair: &mut Pair,
        copy: CopyFn,
    ) -> Result<Measurement, Failure> {
        let pattern = self.prepare(settings, choices, layout, pair)?;
        let ring = layout.calls(&settings.lengths, conditions.seed);
        let spans = Spans {
            // The regions hold the layout's bytes and the offset.
            destination: pair.destination.start().wrapping_add(settings.offset),
            source: pair.source.start(),
        };
        let pooled = pooled(&mut self.pool, settings.threads, conditions.cpus)?;
        let timing =
            Timing { conditions, settings, choices, layout, destination: &pair.destination };
        let file = match settings.direction {
            Direction::Write => pair.destination.file().map(|file| (file, settings.offset, true)),
            Direction::Read => pair.source.file().map(|file| (file, 0, false)),
        };
        let mut floor = None;
        // SAFETY: both regions are open until this function ends, are different mappings, and hold
        // the layout's bytes; the ring is the layout's.
        let batches = unsafe {
            match (file, choices.pause) {
                (Some((file, start, write)), _) => {
                    let mover = FileCalls { file, start, write, short: AtomicBool::new(false) };
                    let mut runner = Runner::new(mover, spans, layout, &ring, settings, pooled);
                    let batches = timing.measure(&mut runner)?;
                    runner.mover().whole()?;
                    batches
                }
                (None, Some(pause)) => timing.once(&mut Runner::new(
                    Slowly(pause),
                    spans,
                    layout,
                    &ring,
                    settings,
                    pooled,
                ))?,
                (None, None) if settings.function == NAIVE_COMPILED => {
                    let mover = NaiveCompiled;
                    timing
                        .measure(&mut Runner::new(mover, spans, layout, &ring, settings, pooled))?
                }
                (None, None) => {
                    let seed = conditions.seed;
                    let mover = self.places.function(&settings.function, copy, seed)?;
                    let batches = timing
                        .measure(&mut Runner::new(mover, spans, layout, &ring, settings, pooled))?;
                    let nothing = self.places.function("", NOTHING, seed)?;
                    let mut runner = Runner::new(nothing, spans, layout, &ring, settings, None);
                    floor = Some(timing.loop_floor(&mut runner)?);
                    batches
                }
            }
        };
        let made = batches.made(ring.len(), settings.touch == Touch::Cold);
        let checked = verify::delivery(settings, layout, pair, pattern, &ring, made)?;
        let mut measurement = batches.summary(conditions.tsc, &ring, checked);
        if let Some(ticks) = floor {
            measurement = measurement.value(metrics::LOOP_FLOOR, conditions.tsc.nanoseconds(ticks));
        }
        if let Some(pages) = pair.destination.pages().or(pair.source.pages()) {
            measurement = measurement.covariate("pages", pages);
        }
        Ok(measurement)
    }

    /// Fills the source. Gives what it holds, or nothing where it holds what was there.
    fn prepare(
        &mut self,
        settings: &Settings,
        choices: &Choices,
        layout: Layout,
        pair: &mut Pair,
    ) -> Result<Option<Pattern>, Failure> {
        let measured = settings.direction == Direction::Read;
        let keep = measured && (choices.keep_memory || !pair.source.is_writable());
        self.data = self.data.wrapping_add(1);
        let pattern = Pattern { offset: choices.source_offset.unwrap_or(self.data) };
        if !keep {
            pair.source.fill(pattern, 0, layout.bytes())?;
        }
        // Where the source may hold what it held before, the destination must not.
        if (keep || choices.source_offset.is_some()) && settings.touch == Touch::Warm {
            let other = Pattern { offset: pattern.offset.wrapping_add(1) };
            pair.destination.fill(other, settings.offset, layout.bytes())?;
        }
        Ok((!keep).then_some(pattern))
    }
}

/// A pool of `threads` threads; `None` if the caller copies.
fn pooled<'a>(
    kept: &'a mut Option<Pool>,
    threads: usize,
    cpus: &[usize],
) -> Result<Option<&'a mut Pool>, Failure> {
    if threads == 0 {
        return Ok(None);
    }
    if kept.as_ref().is_none_or(|pool| pool.threads() != threads) {
        // The old threads end before new ones take their CPUs.
        *kept = None;
        *kept = Some(Pool::new(threads, cpus)?);
    }
    Ok(kept.as_mut())
}

#[cfg(test)]
mod tests;
