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

use lab::factor::{Factor, Levels};
use lab::measure::{Context, Measurement};
use lab::method::Probe;
use lab::metric::{Better, Metric};
use lab::point::Point;
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
const MOST_THREADS: u64 = 64;

/// The factors of this experiment that the others do not have.
pub const FACTORS: &[Factor] = &[Factor {
    name: "event",
    about: "none (pages are there), first-touch, eviction (and touching again) or shootdown",
    levels: Levels::Names(&["none", "first-touch", "eviction", "shootdown"]),
    default: None,
}];

/// The metrics of this experiment that the others do not have.
pub const METRICS: &[Metric] = &[
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

#[derive(Debug, Clone, Copy)]
struct Setup {
    event: Event,
    backing: Backing,
    threads: usize,
}

impl Setup {
    fn of(point: &Point) -> Result<Self, Failure> {
        let wrong = |why: String| Failure::unavailable(why, "see `tollgate list` for the levels");
        let event = match point.text("event") {
            "first-touch" => Event::FirstTouch,
            "eviction" => Event::Eviction,
            "shootdown" => Event::Shootdown,
            "none" | "" => Event::None,
            other => return Err(wrong(format!("unknown event '{other}'"))),
        };
        let backing = match point.text("memory") {
            "heap" => Backing::Heap,
            "file-mapped" => Backing::File,
            other => return Err(wrong(format!("pages are of heap or file-mapped, not '{other}'"))),
        };
        let threads = point.get("threads").map_or(Ok(1), |level| {
            let threads = level.count().filter(|count| (1..=MOST_THREADS).contains(count));
            let why = || wrong(format!("1 to {MOST_THREADS} threads touch pages, not '{level}'"));
            threads.ok_or_else(why)
        })?;
        if event == Event::Shootdown && backing == Backing::File {
            return Err(wrong(
                "a file's pages are read-only here: there is no right to take".into(),
            ));
        }
        Ok(Self { event, backing, threads: threads as usize })
    }
}

/// Whether a point can be measured here.
///
/// # Errors
/// The reason why not, and the remedy.
pub fn available(point: &Point) -> Result<(), Failure> {
    Setup::of(point).map(drop)
}

/// How long a sample takes with all that it prepares: files are written to the disk first.
pub fn expected(point: &Point, budget: Duration) -> Duration {
    let threads = Setup::of(point).map_or(1, |setup| setup.threads) as u32;
    let each = if point.text("memory") == "heap" { 2 } else { 30 };
    budget + Duration::from_millis(5) + Duration::from_millis(each) * threads
}

/// What measures the points of one order.
pub fn probe() -> Box<dyn Probe> {
    Box::new(Touching { heap: Vec::new(), file: Vec::new(), evicted: Vec::new() })
}

/// Keeps the pages: writing a file costs more than a sample.
struct Touching {
    heap: Vec<Arc<Pages>>,
    file: Vec<Arc<Pages>>,
    /// Of files too: reading back what was evicted leaves other folios in the page cache.
    evicted: Vec<Arc<Pages>>,
}

impl Probe for Touching {
    fn measure(&mut self, context: &mut Context, point: &Point) -> Result<Measurement, Failure> {
        let setup = Setup::of(point)?;
        if context.cpus.is_empty() {
            return Err(Failure::failed("no CPU may be used"));
        }
        if setup.event == Event::Shootdown {
            return shot(&setup, context);
        }
        let pages = self.pages(&setup, context)?;
        let before = tlb_shootdowns();
        let touched = touch(setup.event, setup.backing, pages, context.cpus, context.budget)?;
        let interrupts = tlb_shootdowns().zip(before).map(|(after, before)| after - before);
        let counted = touched.pages;
        Ok(with_interrupts(told(&setup, touched, context.tsc()?), interrupts, counted))
    }
}

impl Touching {
    fn pages(&mut self, setup: &Setup, context: &Context) -> Result<&[Arc<Pages>], Failure> {
        let folder =
            context.options.get(FILE_FOLDER).map_or_else(std::env::temp_dir, PathBuf::from);
        let kept = match (setup.backing, setup.event) {
            (Backing::Heap, _) => &mut self.heap,
            (Backing::File, Event::Eviction) => &mut self.evicted,
            (Backing::File, _) => &mut self.file,
        };
        while kept.len() < setup.threads {
            kept.push(Arc::new(Pages::new(setup.backing, PAGES, &folder)?));
        }
        Ok(&kept[..setup.threads])
    }
}

fn told(setup: &Setup, mut touched: Touched, tsc: &Tsc) -> Measurement {
    let each = touched.each as f64;
    let a_page = |ticks: &mut Vec<u64>| tsc.nanoseconds(median(ticks)) / each;
    let spent: u64 = touched.touching.iter().sum();
    let mut measurement = Measurement::default()
        .value(
            "rate",
            setup.threads as f64 * each * tsc.hertz / median(&mut touched.spans).max(1.0),
        )
        .value("page", a_page(&mut touched.touching))
        .value("faults_counted", touched.faults.total() as f64)
        .value("pages_touched", touched.pages as f64);
    if setup.event != Event::None {
        let each = tsc.nanoseconds(spent as f64) / touched.faults.total() as f64;
        measurement = measurement.value("fault", each);
    }
    if setup.event == Event::Eviction {
        measurement = measurement.value("evict", a_page(&mut touched.evicting));
    }
    measurement
}

fn shot(setup: &Setup, context: &Context) -> Result<Measurement, Failure> {
    let tsc = context.tsc()?;
    let pages = Arc::new(Pages::new(setup.backing, SHOT, &std::env::temp_dir())?);
    let (own, others) = context.cpus.split_at(1);
    // Where there is but one CPU, all share it.
    let others = if others.is_empty() { own } else { others };
    let victims: Vec<usize> = others.iter().copied().cycle().take(setup.threads - 1).collect();
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
    use super::*;

    #[test]
    fn malformed_levels_are_refused() {
        let point = Point::from([("event", "first-touch"), ("memory", "heap")]);
        assert_eq!(Setup::of(&point).unwrap().threads, 1);
        assert_eq!(Setup::of(&point.with("threads", "64")).unwrap().threads, 64);
        for threads in ["", "two", "-1", "1.5", "0", "65", "18446744073709551616"] {
            let failure = Setup::of(&point.with("threads", threads)).unwrap_err();
            assert!(failure.why.contains(&format!("not '{threads}'")), "{failure}");
        }
        let failure = Setup::of(&point.with("event", "firsttouch")).unwrap_err();
        assert!(failure.why.contains("'firsttouch'"), "{failure}");
    }
}
