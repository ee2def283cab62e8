//! `copy/throughput`, `copy/functions`, `copy/limit` and others: how fast bytes pass into and out of
//! memory.
//!
//! A sample copies in batches until its budget is spent. First, the source is filled with a pattern that
//! differs from every earlier one; at the end, every byte that should have arrived is verified. A peer
//! process fills and verifies the memory that it shares.
//!
//! Without a usable clock, as on an emulated CPU, a sample makes a fixed number of copies and verifies them.
//!
//! In mode `jobs` each job is a whole copy, as in ESCAPE's `memcpy_test`, but one atomic counter hands
//! the jobs out, several at a time if they are short, instead of a locked queue that threads poll.
//! Each thread copies within its lane as far as 256 MiB permit; the threads of `memcpy_test` all copy
//! the same bytes to the same address. In mode `split` each thread copies a slice of every copy, and
//! all meet at a barrier before the next.

mod copiers;
mod layout;
mod params;
mod placed;
mod regions;
mod runner;
mod summary;
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

use crate::functions::{self, CopyFn};
use crate::levels::Direction;
use crate::mbw;
use crate::memory::{GpuMemory, PinnedMemory};
use crate::metrics;
use crate::pattern::Pattern;
use crate::pool::ThreadPool;
use copiers::{FileCalls, NaiveCompiled, PausedCopy};
use layout::Layout;
use params::PageState;
use placed::{EMPTY, PlacedLoops};
use regions::{RegionPair, Regions};
use runner::{BasePointers, Runner};
use timing::Timing;

pub(crate) use copiers::copy_with_pauses;
pub use params::{KEEP_MEMORY, MAX_PAUSE, MAX_RUNS, PAUSE, RUNS, SOURCE_OFFSET};
pub(crate) use params::{MAX_THREADS, NAIVE_COMPILED, RunOptions, ThroughputParams};

static LAST_LEVEL: LazyLock<u64> =
    LazyLock::new(|| Caches::detect().last_level().unwrap_or(32 << 20));

/// The method `throughput`: copies in batches, by one thread or several.
pub(crate) struct Throughput;

impl Method for Throughput {
    type Params = ThroughputParams;

    fn name(&self) -> &'static str {
        "throughput"
    }

    fn how(&self) -> &'static str {
        "A sample fills the source with a new pattern and copies in batches, timed by the time-stamp counter; \
         its value is the median batch. Afterwards every byte of the last copies is compared, by a peer \
         process if the memory is shared; mbw times its own copies, which are not checked."
    }

    fn metrics(&self) -> &'static [Metric] {
        metrics::METRICS
    }

    fn available(&self, params: &ThroughputParams) -> Result<(), Failure> {
        available(params)
    }

    fn expected(&self, params: &ThroughputParams, budget: Duration) -> Duration {
        timing::expected(params, budget)
    }

    fn timed_modules(&self) -> &'static [&'static str] {
        &["copy::functions"]
    }

    fn code(
        &self,
        params: &ThroughputParams,
        options: &BTreeMap<String, String>,
    ) -> Option<String> {
        let function = functions::supplied(&params.function, options).ok()?;
        functions::shared_object(function).map(str::to_owned)
    }

    fn foreign_code(&self, params: &ThroughputParams) -> Vec<&'static str> {
        let program = params.mbw().map(|_| "mbw, a program that the host has installed");
        let is_by_driver = params.memory.is_copied_by_calls();
        let driver = is_by_driver.then_some("the driver of the GPU, which copies");
        program.into_iter().chain(driver).collect()
    }

    fn probe(&self) -> Result<Box<dyn Probe<ThroughputParams>>, Failure> {
        Ok(Box::new(ThroughputProbe::default()))
    }
}

fn available(params: &ThroughputParams) -> Result<(), Failure> {
    check(params)?;
    params.memory.available()
}

/// Checks that the levels fit together and that the function can run here.
fn check(params: &ThroughputParams) -> Result<(), Failure> {
    params.check_conflicts()?;
    if params.mbw().is_some() {
        return mbw::PROGRAM.find().map(drop);
    }
    // An option names apex: only the probe knows whether it is set.
    if [NAIVE_COMPILED, functions::APEX].contains(&params.function.as_str()) {
        return Ok(());
    }
    functions::check(&params.function)
}

#[derive(Default)]
struct ThroughputProbe {
    regions: Regions,
    loops: PlacedLoops,
    pool: Option<ThreadPool>,
    /// Pattern offset of the last sample's source.
    data: u8,
}

/// Conditions of a sample, taken from the lab's context.
struct Conditions<'a> {
    budget: Duration,
    seed: u64,
    cpus: &'a [usize],
    /// `None` without a usable clock: copies are verified, not timed.
    tsc: Option<&'static Tsc>,
    options: &'a BTreeMap<String, String>,
}

impl Probe<ThroughputParams> for ThroughputProbe {
    fn measure(
        &mut self,
        context: &mut Context,
        params: &ThroughputParams,
    ) -> Result<Measurement, Failure> {
        let conditions = Conditions {
            budget: context.budget,
            seed: context.seed,
            cpus: context.cpus,
            tsc: context.tsc().ok(),
            options: context.options,
        };
        self.measure_under(&conditions, params)
    }
}

impl ThroughputProbe {
    fn measure_under(
        &mut self,
        conditions: &Conditions,
        params: &ThroughputParams,
    ) -> Result<Measurement, Failure> {
        check(params)?;
        // The probe opens the GPU itself.
        if !params.memory.is_gpu() {
            params.memory.available()?;
        }
        if let Some(method) = params.mbw() {
            if conditions.tsc.is_none() {
                let why = "mbw only times its copies, and there is no usable clock";
                return Err(Failure::unavailable(why, "use real or KVM hardware"));
            }
            let length = params.length.longest();
            return Ok(summary::from_mbw(&mbw::run(method, length)?, length));
        }
        // The compiled loop is not called through a pointer; `naive` is loaded instead and never called.
        let name = if params.function == NAIVE_COMPILED { "naive" } else { &params.function };
        let function = functions::find(functions::supplied(name, conditions.options)?)?;
        self.with_function(conditions, params, function.pointer())
    }

    fn with_function(
        &mut self,
        conditions: &Conditions,
        params: &ThroughputParams,
        copy: CopyFn,
    ) -> Result<Measurement, Failure> {
        let options = RunOptions::parse(conditions.options)?;
        let layout = Layout::new(params, *LAST_LEVEL, params.memory.is_huge());
        let bytes = layout.bytes() + params.offset;
        let mut pair = self.regions.take(params, bytes, conditions.options)?;
        let measurement = self.sample(conditions, params, &options, layout, &mut pair, copy)?;
        self.regions.put(pair);
        Ok(measurement)
    }

    fn sample(
        &mut self,
        conditions: &Conditions,
        params: &ThroughputParams,
        options: &RunOptions,
        layout: Layout,
        pair: &mut RegionPair,
        copy: CopyFn,
    ) -> Result<Measurement, Failure> {
        let pattern = self.prepare(params, options, layout, pair)?;
        let ring = layout.calls(&params.length, conditions.seed);
        let bases = BasePointers {
            // The regions have the layout's bytes plus the offset.
            destination: pair.destination.start().wrapping_add(params.offset),
            source: pair.source.start(),
        };
        let pooled = pooled(&mut self.pool, params.threads, conditions.cpus)?;
        let timing = Timing { conditions, params, options, layout, destination: &pair.destination };
        let file = match params.direction {
            Direction::Write => pair.destination.file().map(|file| (file, params.offset, true)),
            Direction::Read => pair.source.file().map(|file| (file, 0, false)),
        };
        let device = match params.direction {
            Direction::Write => pair.destination.device().map(|device| (device, params.offset)),
            Direction::Read => pair.source.device().map(|device| (device, 0)),
        };
        // Memory that is mapped is copied by a function.
        let device = device.filter(|_| params.memory.is_copied_by_calls());
        let _pinned = match device {
            None => None,
            Some((device, _)) => Some(pin(params, device, pair, layout)?),
        };
        let mut floor = None;
        // SAFETY: both regions stay open until this function returns, are different mappings and have
        // the layout's bytes; the ring belongs to the layout.
        let batches = unsafe {
            match (device, file, options.pause) {
                (Some((device, start)), _, _) => {
                    let copies = device.copies(start, params.direction == Direction::Write)?;
                    let mut runner = Runner::new(copies, bases, layout, &ring, params, pooled);
                    let batches = timing.measure(&mut runner)?;
                    runner.copier().check_complete()?;
                    batches
                }
                (None, Some((file, start, write)), _) => {
                    let copier = FileCalls { file, start, write, short: AtomicBool::new(false) };
                    let mut runner = Runner::new(copier, bases, layout, &ring, params, pooled);
                    let batches = timing.measure(&mut runner)?;
                    runner.copier().check_complete()?;
                    batches
                }
                (None, None, Some(pause)) => timing.run_once(&mut Runner::new(
                    PausedCopy(pause),
                    bases,
                    layout,
                    &ring,
                    params,
                    pooled,
                ))?,
                (None, None, None) if params.function == NAIVE_COMPILED => {
                    let copier = NaiveCompiled;
                    timing
                        .measure(&mut Runner::new(copier, bases, layout, &ring, params, pooled))?
                }
                (None, None, None) => {
                    let seed = conditions.seed;
                    let copier = self.loops.function(&params.function, copy, seed)?;
                    let batches = timing
                        .measure(&mut Runner::new(copier, bases, layout, &ring, params, pooled))?;
                    copier.record(&format!("the function '{}'", params.function));
                    functions::record(&params.function, copy);
                    if let Some(tsc) = conditions.tsc {
                        let empty = self.loops.function("", EMPTY, seed)?;
                        empty.record("a function that returns at once, for their own time");
                        let mut runner = Runner::new(empty, bases, layout, &ring, params, None);
                        floor = Some(tsc.nanoseconds(timing.loop_floor(tsc, &mut runner)?));
                    }
                    batches
                }
            }
        };
        let last = verify::LastCopies {
            made: batches.copies_to_verify(ring.len(), params.touch == PageState::Cold),
            // Untimed copies are made by every thread, except a single slow one.
            in_every_lane: conditions.tsc.is_none() && options.pause.is_none(),
        };
        let checked = verify::delivery(params, layout, pair, pattern, &ring, last)?;
        let mut measurement = match conditions.tsc {
            Some(tsc) => batches.summary(tsc, &ring, checked),
            None => Measurement::default().value(metrics::CHECKED, checked as f64),
        };
        if let Some(floor) = floor {
            measurement = measurement.value(metrics::LOOP_FLOOR, floor);
        }
        if let Some(pages) = pair.destination.pages().or(pair.source.pages()) {
            measurement = measurement.covariate("pages", pages);
        }
        if let Some(given) = pair.destination.memory_type().or(pair.source.memory_type()) {
            measurement = measurement.covariate(metrics::MEMORY_TYPE, given);
        }
        if let Some(device) = pair.destination.device().or(pair.source.device()) {
            measurement = measurement.covariate(metrics::GPU, device.gpu().name());
        }
        Ok(measurement)
    }

    /// Fills the source. Returns its pattern, or `None` if its contents are kept.
    fn prepare(
        &mut self,
        params: &ThroughputParams,
        options: &RunOptions,
        layout: Layout,
        pair: &mut RegionPair,
    ) -> Result<Option<Pattern>, Failure> {
        let is_measured = params.direction == Direction::Read;
        if is_measured && options.keep_memory && params.memory.is_gpu() {
            let why = "memory of a GPU is allocated by each probe and has no contents to keep";
            return Err(Failure::unavailable(why, "omit -i 1"));
        }
        let keep = is_measured && (options.keep_memory || !pair.source.is_writable());
        self.data = self.data.wrapping_add(1);
        let pattern = Pattern { offset: options.source_offset.unwrap_or(self.data) };
        if !keep {
            pair.source.fill(pattern, 0, layout.bytes())?;
        }
        // New memory is zero, as are some bytes of any pattern.
        if pair.is_fresh {
            let other = Pattern { offset: pattern.offset.wrapping_sub(1) };
            pair.destination.fill(other, 0, pair.destination.len())?;
            verify::fill(&mut pair.destination, other)?;
        }
        // If the source may have its earlier contents, the destination must differ from them.
        if (keep || options.source_offset.is_some()) && params.touch == PageState::Warm {
            let other = Pattern { offset: pattern.offset.wrapping_add(1) };
            pair.destination.fill(other, params.offset, layout.bytes())?;
        }
        Ok((!keep).then_some(pattern))
    }
}

/// Pins the host's side of copies to or from a GPU.
fn pin(
    params: &ThroughputParams,
    device: &GpuMemory,
    pair: &RegionPair,
    layout: Layout,
) -> Result<PinnedMemory, Failure> {
    let host = match params.direction {
        Direction::Write => &pair.source,
        Direction::Read => &pair.destination,
    };
    let bytes = layout.bytes().saturating_add(params.offset).min(host.len());
    // SAFETY: both regions stay open until the sample ends, and the result is dropped in it.
    unsafe { device.gpu().pin(host.start(), bytes) }
}

/// Returns a pool of `threads` threads; `None` if the caller copies.
fn pooled<'a>(
    kept: &'a mut Option<ThreadPool>,
    threads: usize,
    cpus: &[usize],
) -> Result<Option<&'a mut ThreadPool>, Failure> {
    if threads == 0 {
        return Ok(None);
    }
    if kept.as_ref().is_none_or(|pool| pool.threads() != threads) {
        // The old threads must end before new ones take their CPUs.
        *kept = None;
        *kept = Some(ThreadPool::new(threads, cpus)?);
    }
    Ok(kept.as_mut())
}

#[cfg(test)]
mod tests;
