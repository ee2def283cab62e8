//! `copy/faults`: why mapped memory stops scaling with threads.
//!
//! ESCAPE explains it after PAP20 and CRO22: the page-fault path does not scale with cores, eviction
//! is slow, and each page taken from one thread interrupts the CPUs of the others to flush their
//! TLBs. The suite measures each of these events separately, against the number of threads, with the
//! faults and the TLB interrupts that the kernel counts.

mod backing;
mod shootdown;
mod touch;

use std::sync::Arc;
use std::time::Duration;

use lab::factor::{LevelType, Levels};
use lab::measure::{Context, Measurement};
use lab::method::{Method, Params, Probe};
use lab::metric::{Better, Metric};
use lab::sample::Failure;
use machine::noise::tlb_shootdowns;
use machine::tsc::Tsc;

use crate::memory::file_folder;

pub use backing::{Backing, Pages};
pub use shootdown::{ShootdownTimes, shootdown};
pub use touch::{TouchTimes, touch};

/// Pages that each thread touches: the range of one page table.
pub const PAGES: usize = 512;
/// Pages whose protection changes: few enough that the kernel flushes them one by one.
pub const SHOOTDOWN_PAGES: usize = 16;
/// Maximum threads.
const MAX_THREADS: u64 = 64;

const METRICS: &[Metric] = &[
    Metric::new(
        "rate",
        "1/s",
        Better::Higher,
        "pages touched (shootdown: protected) per second by all threads",
    ),
    Metric::time("page", "time per page in its thread, median over passes"),
    Metric::time("fault", "time per page fault that the kernel counted, all threads and passes"),
    Metric::time(
        "event",
        "time of the event alone per page, median over passes: of the touch, or of the eviction without it",
    ),
    Metric::time(
        "protect",
        "time to make 16 pages read-only while other threads read them, median",
    ),
    Metric::new(
        "slowdown",
        "1",
        Better::Lower,
        "rate of a reading loop, undisturbed divided by disturbed, median",
    )
    .from_time(),
    Metric::count("faults_counted", "page faults counted by the kernel, minor and major"),
    Metric::count("pages_touched", "pages touched in all passes"),
    Metric::count(
        "tlb_shootdowns",
        "TLB interrupts on all CPUs during the measurement, of any cause",
    ),
    Metric::new("tlb_per_page", "1", Better::Lower, "TLB interrupts per page touched or protected")
        .called("TLB interrupts per page"),
];

/// Event that happens to the pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, LevelType)]
pub enum Event {
    /// The pages stay present.
    None,
    /// The pages are touched for the first time since they were mapped.
    FirstTouch,
    /// The pages are evicted and touched again.
    Eviction,
    /// The pages are made read-only while other threads read them.
    Shootdown,
}

/// Params of `faults`.
#[derive(Debug, Clone, Copy, Params)]
pub(crate) struct FaultParams {
    /// none (pages are present), first-touch, eviction (and touching again) or shootdown
    #[factor(default = "none")]
    event: Event,
    /// the memory: heap or file-mapped
    #[factor(name = "memory", default = "heap")]
    backing: Backing,
    /// threads that touch pages: 1 to 64
    #[factor(default = "1", levels = Levels::Count(1, MAX_THREADS))]
    threads: usize,
}

/// The method `faults`: touches, evicts and protects pages.
pub(crate) struct PageEvents;

impl Method for PageEvents {
    type Params = FaultParams;

    fn name(&self) -> &'static str {
        "faults"
    }

    fn how(&self) -> &'static str {
        "Threads touch or evict their pages in passes, or one thread makes pages read-only while others read \
         them; each pass or change is timed by the time-stamp counter. The kernel's page faults of each pass \
         must fit its event, up to 8 stray ones; interrupts for TLB shootdowns are reported and not checked."
    }

    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn available(&self, params: &FaultParams) -> Result<(), Failure> {
        match (params.event, params.backing) {
            (Event::Shootdown, Backing::File) => Err(Failure::unavailable(
                "a file's pages are read-only here, so no right can be revoked",
                "use memory = heap with event = shootdown",
            )),
            (Event::Shootdown, Backing::Heap)
            | (Event::None | Event::FirstTouch | Event::Eviction, Backing::Heap | Backing::File) => {
                Ok(())
            }
        }
    }

    /// Includes preparation: files are written to the disk first.
    fn expected(&self, params: &FaultParams, budget: Duration) -> Duration {
        let each = match params.backing {
            Backing::Heap => 2,
            Backing::File => 30,
        };
        budget + Duration::from_millis(5) + Duration::from_millis(each) * params.threads as u32
    }

    fn probe(&self) -> Result<Box<dyn Probe<FaultParams>>, Failure> {
        Ok(Box::new(FaultProbe::default()))
    }
}

/// The probe of `faults`. It keeps the pages, because writing a file takes longer than a sample.
#[derive(Default)]
struct FaultProbe {
    heap: Vec<Arc<Pages>>,
    file: Vec<Arc<Pages>>,
    /// Separate files for eviction: reading evicted pages back leaves other folios in the page cache.
    evicted: Vec<Arc<Pages>>,
}

impl Probe<FaultParams> for FaultProbe {
    fn measure(
        &mut self,
        context: &mut Context,
        params: &FaultParams,
    ) -> Result<Measurement, Failure> {
        PageEvents.available(params)?;
        if context.cpus.is_empty() {
            return Err(Failure::failed("no CPU is allowed"));
        }
        match params.event {
            Event::Shootdown => return measure_shootdown(params, context),
            Event::None | Event::FirstTouch | Event::Eviction => {}
        }
        let pages = self.pages(params, context)?;
        let before = tlb_shootdowns();
        let touched = touch(params.event, params.backing, pages, context.cpus, context.budget)?;
        let interrupts = tlb_shootdowns().zip(before).map(|(after, before)| after - before);
        let counted = touched.pages;
        Ok(with_interrupts(to_measurement(params, touched, context.tsc()?), interrupts, counted))
    }
}

impl FaultProbe {
    fn pages(&mut self, params: &FaultParams, context: &Context) -> Result<&[Arc<Pages>], Failure> {
        let folder = file_folder(context.options);
        let kept = match (params.backing, params.event) {
            (Backing::Heap, _) => &mut self.heap,
            (Backing::File, Event::Eviction) => &mut self.evicted,
            (Backing::File, Event::None | Event::FirstTouch | Event::Shootdown) => &mut self.file,
        };
        while kept.len() < params.threads {
            kept.push(Arc::new(Pages::new(params.backing, PAGES, &folder)?));
        }
        Ok(&kept[..params.threads])
    }
}

fn to_measurement(params: &FaultParams, mut touched: TouchTimes, tsc: &Tsc) -> Measurement {
    let each = touched.each as f64;
    let per_page = |ticks: &mut Vec<u64>| tsc.nanoseconds(upper_median(ticks)) / each;
    let spent: u64 = touched.touching.iter().sum();
    let page = per_page(&mut touched.touching);
    let measurement = Measurement::default()
        .value(
            "rate",
            params.threads as f64 * each * tsc.hertz / upper_median(&mut touched.spans).max(1.0),
        )
        .value("page", page)
        .value("faults_counted", touched.faults as f64)
        .value("pages_touched", touched.pages as f64);
    let fault = tsc.nanoseconds(spent as f64) / touched.faults as f64;
    match params.event {
        Event::None => measurement,
        Event::FirstTouch | Event::Shootdown => {
            measurement.value("fault", fault).value("event", page)
        }
        Event::Eviction => {
            let evict = per_page(&mut touched.evicting);
            measurement.value("fault", fault).value("event", evict)
        }
    }
}

fn measure_shootdown(params: &FaultParams, context: &Context) -> Result<Measurement, Failure> {
    let tsc = context.tsc()?;
    let pages = Arc::new(Pages::new(params.backing, SHOOTDOWN_PAGES, &std::env::temp_dir())?);
    let (initiator, others) = context.cpus.split_at(1);
    // With a single CPU, all threads share it.
    let others = if others.is_empty() { initiator } else { others };
    let victims: Vec<usize> = others.iter().copied().cycle().take(params.threads - 1).collect();
    let before = tlb_shootdowns();
    let mut times = shootdown(&pages, initiator[0], &victims, context.budget)?;
    let interrupts = tlb_shootdowns().zip(before).map(|(after, before)| after - before);
    let changed = (times.changes.len() * SHOOTDOWN_PAGES) as u64;
    let mut measurement = Measurement::default()
        .value("rate", changed as f64 * tsc.hertz / times.span.max(1) as f64)
        .value("protect", tsc.nanoseconds(upper_median(&mut times.changes)));
    times.slowdowns.sort_by(f64::total_cmp);
    // Threads that share a CPU slow each other down.
    let has_cpu_each = victims.len() < context.cpus.len();
    if let Some(slowdown) = times.slowdowns.get(times.slowdowns.len() / 2).filter(|_| has_cpu_each)
    {
        measurement = measurement.value("slowdown", *slowdown);
    }
    Ok(with_interrupts(measurement, interrupts, changed))
}

fn with_interrupts(measurement: Measurement, count: Option<u64>, pages: u64) -> Measurement {
    match count {
        Some(count) => measurement
            .value("tlb_shootdowns", count as f64)
            .value("tlb_per_page", count as f64 / pages.max(1) as f64),
        // Without a kernel count the metrics are absent.
        None => measurement,
    }
}

/// Returns the upper median, or 0 of an empty slice. Sorts the slice.
fn upper_median(ticks: &mut [u64]) -> f64 {
    ticks.sort_unstable();
    ticks.get(ticks.len() / 2).map_or(0.0, |ticks| *ticks as f64)
}

#[cfg(test)]
mod tests {
    use lab::point::Point;

    use super::*;

    #[test]
    fn invalid_levels_are_refused() {
        let point = Point::from([("event", "first-touch"), ("memory", "heap")]);
        let of = |factor, level| FaultParams::with_defaults(&point.with(factor, level));
        assert_eq!(FaultParams::with_defaults(&point).unwrap().threads, 1);
        assert_eq!(of("threads", "64").unwrap().threads, 64);
        for threads in ["", "two", "-1", "1.5", "0", "65", "18446744073709551616"] {
            let failure = of("threads", threads).unwrap_err();
            assert!(
                failure.why.starts_with(&format!("factor 'threads': '{threads}'")),
                "{failure}"
            );
        }
        assert!(of("event", "firsttouch").unwrap_err().why.contains("'firsttouch'"));
    }
}
