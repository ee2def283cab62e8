//! The rate at which a core executes independent adds, which a busy SMT sibling lowers.
//!
//! Siblings share the execution units. A chain of dependent instructions leaves most units idle, so the core clock and
//! steal time do not show a busy sibling, e.g. of another virtual machine. Adds on eight registers use all integer units.
//! On Zen 5 a core executed 5.1 of them per cycle alone and 3.4 to 4.6 next to a busy sibling, with nothing between; a
//! copy within the L1 cache moved 33 and 23 B per cycle.

use std::arch::asm;
use std::time::{Duration, Instant};

use crate::core_clock::{self, Doubtful};
use crate::tsc::{self, Tsc};

/// The share of the best rate of a machine below which the core was shared. Rates of a core alone differ by 2%.
pub const ALONE: f64 = 0.95;

/// Instructions in the unrolled loop body.
const UNROLLED: u64 = 64;
/// Adds per run: 7 us at 1 per cycle and 4.5 GHz, 1.4 us at 5.
const ADDS: u64 = 32 * 1024;
/// Runs; their median counts, because an interruption lengthens one.
const RUNS: usize = 5;
/// Number of moments that [`moments`] samples, and the pause between two of them.
const MOMENTS: usize = 50;
const PAUSE: Duration = Duration::from_millis(2);

/// Measures the adds per cycle of the CPU on which this thread runs, in about 10 us. `hertz` is its core clock.
pub fn measure(tsc: &Tsc, hertz: f64) -> f64 {
    let mut ticks: [f64; RUNS] = std::array::from_fn(|_| {
        let start = tsc::start();
        independent_adds();
        tsc.net(start, tsc::stop()).max(1.0)
    });
    ticks.sort_unstable_by(f64::total_cmp);
    ADDS as f64 / (ticks[RUNS / 2] * hertz / tsc.hertz)
}

/// The rate at some moments.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Moments {
    /// The highest rate, in adds per cycle.
    pub best: f64,
    /// The share of the moments at which the rate was at least [`ALONE`] of the highest.
    pub alone: f64,
}

/// Measures the rate at 50 moments within 100 ms. A core that is shared at all of them looks alone.
///
/// # Errors
/// Returns why the core clock is unknown.
pub fn moments() -> Result<Moments, Doubtful> {
    let tsc = Tsc::get()?;
    let mut rates = Vec::with_capacity(MOMENTS);
    for _ in 0..MOMENTS {
        let next = Instant::now() + PAUSE;
        let clock = core_clock::calibrate()?;
        if clock.disagreement() < core_clock::AGREEMENT {
            rates.push(measure(tsc, clock.hertz));
        }
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    let best = rates.iter().copied().fold(0.0, f64::max);
    if best == 0.0 {
        return Err(Doubtful::NotLearnt);
    }
    let alone = rates.iter().filter(|rate| **rate >= ALONE * best).count();
    Ok(Moments { best, alone: alone as f64 / rates.len() as f64 })
}

#[inline(never)]
fn independent_adds() {
    // SAFETY: only the named registers and the flags change.
    unsafe {
        asm!(
            ".p2align 6",
            "2:",
            ".rept 8",
            "add {a}, {one}",
            "add {b}, {one}",
            "add {c}, {one}",
            "add {d}, {one}",
            "add {e}, {one}",
            "add {f}, {one}",
            "add {g}, {one}",
            "add {h}, {one}",
            ".endr",
            "dec {left}",
            "jnz 2b",
            left = inout(reg) ADDS / UNROLLED => _,
            one = in(reg) 1u64,
            a = inout(reg) 0u64 => _,
            b = inout(reg) 0u64 => _,
            c = inout(reg) 0u64 => _,
            d = inout(reg) 0u64 => _,
            e = inout(reg) 0u64 => _,
            f = inout(reg) 0u64 => _,
            g = inout(reg) 0u64 => _,
            h = inout(reg) 0u64 => _,
            options(nomem, nostack),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_executes_several_independent_adds_per_cycle() {
        if crate::untested::tsc("the rate of independent adds").is_none() {
            return;
        }
        assert_eq!(ADDS % UNROLLED, 0);
        // x86-64 CPUs since 2003 execute 2 to 6 per cycle alone, and at least half of that next to a busy sibling.
        match moments() {
            Ok(Moments { best, alone }) => {
                println!("{best} adds per cycle, {alone} alone");
                assert!((1.0..10.0).contains(&best), "{best}");
                assert!((0.0..=1.0).contains(&alone) && alone > 0.0, "{alone}");
            }
            Err(why) => crate::untested::note("the rate of independent adds", &why),
        }
    }
}
