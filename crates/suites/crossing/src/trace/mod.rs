//! `crossing/tracepoint`: from user to the kernel's first tracepoint, on any Linux. An upper bound of
//! the crossing alone, for the entry's glue and the tracer's own work until it stamps are in it.
//!
//! The tracepoint is read in two ways: by an [`instance`] of the kernel's tracer of our own, whose
//! clock is the time-stamp counter itself, or by a [BPF program](bpf), whose clock must be
//! [converted](clocks). Each changes the kernel while it lasts (all processes' faults or system calls
//! pass the tracepoint), so each is done only where it was allowed by name.

pub mod bpf;
pub mod clocks;
pub mod events;
pub mod instance;
pub mod matching;
pub mod stamps;
pub mod tracefs;

use std::collections::BTreeMap;
use std::time::Duration;

use lab::factor::{LevelType, Levels};
use lab::measure::{Context, Measurement};
use lab::method::{Method, Params, Probe};
use lab::metric::Metric;
use lab::sample::Failure;
use machine::tsc::Tsc;

use crate::one_way::{CROSSINGS_MADE, MAX_CROSSINGS, STEP_METRIC};
use crate::ticks::Ticks;
use instance::Instance;
use stamps::Crossings;

/// Crossings between two readings of what was traced: 16 MiB of pages, each of which faults once.
pub const BATCH: usize = 4096;
/// Crossings before those that count.
const WARM_UP: usize = 256;

const METRICS: &[Metric] = &[
    CROSSINGS_MADE,
    STEP_METRIC,
    Metric::time("u2t", "user to the first tracepoint: median, the empty fenced pair subtracted"),
    Metric::time("u2t_min", "user to the first tracepoint: the least"),
    Metric::time("u2t_p99", "user to the first tracepoint: what 99% of crossings stay under"),
    Metric::time("u2t_p999", "user to the first tracepoint: what 99.9% of crossings stay under"),
    Metric::time(
        "u2t_uncertainty",
        "by how much turning the system's clock into ticks may be wrong",
    ),
    Metric::count(
        "events_matched",
        "events of the tracepoint that belong to a crossing, each its own",
    ),
];

/// Which way into the kernel is traced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, LevelType)]
pub enum Event {
    /// `exceptions:page_fault_user`.
    PageFault,
    /// `raw_syscalls:sys_enter`.
    Syscall,
}

impl Event {
    /// Its folder under `events`.
    pub fn path(self) -> &'static str {
        match self {
            Self::PageFault => "exceptions/page_fault_user",
            Self::Syscall => "raw_syscalls/sys_enter",
        }
    }
}

/// What stamps in the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, LevelType)]
pub enum Through {
    /// An instance of the kernel's tracer.
    Tracefs,
    /// A BPF program.
    Bpf,
}

/// What gives the events of a batch of crossings.
pub trait Tracer {
    /// Forgets what was seen before.
    ///
    /// # Errors
    /// Where the kernel's records or clocks are not as they must be.
    fn begin(&mut self) -> Result<(), Failure>;

    /// Adds what was seen since, in order; gives by how much the times may be wrong, ns.
    ///
    /// # Errors
    /// Where the kernel's records or clocks are not as they must be.
    fn end(&mut self, traced: &mut Vec<events::Traced>) -> Result<f64, Failure>;
}

/// Levels of `tracepoint`.
#[derive(Debug, Clone, Copy, Params)]
pub struct TraceParams {
    /// which tracepoint: page-fault (exceptions:page_fault_user) or syscall (raw_syscalls:sys_enter)
    #[factor(default = "page-fault")]
    event: Event,
    /// what stamps there: tracefs (an instance of its own, in ticks) or bpf (a program, by the system's clock)
    #[factor(default = "tracefs")]
    through: Through,
    /// crossings a sample
    #[factor(default = "100000", levels = Levels::Count(1, MAX_CROSSINGS as u64))]
    crossings: usize,
}

/// Times the way to a tracepoint.
pub struct Tracepoint;

impl Method for Tracepoint {
    type Params = TraceParams;

    fn name(&self) -> &'static str {
        "tracepoint"
    }

    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    /// What must be allowed by name is asked when it is measured.
    fn available(&self, params: &TraceParams) -> Result<(), Failure> {
        tracefs::numbers_of_the_host()?;
        match params.through {
            Through::Tracefs => tracefs::available(params.event.path()),
            Through::Bpf => bpf::available(),
        }
    }

    fn expected(&self, params: &TraceParams, _: Duration) -> Duration {
        // Making and removing an instance waits for all CPUs several times.
        Duration::from_millis(300) + Duration::from_micros(5) * params.crossings as u32
    }

    fn probe(&self) -> Result<Box<dyn Probe<TraceParams>>, Failure> {
        Ok(Box::new(TracepointProbe { instance: None }))
    }
}

/// Whether a person has allowed what a way of tracing changes.
///
/// # Errors
/// Unavailable, with how to allow it.
pub fn allowed(through: Through, options: &BTreeMap<String, String>) -> Result<(), Failure> {
    let (name, why) = match through {
        Through::Tracefs => ("tracefs", "tracing changes tracefs, which was not asked for"),
        Through::Bpf => ("bpf", "a BPF program in the kernel was not asked for"),
    };
    match options.get(&format!("allow-{name}")).map(String::as_str) {
        Some("yes") => Ok(()),
        _ => Err(Failure::unavailable(
            why,
            format!("tollgate run crossing/tracepoint --allow {name}"),
        )),
    }
}

struct TracepointProbe {
    /// Made once: making one takes longer than many crossings.
    instance: Option<Instance>,
}

impl Probe<TraceParams> for TracepointProbe {
    fn measure(
        &mut self,
        context: &mut Context,
        params: &TraceParams,
    ) -> Result<Measurement, Failure> {
        Tracepoint.available(params)?;
        allowed(params.through, context.options)?;
        let tsc = context.tsc()?;
        let crossed = match params.through {
            Through::Bpf => {
                let mut program = bpf::Program::attach(params.event)?;
                cross(&mut program, params.event, params.crossings, tsc)?
            }
            Through::Tracefs => {
                let instance = match &self.instance {
                    Some(instance) => instance,
                    None => self.instance.insert(Instance::create()?),
                };
                let cpu = machine::pin::current_cpu();
                let mut recording = instance.record(params.event, thread_id(), cpu)?;
                cross(&mut recording, params.event, params.crossings, tsc)?
            }
        };
        crossed.into_measurement(params.through, tsc)
    }
}

/// This thread, as the kernel numbers it.
pub fn thread_id() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()
}

/// What crossings took until the tracepoint.
pub struct Crossed {
    /// Each, without the empty fenced pair.
    pub ticks: Ticks,
    /// Crossings made.
    pub made: u64,
    /// Events of which each belongs to a crossing of its own.
    pub matched: u64,
    /// By how much their times may be wrong, ns.
    pub uncertainty: f64,
}

impl Crossed {
    fn into_measurement(self, through: Through, tsc: &Tsc) -> Result<Measurement, Failure> {
        let mut measurement = Measurement::default()
            .value("crossings_made", self.made as f64)
            .value("events_matched", self.matched as f64)
            .value("step", tsc.nanoseconds(tsc.step as f64));
        if through == Through::Bpf {
            measurement = measurement.value("u2t_uncertainty", self.uncertainty);
        }
        self.ticks.into_measurement(measurement, "u2t", tsc.hertz)
    }
}

/// Crosses so many times on this thread, which must be held to one CPU.
///
/// # Errors
/// A check where a crossing and an event of the tracepoint do not belong together.
pub fn cross(
    tracer: &mut dyn Tracer,
    event: Event,
    count: usize,
    tsc: &Tsc,
) -> Result<Crossed, Failure> {
    let mut crossings = Crossings::new(event, BATCH)?;
    let mut traced = Vec::with_capacity(2 * BATCH);
    let nothing = || {
        Ok::<_, Failure>(Crossed { ticks: Ticks::new()?, made: 0, matched: 0, uncertainty: 0.0 })
    };
    let mut crossed = nothing()?;
    batch(tracer, &mut crossings, WARM_UP, &mut traced, tsc, &mut crossed)?;
    crossed = nothing()?;
    let mut left = count;
    while left > 0 {
        let size = left.min(crossings.most());
        batch(tracer, &mut crossings, size, &mut traced, tsc, &mut crossed)?;
        left -= size;
    }
    Ok(crossed)
}

fn batch(
    tracer: &mut dyn Tracer,
    crossings: &mut Crossings,
    size: usize,
    traced: &mut Vec<events::Traced>,
    tsc: &Tsc,
    crossed: &mut Crossed,
) -> Result<(), Failure> {
    crossings.prepare();
    traced.clear();
    tracer.begin()?;
    let marks = crossings.marks();
    let stamps = crossings.make(size);
    let uncertainty = tracer.end(traced)?;
    // A reading is as good as a step of the counter, too.
    let tolerance = match uncertainty {
        0.0 => 0,
        ns => (ns * tsc.hertz / 1e9).ceil() as u64 + tsc.step,
    };
    crossed.made += stamps.len() as u64;
    crossed.uncertainty = crossed.uncertainty.max(uncertainty);
    matching::pair(stamps, traced, &marks, tolerance, |stamp, event| {
        let took = event.ticks.saturating_sub(stamp.before).saturating_sub(tsc.overhead);
        crossed.ticks.record(took);
        crossed.matched += 1;
    })
}
