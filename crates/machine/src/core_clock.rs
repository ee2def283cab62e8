//! The core clock, by chains of dependent instructions of known latency: no performance counters needed.

use std::arch::asm;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use crate::tsc::{self, Tsc, Unavailable};

/// How far the two chains may differ, relative. Beyond it the core clock is doubtful.
pub const AGREEMENT: f64 = 0.02;

/// Instructions in the unrolled body of both chains.
const UNROLLED: u64 = 64;
/// Dependent adds in a run, one cycle each on every x86-64 processor: about 10 us at 4.5 GHz.
const ADDS: u64 = 48 * 1024;
/// Dependent multiplies in a run: as long as the adds where one takes 3 cycles.
const MULTIPLIES: u64 = 16 * 1024;
/// Runs of each chain, in turn; the least counts, for interruptions only add. Fewer are made once the
/// chains agree well.
const RUNS: usize = 9;
/// The fewest runs of each.
const LEAST_RUNS: usize = 3;
/// An agreement at which further runs would add nothing.
const WELL: f64 = AGREEMENT / 2.0;

/// Pairs of runs from which the latency of a multiply is learnt.
const PAIRS: usize = 9;
/// How many of them must agree on it.
const VOTES: usize = 3;
/// The largest latency that is believed, in cycles. It is 3 on Intel since Nehalem and on every Zen, 4
/// on the processors of AMD before it.
const LONGEST_LATENCY: u64 = 16;

/// The core clock as two independent chains saw it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CoreClock {
    /// Cycles a second by a chain of dependent adds, 1 cycle each.
    pub adds_hertz: f64,
    /// Cycles a second by a chain of dependent multiplies, of a latency that this processor showed.
    pub multiplies_hertz: f64,
}

impl CoreClock {
    /// The core clock, cycles a second: the adds' value, which the multiplies check.
    pub fn hertz(&self) -> f64 {
        self.adds_hertz
    }

    /// How far the two chains differ, relative: over [`AGREEMENT`] the value is doubtful.
    pub fn disagreement(&self) -> f64 {
        (self.multiplies_hertz / self.adds_hertz - 1.0).abs()
    }
}

/// Measures the core clock of the CPU on which this thread runs: in about 70 us at 4.5 GHz, up to three
/// times that while the chains disagree. The first call of a process takes twice as long, for it learns
/// the latency of a multiply.
///
/// # Errors
/// Says why the time stamp counter gives no time here.
pub fn calibrate() -> Result<CoreClock, Unavailable> {
    let tsc = Tsc::get()?;
    let latency = latency(tsc);
    let mut least = [f64::INFINITY; 2];
    let mut clock = CoreClock { adds_hertz: 0.0, multiplies_hertz: 0.0 };
    for run in 1..=RUNS {
        least[0] = least[0].min(timed(tsc, || adds(ADDS)));
        least[1] = least[1].min(timed(tsc, || multiplies(MULTIPLIES)));
        clock = CoreClock {
            adds_hertz: ADDS as f64 * tsc.hertz / least[0],
            multiplies_hertz: (MULTIPLIES * latency) as f64 * tsc.hertz / least[1],
        };
        if run >= LEAST_RUNS && clock.disagreement() < WELL {
            break;
        }
    }
    Ok(clock)
}

/// The latency of a dependent 32-bit multiply on this processor, cycles, by which [`calibrate`] checks its
/// adds.
///
/// # Errors
/// Says why the time stamp counter gives no time here.
pub fn multiply_latency() -> Result<u64, Unavailable> {
    Ok(latency(Tsc::get()?))
}

/// How much the core clock moved, relative to `before`.
pub fn relative_change(before: &CoreClock, after: &CoreClock) -> f64 {
    after.hertz() / before.hertz() - 1.0
}

/// The latency of a dependent 32-bit multiply on this processor, in adds, which take one cycle: learnt once
/// a process. While no number is agreed on, the nearest is taken and learnt anew the next time; the
/// chains then disagree, which voids the sample.
fn latency(tsc: &Tsc) -> u64 {
    static AGREED: OnceLock<u64> = OnceLock::new();
    if let Some(agreed) = AGREED.get() {
        return *agreed;
    }
    const PART: u64 = 8;
    let pair = |_| {
        let adds = timed(tsc, || adds(ADDS / PART)) / (ADDS / PART) as f64;
        timed(tsc, || multiplies(MULTIPLIES / PART)) / (MULTIPLIES / PART) as f64 / adds
    };
    let ratios: [f64; PAIRS] = std::array::from_fn(pair);
    match agreed(&ratios) {
        Some(latency) => *AGREED.get_or_init(|| latency),
        None => {
            let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
            (least.round() as u64).clamp(1, LONGEST_LATENCY)
        }
    }
}

/// The least whole number that enough of the ratios lie near: what disturbs a multiply only adds.
fn agreed(ratios: &[f64]) -> Option<u64> {
    (1..=LONGEST_LATENCY).find(|latency| {
        let near = |ratio: &&f64| (*ratio / *latency as f64 - 1.0).abs() < AGREEMENT;
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

/// So many dependent adds, a multiple of [`UNROLLED`]. Register operands: some processors fold immediates
/// away at rename.
#[inline(never)]
fn adds(count: u64) {
    // SAFETY: only the three named registers and the flags change.
    unsafe {
        asm!(
            ".p2align 6",
            "2:",
            ".rept 64",
            "add {sum}, {one}",
            ".endr",
            "dec {left}",
            "jnz 2b",
            sum = inout(reg) 0u64 => _,
            one = in(reg) 1u64,
            left = inout(reg) (count / UNROLLED).max(1) => _,
            options(nomem, nostack),
        );
    }
}

/// So many dependent multiplies, a multiple of [`UNROLLED`]. The 32-bit form: on the first Zen the 64-bit
/// form takes a cycle more than elsewhere.
#[inline(never)]
fn multiplies(count: u64) {
    // SAFETY: only the three named registers and the flags change.
    unsafe {
        asm!(
            ".p2align 6",
            "2:",
            ".rept 64",
            "imul {product:e}, {factor:e}",
            ".endr",
            "dec {left}",
            "jnz 2b",
            product = inout(reg) 3u32 => _,
            factor = in(reg) 5u32,
            left = inout(reg) (count / UNROLLED).max(1) => _,
            options(nomem, nostack),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::{Counters, Event, Mode};

    #[test]
    fn both_chains_run_what_they_claim() {
        assert_eq!(ADDS % (8 * UNROLLED), 0);
        assert_eq!(MULTIPLIES % (8 * UNROLLED), 0);
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
            adds_hertz: most(|clock| clock.adds_hertz),
            multiplies_hertz: most(|clock| clock.multiplies_hertz),
        };
        println!("{fastest:?}, latency {}", latency(Tsc::get().unwrap()));
        assert!(fastest.disagreement() < AGREEMENT, "{fastest:?} of {clocks:?}");
        assert!(clocks.iter().all(|clock| clock.hertz() > 0.0 && clock.hertz().is_finite()));
    }

    #[test]
    fn latencies_are_whole_and_agreed_on() {
        assert_eq!(agreed(&[3.0, 3.01, 2.99, 5.0, 9.7]), Some(3));
        assert_eq!(agreed(&[4.0, 4.05, 4.02, 4.3, 8.1]), Some(4));
        // A disturbed multiply takes longer, never shorter: of two numbers the smaller is right.
        assert_eq!(agreed(&[6.0, 6.0, 6.01, 6.0, 6.0, 6.0, 3.0, 3.0, 3.0]), Some(3));
        assert_eq!(agreed(&[3.4, 3.5, 3.3, 2.4, 7.7]), None);
        assert_eq!(agreed(&[f64::NAN, f64::INFINITY, 0.0]), None);
        assert_eq!(agreed(&[]), None);
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
            adds(ADDS);
            Some(counters.now().ok()?[0] - before)
        };
        let least = (0..50).filter_map(counted).min();
        match least {
            Some(least) if least > 0 => {
                let ratio = least as f64 / ADDS as f64;
                assert!((1.0..1.1).contains(&ratio), "{ratio} cycles an add");
            }
            _ => crate::untested::note("cycles of the adds", &"the counter stands still"),
        }
    }

    #[test]
    fn change_is_relative_to_before() {
        let clock = |hertz| CoreClock { adds_hertz: hertz, multiplies_hertz: hertz };
        assert!((relative_change(&clock(4e9), &clock(3e9)) + 0.25).abs() < 1e-12);
    }

    #[test]
    fn disagreement_is_relative_to_the_adds() {
        let clock = CoreClock { adds_hertz: 4e9, multiplies_hertz: 3e9 };
        assert!((clock.disagreement() - 0.25).abs() < 1e-12);
    }
}
