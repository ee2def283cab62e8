//! `crossing/round-trips`: the cost of a round trip into the kernel on any Linux.
//!
//! Every trip is verified: results of calls, the kernel's count of faults, the handler's count of signals, echoed
//! bytes. Times are those of batches, of which the counter's step is at most 1%. Trips that are long enough are also
//! timed individually, for their tails.

mod batch;
mod faults;
mod lmbench;
mod pages;
mod params;
pub mod perf;
mod ping_pong;
mod rings;
mod signals;
mod syscalls;
mod user_faults;

use std::path::{Path, PathBuf};
use std::time::Duration;

use lab::measure::{Context, Measurement};
use lab::method::{Method, Probe};
use lab::metric::{Better, Metric};
use lab::option::FILE_FOLDER;
use lab::proximity::{between, pair};
use lab::sample::Failure;
use machine::tsc::Tsc;

use batch::{Timing, in_batches, with_tails};
use faults::Touch;
use pages::Pages;
pub use params::{By, Cpus, Trip, TripParams};

/// Metrics of `round-trips`.
pub const METRICS: &[Metric] = &[
    Metric::time("time", "round trip (for faults: per fault made): median of batches")
        .called("round trip"),
    Metric::time("time_min", "round trip: fastest batch"),
    Metric::time(
        "time_per_page",
        "fault of a file: the same time per page touched, as lmbench divides",
    ),
    Metric::time("each", "round trip, timed individually: trimmed mean").called("round trip"),
    Metric::time("each_min", "round trip, timed individually: minimum"),
    Metric::time("each_p99", "round trip, timed individually: 99th percentile"),
    Metric::time("each_p999", "round trip, timed individually: 99.9th percentile"),
    Metric::count("operations", "round trips in batches"),
    Metric::count(
        "unproven",
        "batches dropped because a thread found the answer before it slept (futex)",
    ),
    Metric::new(
        "slept",
        "1",
        Better::Neither,
        "share of the waits of both threads in which the thread slept; in the others the byte had already \
                arrived, and the trip cost less (pipe)",
    ),
    Metric::count("faults_made", "page faults made in batches, by the page table"),
    Metric::count(
        "faults_counted",
        "page faults counted by the kernel in batches, minor and major, including stray ones",
    ),
    Metric::count("pages_touched", "pages touched in batches"),
];

/// The method `round-trips`.
pub struct RoundTrips;

impl Method for RoundTrips {
    type Params = TripParams;

    fn name(&self) -> &'static str {
        "round-trips"
    }

    fn how(&self) -> &'static str {
        "Round trips run in batches of which a step of the time-stamp counter is at most 1%; the value is the \
         median batch. Results of calls, counted faults, handled signals or returned bytes must be right; \
         perf times its own calls, which are not checked."
    }

    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn available(&self, params: &TripParams) -> Result<(), Failure> {
        available(*params)
    }

    fn expected(&self, params: &TripParams, budget: Duration) -> Duration {
        params.expected(budget)
    }

    fn timed_modules(&self) -> &'static [&'static str] {
        &["crossing::trips"]
    }

    fn foreign_code(&self, params: &TripParams) -> Vec<&'static str> {
        match params.by {
            By::Perf => vec!["the loop of perf bench, a program that the host has installed"],
            By::Tollgate | By::Lmbench => Vec::new(),
        }
    }

    fn probe(&self) -> Result<Box<dyn Probe<TripParams>>, Failure> {
        Ok(Box::new(Trips::default()))
    }
}

/// Checks that a trip can be made here.
///
/// # Errors
/// Returns `unavailable` with the cause and the fix.
pub fn available(params: TripParams) -> Result<(), Failure> {
    params.available()?;
    if params.has_two_cpus() {
        pair(&machine::topology::allowed_cpus())?;
    }
    Ok(())
}

/// Probe of round trips. It keeps the mapped file, because writing one takes longer than a sample.
#[derive(Default)]
pub struct Trips {
    file: Option<Pages>,
}

/// Conditions of a sample.
#[derive(Debug, Clone)]
pub struct Conditions<'a> {
    /// Allowed CPUs; this thread runs on the first.
    pub cpus: &'a [usize],
    /// Time budget, without preparation.
    pub budget: Duration,
    /// Seed of the order in which pages are touched.
    pub seed: u64,
    /// Folder of the mapped file.
    pub folder: PathBuf,
}

impl Probe<TripParams> for Trips {
    fn measure(
        &mut self,
        context: &mut Context,
        params: &TripParams,
    ) -> Result<Measurement, Failure> {
        let conditions = Conditions {
            cpus: context.cpus,
            budget: context.budget,
            seed: context.seed,
            folder: lab::option::folder(context.options, FILE_FOLDER.name),
        };
        // On an emulated CPU trips are made and verified, and have no time.
        let tsc = match context.tsc() {
            Err(_) if machine::cpu::lacks_time() && params.by == By::Tollgate => None,
            tsc => Some(tsc?),
        };
        self.make_trips(*params, &conditions, tsc)
    }
}

impl Trips {
    /// Measures one kind of round trip until the budget is spent. Pins this thread to the first CPU.
    ///
    /// # Errors
    /// Returns `unavailable` as [`available`] does, `check` if a trip was not made, `void` after a disturbance.
    pub fn measure_trip(
        &mut self,
        params: TripParams,
        conditions: &Conditions,
        tsc: &'static Tsc,
    ) -> Result<Measurement, Failure> {
        self.make_trips(params, conditions, Some(tsc))
    }

    /// Makes round trips: times them until the budget is spent, or without a counter verifies a fixed number.
    fn make_trips(
        &mut self,
        params: TripParams,
        conditions: &Conditions,
        tsc: Option<&'static Tsc>,
    ) -> Result<Measurement, Failure> {
        params.available()?;
        let Some(&first) = conditions.cpus.first() else {
            return Err(Failure::failed("no allowed CPU"));
        };
        machine::pin::pin_to(first)?;
        let other = if params.has_two_cpus() { pair(conditions.cpus)?.1 } else { first };
        let budget = conditions.budget;
        let timing = tsc.map(|tsc| Timing { tsc, budget });
        between(first, other, || match (params.by, params.trip) {
            (By::Perf, _) => perf::measure(timing.ok_or_else(no_counter)?),
            (By::Lmbench, _) => {
                let file = self.file(&conditions.folder)?;
                faults::void_if_disturbed(lmbench::measure(file, conditions.seed, budget))
            }
            (By::Tollgate, Trip::FaultFile) => {
                let file = self.file(&conditions.folder)?;
                faults::measure(file, Touch::ReadFile, conditions.seed, timing)
            }
            (By::Tollgate, trip) => measure_builtin(trip, other, conditions.seed, timing),
        })
    }

    fn file(&mut self, folder: &Path) -> Result<&Pages, Failure> {
        let file = match self.file.take() {
            Some(file) => file,
            None => Pages::file(faults::PAGES, folder)?,
        };
        Ok(self.file.insert(file))
    }
}

fn no_counter() -> Failure {
    Failure::unavailable("perf reports only times", "use by = tollgate")
}

/// Measures a trip with a built-in loop; without timing it verifies a fixed number.
fn measure_builtin(
    trip: Trip,
    other: usize,
    seed: u64,
    timing: Option<Timing>,
) -> Result<Measurement, Failure> {
    let anonymous = || Pages::anonymous(faults::PAGES);
    match trip {
        Trip::None => in_batches(&mut syscalls::EmptyLoop, timing),
        Trip::Getppid => in_batches(&mut syscalls::SyscallLoop::getppid(), timing),
        Trip::GetppidLibc => in_batches(&mut syscalls::LibcLoop::new(), timing),
        Trip::UnknownSyscall => in_batches(&mut syscalls::SyscallLoop::unknown(), timing),
        Trip::IoUring => in_batches(&mut rings::NopRing::new(1)?, timing),
        Trip::IoUringBatched => in_batches(&mut rings::NopRing::new(rings::BATCH)?, timing),
        Trip::FaultAnonymous => faults::measure(&anonymous()?, Touch::Write, seed, timing),
        Trip::FaultZeroPage => faults::measure(&anonymous()?, Touch::ReadZero, seed, timing),
        Trip::FaultShared => {
            faults::measure(&Pages::shared(faults::PAGES)?, Touch::Write, seed, timing)
        }
        Trip::FaultFile => Err(Failure::failed("fault-file needs the mapped file of the probe")),
        Trip::Sigsegv => with_tails(&mut signals::SignalLoop::new(signals::Signal::Fault)?, timing),
        Trip::BreakpointSignal => {
            with_tails(&mut signals::SignalLoop::new(signals::Signal::Breakpoint)?, timing)
        }
        Trip::Futex => with_tails(&mut ping_pong::FutexPingPong::with(other)?, timing),
        Trip::Pipe => {
            let mut trips = ping_pong::PipePingPong::with(other)?;
            let measurement = with_tails(&mut trips, timing)?;
            Ok(measurement.value("slept", trips.sleep_share()?))
        }
        Trip::Userfaultfd => with_tails(&mut user_faults::UserFaults::with(other)?, timing),
    }
}
