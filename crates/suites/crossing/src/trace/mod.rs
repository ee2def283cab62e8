//! `crossing/tracepoint`: the time from user to the kernel's first tracepoint, on any Linux. It is an upper bound of
//! the crossing, because it includes the entry code and the tracer's work before its timestamp.
//!
//! There are two backends: a separate [`instance`] of the kernel's tracer, whose clock is the time-stamp counter, and
//! a [BPF program](bpf), whose clock must be [converted](clocks). BPF gives the tighter bound, tracefs the exact
//! clock. Both affect all processes while active (their faults or system calls pass the tracepoint), so each must be
//! allowed by name.

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
use lab::option::is_allowed;
use lab::sample::Failure;
use machine::tsc::Tsc;

use crate::one_way::MAX_CROSSINGS;
use crate::ticks::{CROSSINGS_MADE, RESOLUTION_METRIC, STEP_METRIC, Ticks, resolution};
use events::TraceEvent;
use instance::Instance;
use stamps::Crossings;

/// Crossings per reading of the trace. Their pages, which fault once each, take 16 MiB.
pub const BATCH: usize = 4096;
/// Warm-up crossings.
const WARM_UP: usize = 256;

const METRICS: &[Metric] = &[
    CROSSINGS_MADE,
    STEP_METRIC,
    RESOLUTION_METRIC,
    Metric::time("u2t", "user to the first tracepoint: trimmed mean, less the empty fenced pair")
        .called("user to the first tracepoint"),
    Metric::time("u2t_min", "user to the first tracepoint: minimum"),
    Metric::time("u2t_p99", "user to the first tracepoint: 99th percentile"),
    Metric::time("u2t_p999", "user to the first tracepoint: 99.9th percentile"),
    Metric::time("u2t_uncertainty", "maximum error of the conversion of CLOCK_MONOTONIC to ticks"),
    Metric::count("events_matched", "events of the tracepoint matched to a crossing"),
];

/// The traced way into the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, LevelType)]
pub enum Event {
    /// `exceptions:page_fault_user`.
    PageFault,
    /// `raw_syscalls:sys_enter`.
    Syscall,
}

impl Event {
    /// Returns its path under `events`.
    pub fn path(self) -> &'static str {
        match self {
            Self::PageFault => "exceptions/page_fault_user",
            Self::Syscall => "raw_syscalls/sys_enter",
        }
    }
}

/// Tracer that takes the timestamp in the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, LevelType)]
pub enum TraceBackend {
    /// An instance of the kernel's tracer.
    Tracefs,
    /// A BPF program.
    Bpf,
}

/// A recorder of tracepoint events.
pub trait Tracer {
    /// Discards earlier events and starts recording.
    ///
    /// # Errors
    /// Returns `failed` or `check` if the kernel refuses or the clocks disagree.
    fn start(&mut self) -> Result<(), Failure>;

    /// Stops recording and appends the events in order. Returns the maximum error of their times, in ns.
    ///
    /// # Errors
    /// Returns `failed` or `check` if the records are malformed or the clocks disagree.
    fn stop(&mut self, events: &mut Vec<TraceEvent>) -> Result<f64, Failure>;
}

/// Params of `tracepoint`.
#[derive(Debug, Clone, Copy, Params)]
pub struct TraceParams {
    /// tracepoint: page-fault (exceptions:page_fault_user) or syscall (raw_syscalls:sys_enter)
    #[factor(default = "page-fault")]
    pub(crate) event: Event,
    /// what takes the timestamp: tracefs (a trace instance, in ticks) or bpf (a program, by CLOCK_MONOTONIC)
    #[factor(default = "tracefs")]
    pub(crate) through: TraceBackend,
    /// crossings per sample
    #[factor(default = "100000", levels = Levels::Count(1, MAX_CROSSINGS as u64))]
    crossings: usize,
}

/// The method `tracepoint`.
pub struct Tracepoint;

impl Method for Tracepoint {
    type Params = TraceParams;

    fn name(&self) -> &'static str {
        "tracepoint"
    }

    fn how(&self) -> &'static str {
        "The time-stamp counter is read before and after each crossing, and a trace instance or a BPF program \
         stamps its tracepoint; the value is the trimmed mean from the first to the second, less the median \
         empty pair. Each event must match the mark of one crossing and lie between its readings."
    }

    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    /// Does not check the options that allow tracing; the probe does.
    fn available(&self, params: &TraceParams) -> Result<(), Failure> {
        tracefs::check_pid_namespace()?;
        match params.through {
            TraceBackend::Tracefs => tracefs::available(params.event.path()),
            TraceBackend::Bpf => bpf::available(),
        }
    }

    fn expected(&self, params: &TraceParams, _: Duration) -> Duration {
        // Creating and removing an instance waits for all CPUs several times.
        Duration::from_millis(300) + Duration::from_micros(5) * params.crossings as u32
    }

    fn timed_modules(&self) -> &'static [&'static str] {
        &["crossing::trace::stamps"]
    }

    fn probe(&self) -> Result<Box<dyn Probe<TraceParams>>, Failure> {
        Ok(Box::new(TracepointProbe { instance: None }))
    }
}

/// Checks that the options allow a backend.
///
/// # Errors
/// Returns `unavailable` with the option that allows it.
pub fn check_allowed(
    backend: TraceBackend,
    options: &BTreeMap<String, String>,
) -> Result<(), Failure> {
    let (name, why) = match backend {
        TraceBackend::Tracefs => ("tracefs", "tracing changes tracefs, which was not allowed"),
        TraceBackend::Bpf => ("bpf", "loading a BPF program was not allowed"),
    };
    if is_allowed(options, &format!("allow-{name}")) {
        return Ok(());
    }
    let remedy = format!("tollgate run crossing/tracepoint --allow {name}");
    Err(Failure::unavailable(why, remedy))
}

struct TracepointProbe {
    /// Created once, because that takes longer than many crossings.
    instance: Option<Instance>,
}

impl Probe<TraceParams> for TracepointProbe {
    fn measure(
        &mut self,
        context: &mut Context,
        params: &TraceParams,
    ) -> Result<Measurement, Failure> {
        Tracepoint.available(params)?;
        check_allowed(params.through, context.options)?;
        let tsc = context.tsc()?;
        let times = match params.through {
            TraceBackend::Bpf => {
                let mut program = bpf::Program::attach(params.event)?;
                cross(&mut program, params.event, params.crossings, tsc)?
            }
            TraceBackend::Tracefs => {
                let instance = match &self.instance {
                    Some(instance) => instance,
                    None => self.instance.insert(Instance::create()?),
                };
                let cpu = machine::pin::current_cpu();
                let mut recording = instance.record(params.event, thread_id(), cpu)?;
                cross(&mut recording, params.event, params.crossings, tsc)?
            }
        };
        times.into_measurement(params.through, tsc)
    }
}

/// Returns the ID of this thread.
pub fn thread_id() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()
}

/// Times of crossings until the tracepoint.
pub struct TracedTimes {
    /// Times less the empty fenced pair.
    pub ticks: Ticks,
    /// Crossings made.
    pub made: u64,
    /// Events matched to a crossing.
    pub matched: u64,
    /// Maximum error of the times, in ns.
    pub uncertainty: f64,
}

impl TracedTimes {
    fn into_measurement(self, backend: TraceBackend, tsc: &Tsc) -> Result<Measurement, Failure> {
        let measurement = Measurement::default()
            .value(CROSSINGS_MADE.name, self.made as f64)
            .value("events_matched", self.matched as f64)
            .value(STEP_METRIC.name, tsc.nanoseconds(tsc.step as f64))
            .value(
                RESOLUTION_METRIC.name,
                resolution(tsc.nanoseconds(tsc.step as f64), self.matched),
            );
        let measurement = match backend {
            TraceBackend::Bpf => measurement.value("u2t_uncertainty", self.uncertainty),
            TraceBackend::Tracefs => measurement,
        };
        self.ticks.into_measurement(measurement, "u2t", self.ticks.trimmed_mean(), tsc.hertz)
    }
}

/// Makes `count` crossings on this thread, which must be pinned to one CPU.
///
/// # Errors
/// Returns `check` if crossings and events of the tracepoint do not match.
pub fn cross(
    tracer: &mut dyn Tracer,
    event: Event,
    count: usize,
    tsc: &Tsc,
) -> Result<TracedTimes, Failure> {
    let mut crossings = Crossings::new(event, BATCH)?;
    let mut events = Vec::with_capacity(2 * BATCH);
    let empty = || {
        Ok::<_, Failure>(TracedTimes {
            ticks: Ticks::new()?,
            made: 0,
            matched: 0,
            uncertainty: 0.0,
        })
    };
    let mut times = empty()?;
    batch(tracer, &mut crossings, WARM_UP, &mut events, tsc, &mut times)?;
    times = empty()?;
    let mut left = count;
    while left > 0 {
        let size = left.min(crossings.capacity());
        batch(tracer, &mut crossings, size, &mut events, tsc, &mut times)?;
        left -= size;
    }
    Ok(times)
}

fn batch(
    tracer: &mut dyn Tracer,
    crossings: &mut Crossings,
    size: usize,
    events: &mut Vec<TraceEvent>,
    tsc: &Tsc,
    times: &mut TracedTimes,
) -> Result<(), Failure> {
    crossings.prepare();
    events.clear();
    tracer.start()?;
    let marks = crossings.marks();
    let stamps = crossings.make(size);
    let uncertainty = tracer.stop(events)?;
    // The stamps have an error of one step of the counter too.
    let tolerance = match uncertainty {
        0.0 => 0,
        ns => (ns * tsc.hertz / 1e9).ceil() as u64 + tsc.step,
    };
    times.made += stamps.len() as u64;
    times.uncertainty = times.uncertainty.max(uncertainty);
    matching::match_events(stamps, events, &marks, tolerance, |stamp, event| {
        let elapsed = event.ticks.saturating_sub(stamp.before).saturating_sub(tsc.overhead);
        times.ticks.record(elapsed);
        times.matched += 1;
    })
}
