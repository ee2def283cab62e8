//! The core clock, measured by chains of dependent instructions of known latency, without performance
//! counters.
//!
//! The three chains are integer multiplies, floating-point multiplies and checksums (`crc32`). Each
//! instruction takes several cycles, so it can wait for its turn while other code, e.g. a busy SMT sibling,
//! uses the core. Such code can only slow a chain and rarely slows two equally: the fastest chain counts if
//! another confirms it. A chain of adds, one cycle each, cannot wait: a busy sibling slowed it by up to 5%
//! (Zen 5), which would read as a slower clock. Loads form no chain either because their latency is not an
//! integer there. Adds serve only to learn the latency of the other instructions in cycles.

use std::arch::asm;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Unavailable;
use crate::cpu::{self, CpuClock};
use crate::tsc::{self, Tsc};

/// Maximum relative difference of the two fastest chains. Beyond it the core clock is doubtful.
pub const AGREEMENT: f64 = 0.02;

/// Instructions in the unrolled body of each chain.
const UNROLLED: u64 = 64;
/// Dependent instructions per run: about 6 us at 4.5 GHz if each takes 3 cycles.
const LENGTH: u64 = 8 * 1024;
/// Maximum runs of each chain, in turn; the minimum time counts because interruptions only add. Fewer are
/// made once two chains agree well.
const RUNS: usize = 9;
/// Minimum runs of each chain.
const MIN_RUNS: usize = 3;
/// Agreement at which further runs would add nothing.
const WELL: f64 = AGREEMENT / 4.0;

/// A chain: runs the given number of dependent instructions, a multiple of [`UNROLLED`].
type Chain = fn(u64);
/// Dependent instructions per run when a latency is learnt: few, so that some runs fall between the instructions of a
/// busy SMT sibling.
const SHORT: u64 = 1024;
/// Maximum short runs of each chain from which the core clock is taken if long ones disagree.
const SHORT_RUNS: usize = 128;
/// Maximum step of the time-stamp counter for short runs, in ticks: about 0.2% of their time.
const MAX_SHORT_STEP: u64 = 4;
/// Runs of each chain from which a latency is learnt. Their minimum counts: on Sapphire Rapids a busy sibling slows
/// floating-point multiplies from 4 to 5 cycles for milliseconds, but not in each short run.
const LEARNING_RUNS: usize = 64;
/// Maximum relative distance of a ratio from its integer: less than half the way from 4 to the next. It
/// tolerates adds that a busy SMT sibling slows.
const NEAR: f64 = 0.1;
/// Plausible latencies, in cycles. An integer multiply takes 3 on Intel since Nehalem and on every Zen, 4 on
/// older AMD CPUs; a floating-point multiply takes 3 to 5, a checksum 3. A smaller value means that the
/// adds were slowed.
const LATENCIES: RangeInclusive<u64> = 3..=5;
/// Attempts of [`hertz`]: an interruption can spoil all runs of two chains.
const MAX_ATTEMPTS: usize = 5;

/// The core clock according to the two fastest of three independent chains.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CoreClock {
    /// Cycles per second by the fastest chain.
    pub hertz: f64,
    /// Cycles per second by the second fastest chain, which confirms the fastest.
    pub second_hertz: f64,
    /// Whether this process has learnt the latencies of two chains; until then both values are guesses.
    pub is_known: bool,
}

/// Reasons why the core clock is unknown.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Doubtful {
    /// The time-stamp counter is unusable.
    #[error("{0}")]
    NoTime(#[from] Unavailable),
    /// Adds were so disturbed that no latency was learnt from them.
    #[error("the latency of a multiply in cycles could not be determined")]
    NotLearnt,
    /// The two fastest chains differ by this share.
    #[error("no two chains of the core clock differ by less than {:.1}%", .0 * 100.0)]
    Differ(f64),
}

impl CoreClock {
    /// Takes the fastest and the next of the chains' values; 0 marks a chain without a value.
    fn of(mut hertz: [f64; 3], is_known: bool) -> Self {
        hertz.sort_by(|a, b| b.total_cmp(a));
        Self { hertz: hertz[0], second_hertz: hertz[1], is_known }
    }

    /// Returns the relative difference of the two fastest chains: above [`AGREEMENT`] the value is doubtful.
    /// Infinite if the latencies of the chains are unknown.
    pub fn disagreement(&self) -> f64 {
        if self.is_known { 1.0 - self.second_hertz / self.hertz } else { f64::INFINITY }
    }
}

/// Latencies of the chains' instructions on this CPU in cycles, if known. [`calibrate`] converts time
/// into cycles by them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Latencies {
    /// `imul` of 32 bits.
    pub integer: Option<u64>,
    /// `mulsd`.
    pub float: Option<u64>,
    /// `crc32` of 64 bits; `None` without SSE4.2.
    pub checksum: Option<u64>,
}

/// Measures the core clock of the CPU on which this thread runs, in about 60 us at 4.5 GHz, or up to three
/// times as long if the chains disagree, and 0.4 ms more if they still do. The first call of a process also learns the latencies, in half a
/// millisecond.
///
/// # Errors
/// Returns why the time-stamp counter is unusable.
pub fn calibrate() -> Result<CoreClock, Unavailable> {
    let tsc = Tsc::get()?;
    let learnt = learnt(tsc);
    let is_known = learnt.iter().flatten().count() >= 2;
    let latencies = if is_known { learnt } else { [Some(3), Some(3), None] };
    let (clock, of_chains) = fastest(tsc, latencies, is_known, LENGTH, MIN_RUNS..=RUNS);
    if let Some(at) = too_fast(of_chains) {
        LEARNT[at].store(0, Ordering::Relaxed);
    }
    let is_final = !is_known || clock.disagreement() < AGREEMENT;
    if is_final || tsc.step > MAX_SHORT_STEP {
        return Ok(clock);
    }
    // Some short runs fall between the instructions of a busy SMT sibling.
    Ok(fastest(tsc, latencies, is_known, SHORT, 1..=SHORT_RUNS).0)
}

/// Returns the core clock by the fastest runs of `length` instructions, and the value of each chain: of as many runs as the
/// range permits, until two chains agree well.
fn fastest(
    tsc: &Tsc,
    latencies: [Option<u64>; 3],
    is_known: bool,
    length: u64,
    runs: RangeInclusive<usize>,
) -> (CoreClock, [f64; 3]) {
    let chains = chains();
    let mut least = chains.map(|_| f64::INFINITY);
    let mut run = 0;
    loop {
        run += 1;
        for (least, chain) in least.iter_mut().zip(chains) {
            if let Some(chain) = chain {
                *least = least.min(timed(tsc, || chain(length)));
            }
        }
        let of_chains = std::array::from_fn(|at| match latencies[at] {
            Some(latency) => (length * latency) as f64 * tsc.hertz / least[at],
            None => 0.0,
        });
        let clock = CoreClock::of(of_chains, is_known);
        if run >= *runs.end() || run >= *runs.start() && clock.disagreement() < WELL {
            return (clock, of_chains);
        }
    }
}

/// Returns the chain that is faster than two others that agree. No chain exceeds the core clock, so its learnt latency
/// may be too high.
fn too_fast(hertz: [f64; 3]) -> Option<usize> {
    let differ = |a: f64, b: f64| 1.0 - a.min(b) / a.max(b) >= AGREEMENT;
    let order = [(0, 1, 2), (1, 0, 2), (2, 0, 1)].into_iter();
    if hertz.iter().any(|hertz| *hertz <= 0.0) {
        return None;
    }
    let mut fastest = order.filter(|(at, b, c)| {
        let slower = hertz[*b].max(hertz[*c]);
        hertz[*at] > slower && differ(hertz[*at], slower) && !differ(hertz[*b], hertz[*c])
    });
    fastest.next().map(|(at, ..)| at)
}

/// Measures the core clock until two chains agree, in cycles per second.
///
/// # Errors
/// Fails if the time-stamp counter is unusable or no two chains agree in five attempts.
pub fn hertz() -> Result<f64, Doubtful> {
    let mut least = f64::INFINITY;
    for _ in 0..MAX_ATTEMPTS {
        let clock = calibrate()?;
        if clock.disagreement() < AGREEMENT {
            return Ok(clock.hertz);
        }
        least = least.min(clock.disagreement());
    }
    Err(if least.is_finite() { Doubtful::Differ(least) } else { Doubtful::NotLearnt })
}

/// Returns the latencies of the chains' instructions on this CPU, as far as known.
///
/// # Errors
/// Returns why the time-stamp counter is unusable.
pub fn latencies() -> Result<Latencies, Unavailable> {
    let [integer, float, checksum] = learnt(Tsc::get()?);
    Ok(Latencies { integer, float, checksum })
}

/// Returns the chains that this CPU can run.
fn chains() -> [Option<Chain>; 3] {
    // SAFETY: the closure is returned only if SSE4.2 was detected.
    let checksums: Chain = |count| unsafe { checksums(count) };
    let detected = is_x86_feature_detected!("sse4.2");
    [Some(integer_multiplies), Some(float_multiplies), detected.then_some(checksums)]
}

/// Latency of each chain in cycles; 0 if it is unknown.
static LEARNT: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

/// Latency of each chain relative to adds, which take one cycle on every x86-64 CPU. It is learnt once
/// per process, and tried again on the next call while the adds are disturbed. With a planted clock every instruction takes
/// one cycle.
fn learnt(tsc: &Tsc) -> [Option<u64>; 3] {
    if cpu::clock() == CpuClock::Planted {
        return chains().map(|chain| chain.map(|_| 1));
    }
    let known =
        || LEARNT.each_ref().map(|one| Some(one.load(Ordering::Relaxed)).filter(|it| *it > 0));
    let chains = chains();
    if !known().iter().zip(&chains).any(|(known, chain)| known.is_none() && chain.is_some()) {
        return known();
    }
    let (mut least_adds, mut least) = (f64::INFINITY, [f64::INFINITY; 3]);
    for _ in 0..LEARNING_RUNS {
        least_adds = least_adds.min(timed(tsc, || adds(SHORT)));
        for (least, chain) in least.iter_mut().zip(chains) {
            if let Some(chain) = chain {
                *least = least.min(timed(tsc, || chain(SHORT)));
            }
        }
    }
    // The ratio of a chain that cannot run is infinite.
    for (learnt, latency) in LEARNT.iter().zip(taught(least.map(|least| least / least_adds))) {
        if let Some(latency) = latency {
            learnt.store(latency, Ordering::Relaxed);
        }
    }
    known()
}

/// Derives latencies from the ratios of the chains to adds. Returns none if the integer multiply takes less than
/// 3: the adds were slowed, so the other ratios are too small as well.
fn taught(ratios: [f64; 3]) -> [Option<u64>; 3] {
    // A single ratio is its own majority.
    let latencies = ratios.map(|ratio| agreed_latency(&[ratio]));
    if latencies[0].is_some() { latencies } else { [None; 3] }
}

/// Derives a latency in cycles from repeated ratios to adds: the integer that more than half of the ratios
/// are close to, if it is plausible.
pub fn agreed_latency(ratios: &[f64]) -> Option<u64> {
    LATENCIES.into_iter().find(|latency| {
        let near = |ratio: &&f64| (*ratio / *latency as f64 - 1.0).abs() < NEAR;
        ratios.iter().filter(near).count() * 2 > ratios.len()
    })
}

/// Returns the ticks of a chain, at least one.
#[inline(always)]
fn timed(tsc: &Tsc, chain: impl FnOnce()) -> f64 {
    let start = tsc::start();
    chain();
    tsc.net(start, tsc::stop()).max(1.0)
}

/// A loop of `count` dependent instructions; `count` is a multiple of [`UNROLLED`].
macro_rules! chain {
    ($count:expr, $instruction:literal, $($operand:tt)*) => {
        // SAFETY: only the named registers and the flags change. The CPU has the instruction: all are
        // part of x86-64 except `crc32`, which needs SSE4.2; the caller of `checksums` has detected it.
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

/// Register operands, because some CPUs eliminate immediates at rename.
#[inline(never)]
fn adds(count: u64) {
    chain!(count, "add {sum}, {one}", sum = inout(reg) 0u64 => _, one = in(reg) 1u64);
}

/// The 32-bit form: on the first Zen the 64-bit form takes one cycle more than elsewhere.
#[inline(never)]
fn integer_multiplies(count: u64) {
    chain!(
        count,
        "imul {product:e}, {factor:e}",
        product = inout(reg) 3u32 => _,
        factor = in(reg) 5u32
    );
}

/// Multiplies by 1, so that no product is denormal or infinite, which some CPUs multiply more slowly.
#[inline(never)]
fn float_multiplies(count: u64) {
    chain!(
        count,
        "mulsd {product}, {factor}",
        product = inout(xmm_reg) 1.0f64 => _,
        factor = in(xmm_reg) 1.0f64
    );
}

/// Runs `crc32` of 64 bits.
///
/// # Safety
/// The CPU must have SSE4.2.
#[inline(never)]
unsafe fn checksums(count: u64) {
    chain!(count, "crc32 {sum}, {word}", sum = inout(reg) 1u64 => _, word = in(reg) 5u64);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::{Counters, Event, Mode};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    #[test]
    fn chains_run_the_given_number_of_instructions() {
        assert_eq!((SHORT % UNROLLED, LENGTH % UNROLLED), (0, 0));
    }

    /// How long a test waits for an undisturbed moment.
    const PATIENCE: Duration = Duration::from_secs(30);

    /// Interruptions only slow a chain, so its fastest run is what the CPU does. A busy machine
    /// disturbs many runs for a while; a broken instrument never has a majority that agrees.
    #[test]
    fn the_fastest_runs_of_two_chains_agree() {
        if crate::untested::tsc("the core clock").is_none() {
            return;
        }
        let start = Instant::now();
        loop {
            let clocks: Vec<_> = (0..100).map(|_| calibrate().unwrap()).collect();
            println!("{:?} of {:?}", clocks.last(), latencies());
            assert!(clocks.iter().all(|clock| clock.hertz > 0.0 && clock.hertz.is_finite()));
            let agree = |clock: &&CoreClock| clock.disagreement() < AGREEMENT;
            let agreeing = clocks.iter().filter(agree).count();
            if agreeing > 50 {
                break;
            }
            assert!(start.elapsed() < PATIENCE, "{agreeing} of 100 agree: {clocks:?}");
        }
    }

    /// A busy SMT sibling slows dependent adds but not these chains, so most samples stay valid. A virtual
    /// machine may hide which CPUs are siblings, so every other CPU is kept busy.
    #[test]
    fn busy_cpus_leave_the_chains_in_agreement() {
        const TEST: &str = "the core clock next to busy CPUs";
        if crate::untested::tsc(TEST).is_none() {
            return;
        }
        let mut others = crate::topology::allowed_cpus();
        let cpu = others.remove(0);
        if others.is_empty() {
            return crate::untested::note(TEST, &"one CPU");
        }
        // Known siblings first: on a machine with many CPUs not all are kept busy.
        let topology = crate::topology::Topology::detect();
        others.sort_by_key(|other| !topology.siblings(cpu).contains(other));
        crate::pin::pin_to(cpu).unwrap();
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
    fn latencies_are_integers_and_agree() {
        assert_eq!(agreed_latency(&[3.0, 3.01, 2.99, 2.85, 3.1, 5.0, 9.7]), Some(3));
        assert_eq!(agreed_latency(&[4.0, 4.05, 4.02, 4.3, 3.8, 8.1]), Some(4));
        assert_eq!(agreed_latency(&[3.5; 9]), None);
        assert_eq!(agreed_latency(&[3.0, 3.0, 3.0, 3.0, 4.0, 4.0, 4.0, 4.0, 5.0]), None);
        assert_eq!(agreed_latency(&[f64::NAN, f64::INFINITY, 0.0]), None);
        assert_eq!(agreed_latency(&[]), None);
    }

    /// No ratio is close to two plausible integers.
    #[test]
    fn latencies_are_distinguishable() {
        for latency in *LATENCIES.start()..*LATENCIES.end() {
            let (low, high) = (latency as f64, (latency + 1) as f64);
            assert!(low * (1.0 + NEAR) < high * (1.0 - NEAR), "{latency}");
        }
    }

    /// If the CPU's cycle counter can be read, it must count one cycle per add.
    #[test]
    fn adds_take_one_cycle_each_by_the_cycle_counter() {
        let counters = match Counters::open(&[Event::CYCLES], Mode::User) {
            Ok(counters) => counters,
            Err(why) => return crate::untested::note("cycles of the adds", &why),
        };
        let counted = |_| {
            let before = counters.now().ok()?[0];
            adds(LENGTH);
            Some(counters.now().ok()?[0] - before)
        };
        let least = (0..50).filter_map(counted).min();
        match least {
            Some(least) if least > 0 => {
                let ratio = least as f64 / LENGTH as f64;
                assert!((1.0..1.1).contains(&ratio), "{ratio} cycles per add");
            }
            _ => crate::untested::note("cycles of the adds", &"the counter does not count"),
        }
    }

    #[test]
    fn the_fastest_chain_counts_if_another_confirms_it() {
        let clock = CoreClock::of([3.9e9, 4e9, 2e9], true);
        assert_eq!((clock.hertz, clock.second_hertz), (4e9, 3.9e9));
        assert!((clock.disagreement() - 0.025).abs() < 1e-12);
        assert!(
            CoreClock::of([4e9, 0.0, 0.0], true).disagreement() > AGREEMENT,
            "one chain confirms nothing"
        );
        let guess = CoreClock::of([4e9, 4e9, 0.0], false);
        assert!(guess.disagreement() > AGREEMENT, "two guesses that agree are no clock");
    }

    /// Adds that are slowed alike in every pair make all ratios too small by one factor: no wrong latency is
    /// learnt.
    #[test]
    fn slowed_adds_yield_no_wrong_latency() {
        for slowed in (100..=300).map(|hundredths| f64::from(hundredths) / 100.0) {
            for latencies in [[3, 3, 4], [3, 3, 5], [3, 4, 5], [3, 5, 5], [4, 4, 4]] {
                let taught = taught(latencies.map(|latency| f64::from(latency) / slowed));
                let wrong =
                    (0..3).any(|at| taught[at].is_some_and(|one| one != latencies[at] as u64));
                assert!(!wrong || latencies[0] > 3, "{latencies:?} slowed by {slowed}: {taught:?}");
            }
        }
        assert_eq!(taught([3.05, 2.9, 4.1]), [Some(3), Some(3), Some(4)]);
        assert_eq!(taught([3.05, 4.0, f64::INFINITY]), [Some(3), Some(4), None]);
    }

    #[test]
    fn a_chain_faster_than_two_that_agree_is_learnt_again() {
        assert_eq!(too_fast([2.8e9, 3.24e9, 2.79e9]), Some(1));
        assert_eq!(too_fast([3.7e9, 2.8e9, 2.8e9]), Some(0));
        assert_eq!(too_fast([2.8e9, 2.4e9, 2.79e9]), None, "a slowed chain");
        assert_eq!(too_fast([2.8e9, 3.2e9, 2.5e9]), None, "none agree");
        assert_eq!(too_fast([2.8e9, 2.81e9, 2.79e9]), None);
        assert_eq!(too_fast([2.8e9, 3.2e9, 0.0]), None, "one confirms nothing");
    }

    /// Short runs find moments between the instructions of a busy sibling, so what is learnt does not change.
    #[test]
    fn the_same_latencies_are_learnt_again() {
        let Some(tsc) = crate::untested::tsc("latencies that are learnt again") else { return };
        let again = |_| {
            LEARNT.iter().for_each(|one| one.store(0, Ordering::Relaxed));
            learnt(tsc)
        };
        let start = Instant::now();
        loop {
            let all: Vec<_> = (0..20).map(again).collect();
            let equal = all.iter().filter(|one| **one == all[0]).count();
            let are_known = all[0].iter().flatten().count() == chains().iter().flatten().count();
            if are_known && equal == all.len() {
                break;
            }
            assert!(start.elapsed() < PATIENCE, "{all:?}");
        }
    }

    /// A busy machine may disturb five consecutive attempts, but not for this long.
    #[test]
    fn the_agreed_clock_is_confirmed_by_two_chains() {
        let start = Instant::now();
        let hertz = loop {
            match hertz() {
                Err(Doubtful::NoTime(why)) => {
                    return crate::untested::note("the agreed core clock", &why);
                }
                Err(_) if start.elapsed() < PATIENCE => {}
                agreed => break agreed.unwrap(),
            }
        };
        assert!(hertz > 1e8 && hertz < 1e11, "{hertz}");
    }
}
