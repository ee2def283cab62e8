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
mod params;
mod placed;
mod queue;
mod regions;
mod runner;
mod summary;
mod timed;
mod timing;
mod verify;

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use lab::measure::{Context, Measurement};
use lab::method::{Method, Probe};
use lab::metric::Metric;
use lab::sample::Failure;
use machine::cache::Caches;
use machine::tsc::Tsc;

use crate::factors::Direction;
use crate::functions::{self, CopyFn};
use crate::limit::mbw;
use crate::memory::Kind;
use crate::metrics;
use crate::pattern::Pattern;
use crate::pool::Pool;
use compiled::NaiveCompiled;
use layout::Layout;
use params::{Choices, Touch};
use placed::{NOTHING, Places};
use regions::{Pair, Regions};
use runner::{Runner, Spans};
use timed::{FileCalls, Slowly};
use timing::Timing;

pub(crate) use compiled::NAIVE_COMPILED;
pub use params::{KEEP_MEMORY, MOST_PAUSE, MOST_RUNS, PAUSE, RUNS, SOURCE_OFFSET};
pub(crate) use params::{MAX_THREADS, ThroughputParams};
pub use timed::Call;

static LAST_LEVEL: LazyLock<u64> =
    LazyLock::new(|| Caches::detect().last_level().unwrap_or(32 << 20));

/// Copies in batches, by one thread or several.
pub(crate) struct Throughput;

impl Method for Throughput {
    type Params = ThroughputParams;

    fn name(&self) -> &'static str {
        "throughput"
    }

    fn metrics(&self) -> &'static [Metric] {
        metrics::METRICS
    }

    fn available(&self, params: &ThroughputParams) -> Result<(), Failure> {
        available(params)
    }

    fn expected(&self, params: &ThroughputParams, budget: Duration) -> Duration {
        expected::expected(params, budget)
    }

    fn code(&self, params: &ThroughputParams) -> Option<String> {
        functions::shared_object(&params.function).map(str::to_owned)
    }

    fn probe(&self) -> Result<Box<dyn Probe<ThroughputParams>>, Failure> {
        Ok(Box::new(Copies::default()))
    }
}

fn available(params: &ThroughputParams) -> Result<(), Failure> {
    params.consistent()?;
    params.memory.available()?;
    if params.mbw().is_some() {
        return mbw::PROGRAM.find().map(drop);
    }
    if params.function == NAIVE_COMPILED {
        return Ok(());
    }
    Ok(functions::check(&params.function)?)
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

impl Probe<ThroughputParams> for Copies {
    fn measure(
        &mut self,
        context: &mut Context,
        params: &ThroughputParams,
    ) -> Result<Measurement, Failure> {
        let conditions = Conditions {
            budget: context.budget,
            seed: context.seed,
            cpus: context.cpus,
            tsc: context.tsc()?,
            options: context.options,
        };
        self.measure_under(&conditions, params)
    }
}

impl Copies {
    fn measure_under(
        &mut self,
        conditions: &Conditions,
        params: &ThroughputParams,
    ) -> Result<Measurement, Failure> {
        available(params)?;
        if let Some(method) = params.mbw() {
            let length = params.length.longest();
            return Ok(summary::of_mbw(&mbw::run(method, length)?, length));
        }
        // The compiled loop is no function to call; what it stands beside is never called.
        let called = if params.function == NAIVE_COMPILED { "naive" } else { &params.function };
        let function = functions::find(called)?;
        self.with_function(conditions, params, function.pointer())
    }

    fn with_function(
        &mut self,
        conditions: &Conditions,
        params: &ThroughputParams,
        copy: CopyFn,
    ) -> Result<Measurement, Failure> {
        let choices = Choices::of(conditions.options)?;
        let layout = Layout::of(params, *LAST_LEVEL, params.memory == Kind::HeapHuge);
        let bytes = layout.bytes() + params.offset;
        let mut pair = self.regions.take(params, bytes, conditions.options)?;
        let measurement = self.sample(conditions, params, &choices, layout, &mut pair, copy)?;
        self.regions.put(pair);
        Ok(measurement)
    }

    fn sample(
        &mut self,
        conditions: &Conditions,
        params: &ThroughputParams,
        choices: &Choices,
        layout: Layout,
        pair: &mut Pair,
        copy: CopyFn,
    ) -> Result<Measurement, Failure> {
        let pattern = self.prepare(params, choices, layout, pair)?;
        let ring = layout.calls(&params.length, conditions.seed);
        let spans = Spans {
            // The regions hold the layout's bytes and the offset.
            destination: pair.destination.start().wrapping_add(params.offset),
            source: pair.source.start(),
        };
        let pooled = pooled(&mut self.pool, params.threads, conditions.cpus)?;
        let timing = Timing { conditions, params, choices, layout, destination: &pair.destination };
        let file = match params.direction {
            Direction::Write => pair.destination.file().map(|file| (file, params.offset, true)),
            Direction::Read => pair.source.file().map(|file| (file, 0, false)),
        };
        let mut floor = None;
        // SAFETY: both regions are open until this function ends, are different mappings, and hold
        // the layout's bytes; the ring is the layout's.
        let batches = unsafe {
            match (file, choices.pause) {
                (Some((file, start, write)), _) => {
                    let mover = FileCalls { file, start, write, short: AtomicBool::new(false) };
                    let mut runner = Runner::new(mover, spans, layout, &ring, params, pooled);
                    let batches = timing.measure(&mut runner)?;
                    runner.mover().whole()?;
                    batches
                }
                (None, Some(pause)) => timing.once(&mut Runner::new(
                    Slowly(pause),
                    spans,
                    layout,
                    &ring,
                    params,
                    pooled,
                ))?,
                (None, None) if params.function == NAIVE_COMPILED => {
                    let mover = NaiveCompiled;
                    timing.measure(&mut Runner::new(mover, spans, layout, &ring, params, pooled))?
                }
                (None, None) => {
                    let seed = conditions.seed;
                    let mover = self.places.function(&params.function, copy, seed)?;
                    let batches = timing
                        .measure(&mut Runner::new(mover, spans, layout, &ring, params, pooled))?;
                    let nothing = self.places.function("", NOTHING, seed)?;
                    let mut runner = Runner::new(nothing, spans, layout, &ring, params, None);
                    floor = Some(timing.loop_floor(&mut runner)?);
                    batches
                }
            }
        };
        let made = batches.made(ring.len(), params.touch == Touch::Cold);
        let checked = verify::delivery(params, layout, pair, pattern, &ring, made)?;
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
        params: &ThroughputParams,
        choices: &Choices,
        layout: Layout,
        pair: &mut Pair,
    ) -> Result<Option<Pattern>, Failure> {
        let measured = params.direction == Direction::Read;
        let keep = measured && (choices.keep_memory || !pair.source.is_writable());
        self.data = self.data.wrapping_add(1);
        let pattern = Pattern { offset: choices.source_offset.unwrap_or(self.data) };
        if !keep {
            pair.source.fill(pattern, 0, layout.bytes())?;
        }
        // Where the source may hold what it held before, the destination must not.
        if (keep || choices.source_offset.is_some()) && params.touch == Touch::Warm {
            let other = Pattern { offset: pattern.offset.wrapping_add(1) };
            pair.destination.fill(other, params.offset, layout.bytes())?;
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
