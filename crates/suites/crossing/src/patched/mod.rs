//! Both ways of a page fault in a Linux that stamps them itself: the patch in this crate's `kernel/`.
//!
//! The kernel reads the clock at the first instructions of its page-fault entry and just before
//! `iretq`. With the readings on the user's side these part a fault into the way in, the kernel's
//! work and the way out. With page-table isolation the switch of CR3 lies between the kernel's
//! stamps, so it is in `kernel`, and what it costs the two ways shows in them.
//!
//! From each part the empty pair is subtracted: the same two readings around the same instruction where
//! it does not fault. A whole fault holds one such pair, and a stamped one holds three.

pub mod build;
mod check;
mod isolation;
mod refused_touch;
mod stamp;
mod touch;

use lab::capability::{Capability, state_of};
use lab::measure::{Context, Measurement};
use lab::sample::Failure;
use machine::tsc::Tsc;

pub use check::{Checked, check};

use crate::counted::faults_of_thread;
use crate::guest::Kind;
use crate::params::OneWayParams;
use crate::ticks::Ticks;
use stamp::armed;
use touch::{Crossing, Pages, Tags, stamps_alone};

/// Pages given up and touched at a time: what one page table maps.
const BATCH: usize = 512;
/// Empty pairs before a sample.
const EMPTY: usize = 1_000;

/// Whether a point can be measured here: by this kernel, in this boot.
///
/// # Errors
/// The reason why not, and the remedy.
pub fn available(params: &OneWayParams) -> Result<(), Failure> {
    let kind = params.kind;
    if !matches!(kind, Kind::PageFault | Kind::None) {
        return Err(Failure::unavailable(
            format!("a patched kernel stamps page faults alone, not '{kind}'"),
            "measure it by the route guest",
        ));
    }
    stamp::available()?;
    isolation::check(params.isolation.name())
}

/// Whether this kernel stamps crossings.
pub fn capability() -> Capability {
    let present = "a program may register one of its instructions";
    let state = state_of(stamp::available().map(|()| present.into()));
    Capability {
        name: "crossing-stamps".into(),
        about: "a Linux that stamps page faults on the way in and out".into(),
        state,
    }
}

/// Measures one point once.
///
/// # Errors
/// What stands in the sample's place.
pub fn measure(context: &mut Context, params: &OneWayParams) -> Result<Measurement, Failure> {
    available(params)?;
    let tsc = context.tsc()?;
    let crossings = params.crossings;
    let mut tags = Tags::new(context.seed);
    let measurement = match params.kind {
        Kind::None => nothing_faults(tsc, crossings, &mut tags)?,
        _ => page_faults(tsc, crossings, &mut tags)?,
    };
    Ok(measurement.value("step", tsc.nanoseconds(tsc.step as f64)))
}

/// Faults in batches, unstamped and stamped by turns, so that what drifts falls on both.
fn page_faults(tsc: &Tsc, crossings: u64, tags: &mut Tags) -> Result<Measurement, Failure> {
    let pages = Pages::new(BATCH)?;
    batch(&pages, BATCH, tags, |_, _| ())?;
    let mut noted = Noted::new(empty_pair(&pages, tags)?)?;
    while noted.made < crossings {
        let now = (crossings - noted.made).min(BATCH as u64) as usize;
        batch(&pages, now, tags, |crossing, _| noted.unstamped(crossing))?;
        let arming = armed()?;
        batch(&pages, now, tags, |crossing, tag| noted.stamped(crossing, tag))?;
        drop(arming);
    }
    noted.into_measurement(tsc)
}

/// The median of the two readings around a touch that does not fault, ticks: the page is there.
fn empty_pair(pages: &Pages, tags: &mut Tags) -> Result<u64, Failure> {
    let mut pairs = Ticks::new()?;
    (0..EMPTY).for_each(|_| pairs.record(pages.touch(0, tags.next()).round_trip()));
    Ok(pairs.median())
}

/// Touches pages that are not there, and checks that each touch was a fault.
fn batch(
    pages: &Pages,
    count: usize,
    tags: &mut Tags,
    mut note: impl FnMut(&Crossing, u64),
) -> Result<(), Failure> {
    pages.give_up();
    let before = faults_of_thread();
    for page in 0..count {
        let tag = tags.next();
        note(&pages.touch(page, tag), tag);
    }
    let counted = faults_of_thread() - before;
    // More may be the program's own: code that was not yet there.
    if counted >= count as u64 {
        return Ok(());
    }
    Err(Failure::check(format!("{count} touches made {counted} faults")))
}

/// What the crossings of one sample took, each less the empty fenced pair.
struct Noted {
    overhead: u64,
    u2k: Ticks,
    kernel: Ticks,
    k2u: Ticks,
    round_trip: Ticks,
    made: u64,
    stamped: u64,
}

impl Noted {
    fn new(overhead: u64) -> Result<Self, Failure> {
        let [u2k, kernel, k2u, round_trip] =
            [Ticks::new()?, Ticks::new()?, Ticks::new()?, Ticks::new()?];
        Ok(Self { overhead, u2k, kernel, k2u, round_trip, made: 0, stamped: 0 })
    }

    fn unstamped(&mut self, crossing: &Crossing) {
        self.round_trip.record(crossing.round_trip().saturating_sub(self.overhead));
    }

    fn stamped(&mut self, crossing: &Crossing, tag: u64) {
        self.made += 1;
        if !(crossing.is_stamped(tag) && crossing.is_ordered()) {
            return;
        }
        self.stamped += 1;
        let Crossing { user_before, kernel_in, kernel_out, user_after, .. } = crossing;
        let took = |from, to| u64::saturating_sub(to, from).saturating_sub(self.overhead);
        self.u2k.record(took(*user_before, *kernel_in));
        self.kernel.record(took(*kernel_in, *kernel_out));
        self.k2u.record(took(*kernel_out, *user_after));
    }

    fn into_measurement(self, tsc: &Tsc) -> Result<Measurement, Failure> {
        let (made, stamped) = (self.made, self.stamped);
        if stamped != made {
            return Err(Failure::check(format!("{stamped} of {made} faults are stamped in order")));
        }
        let measurement = self.u2k.into_measurement(Measurement::default(), "u2k", tsc.hertz)?;
        let measurement = self.k2u.into_measurement(measurement, "k2u", tsc.hertz)?;
        Ok(measurement
            .value("kernel", tsc.nanoseconds(self.kernel.median() as f64))
            .value("round_trip", tsc.nanoseconds(self.round_trip.median() as f64))
            .value("crossings_made", made as f64)
            .value("crossings_stamped", stamped as f64))
    }
}

/// The stamps with no crossing between them; and touches at the armed instruction that do not fault,
/// of which none may be stamped.
fn nothing_faults(tsc: &Tsc, touches: u64, tags: &mut Tags) -> Result<Measurement, Failure> {
    let pages = Pages::new(1)?;
    pages.touch(0, tags.next());
    let empty = empty_pair(&pages, tags)?;
    let mut stamping = Ticks::new()?;
    let arming = armed()?;
    for _ in 0..touches {
        let alone = stamps_alone();
        stamping.record(alone.kernel_in.saturating_sub(alone.user_before));
        stamping.record(alone.user_after.saturating_sub(alone.kernel_out));
        let tag = tags.next();
        if !pages.touch(0, tag).is_untouched(tag) {
            return Err(Failure::check("a touch that did not fault came back stamped"));
        }
    }
    drop(arming);
    Ok(Measurement::default()
        .value("stamping", tsc.nanoseconds(stamping.median() as f64 - empty as f64))
        .value("crossings_made", 0.0)
        .value("crossings_stamped", 0.0))
}

#[cfg(test)]
mod tests;
