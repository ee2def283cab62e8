//! The core clock, by chains of dependent instructions of known latency: no performance counters needed.
//!
//! The chains are of multiplies, one in the integer unit and one in the floating-point unit. A multiply takes
//! several cycles, so it can wait for its turn while the SMT sibling is busy. A chain of adds, one cycle each,
//! cannot: a busy sibling slowed it by up to 5% (Zen 5), which would read as a slower clock. Adds serve only to
//! learn how many cycles a multiply takes.

use std::arch::asm;
use std::ops::RangeInclusive;
use std::sync::OnceLock;

use crate::tsc::{self, Tsc, Unavailable};

/// How far the two chains may differ, relative. Beyond it the core clock is doubtful.
pub const AGREEMENT: f64 = 0.02;

/// Instructions in the unrolled body of each chain.
const UNROLLED: u64 = 64;
/// Dependent multiplies in a run: about 10 us at 4.5 GHz where one takes 3 cycles.
const MULTIPLIES: u64 = 16 * 1024;
/// Runs of each chain, in turn; the least counts, for interruptions only add. Fewer are made once the
/// chains agree well.
const RUNS: usize = 9;
/// The fewest runs of each.
const LEAST_RUNS: usize = 3;
/// An agreement at which further runs would add nothing.
const WELL: f64 = AGREEMENT / 2.0;

/// Dependent instructions in a run from which a latency is learnt.
const SHORT: u64 = 4 * 1024;
/// Pairs of runs from which the latency of a multiply is learnt.
const PAIRS: usize = 9;
/// How many of them must agree on it.
const VOTES: usize = 5;
/// How far a ratio may lie from the whole number it stands for, relative: less than half way from 4 to the
/// next. It allows for adds that a busy SMT sibling slows.
const NEAR: f64 = 0.1;
/// The latencies that are believed, in cycles. An integer multiply takes 3 on Intel since Nehalem and on every
/// Zen, 4 on older processors of AMD; one in floating point takes 3 to 5. Less means that the adds were slowed.
const LATENCIES: RangeInclusive<u64> = 3..=5;
/// How often [`hertz`] calibrates before it gives up: an interruption can spoil all runs of one chain.
const TRIES: usize = 5;

/// The core clock as two independent chains saw it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CoreClock {
    /// Cycles a second by a chain of dependent integer multiplies.
    pub integer_hertz: f64,
    /// Cycles a second by a chain of dependent floating-point multiplies.
    pub float_hertz: f64,
    /// Whether this process has learnt how many cycles a multiply takes; until then both values are guesses.
    pub is_known: bool,
}

/// Why there is no core clock.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum Doubtful {
    /// The time stamp counter gives no time.
    #[error("{0}")]
    NoTime(#[from] Unavailable),
    /// Adds were so disturbed that no latency was learnt from them.
    #[error("how many cycles a multiply takes could not be learnt")]
    NotLearnt,
    /// The two chains differ by this share.
    #[error("the two chains of the core clock differ by {:.1}%", .0 * 100.0)]
    Differ(f64),
}

impl CoreClock {
    /// The core clock, cycles a second: the value of the integer chain, which the other checks.
    pub fn hertz(&self) -> f64 {
        self.integer_hertz
    }

    /// How far the two chains differ, relative: over [`AGREEMENT`] the value is doubtful. Without end where it is
    /// not known how many cycles a multiply takes.
    pub fn disagreement(&self) -> f64 {
        if self.is_known {
            (self.float_hertz / self.integer_hertz - 1.0).abs()
        } else {
            f64::INFINITY
        }
    }
}

/// How many cycles a dependent multiply takes on this processor: by them [`calibrate`] turns time into cycles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Latencies {
    /// `imul` of 32 bits.
    pub integer: u64,
    /// `mulsd`.
    pub float: u64,
}

/// Measures the core clock of the CPU on which this thread runs: in about 70 us at 4.5 GHz, up to three
/// times that while the chains disagree. The first call of a process takes twice as long, for it learns
/// the latencies.
///
/// # Errors
/// Says why the time stamp counter gives no time here.
pub fn calibrate() -> Result<CoreClock, Unavailable> {
    let tsc = Tsc::get()?;
    let learnt = learnt(tsc);
    let guess = Latencies { integer: *LATENCIES.start(), float: *LATENCIES.start() };
    let latencies = learnt.unwrap_or(guess);
    let mut least = [f64::INFINITY; 2];
    let is_known = learnt.is_some();
    let mut clock = CoreClock { integer_hertz: 0.0, float_hertz: 0.0, is_known };
    for run in 1..=RUNS {
        least[0] = least[0].min(timed(tsc, || integer_multiplies(MULTIPLIES)));
        least[1] = least[1].min(timed(tsc, || float_multiplies(MULTIPLIES)));
        let hertz = |latency, least| (MULTIPLIES * latency) as f64 * tsc.hertz / least;
        clock = CoreClock {
            integer_hertz: hertz(latencies.integer, least[0]),
            float_hertz: hertz(latencies.float, least[1]),
            is_known,
        };
        if run >= LEAST_RUNS && clock.disagreement() < WELL {
            break;
        }
    }
    Ok(clock)
}

/// The core clock on which both chains agree, cycles a second.
///
/// # Errors
/// Where the time stamp counter gives no time, and where the chains differ each time of five.
pub fn hertz() -> Result<f64, Doubtful> {
    let mut least = f64::INFINITY;
    for _ in 0..TRIES {
        let clock = calibrate()?;
        if clock.disagreement() < AGREEMENT {
            return Ok(clock.hertz());
        }
        least = least.min(clock.disagreement());
    }
    Err(if least.is_finite() { Doubtful::Differ(least) } else { Doubtful::NotLearnt })
}

/// How many cycles a dependent multiply takes on this processor; nothing while this could not be learnt.
///
/// # Errors
/// Says why the time stamp counter gives no time here.
pub fn latencies() -> Result<Option<Latencies>, Unavailable> {
    Ok(learnt(Tsc::get()?))
}

/// Both latencies in adds, which take one cycle on every x86-64 processor: learnt once a process, and tried anew
/// the next time while the adds are disturbed.
fn learnt(tsc: &Tsc) -> Option<Latencies> {
    static AGREED: OnceLock<Latencies> = OnceLock::new();
    if let Some(agreed) = AGREED.get() {
        return Some(*agreed);
    }
    let (mut integer, mut float) = ([0.0; PAIRS], [0.0; PAIRS]);
    for (integer, float) in integer.iter_mut().zip(&mut float) {
        let adds = timed(tsc, || adds(SHORT));
        *integer = timed(tsc, || integer_multiplies(SHORT)) / adds;
        *float = timed(tsc, || float_multiplies(SHORT)) / adds;
    }
    let (integer, float) = (agreed(&integer)?, agreed(&float)?);
    Some(*AGREED.get_or_init(|| Latencies { integer, float }))
}

/// The whole number that most of the ratios lie near.
fn agreed(ratios: &[f64]) -> Option<u64> {
    LATENCIES.into_iter().find(|latency| {
        let near = |ratio: &&f64| (*ratio / *latency as f64 - 1.0).abs() < NEAR;
        ratios.iter().filter(near).count() >= VOTES
    })
}

/// The ticks of a chain, at least one.
#[inline(always)]
fn timed(tsc: &Tsc, chain: impl FnOnce()) -> f64 {
    let begin = tsc::start();
    chain();
    tsc.net(begin, tsc::stop()).max(1.0)
}

/// A loop of `count` dependent instructions, a multiple of [`UNROLLED`].
macro_rules! chain {
    ($count:expr, $instruction:literal, $($operand:tt)*) => {
        // SAFETY: only the named registers and the flags change.
        unsafe {
            asm!(
                ".p2align 6",
                "2:",
                ".rept 64",
                $instruction,
                ".endr",
                "dec {left}",
                "jnz 2b",
                left = inout(reg) ($count / UNROLLED).max(1) => _,
                $($operand)*,
                options(nomem, nostack),
            );
        }
    };
}

/// Register operands: some processors fold immediates away at rename.
#[inline(never)]
fn adds(count: u64) {
    chain!(count, "add {sum}, {one}", sum = inout(reg) 0u64 => _, one = in(reg) 1u64);
}

/// The 32-bit form: on the first Zen the 64-bit form takes a cycle more than elsewhere.
#[inline(never)]
fn integer_multiplies(count: u64) {
    chain!(
        count,
        "imul {product:e}, {factor:e}",
        product = inout(reg) 3u32 => _,
        factor = in(reg) 5u32
    );
}

/// By 1, so that no product is denormal or infinite, which some processors multiply more slowly.
#[inline(never)]
fn float_multiplies(count: u64) {
    chain!(
        count,
        "mulsd {product}, {factor}",
        product = inout(xmm_reg) 1.0f64 => _,
        factor = in(xmm_reg) 1.0f64
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::{Counters, Event, Mode};
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn both_chains_run_what_they_claim() {
        assert_eq!(SHORT % UNROLLED, 0);
        assert_eq!(MULTIPLIES % UNROLLED, 0);
    }

    /// Interruptions only make a chain slower, so the fastest run of each is what the processor does.
    #[test]
    fn the_fastest_runs_of_both_chains_agree() {
        let clocks: Vec<_> = match (0..100).map(|_| calibrate()).collect() {
            Ok(clocks) => clocks,
            Err(why) => return crate::untested::note("the core clock", &why),
        };
        let most = |of: fn(&CoreClock) -> f64| clocks.iter().map(of).fold(0.0, f64::max);
        let fastest = CoreClock {
            integer_hertz: most(|clock| clock.integer_hertz),
            float_hertz: most(|clock| clock.float_hertz),
            is_known: clocks.iter().any(|clock| clock.is_known),
        };
        println!("{fastest:?}, {:?}", latencies());
        assert!(fastest.disagreement() < AGREEMENT, "{fastest:?} of {clocks:?}");
        assert!(clocks.iter().all(|clock| clock.hertz() > 0.0 && clock.hertz().is_finite()));
    }

    /// A busy SMT sibling slows dependent adds and not these chains, so it leaves most samples in force. A virtual
    /// machine may hide which CPUs are siblings, so each other CPU is kept busy.
    #[test]
    fn busy_cpus_leave_the_chains_in_agreement() {
        let cpus = crate::topology::allowed_cpus();
        let (Ok(_), [own, others @ ..]) = (Tsc::get(), &cpus[..]) else {
            return crate::untested::note("the core clock beside busy CPUs", &"no counter");
        };
        if others.is_empty() {
            return crate::untested::note("the core clock beside busy CPUs", &"one CPU");
        }
        crate::pin::pin_to(*own).unwrap();
        for load in [adds, integer_multiplies, float_multiplies] {
            let done = AtomicBool::new(false);
            let busy = |cpu: usize| {
                crate::pin::pin_to(cpu).unwrap();
                while !done.load(Ordering::Relaxed) {
                    load(SHORT);
                }
            };
            let doubtful = std::thread::scope(|scope| {
                let busy = &busy;
                for &cpu in others.iter().take(16) {
                    scope.spawn(move || busy(cpu));
                }
                let is_doubtful = |clock: &CoreClock| clock.disagreement() >= AGREEMENT;
                let clocks = (0..100).filter_map(|_| calibrate().ok());
                let doubtful = clocks.filter(is_doubtful).count();
                done.store(true, Ordering::Relaxed);
                doubtful
            });
            println!("{doubtful} of 100 doubtful");
            assert!(doubtful < 50, "{doubtful} of 100");
        }
    }

    #[test]
    fn latencies_are_whole_and_agreed_on() {
        assert_eq!(agreed(&[3.0, 3.01, 2.99, 2.85, 3.1, 5.0, 9.7]), Some(3));
        assert_eq!(agreed(&[4.0, 4.05, 4.02, 4.3, 3.8, 8.1]), Some(4));
        assert_eq!(agreed(&[3.5; PAIRS]), None);
        assert_eq!(agreed(&[3.0, 3.0, 3.0, 3.0, 4.0, 4.0, 4.0, 4.0, 5.0]), None);
        assert_eq!(agreed(&[f64::NAN, f64::INFINITY, 0.0]), None);
        assert_eq!(agreed(&[]), None);
    }

    /// Of two whole numbers that are believed, no ratio is near both.
    #[test]
    fn latencies_are_told_apart() {
        for latency in *LATENCIES.start()..*LATENCIES.end() {
            let (low, high) = (latency as f64, (latency + 1) as f64);
            assert!(low * (1.0 + NEAR) < high * (1.0 - NEAR), "{latency}");
        }
    }

    /// Where the processor's counter of cycles can be read, the adds must take one each by it too.
    #[test]
    fn adds_take_a_cycle_each_by_the_processors_own_count() {
        let counters = match Counters::open(&[Event::CYCLES], Mode::User) {
            Ok(counters) => counters,
            Err(why) => return crate::untested::note("cycles of the adds", &why),
        };
        let counted = |_| {
            let before = counters.now().ok()?[0];
            adds(MULTIPLIES);
            Some(counters.now().ok()?[0] - before)
        };
        let least = (0..50).filter_map(counted).min();
        match least {
            Some(least) if least > 0 => {
                let ratio = least as f64 / MULTIPLIES as f64;
                assert!((1.0..1.1).contains(&ratio), "{ratio} cycles an add");
            }
            _ => crate::untested::note("cycles of the adds", &"the counter stands still"),
        }
    }

    #[test]
    fn disagreement_is_relative_to_the_integer_chain() {
        let clock = CoreClock { integer_hertz: 4e9, float_hertz: 3e9, is_known: true };
        assert!((clock.disagreement() - 0.25).abs() < 1e-12);
        let guess = CoreClock { integer_hertz: 4e9, float_hertz: 4e9, is_known: false };
        assert!(guess.disagreement() > AGREEMENT, "two guesses that agree are no clock");
    }

    /// Adds slowed alike in every pair make both ratios too small, by one factor: no latency is learnt then.
    #[test]
    fn slowed_adds_teach_no_wrong_latency() {
        for slowed in (12..=30).map(|tenths| f64::from(tenths) / 10.0) {
            for true_latencies in [(3, 3), (3, 4), (3, 5)] {
                let of = |latency: i32| agreed(&[f64::from(latency) / slowed; PAIRS]);
                let learnt = of(true_latencies.0).zip(of(true_latencies.1));
                assert_eq!(learnt, None, "{true_latencies:?} slowed by {slowed}");
            }
        }
    }

    #[test]
    fn the_agreed_clock_is_one_that_both_chains_show() {
        match hertz() {
            Ok(hertz) => assert!(hertz > 1e8 && hertz < 1e11, "{hertz}"),
            Err(why) => crate::untested::note("the agreed core clock", &why),
        }
    }
}
