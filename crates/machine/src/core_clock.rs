//! The core clock, by chains of dependent instructions of known latency: no performance counters needed.

use std::arch::asm;

use serde::{Deserialize, Serialize};

use crate::tsc::{self, Tsc, Unavailable};

/// Instructions in the unrolled body of both chains.
const UNROLLED: u64 = 64;
/// Cycles that each run takes: about 10 us at 4.5 GHz, 25 us at 2 GHz.
const CYCLES: u64 = 48 * 1024;
/// Latency of a 32-bit `imul` of two registers: 3 cycles on Intel since Nehalem and on every Zen. The
/// 64-bit form takes 4 on the first Zen.
const MULTIPLY_LATENCY: u64 = 3;
/// Runs of each chain; the least counts, for interruptions only add.
const RUNS: usize = 3;

/// The core clock as two independent chains saw it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CoreClock {
    /// Cycles a second by a chain of dependent adds, 1 cycle each.
    pub adds_hertz: f64,
    /// Cycles a second by a chain of dependent multiplies, 3 cycles each.
    pub multiplies_hertz: f64,
}

impl CoreClock {
    /// The core clock, cycles a second: the adds' value, which the multiplies check.
    pub fn hertz(&self) -> f64 {
        self.adds_hertz
    }

    /// How far the two chains differ, relative: over 2% the value is doubtful.
    pub fn disagreement(&self) -> f64 {
        (self.multiplies_hertz / self.adds_hertz - 1.0).abs()
    }
}

/// Measures the core clock of the CPU on which this thread runs, in under 150 us.
///
/// # Errors
/// Says why the time stamp counter gives no time here.
pub fn calibrate() -> Result<CoreClock, Unavailable> {
    let tsc = Tsc::get()?;
    let hertz = |chain: fn()| {
        let ticks = (0..RUNS).map(|_| timed(tsc, chain)).min().unwrap_or(1);
        CYCLES as f64 * tsc.hertz / ticks.max(1) as f64
    };
    Ok(CoreClock { adds_hertz: hertz(adds), multiplies_hertz: hertz(multiplies) })
}

/// How much the core clock moved, relative to `before`.
pub fn relative_change(before: &CoreClock, after: &CoreClock) -> f64 {
    after.hertz() / before.hertz() - 1.0
}

#[inline(always)]
fn timed(tsc: &Tsc, chain: fn()) -> u64 {
    let begin = tsc::start();
    chain();
    tsc::stop().saturating_sub(begin).saturating_sub(tsc.overhead)
}

/// `CYCLES` dependent adds. Register operands: some processors fold immediates away at rename.
#[inline(never)]
fn adds() {
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
            left = inout(reg) CYCLES / UNROLLED => _,
            options(nomem, nostack),
        );
    }
}

/// A third as many dependent multiplies, so that they take as many cycles.
#[inline(never)]
fn multiplies() {
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
            left = inout(reg) CYCLES / MULTIPLY_LATENCY / UNROLLED => _,
            options(nomem, nostack),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_chains_run_the_cycles_they_claim() {
        assert_eq!(CYCLES % UNROLLED, 0);
        assert_eq!(CYCLES % (MULTIPLY_LATENCY * UNROLLED), 0);
    }

    /// Retries against noise, for other processes may hold the core.
    #[test]
    fn chains_agree_within_two_percent() {
        let clocks: Vec<_> = (0..50).map(|_| calibrate().unwrap()).collect();
        let best = clocks.iter().map(CoreClock::disagreement).fold(f64::MAX, f64::min);
        println!("{:?}, least disagreement {best}", clocks[49]);
        assert!(best < 0.02, "{clocks:?}");
        assert!(clocks.iter().all(|clock| clock.hertz() > 1e8 && clock.hertz() < 1e10));
    }

    #[test]
    fn change_is_relative_to_before() {
        let clock = |hertz| CoreClock { adds_hertz: hertz, multiplies_hertz: hertz };
        assert!((relative_change(&clock(4e9), &clock(3e9)) + 0.25).abs() < 1e-12);
    }
}
