//! Operations timed in batches, and one by one.

use std::ops::{Range, RangeInclusive};
use std::time::{Duration, Instant};

use lab::measure::Measurement;
use lab::sample::Failure;
use lab::statistics;
use machine::tsc::{self, Tsc};

use crate::ticks::Ticks;

/// A batch lasts at least this many steps of the counter, so that a step is 0.1% of it.
const STEPS: u64 = 1000;
/// A batch that lasted fewer steps than this is no measurement: a step would be over 1% of it.
const LEAST_STEPS: u64 = 100;
/// The least operations one by one that make a histogram.
const LEAST_SINGLE: u64 = 32;
/// The least batches that make a median.
const LEAST_BATCHES: usize = 5;
/// The most batches of a sample: they are kept until its end.
const MOST_BATCHES: usize = 1 << 16;
/// Tries of one size of batch before a longer one is tried: a stall makes a short batch look long.
const TRIES: usize = 3;

/// Something that is done again and again, and proves that it was done.
pub(super) trait Operation {
    /// How many may be made in a row: the least, and what [`prepare`](Self::prepare) can prepare.
    fn sizes(&self) -> RangeInclusive<usize>;

    /// Makes ready for so many, outside all time.
    fn prepare(&mut self, _: usize) -> Result<(), Failure> {
        Ok(())
    }

    /// Makes those of these numbers. This alone is timed.
    fn make(&mut self, numbers: Range<usize>);

    /// Whether all those that were prepared were made, outside all time; how many to divide by.
    fn check(&mut self, made: usize) -> Result<u64, Failure>;

    /// Of all those made so far, how many went another way than the one that is timed. Their times do not count.
    fn unproven(&self) -> u64 {
        0
    }

    /// Those whose times may count begin now, outside all time.
    fn begin(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    /// Whether it shows that so many since then went the way that is timed, outside all time.
    fn is_proven(&mut self, _: u64) -> Result<bool, Failure> {
        Ok(true)
    }
}

/// The cause of a void sample in which too little went the way that is timed.
const UNPROVEN: &str = "too few trips went the way that is timed: a thread did not sleep";
/// Why there is no time if nothing goes the way that is timed: the scheduler, not a disturbance, decides so.
const NEVER_PROVEN: &str = "almost no trip goes the way that is timed: the scheduler runs the woken thread before the other sleeps";
/// What helps.
const LET_IT_SLEEP: &str =
    "choose cpus = two, or write NO_WAKEUP_PREEMPTION to /sys/kernel/debug/sched/features as root";
/// How many times the budget is spent before a sample ends without enough that went that way.
const PATIENCE: u32 = 4;
/// How many tries at least must have gone another way before the scheduler is said to decide so.
const MANY: u64 = 64;
/// How many of them there must be to one that went the way that is timed.
const FAR_MORE: u64 = 16;

/// By what operations are timed.
#[derive(Clone, Copy)]
pub(super) struct Timing {
    pub(super) tsc: &'static Tsc,
    pub(super) budget: Duration,
}

/// What batches of one operation took.
pub(super) struct Batches {
    /// Of each batch: ticks an operation.
    each: Vec<f64>,
    /// Operations of all batches.
    pub(super) operations: u64,
    /// Batches that do not count, for one of their operations went another way.
    unproven: u64,
}

impl Timing {
    /// The same for a part of the budget.
    pub(super) fn half(self) -> Self {
        Self { budget: self.budget / 2, ..self }
    }

    /// Times batches until the budget is spent, all of one size.
    pub(super) fn batches(self, operation: &mut impl Operation) -> Result<Batches, Failure> {
        let size = self.size(operation)?;
        operation.begin()?;
        let mut batches = Batches { each: Vec::with_capacity(4096), operations: 0, unproven: 0 };
        let begun = Instant::now();
        let enough = |made: usize| made >= LEAST_BATCHES && begun.elapsed() > self.budget;
        while !enough(batches.each.len()) && batches.each.len() < MOST_BATCHES {
            let before = operation.unproven();
            let (ticks, made) = self.batch(operation, size)?;
            if operation.unproven() == before {
                batches.each.push(ticks as f64 / made as f64);
                batches.operations += made;
            } else {
                batches.unproven += 1;
            }
            let proven = batches.each.len();
            if proven < LEAST_BATCHES {
                self.keep_patience(begun, proven as u64, batches.unproven)?;
            }
        }
        match operation.is_proven((batches.each.len() * size) as u64)? {
            true => Ok(batches),
            false => Err(Failure::void(UNPROVEN)),
        }
    }

    /// Times operations one by one until the budget is spent and there are enough, at least once through the greatest
    /// size.
    pub(super) fn one_by_one(self, operation: &mut impl Operation) -> Result<Ticks, Failure> {
        let size = *operation.sizes().end();
        let mut ticks = Ticks::new()?;
        let mut unproven = 0;
        operation.begin()?;
        let begun = Instant::now();
        while ticks.count() < LEAST_SINGLE || begun.elapsed() < self.budget {
            operation.prepare(size)?;
            for number in 0..size {
                let before = operation.unproven();
                let begin = tsc::start();
                operation.make(number..number + 1);
                let passed = tsc::stop().saturating_sub(begin);
                if operation.unproven() == before {
                    ticks.record(passed.saturating_sub(self.tsc.overhead));
                } else {
                    unproven += 1;
                }
            }
            operation.check(size)?;
            if ticks.count() < LEAST_SINGLE {
                self.keep_patience(begun, ticks.count(), unproven)?;
            }
        }
        match operation.is_proven(ticks.count())? {
            true => Ok(ticks),
            false => Err(Failure::void(UNPROVEN)),
        }
    }

    /// Ends a sample that has spent its time without enough tries that count. The scheduler is the reason only if many
    /// tries say so: one stall can spend the time too.
    fn keep_patience(self, begun: Instant, proven: u64, unproven: u64) -> Result<(), Failure> {
        if begun.elapsed() <= self.budget * PATIENCE || unproven == 0 {
            return Ok(());
        }
        match unproven >= MANY && unproven / FAR_MORE >= proven {
            true => Err(Failure::unavailable(NEVER_PROVEN, LET_IT_SLEEP)),
            false => Err(Failure::void(UNPROVEN)),
        }
    }

    /// The least size of batch that lasts long enough, or the most that there is. It warms up too.
    fn size(self, operation: &mut impl Operation) -> Result<usize, Failure> {
        let sizes = operation.sizes();
        let mut size = *sizes.start();
        loop {
            let mut least = u64::MAX;
            for _ in 0..TRIES {
                least = least.min(self.batch(operation, size)?.0);
            }
            if least >= STEPS * self.tsc.step {
                return Ok(size);
            }
            if size == *sizes.end() {
                let short = least < LEAST_STEPS * self.tsc.step;
                return if short { Err(too_short(size, least)) } else { Ok(size) };
            }
            size = (size * 2).min(*sizes.end());
        }
    }

    fn batch(self, operation: &mut impl Operation, size: usize) -> Result<(u64, u64), Failure> {
        operation.prepare(size)?;
        let begin = tsc::start();
        operation.make(0..size);
        let ticks = tsc::stop().saturating_sub(begin).saturating_sub(self.tsc.overhead);
        let made = operation.check(size)?;
        if made == 0 {
            return Err(Failure::check(format!("a batch of {size} made no operation")));
        }
        Ok((ticks, made))
    }
}

fn too_short(size: usize, ticks: u64) -> Failure {
    Failure::failed(format!(
        "{size} operations took {ticks} ticks, too few for this counter's step"
    ))
}

impl Batches {
    /// Adds `time`, `time_min` and `operations`, and `unproven` where batches do not count.
    pub(super) fn told(&self, tsc: &Tsc) -> Result<Measurement, Failure> {
        let median = statistics::median(&self.each);
        let median = median.ok_or_else(|| Failure::failed("no batch was timed"))?;
        let least = self.each.iter().copied().fold(f64::INFINITY, f64::min);
        let told = Measurement::default()
            .value("time", tsc.nanoseconds(median))
            .value("time_min", tsc.nanoseconds(least))
            .value("operations", self.operations as f64);
        Ok(match self.unproven {
            0 => told,
            batches => told.value("unproven", batches as f64),
        })
    }
}

/// Half of the budget for batches, half for operations one by one: `time` and `each`.
pub(super) fn with_tails(
    operation: &mut impl Operation,
    timing: Timing,
) -> Result<Measurement, Failure> {
    let told = timing.half().batches(operation)?.told(timing.tsc)?;
    let ticks = timing.half().one_by_one(operation)?;
    ticks.into_measurement(told, "each", timing.tsc.hertz)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::sample::FailureKind;

    /// Waits so many ticks an operation; says that it made fewer than it did where `lost` are.
    struct Waiting {
        ticks: u64,
        most: usize,
        made: usize,
        lost: usize,
    }

    impl Operation for Waiting {
        fn sizes(&self) -> RangeInclusive<usize> {
            1..=self.most
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

    fn waiting(ticks: u64, most: usize) -> Waiting {
        Waiting { ticks, most, made: 0, lost: 0 }
    }

    #[test]
    fn the_value_is_the_time_of_one_operation() {
        let due = timing().tsc.nanoseconds(20_000.0);
        let end = Instant::now() + Duration::from_secs(60);
        // Others may hold the CPU through all of a sample: they only add.
        let told = loop {
            let told = with_tails(&mut waiting(20_000, 64), timing()).unwrap();
            let ratios = ["time_min", "each_min"].map(|name| told.values[name] / due);
            assert!(ratios.iter().all(|ratio| *ratio > 0.98), "{ratios:?} of what is due");
            if ratios.iter().all(|ratio| *ratio < 1.5) {
                break told;
            }
            assert!(Instant::now() < end, "{ratios:?} of what is due");
        };
        assert!(told.values["time"] >= told.values["time_min"]);
        assert!(told.values["operations"] >= 5.0 && told.histograms.contains_key("each"));
    }

    /// Takes long where it goes the way that is timed, and little where it does not, which is every so many
    /// times.
    struct TwoWays {
        waiting: Waiting,
        other_every: u64,
        made: u64,
        other: u64,
    }

    impl Operation for TwoWays {
        fn sizes(&self) -> RangeInclusive<usize> {
            1..=4
        }

        fn make(&mut self, numbers: Range<usize>) {
            for number in numbers {
                self.made += 1;
                let is_other = self.made.is_multiple_of(self.other_every);
                self.other += u64::from(is_other);
                self.waiting.ticks = if is_other { 8_000 } else { 60_000 };
                self.waiting.make(number..number + 1);
            }
        }

        fn check(&mut self, made: usize) -> Result<u64, Failure> {
            Ok(made as u64)
        }

        fn unproven(&self) -> u64 {
            self.other
        }
    }

    #[test]
    fn what_goes_another_way_is_not_in_the_times() {
        let two_ways = |other_every| {
            let waiting = waiting(60_000, 4);
            with_tails(&mut TwoWays { waiting, other_every, made: 0, other: 0 }, timing())
        };
        // Others may hold the CPU for so long that too few tries were made.
        let end = Instant::now() + Duration::from_secs(60);
        let measured = |other_every| loop {
            match two_ways(other_every) {
                Err(void) if void.kind == FailureKind::Void && Instant::now() < end => {}
                outcome => break outcome,
            }
        };
        let told = measured(3).unwrap();
        let due = timing().tsc.nanoseconds(60_000.0);
        for name in ["time_min", "each_min"] {
            assert!(told.values[name] > 0.98 * due, "{name}: {told:?}");
        }
        assert!(told.values["unproven"] > 0.0);
        assert_eq!(measured(1).unwrap_err().why, NEVER_PROVEN);
        assert!(!measured(u64::MAX).unwrap().values.contains_key("unproven"));
    }

    /// Goes another way every second time, and stands still for long once, in a try that counts or in one that does not.
    struct Stalling {
        ways: TwoWays,
        stall_at: u64,
    }

    impl Operation for Stalling {
        fn sizes(&self) -> RangeInclusive<usize> {
            1..=1
        }

        fn make(&mut self, numbers: Range<usize>) {
            if self.ways.made == self.stall_at {
                std::thread::sleep(Duration::from_millis(3));
            }
            self.ways.make(numbers);
        }

        fn check(&mut self, made: usize) -> Result<u64, Failure> {
            Ok(made as u64)
        }

        fn unproven(&self) -> u64 {
            self.ways.other
        }
    }

    #[test]
    fn one_stall_never_makes_a_trip_unavailable() {
        for stall_at in 0..80 {
            for other_every in [1, 2] {
                let ways = TwoWays { waiting: waiting(60_000, 1), other_every, made: 0, other: 0 };
                let mut stalling = Stalling { ways, stall_at };
                let timing = Timing { budget: Duration::from_micros(100), ..timing() };
                if let Err(failure) = timing.batches(&mut stalling) {
                    let is_sure = other_every == 1 && stalling.ways.made >= MANY;
                    assert!(failure.kind == FailureKind::Void || is_sure, "{stall_at}: {failure}");
                }
            }
        }
    }

    #[test]
    fn short_operations_are_made_many_at_once() {
        let size = timing().size(&mut waiting(100, 1 << 20)).unwrap();
        assert!(size > 1 && size as u64 <= 2 * STEPS * timing().tsc.step, "{size}");
        assert_eq!(timing().size(&mut waiting(1 << 20, 64)).unwrap(), 1);
    }

    #[test]
    fn a_batch_that_the_step_would_spoil_is_refused() {
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
        assert!(timing.size(&mut Nothing).unwrap_err().why.contains("too few for"));
    }

    #[test]
    fn an_operation_that_was_not_made_fails_the_sample() {
        let mut waiting = waiting(1000, 64);
        waiting.lost = 1;
        assert!(timing().batches(&mut waiting).is_err());
        assert!(timing().one_by_one(&mut waiting).is_err());
    }
}
