//! Timing of operations in batches and individually.

use std::ops::{Range, RangeInclusive};
use std::time::{Duration, Instant};

use lab::measure::Measurement;
use lab::sample::Failure;
use lab::statistics;
use machine::tsc::{self, Tsc};

use crate::ticks::Ticks;

/// Duration below which a batch fails, steps: a step would exceed 1%.
const ERROR_STEPS: u64 = 100;
/// Minimum number of individually timed operations.
const MIN_SINGLE: u64 = 32;
/// Minimum number of batches.
const MIN_BATCHES: usize = 5;
/// Minimum operations per batch without timing, as far as the operation allows it.
const UNTIMED_SIZE: usize = 200;
/// Maximum number of batches, which are kept in memory until the end of the sample.
const MAX_BATCHES: usize = 1 << 16;

/// A repeatable operation that verifies its work.
pub(super) trait Operation {
    /// Returns the minimum and maximum number of operations per batch.
    fn sizes(&self) -> RangeInclusive<usize>;

    /// Prepares a batch of `count` operations. Not timed.
    fn prepare(&mut self, count: usize) -> Result<(), Failure> {
        let _ = count;
        Ok(())
    }

    /// Makes the operations with these numbers. Only this is timed.
    fn make(&mut self, numbers: Range<usize>);

    /// Checks that `made` operations were made, and returns the number to divide the time by. Not timed.
    fn check(&mut self, made: usize) -> Result<u64, Failure>;

    /// Returns the total number of operations that did not take the timed path. Their times are dropped.
    fn unproven(&self) -> u64 {
        0
    }

    /// Called before the first timed operation. Not timed.
    fn start(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    /// Returns whether at least `made` operations since [`start`](Self::start) took the timed path. Not timed.
    fn is_proven(&mut self, made: u64) -> Result<bool, Failure> {
        let _ = made;
        Ok(true)
    }
}

/// Cause of a void sample with too few trips on the timed path.
const UNPROVEN: &str = "too few trips in which both threads slept";
/// Cause of unavailability if the scheduler, not a disturbance, keeps trips off the timed path.
const NEVER_PROVEN: &str = "in almost no trip both threads sleep: the scheduler runs the woken thread before the other sleeps";
/// Fix for [`NEVER_PROVEN`].
const NEVER_PROVEN_REMEDY: &str =
    "choose cpus = two, or write NO_WAKEUP_PREEMPTION to /sys/kernel/debug/sched/features as root";
/// Multiple of the budget after which a sample without enough proven trips ends.
const MAX_BUDGETS: u32 = 4;
/// Minimum number of unproven tries that show the scheduler as the cause.
const MIN_UNPROVEN: u64 = 64;
/// Minimum ratio of unproven to proven tries that shows the scheduler as the cause.
const MIN_UNPROVEN_RATIO: u64 = 16;

/// The counter and the time budget of a measurement.
#[derive(Clone, Copy)]
pub(super) struct Timing {
    pub(super) tsc: &'static Tsc,
    pub(super) budget: Duration,
}

/// Times of batches of one operation.
pub(super) struct Batches {
    /// Ticks per operation of each batch.
    each: Vec<f64>,
    /// Total operations.
    pub(super) operations: u64,
    /// Batches dropped because an operation did not take the timed path.
    unproven: u64,
}

impl Timing {
    /// Returns the same with half of the budget.
    pub(super) fn half(self) -> Self {
        Self { budget: self.budget / 2, ..self }
    }

    /// Times batches of one size until the budget is spent.
    pub(super) fn batches(self, operation: &mut impl Operation) -> Result<Batches, Failure> {
        let size = self.batch_size(operation)?;
        operation.start()?;
        let mut batches = Batches { each: Vec::with_capacity(4096), operations: 0, unproven: 0 };
        let start = Instant::now();
        let enough = |made: usize| made >= MIN_BATCHES && start.elapsed() > self.budget;
        while !enough(batches.each.len()) && batches.each.len() < MAX_BATCHES {
            let before = operation.unproven();
            let (ticks, made) = self.batch(operation, size)?;
            if operation.unproven() == before {
                batches.each.push(ticks as f64 / made as f64);
                batches.operations += made;
            } else {
                batches.unproven += 1;
            }
            let proven = batches.each.len();
            if proven < MIN_BATCHES {
                self.check_progress(start, proven as u64, batches.unproven)?;
            }
        }
        match operation.is_proven((batches.each.len() * size) as u64)? {
            true => Ok(batches),
            false => Err(Failure::void(UNPROVEN)),
        }
    }

    /// Times operations individually until the budget is spent and there are enough, in batches of the maximum size.
    pub(super) fn one_by_one(self, operation: &mut impl Operation) -> Result<Ticks, Failure> {
        let size = *operation.sizes().end();
        let mut ticks = Ticks::new()?;
        let mut unproven = 0;
        operation.start()?;
        let start = Instant::now();
        while ticks.count() < MIN_SINGLE || start.elapsed() < self.budget {
            operation.prepare(size)?;
            for number in 0..size {
                let before = operation.unproven();
                let start_ticks = tsc::start();
                operation.make(number..number + 1);
                let passed = tsc::stop().saturating_sub(start_ticks);
                if operation.unproven() == before {
                    ticks.record(passed.saturating_sub(self.tsc.overhead));
                } else {
                    unproven += 1;
                }
            }
            operation.check(size)?;
            if ticks.count() < MIN_SINGLE {
                self.check_progress(start, ticks.count(), unproven)?;
            }
        }
        match operation.is_proven(ticks.count())? {
            true => Ok(ticks),
            false => Err(Failure::void(UNPROVEN)),
        }
    }

    /// Ends a sample that has exceeded its time without enough proven tries. The scheduler is the cause only if many
    /// tries show it, because a single stall can also exceed the time.
    fn check_progress(self, start: Instant, proven: u64, unproven: u64) -> Result<(), Failure> {
        if start.elapsed() <= self.budget * MAX_BUDGETS || unproven == 0 {
            return Ok(());
        }
        match unproven >= MIN_UNPROVEN && unproven / MIN_UNPROVEN_RATIO >= proven {
            true => Err(Failure::unavailable(NEVER_PROVEN, NEVER_PROVEN_REMEDY)),
            false => Err(Failure::void(UNPROVEN)),
        }
    }

    /// Returns the minimum size of a batch that lasts long enough, or the maximum size. It also warms up.
    fn batch_size(self, operation: &mut impl Operation) -> Result<usize, Failure> {
        let (sizes, max) = (operation.sizes(), *operation.sizes().end());
        let timed = |size| self.batch(operation, size).map(|(ticks, _)| ticks);
        match self.tsc.batch_size(sizes, timed)? {
            (size, ticks) if size == max && ticks < ERROR_STEPS * self.tsc.step => {
                Err(too_short(size, ticks))
            }
            (size, _) => Ok(size),
        }
    }

    fn batch(self, operation: &mut impl Operation, size: usize) -> Result<(u64, u64), Failure> {
        operation.prepare(size)?;
        let start_ticks = tsc::start();
        operation.make(0..size);
        let ticks = tsc::stop().saturating_sub(start_ticks).saturating_sub(self.tsc.overhead);
        let made = operation.check(size)?;
        if made == 0 {
            return Err(Failure::check(format!("no operation was made in a batch of {size}")));
        }
        Ok((ticks, made))
    }
}

fn too_short(size: usize, ticks: u64) -> Failure {
    Failure::failed(format!(
        "{size} operations took {ticks} ticks: too short for the step of this counter"
    ))
}

impl Batches {
    /// Converts to `time`, `time_min` and `operations`, and to `unproven` if batches were dropped.
    pub(super) fn to_measurement(&self, tsc: &Tsc) -> Result<Measurement, Failure> {
        let median = statistics::median(&self.each);
        let median = median.ok_or_else(|| Failure::failed("no batch was timed"))?;
        let least = self.each.iter().copied().fold(f64::INFINITY, f64::min);
        let measurement = Measurement::default()
            .value("time", tsc.nanoseconds(median))
            .value("time_min", tsc.nanoseconds(least))
            .value("operations", self.operations as f64);
        Ok(match self.unproven {
            0 => measurement,
            batches => measurement.value("unproven", batches as f64),
        })
    }
}

/// Measures `time` in batches; without timing, verifies a fixed number of operations.
pub(super) fn in_batches(
    operation: &mut impl Operation,
    timing: Option<Timing>,
) -> Result<Measurement, Failure> {
    match timing {
        Some(timing) => timing.batches(operation)?.to_measurement(timing.tsc),
        None => verified(operation),
    }
}

/// Makes a fixed number of batches, whose number of operations does not depend on a time, and counts what they verify.
pub(super) fn verified(operation: &mut impl Operation) -> Result<Measurement, Failure> {
    // As for a timed batch, the minimum is doubled: some operations need a multiple of it.
    let (mut size, max) = operation.sizes().into_inner();
    while size < UNTIMED_SIZE && size <= max / 2 {
        size *= 2;
    }
    operation.start()?;
    let mut made = 0;
    for _ in 0..MIN_BATCHES {
        operation.prepare(size)?;
        operation.make(0..size);
        made += operation.check(size)?;
    }
    Ok(Measurement::default().value("operations", made as f64))
}

/// Measures `time` in batches with half of the budget, and `each` individually with the other half; without timing, verifies
/// a fixed number of operations.
pub(super) fn with_tails(
    operation: &mut impl Operation,
    timing: Option<Timing>,
) -> Result<Measurement, Failure> {
    let Some(timing) = timing else { return verified(operation) };
    let measurement = timing.half().batches(operation)?.to_measurement(timing.tsc)?;
    let ticks = timing.half().one_by_one(operation)?;
    ticks.into_measurement(measurement, "each", ticks.trimmed_mean(), timing.tsc.hertz)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::sample::FailureKind;
    use machine::tsc::MIN_BATCH_STEPS;

    /// Waits `ticks` per operation, and reports `lost` operations fewer than made.
    struct Waiting {
        ticks: u64,
        max: usize,
        made: usize,
        lost: usize,
    }

    impl Operation for Waiting {
        fn sizes(&self) -> RangeInclusive<usize> {
            1..=self.max
        }

        fn prepare(&mut self, _: usize) -> Result<(), Failure> {
            self.made = 0;
            Ok(())
        }

        fn make(&mut self, numbers: Range<usize>) {
            for _ in numbers {
                let end = tsc::start() + self.ticks;
                while tsc::start() < end {}
                self.made += 1;
            }
        }

        fn check(&mut self, made: usize) -> Result<u64, Failure> {
            match self.made - self.lost {
                counted if counted == made => Ok(counted as u64),
                counted => Err(Failure::check(format!("{counted} of {made}"))),
            }
        }
    }

    fn timing() -> Timing {
        Timing { tsc: Tsc::get().unwrap(), budget: Duration::from_millis(2) }
    }

    fn waiting(ticks: u64, max: usize) -> Waiting {
        Waiting { ticks, max, made: 0, lost: 0 }
    }

    #[test]
    fn the_value_is_the_time_of_one_operation() {
        let expected = timing().tsc.nanoseconds(20_000.0);
        let end = Instant::now() + Duration::from_secs(60);
        // Other processes may run during a whole sample, which only adds time.
        let measurement = loop {
            let measurement = with_tails(&mut waiting(20_000, 64), Some(timing())).unwrap();
            let ratios = ["time_min", "each_min"].map(|name| measurement.values[name] / expected);
            assert!(ratios.iter().all(|ratio| *ratio > 0.98), "{ratios:?}");
            if ratios.iter().all(|ratio| *ratio < 1.5) {
                break measurement;
            }
            assert!(Instant::now() < end, "{ratios:?}");
        };
        assert!(measurement.values["time"] >= measurement.values["time_min"]);
        assert!(
            measurement.values["operations"] >= 5.0 && measurement.histograms.contains_key("each")
        );
    }

    /// Takes the slow, timed path, except for every `unproven_every`-th operation.
    struct TwoPaths {
        waiting: Waiting,
        unproven_every: u64,
        made: u64,
        unproven: u64,
    }

    impl Operation for TwoPaths {
        fn sizes(&self) -> RangeInclusive<usize> {
            1..=4
        }

        fn make(&mut self, numbers: Range<usize>) {
            for number in numbers {
                self.made += 1;
                let is_unproven = self.made.is_multiple_of(self.unproven_every);
                self.unproven += u64::from(is_unproven);
                self.waiting.ticks = if is_unproven { 8_000 } else { 60_000 };
                self.waiting.make(number..number + 1);
            }
        }

        fn check(&mut self, made: usize) -> Result<u64, Failure> {
            Ok(made as u64)
        }

        fn unproven(&self) -> u64 {
            self.unproven
        }
    }

    #[test]
    fn operations_off_the_timed_path_are_not_in_the_times() {
        let two_paths = |unproven_every| {
            let waiting = waiting(60_000, 4);
            with_tails(
                &mut TwoPaths { waiting, unproven_every, made: 0, unproven: 0 },
                Some(timing()),
            )
        };
        // Other processes may use the CPU for so long that too few tries are made.
        let end = Instant::now() + Duration::from_secs(60);
        let measured = |unproven_every| loop {
            match two_paths(unproven_every) {
                Err(void) if void.kind == FailureKind::Void && Instant::now() < end => {}
                outcome => break outcome,
            }
        };
        let measurement = measured(3).unwrap();
        let expected = timing().tsc.nanoseconds(60_000.0);
        for name in ["time_min", "each_min"] {
            assert!(measurement.values[name] > 0.98 * expected, "{name}: {measurement:?}");
        }
        assert!(measurement.values["unproven"] > 0.0);
        assert_eq!(measured(1).unwrap_err().why, NEVER_PROVEN);
        assert!(!measured(u64::MAX).unwrap().values.contains_key("unproven"));
    }

    /// Alternates between the paths, and stalls once, in a proven or in an unproven try.
    struct Stalling {
        paths: TwoPaths,
        stall_at: u64,
    }

    impl Operation for Stalling {
        fn sizes(&self) -> RangeInclusive<usize> {
            1..=1
        }

        fn make(&mut self, numbers: Range<usize>) {
            if self.paths.made == self.stall_at {
                std::thread::sleep(Duration::from_millis(3));
            }
            self.paths.make(numbers);
        }

        fn check(&mut self, made: usize) -> Result<u64, Failure> {
            Ok(made as u64)
        }

        fn unproven(&self) -> u64 {
            self.paths.unproven
        }
    }

    #[test]
    fn a_single_stall_never_makes_a_trip_unavailable() {
        for stall_at in 0..80 {
            for unproven_every in [1, 2] {
                let paths =
                    TwoPaths { waiting: waiting(60_000, 1), unproven_every, made: 0, unproven: 0 };
                let mut stalling = Stalling { paths, stall_at };
                let timing = Timing { budget: Duration::from_micros(100), ..timing() };
                if let Err(failure) = timing.batches(&mut stalling) {
                    let is_expected = unproven_every == 1 && stalling.paths.made >= MIN_UNPROVEN;
                    assert!(
                        failure.kind == FailureKind::Void || is_expected,
                        "{stall_at}: {failure}"
                    );
                }
            }
        }
    }

    #[test]
    fn short_operations_are_timed_in_large_batches() {
        let size = timing().batch_size(&mut waiting(100, 1 << 20)).unwrap();
        assert!(size > 1 && size as u64 <= 2 * MIN_BATCH_STEPS * timing().tsc.step, "{size}");
        assert_eq!(timing().batch_size(&mut waiting(1 << 20, 64)).unwrap(), 1);
    }

    #[test]
    fn a_batch_too_short_for_the_step_fails() {
        struct Nothing;
        impl Operation for Nothing {
            fn sizes(&self) -> RangeInclusive<usize> {
                1..=1
            }
            fn make(&mut self, _: Range<usize>) {}
            fn check(&mut self, made: usize) -> Result<u64, Failure> {
                Ok(made as u64)
            }
        }
        let coarse = Tsc { step: 1_000_000, ..*timing().tsc };
        let timing = Timing { tsc: Box::leak(Box::new(coarse)), ..timing() };
        assert!(timing.batch_size(&mut Nothing).unwrap_err().why.contains("too short for"));
    }

    #[test]
    fn a_missing_operation_fails_the_sample() {
        let mut waiting = waiting(1000, 64);
        waiting.lost = 1;
        assert!(timing().batches(&mut waiting).is_err());
        assert!(timing().one_by_one(&mut waiting).is_err());
    }
}
