//! Page faults of a Linux that stamps both ways, with the patch in this crate's `kernel/`.
//!
//! The kernel reads the counter at the first instructions of its page-fault entry and just before `iretq`. Together
//! with the readings in user mode these split a fault into entry, the kernel's work and exit. With
//! page-table isolation the switches of CR3 are between the kernel's stamps and therefore in `kernel`; entry and exit
//! contain only their effect on the TLB.
//!
//! The empty pair is subtracted from each part: the same two readings around the same instruction when it does not
//! fault. An unstamped fault contains one such pair, a stamped one three.

mod arming;
mod check;
mod touch;

use lab::artefact::Recipe;
use lab::capability::{self, Capability};
use lab::measure::{Context, Measurement};
use lab::sample::Failure;
use machine::tsc::Tsc;
use machine::usage::Usage;
use vm::patched_linux::Patch;

pub use check::{StampCounts, check};

use crate::guest::CrossingKind;
use crate::ticks::{
    CROSSINGS_MADE, CROSSINGS_STAMPED, RESOLUTION_METRIC, STEP_METRIC, Ticks, resolution,
};
use arming::{arm, check_isolation};
use touch::{Crossing, Tags, TouchedPages, empty_stamps};

/// Pages per batch: as many as one page table maps.
const BATCH: usize = 512;
/// Empty pairs measured before a sample.
const EMPTY_PAIRS: usize = 1_000;

/// Checks that the running kernel stamps crossings of this kind, with isolation off or on.
///
/// # Errors
/// Returns `unavailable` with the cause and the fix.
pub fn available(kind: CrossingKind, isolated: bool) -> Result<(), Failure> {
    let is_supported = match kind {
        CrossingKind::PageFault | CrossingKind::None => true,
        CrossingKind::SoftwareInterrupt
        | CrossingKind::Breakpoint
        | CrossingKind::InvalidOpcode
        | CrossingKind::SyscallSysret
        | CrossingKind::SyscallIretq
        | CrossingKind::SameRing => false,
    };
    if !is_supported {
        return Err(Failure::unavailable(
            format!("a patched kernel stamps only page faults, not '{kind}'"),
            "use route = guest",
        ));
    }
    arming::available()?;
    check_isolation(isolated)
}

/// The patch that stamps page faults.
pub const PATCH: Patch = Patch {
    name: "crossing-stamps",
    text: include_str!("../../kernel/crossing-stamps.patch"),
    options: include_str!("../../kernel/config"),
};

/// Returns the recipe of Linux with the patch that stamps page faults, for guests.
pub fn linux() -> Recipe {
    vm::patched_linux::recipe("patched-linux-6.12", PATCH.text, PATCH.options)
}

/// Returns the capability `crossing-stamps`.
pub fn capability() -> Capability {
    let available = arming::available().map(|()| "per thread, by prctl".into());
    let about = "a patched Linux that stamps page faults on entry and exit";
    capability::checked("crossing-stamps", about, available)
}

/// Takes one sample of `crossings` crossings.
///
/// # Errors
/// Returns `unavailable` as [`available`] does, `check` if a fault was not stamped.
pub fn measure(
    context: &mut Context,
    kind: CrossingKind,
    isolated: bool,
    crossings: u64,
) -> Result<Measurement, Failure> {
    available(kind, isolated)?;
    let tsc = context.tsc()?;
    let mut tags = Tags::new(context.seed);
    let measurement = match kind {
        CrossingKind::None => measure_empty(tsc, crossings, &mut tags)?,
        CrossingKind::PageFault
        | CrossingKind::SoftwareInterrupt
        | CrossingKind::Breakpoint
        | CrossingKind::InvalidOpcode
        | CrossingKind::SyscallSysret
        | CrossingKind::SyscallIretq
        | CrossingKind::SameRing => measure_faults(tsc, crossings, &mut tags)?,
    };
    Ok(measurement.value(STEP_METRIC.name, tsc.nanoseconds(tsc.step as f64)))
}

/// Alternates batches of unstamped and stamped faults, so that drift affects both.
fn measure_faults(tsc: &Tsc, crossings: u64, tags: &mut Tags) -> Result<Measurement, Failure> {
    let pages = TouchedPages::new(BATCH)?;
    batch(&pages, BATCH, tags, |_, _| ())?;
    let mut times = FaultTimes::new(empty_pair(&pages, tags)?)?;
    while times.made < crossings {
        let count = (crossings - times.made).min(BATCH as u64) as usize;
        batch(&pages, count, tags, |crossing, _| times.record_unstamped(crossing))?;
        let armed = arm()?;
        batch(&pages, count, tags, |crossing, tag| times.record_stamped(crossing, tag))?;
        drop(armed);
    }
    times.into_measurement(tsc)
}

/// Measures the trimmed mean of the time between the two readings around a touch of a present page, in ticks.
fn empty_pair(pages: &TouchedPages, tags: &mut Tags) -> Result<f64, Failure> {
    let mut pairs = Ticks::new()?;
    (0..EMPTY_PAIRS).for_each(|_| pairs.record(pages.touch(0, tags.next()).round_trip()));
    Ok(pairs.trimmed_mean())
}

/// Touches absent pages, checks that each touch was a fault, and calls `record` for each.
fn batch(
    pages: &TouchedPages,
    count: usize,
    tags: &mut Tags,
    mut record: impl FnMut(&Crossing, u64),
) -> Result<(), Failure> {
    pages.madvise_dontneed();
    let before = Usage::of_thread().faults();
    for page in 0..count {
        let tag = tags.next();
        record(&pages.touch(page, tag), tag);
    }
    let counted = Usage::of_thread().faults() - before;
    // Other pages of this program may have faulted too.
    if counted >= count as u64 {
        return Ok(());
    }
    Err(Failure::check(format!("{count} touches raised {counted} page faults")))
}

/// Times of the faults of one sample, each less the empty fenced pair.
struct FaultTimes {
    /// Empty fenced pair, ticks.
    empty: f64,
    /// The same, rounded to whole ticks, which is subtracted from each time.
    overhead: u64,
    u2k: Ticks,
    kernel: Ticks,
    k2u: Ticks,
    round_trip: Ticks,
    made: u64,
    stamped: u64,
}

impl FaultTimes {
    fn new(empty: f64) -> Result<Self, Failure> {
        let [u2k, kernel, k2u, round_trip] =
            [Ticks::new()?, Ticks::new()?, Ticks::new()?, Ticks::new()?];
        let overhead = empty.round() as u64;
        Ok(Self { empty, overhead, u2k, kernel, k2u, round_trip, made: 0, stamped: 0 })
    }

    fn record_unstamped(&mut self, crossing: &Crossing) {
        self.round_trip.record(crossing.round_trip().saturating_sub(self.overhead));
    }

    fn record_stamped(&mut self, crossing: &Crossing, tag: u64) {
        self.made += 1;
        if !(crossing.is_stamped(tag) && crossing.is_ordered()) {
            return;
        }
        self.stamped += 1;
        let Crossing { user_before, kernel_in, kernel_out, user_after, .. } = crossing;
        let elapsed = |from, to| u64::saturating_sub(to, from).saturating_sub(self.overhead);
        self.u2k.record(elapsed(*user_before, *kernel_in));
        self.kernel.record(elapsed(*kernel_in, *kernel_out));
        self.k2u.record(elapsed(*kernel_out, *user_after));
    }

    fn into_measurement(self, tsc: &Tsc) -> Result<Measurement, Failure> {
        let (made, stamped) = (self.made, self.stamped);
        if stamped != made {
            return Err(Failure::check(format!("{stamped} of {made} faults stamped in order")));
        }
        let centre = |times: &Ticks| times.trimmed_mean() + self.overhead as f64 - self.empty;
        let measurement = Measurement::default();
        let measurement =
            self.u2k.into_measurement(measurement, "u2k", centre(&self.u2k), tsc.hertz)?;
        let measurement =
            self.k2u.into_measurement(measurement, "k2u", centre(&self.k2u), tsc.hertz)?;
        let step = tsc.nanoseconds(tsc.step as f64);
        Ok(measurement
            .value("kernel", tsc.nanoseconds(centre(&self.kernel)))
            .value("round_trip", tsc.nanoseconds(centre(&self.round_trip)))
            .value(RESOLUTION_METRIC.name, resolution(step, stamped))
            .value(CROSSINGS_MADE.name, made as f64)
            .value(CROSSINGS_STAMPED.name, stamped as f64))
    }
}

/// Measures the stamps with no crossing between them, and checks that touches of a present page by the armed
/// instruction are not stamped.
fn measure_empty(tsc: &Tsc, touches: u64, tags: &mut Tags) -> Result<Measurement, Failure> {
    let pages = TouchedPages::new(1)?;
    pages.touch(0, tags.next());
    let empty = empty_pair(&pages, tags)?;
    let mut stamping = Ticks::new()?;
    let armed = arm()?;
    for _ in 0..touches {
        let stamps = empty_stamps();
        stamping.record(stamps.kernel_in.saturating_sub(stamps.user_before));
        stamping.record(stamps.user_after.saturating_sub(stamps.kernel_out));
        let tag = tags.next();
        if !pages.touch(0, tag).is_untouched(tag) {
            return Err(Failure::check("a touch without a fault was stamped"));
        }
    }
    drop(armed);
    Ok(Measurement::default()
        .value("stamping", tsc.nanoseconds(stamping.trimmed_mean() - empty))
        .value(RESOLUTION_METRIC.name, resolution(tsc.nanoseconds(tsc.step as f64), touches))
        .value(CROSSINGS_MADE.name, 0.0)
        .value(CROSSINGS_STAMPED.name, 0.0))
}

#[cfg(test)]
mod tests {
    use lab::sample::FailureKind;

    use super::*;

    #[test]
    fn other_kinds_than_page_faults_are_unavailable() {
        let why = available(CrossingKind::Breakpoint, false).unwrap_err();
        assert_eq!(why.kind, FailureKind::Unavailable);
        assert!(why.why.contains("breakpoint"));
    }

    #[test]
    fn a_patched_kernel_measures_exactly_one_isolation() {
        let results = [true, false].map(|isolated| available(CrossingKind::PageFault, isolated));
        match arming::available() {
            Ok(()) => assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1),
            Err(why) => {
                assert!(results.iter().all(|result| result.as_ref() == Err(&why)));
                machine::untested::note("isolation of a patched kernel", &why);
            }
        }
    }

    #[test]
    fn every_touch_of_a_batch_faults_and_is_recorded_with_its_tag() {
        let (pages, mut tags) = (TouchedPages::new(BATCH).unwrap(), Tags::new(3));
        let mut untouched = 0;
        for _ in 0..4 {
            batch(&pages, BATCH, &mut tags, |crossing, tag| {
                untouched += u64::from(crossing.is_untouched(tag));
            })
            .unwrap();
        }
        assert_eq!(untouched, 4 * BATCH as u64);
    }

    #[test]
    fn a_fault_splits_into_three_parts_each_less_the_empty_pair() {
        let mut times = FaultTimes::new(50.0).unwrap();
        let whole = Crossing { user_after: 2_800, user_before: 1_000, ..Crossing::default() };
        let parts =
            Crossing { kernel_in: 1_500, kernel_out: 2_500, user_after: 2_900, tag: 8, ..whole };
        for _ in 0..10 {
            times.record_unstamped(&whole);
            times.record_stamped(&parts, 7);
        }
        let tsc = Tsc { hertz: 1e9, step: 1, overhead: 0, min_overhead: 0 };
        let measurement = times.into_measurement(&tsc).unwrap();
        let value = |name| measurement.values[name];
        assert_eq!([value("u2k"), value("kernel"), value("k2u")], [450.0, 950.0, 350.0]);
        // The parts contain two more empty pairs than the whole, so without them they sum to it.
        assert_eq!(value("round_trip"), 450.0 + 950.0 + 350.0);
        assert_eq!([value("crossings_made"), value("crossings_stamped")], [10.0, 10.0]);
    }

    #[test]
    fn an_unstamped_fault_fails_the_sample() {
        let mut times = FaultTimes::new(0.0).unwrap();
        let pages = TouchedPages::new(1).unwrap();
        times.record_stamped(&pages.touch(0, 1), 1);
        let tsc = Tsc { hertz: 1e9, step: 1, overhead: 0, min_overhead: 0 };
        let failure = times.into_measurement(&tsc).unwrap_err();
        assert_eq!(failure, Failure::check("0 of 1 faults stamped in order"));
    }

    #[test]
    fn the_empty_pair_is_shorter_than_a_fault() {
        let (pages, mut tags) = (TouchedPages::new(BATCH).unwrap(), Tags::new(4));
        batch(&pages, BATCH, &mut tags, |_, _| ()).unwrap();
        let empty = empty_pair(&pages, &mut tags).unwrap();
        let mut faults = Ticks::new().unwrap();
        batch(&pages, BATCH, &mut tags, |crossing, _| faults.record(crossing.round_trip()))
            .unwrap();
        let fault = faults.trimmed_mean();
        assert!(empty < fault, "{empty} of {fault} ticks");
    }
}
