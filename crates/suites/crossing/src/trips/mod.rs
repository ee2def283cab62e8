//! `crossing/round-trips`: what a whole way into the kernel and back costs on any Linux.
//!
//! Every trip proves that it was made: calls return what they must, faults are counted by the kernel,
//! signals by their handler, bytes come back. Times are of batches, in which the counter's step is at
//! most 1%; trips that are long enough are timed one by one too, for their tails.

mod batch;
mod enter;
mod faults;
mod futex;
mod lmbench;
mod order;
mod pages;
pub mod perf;
mod pipe;
mod rings;
mod setup;
mod signals;
mod switches;
mod syscalls;
mod user_faults;

use std::path::{Path, PathBuf};
use std::time::Duration;

use lab::measure::{Context, Measurement};
use lab::method::{Method, Probe};
use lab::metric::{Better, Metric};
use lab::proximity::{between, pair};
use lab::sample::Failure;
use machine::tsc::Tsc;

use batch::{Timing, with_tails};
use faults::Touch;
use pages::Pages;
pub use setup::{By, Cpus, Trip, TripParams};

/// The option that names the folder of the mapped file.
const FILE_FOLDER: &str = "file-folder";

/// The metrics of this experiment that the others do not have.
pub const METRICS: &[Metric] = &[
    Metric::time("time", "a round trip, of faults each that was made: median over batches"),
    Metric::time("time_min", "a round trip: the batch that took least"),
    Metric::time(
        "time_per_page",
        "of a file: the same time over the pages touched, as lmbench divides",
    ),
    Metric::time("each", "a round trip timed by itself: median"),
    Metric::time("each_min", "a round trip timed by itself: the least"),
    Metric::time("each_p99", "a round trip timed by itself: what 99% stay under"),
    Metric::time("each_p999", "a round trip timed by itself: what 99.9% stay under"),
    Metric::count("operations", "round trips made in batches"),
    Metric::count(
        "unproven",
        "batches that do not count, for a thread found the answer before it slept (futex)",
    ),
    Metric {
        name: "slept",
        unit: "1",
        better: Better::Neither,
        about: "of the waits of both threads, the share in which one gave up its CPU; in the others the byte was \
                there already, and the trip cost less (pipe)",
    },
    Metric::count("faults_made", "page faults made in batches, by the kernel's table of pages"),
    Metric::count(
        "faults_counted",
        "page faults that the kernel counted in batches, minor and major, those of others too",
    ),
    Metric::count("pages_touched", "pages touched in batches"),
];

/// Makes whole ways into the kernel and back.
pub struct RoundTrips;

impl Method for RoundTrips {
    type Params = TripParams;

    fn name(&self) -> &'static str {
        "round-trips"
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

    fn probe(&self) -> Result<Box<dyn Probe<TripParams>>, Failure> {
        Ok(Box::new(Trips::default()))
    }
}

/// Whether a trip can be made here.
///
/// # Errors
/// The reason why not, and the remedy.
pub fn available(params: TripParams) -> Result<(), Failure> {
    params.available()?;
    if params.has_two_cpus() {
        pair(&machine::topology::allowed_cpus())?;
    }
    Ok(())
}

/// Makes round trips; keeps the file, for writing one costs more than a sample.
#[derive(Default)]
pub struct Trips {
    file: Option<Pages>,
}

/// Under what a point is measured.
#[derive(Debug, Clone)]
pub struct Conditions<'a> {
    /// The CPUs that may be used; the first is this thread's own.
    pub cpus: &'a [usize],
    /// How long to measure; preparing is not counted.
    pub budget: Duration,
    /// Of the order in which pages are touched.
    pub seed: u64,
    /// Where the mapped file is made.
    pub folder: PathBuf,
}

impl Probe<TripParams> for Trips {
    fn measure(
        &mut self,
        context: &mut Context,
        params: &TripParams,
    ) -> Result<Measurement, Failure> {
        let folder = context.options.get(FILE_FOLDER);
        let conditions = Conditions {
            cpus: context.cpus,
            budget: context.budget,
            seed: context.seed,
            folder: folder.map_or_else(std::env::temp_dir, PathBuf::from),
        };
        self.make(*params, &conditions, context.tsc()?)
    }
}

impl Trips {
    /// Makes one kind of round trip until the budget is spent. Pins this thread to the first CPU.
    ///
    /// # Errors
    /// What stands in the sample's place; a trip that was not made fails a check.
    pub fn make(
        &mut self,
        setup: TripParams,
        conditions: &Conditions,
        tsc: &'static Tsc,
    ) -> Result<Measurement, Failure> {
        setup.available()?;
        let Some(&own) = conditions.cpus.first() else {
            return Err(Failure::failed("no CPU may be used"));
        };
        machine::pin::pin_to(own)?;
        let other = if setup.has_two_cpus() { pair(conditions.cpus)?.1 } else { own };
        let timing = Timing { tsc, budget: conditions.budget };
        between(own, other, || match (setup.by, setup.trip) {
            (By::Perf, _) => perf::measure(timing),
            (By::Lmbench, _) => {
                let file = self.file(&conditions.folder)?;
                faults::settled(lmbench::measure(file, conditions.seed, timing.budget))
            }
            (_, Trip::FaultFile) => {
                let file = self.file(&conditions.folder)?;
                faults::measure(file, Touch::ReadFile, conditions.seed, timing)
            }
            (_, trip) => by_tollgate(trip, other, conditions.seed, timing),
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

fn by_tollgate(
    trip: Trip,
    other: usize,
    seed: u64,
    timing: Timing,
) -> Result<Measurement, Failure> {
    let anonymous = || Pages::anonymous(faults::PAGES);
    let tsc = timing.tsc;
    match trip {
        Trip::None => timing.batches(&mut syscalls::Nothing)?.told(tsc),
        Trip::Getppid => timing.batches(&mut syscalls::Calls::getppid())?.told(tsc),
        Trip::GetppidLibc => timing.batches(&mut syscalls::ThroughLibc::new())?.told(tsc),
        Trip::UnknownSyscall => timing.batches(&mut syscalls::Calls::unknown())?.told(tsc),
        Trip::IoUring => timing.batches(&mut rings::Nops::new(1)?)?.told(tsc),
        Trip::IoUringBatched => timing.batches(&mut rings::Nops::new(rings::TOGETHER)?)?.told(tsc),
        Trip::FaultAnonymous => faults::measure(&anonymous()?, Touch::Write, seed, timing),
        Trip::FaultZeroPage => faults::measure(&anonymous()?, Touch::ReadZero, seed, timing),
        Trip::FaultShared => {
            faults::measure(&Pages::shared(faults::PAGES)?, Touch::Write, seed, timing)
        }
        Trip::FaultFile => Err(Failure::failed("the file of this trip is the probe's")),
        Trip::Sigsegv => with_tails(&mut signals::Raising::new(signals::Signal::Fault)?, timing),
        Trip::BreakpointSignal => {
            with_tails(&mut signals::Raising::new(signals::Signal::Breakpoint)?, timing)
        }
        Trip::Futex => with_tails(&mut futex::Turns::with(other)?, timing),
        Trip::Pipe => {
            let mut turns = pipe::Turns::with(other)?;
            let told = with_tails(&mut turns, timing)?;
            Ok(told.value("slept", turns.slept()?))
        }
        Trip::Userfaultfd => with_tails(&mut user_faults::Missing::with(other)?, timing),
    }
}
