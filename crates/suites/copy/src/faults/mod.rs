//! `copy/faults`: why mapped memory stops scaling with threads.
//!
//! The seed explains it after PAP20 and CRO22: the path of a page fault does not scale with cores,
//! eviction is slow, and each page taken from one thread interrupts the CPUs of the others to flush
//! their TLBs. Each of these events is measured apart, against the number of threads, with the faults
//! and the TLB interrupts that the kernel counts.

mod backing;
mod count;
mod shootdown;
mod touch;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lab::factor::{LevelType, Levels};
use lab::measure::{Context, Measurement};
use lab::method::{Method, Params, Probe};
use lab::metric::{Better, Metric};
use lab::sample::Failure;
use machine::interrupts::tlb_shootdowns;
use machine::tsc::Tsc;

pub use backing::{Backing, Pages};
pub use count::Faults;
pub use shootdown::{Shot, shootdown};
pub use touch::{Touched, touch};

/// Pages that each thread touches: what one page table maps.
pub const PAGES: usize = 512;
/// Pages whose protection changes: few enough that the kernel flushes them one by one.
pub const SHOT: usize = 16;
/// The option that names the folder of the mapped file.
const FILE_FOLDER: &str = "file-folder";
/// The most threads.
const MAX_THREADS: u64 = 64;

const METRICS: &[Metric] = &[
    Metric {
        name: "rate",
        unit: "1/s",
        better: Better::Higher,
        about: "pages touched (shootdown: protected) a second by all threads",
    },
    Metric::time("page", "time a page in its thread, median over passes"),
    Metric::time("fault", "time a fault that the kernel counted, all threads and passes"),
    Metric::time("evict", "time a page to evict it, median over passes"),
    Metric::time("protect", "time to make 16 pages read-only that other threads read, median"),
    Metric {
        name: "slowdown",
        unit: "1",
        better: Better::Lower,
        about: "a reading loop's rate undisturbed over its rate disturbed, median",
    },
    Metric::count("faults_counted", "page faults that the kernel counted, minor and major"),
    Metric::count("pages_touched", "pages touched in all passes"),
    Metric::count("tlb_shootdowns", "TLB interrupts on all CPUs meanwhile, whoever caused them"),
    Metric {
        name: "tlb_per_page",
        unit: "1",
        better: Better::Lower,
        about: "the same a page touched or protected",
    },
];

/// What happens to the pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, LevelType)]
pub enum Event {
    /// They are there and stay.
    None,
    /// Nobody has touched them since they were mapped.
    FirstTouch,
    /// They are evicted, and touched again.
    Eviction,
    /// They are made read-only while other threads read them.
    Shootdown,
}

/// Levels of `faults`.
#[derive(Debug, Clone, Copy, Params)]
pub(crate) struct FaultParams {
    /// none (pages are there), first-touch, eviction (and touching again) or shootdown
    #[factor(default = "none")]
    event: Event,
    /// the memory: heap or file-mapped
    #[factor(name = "memory", default = "heap")]
    backing: Backing,
    /// threads that touch pages: 1 to 64
    #[factor(default = "1", levels = Levels::Count(1, MAX_THREADS))]
    threads: usize,
}

/// Touches, evicts and protects pages.
pub(crate) struct PageEvents;

impl Method for PageEvents {
    type Params = FaultParams;

    fn name(&self) -> &'static str {
        "faults"
    }

    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn available(&self, params: &FaultParams) -> Result<(), Failure> {
        if params.event == Event::Shootdown && params.backing == Backing::File {
            return Err(Failure::unavailable(
                "a file's pages are read-only here: there is no right to take",
                "see `tollgate list` for the levels",
            ));
        }
        Ok(())
    }

    /// With all that it prepares: files are written to the disk first.
    fn expected(&self, params: &FaultParams, budget: Duration) -> Duration {
        let each = match params.backing {
            Backing::Heap => 2,
            Backing::File => 30,
        };
        budget + Duration::from_millis(5) + Duration::from_millis(each) * params.threads as u32
    }

    fn probe(&self) -> Result<Box<dyn Probe<FaultParams>>, Failure> {
        Ok(Box::new(Touching { heap: Vec::new(), file: Vec::new(), evicted: Vec::new() }))
    }
}

/// Keeps the pages: writing a file costs more than a sample.
struct Touching {
    heap: Vec<Arc<Pages>>,
    file: Vec<Arc<Pages>>,
    /// Of files too: reading back what was evicted leaves other folios in the page cache.
    evicted: Vec<Arc<Pages>>,
}

impl Probe<FaultParams> for Touching {
    fn measure(
        &mut self,
        context: &mut Context,
        params: &FaultParams,
    ) -> Result<Measurement, Failure> {
        PageEvents.available(params)?;
        if context.cpus.is_empty() {
            return Err(Failure::failed("no CPU may be used"));
        }
        if params.event == Event::Shootdown {
            return shot(params, context);
        }
        let pages = self.pages(params, context)?;
        let before = tlb_shootdowns();
        let touched = touch(params.event, params.backing, pages, context.cpus, context.budget)?;
        let interrupts = tlb_shootdowns().zip(before).map(|(after, before)| after - before);
        let counted = touched.pages;
        Ok(with_interrupts(told(params, touched, context.tsc()?), interrupts, counted))
    }
}

impl Touching {
    fn pages(&mut self, params: &FaultParams, context: &Context) -> Result<&[Arc<Pages>], Failure> {
        let folder =
            context.options.get(FILE_FOLDER).map_or_else(std::env::temp_dir, PathBuf::from);
        let kept = match (params.backing, params.event) {
            (Backing::Heap, _) => &mut self.heap,
            (Backing::File, Event::Eviction) => &mut self.evicted,
            (Backing::File, _) => &mut self.file,
        };
        while kept.len() < params.threads {
            kept.push(Arc::new(Pages::new(params.backing, PAGES, &folder)?));
        }
        Ok(&kept[..params.threads])
    }
}

fn told(params: &FaultParams, mut touched: Touched, tsc: &Tsc) -> Measurement {
    let each = touched.each as f64;
    let a_page = |ticks: &mut Vec<u64>| tsc.nanoseconds(median(ticks)) / each;
    let spent: u64 = touched.touching.iter().sum();
    let mut measurement = Measurement::default()
        .value(
            "rate",
            params.threads as f64 * each * tsc.hertz / median(&mut touched.spans).max(1.0),
        )
        .value("page", a_page(&mut touched.touching))
        .value("faults_counted", touched.faults.total() as f64)
        .value("pages_touched", touched.pages as f64);
    if params.event != Event::None {
        let each = tsc.nanoseconds(spent as f64) / touched.faults.total() as f64;
        measurement = measurement.value("fault", each);
    }
    if params.event == Event::Eviction {
        measurement = measurement.value("evict", a_page(&mut touched.evicting));
    }
    measurement
}

fn shot(params: &FaultParams, context: &Context) -> Result<Measurement, Failure> {
    let tsc = context.tsc()?;
    let pages = Arc::new(Pages::new(params.backing, SHOT, &std::env::temp_dir())?);
    let (own, others) = context.cpus.split_at(1);
    // Where there is but one CPU, all share it.
    let others = if others.is_empty() { own } else { others };
    let victims: Vec<usize> = others.iter().copied().cycle().take(params.threads - 1).collect();
    let before = tlb_shootdowns();
    let mut shot = shootdown(&pages, own[0], &victims, context.budget)?;
    let interrupts = tlb_shootdowns().zip(before).map(|(after, before)| after - before);
    let changed = (shot.changes.len() * SHOT) as u64;
    let mut measurement = Measurement::default()
        .value("rate", changed as f64 * tsc.hertz / shot.span.max(1) as f64)
        .value("protect", tsc.nanoseconds(median(&mut shot.changes)));
    shot.slowdowns.sort_by(f64::total_cmp);
    // Threads that take turns on a CPU are slowed by each other.
    let own_cpu_each = victims.len() < context.cpus.len();
    if let Some(slowdown) = shot.slowdowns.get(shot.slowdowns.len() / 2).filter(|_| own_cpu_each) {
        measurement = measurement.value("slowdown", *slowdown);
    }
    Ok(with_interrupts(measurement, interrupts, changed))
}

fn with_interrupts(measurement: Measurement, count: Option<u64>, pages: u64) -> Measurement {
    match count {
        Some(count) => measurement
            .value("tlb_shootdowns", count as f64)
            .value("tlb_per_page", count as f64 / pages.max(1) as f64),
        // The kernel does not count them: there is no number to give.
        None => measurement,
    }
}

/// The median; 0 of nothing. Sorts.
fn median(ticks: &mut [u64]) -> f64 {
    ticks.sort_unstable();
    ticks.get(ticks.len() / 2).map_or(0.0, |ticks| *ticks as f64)
}

#[cfg(test)]
mod tests {
    use lab::point::Point;

    use super::*;

    #[test]
    fn malformed_levels_are_refused() {
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
