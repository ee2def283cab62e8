//! The core clock, by chains of dependent instructions of known latency: no performance counters needed.
//!
//! The chains are of multiplies, one in the integer unit and one in the floating-point unit. A multiply takes
//! several cycles, so it has time to wait for its turn: a busy SMT sibling delays one in a hundred by a
//! cycle. A chain of adds, one cycle each, it slows by up to 5%, and that would read as a slower clock. Adds
//! serve only to learn how many cycles a multiply takes.

use std::arch::asm;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

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
/// The largest latency that is believed, in cycles. An integer multiply takes 3 on Intel since Nehalem and on
/// every Zen, 4 on older processors of AMD; one in floating point takes 3 to 5.
const LONGEST_LATENCY: u64 = 5;

/// The core clock as two independent chains saw it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CoreClock {
    /// Cycles a second by a chain of dependent integer multiplies.
    pub integer_hertz: f64,
    /// Cycles a second by a chain of dependent floating-point multiplies.
    pub float_hertz: f64,
}

impl CoreClock {
    /// The core clock, cycles a second: the value of the integer chain, which the other checks.
    pub fn hertz(&self) -> f64 {
        self.integer_hertz
    }

    /// How far the two chains differ, relative: over [`AGREEMENT`] the value is doubtful.
    pub fn disagreement(&self) -> f64 {
        (self.float_hertz / self.integer_hertz - 1.0).abs()
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
    let latencies = learnt(tsc);
    let mut least = [f64::INFINITY; 2];
    let mut clock = CoreClock { integer_hertz: 0.0, float_hertz: 0.0 };
    for run in 1..=RUNS {
        least[0] = least[0].min(timed(tsc, || integer_multiplies(MULTIPLIES)));
        least[1] = least[1].min(timed(tsc, || float_multiplies(MULTIPLIES)));
        let hertz = |latency, least| (MULTIPLIES * latency) as f64 * tsc.hertz / least;
        clock = CoreClock {
            integer_hertz: hertz(latencies.integer, least[0]),
            float_hertz: hertz(latencies.float, least[1]),
        };
        if run >= LEAST_RUNS && clock.disagreement() < WELL {
            break;
        }
    }
    Ok(clock)
}

/// How many cycles a dependent multiply takes on this processor.
///
/// # Errors
/// Says why the time stamp counter gives no time here.
pub fn latencies() -> Result<Latencies, Unavailable> {
    Ok(learnt(Tsc::get()?))
}

/// How much the core clock moved, relative to `before`.
pub fn relative_change(before: &CoreClock, after: &CoreClock) -> f64 {
    after.hertz() / before.hertz() - 1.0
}

/// Both latencies in adds, which take one cycle on every x86-64 processor: learnt once a process. While no
/// numbers are agreed on, the nearest are taken and learnt anew the next time; the chains then disagree,
/// which voids the sample.
fn learnt(tsc: &Tsc) -> Latencies {
    static AGREED: OnceLock<Latencies> = OnceLock::new();
    if let Some(agreed) = AGREED.get() {
        return *agreed;
    }
    let (mut integer, mut float) = ([0.0; PAIRS], [0.0; PAIRS]);
    for (integer, float) in integer.iter_mut().zip(&mut float) {
        let adds = timed(tsc, || adds(SHORT));
        *integer = timed(tsc, || integer_multiplies(SHORT)) / adds;
        *float = timed(tsc, || float_multiplies(SHORT)) / adds;
    }
    match (agreed(&integer), agreed(&float)) {
        (Some(integer), Some(float)) => *AGREED.get_or_init(|| Latencies { integer, float }),
        _ => Latencies { integer: nearest(&integer), float: nearest(&float) },
    }
}

/// The whole number that most of the ratios lie near.
fn agreed(ratios: &[f64]) -> Option<u64> {
    (1..=LONGEST_LATENCY).find(|latency| {
        let near = |ratio: &&f64| (*ratio / *latency as f64 - 1.0).abs() < NEAR;
        ratios.iter().filter(near).count() >= VOTES
    })
}

/// The whole number nearest to the least of the ratios.
fn nearest(ratios: &[f64]) -> u64 {
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    (least.round() as u64).clamp(1, LONGEST_LATENCY)
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
        };
        println!("{fastest:?}, {:?}", latencies());
        assert!(fastest.disagreement() < AGREEMENT, "{fastest:?} of {clocks:?}");
        assert!(clocks.iter().all(|clock| clock.hertz() > 0.0 && clock.hertz().is_finite()));
    }

    /// A busy SMT sibling slows dependent adds and not these chains, so it leaves most samples in force.
    #[test]
    fn a_busy_neighbour_leaves_the_chains_in_agreement() {
        if let Err(why) = Tsc::get() {
            return crate::untested::note("the core clock beside a busy neighbour", &why);
        }
        let done = std::sync::atomic::AtomicBool::new(false);
        let doubtful = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    std::hint::black_box((0..1000u64).map(std::hint::black_box).sum::<u64>());
                }
            });
            let doubtful = (0..100)
                .filter(|_| calibrate().is_ok_and(|clock| clock.disagreement() >= AGREEMENT))
                .count();
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            doubtful
        });
        println!("{doubtful} of 100 doubtful");
        assert!(doubtful < 50, "{doubtful} of 100");
    }

    #[test]
    fn latencies_are_whole_and_agreed_on() {
        assert_eq!(agreed(&[3.0, 3.01, 2.99, 2.85, 3.1, 5.0, 9.7]), Some(3));
        assert_eq!(agreed(&[4.0, 4.05, 4.02, 4.3, 3.8, 8.1]), Some(4));
        assert_eq!(agreed(&[3.5; PAIRS]), None);
        assert_eq!(agreed(&[3.0, 3.0, 3.0, 3.0, 4.0, 4.0, 4.0, 4.0, 5.0]), None);
        assert_eq!(agreed(&[f64::NAN, f64::INFINITY, 0.0]), None);
        assert_eq!(agreed(&[]), None);
        assert_eq!((nearest(&[3.4, 2.4, 7.7]), nearest(&[90.0]), nearest(&[0.1])), (2, 5, 1));
    }

    /// Of two whole numbers that are believed, no ratio is near both.
    #[test]
    fn latencies_are_told_apart() {
        for latency in 1..LONGEST_LATENCY {
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
    fn change_is_relative_to_before() {
        let clock = |hertz| CoreClock { integer_hertz: hertz, float_hertz: hertz };
        assert!((relative_change(&clock(4e9), &clock(3e9)) + 0.25).abs() < 1e-12);
    }

    #[test]
    fn disagreement_is_relative_to_the_integer_chain() {
        let clock = CoreClock { integer_hertz: 4e9, float_hertz: 3e9 };
        assert!((clock.disagreement() - 0.25).abs() < 1e-12);
    }
}
