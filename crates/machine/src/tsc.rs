//! The time-stamp counter: fenced reads and calibration.

use std::arch::asm;
use std::ops::RangeInclusive;
use std::sync::OnceLock;
use std::time::Duration;

use raw_cpuid::CpuId;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::{Unavailable, cpu};

/// How long the counter is compared with the system's clock to calibrate its frequency.
const CALIBRATION: Duration = Duration::from_millis(20);
/// Minimum duration of a timed batch in steps of the counter, so that a step is at most 0.1%.
pub const MIN_BATCH_STEPS: u64 = 1000;
/// Maximum relative difference between CPUID's frequency and the calibrated one.
const AGREEMENT: f64 = 1e-3;

/// Reads the counter after all earlier instructions and before all later ones.
#[inline(always)]
pub fn start() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: both instructions exist on every x86-64 CPU and touch only eax and edx. The memory
    // clobber keeps the compiler from moving accesses across.
    unsafe {
        asm!("lfence", "rdtsc", "lfence", out("eax") low, out("edx") high,
            options(nostack, preserves_flags));
    }
    u64::from(high) << 32 | u64::from(low)
}

/// Reads the counter once all earlier instructions have finished and before later ones start.
///
/// Only call it after [`Tsc::get`] succeeded: that checks for `rdtscp`.
#[inline(always)]
pub fn stop() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: it touches only eax, edx and ecx; without rdtscp it raises SIGILL, which is a crash and not
    // undefined behaviour. The memory clobber is as in `start`.
    unsafe {
        asm!("rdtscp", "lfence", out("eax") low, out("edx") high, out("ecx") _,
            options(nostack, preserves_flags));
    }
    u64::from(high) << 32 | u64::from(low)
}

/// Reads the counter without fences, to measure its step.
#[inline(always)]
fn read() -> u64 {
    // SAFETY: rdtsc exists on every x86-64 CPU.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Properties of the counter on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Tsc {
    /// Ticks per second.
    pub hertz: f64,
    /// The smallest increment of the counter, in ticks.
    pub step: u64,
    /// Median of empty [`start`] and [`stop`] pairs in ticks, which is subtracted from every timed piece.
    pub overhead: u64,
    /// Minimum of empty pairs in ticks. Its distance from the median is the time resolution of one pair.
    pub min_overhead: u64,
}

static TSC: OnceLock<Result<Tsc, Unavailable>> = OnceLock::new();

/// The rate at which the counter advances, for waits, limits and the pace of packets. No result derives from it, so an
/// emulated CPU has one too.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TickRate {
    /// Ticks per second.
    pub hertz: f64,
}

static TICK_RATE: OnceLock<Result<TickRate, Unavailable>> = OnceLock::new();

impl TickRate {
    /// Returns that of the [usable](Tsc::get) counter, or else measures it, once per process.
    ///
    /// # Errors
    /// Returns `unavailable` if the counter does not advance.
    pub fn get() -> Result<Self, Unavailable> {
        let measured = || match Tsc::get() {
            Ok(tsc) => Ok(tsc.rate()),
            Err(_) => calibrate().map(|hertz| Self { hertz }),
        };
        TICK_RATE.get_or_init(measured).clone()
    }

    /// Converts a time to ticks, at least one.
    pub fn ticks(self, time: Duration) -> u64 {
        ((time.as_secs_f64() * self.hertz) as u64).max(1)
    }
}

impl Tsc {
    /// Returns the counter's properties, measured once per process in about 20 ms.
    ///
    /// # Errors
    /// Returns why the counter is unusable.
    pub fn get() -> Result<&'static Self, Unavailable> {
        TSC.get_or_init(Self::measure).as_ref().map_err(Clone::clone)
    }

    /// Like [`Tsc::get`], with properties that another process of this machine has measured, at no cost.
    ///
    /// # Errors
    /// Returns why the counter is unusable.
    pub fn known(measured: Self) -> Result<&'static Self, Unavailable> {
        let checked = || Self::usable().map(|()| measured);
        TSC.get_or_init(checked).as_ref().map_err(Clone::clone)
    }

    /// Returns the ticks between a [`start`] and a [`stop`], less the median empty pair. Negative if the
    /// piece took less than an empty pair, which is possible because pairs vary: keep the sign in sums and
    /// medians, so that short pieces are not overestimated.
    pub fn net(&self, begin: u64, end: u64) -> f64 {
        end.saturating_sub(begin) as f64 - self.overhead as f64
    }

    /// Returns the minimum size of a batch that lasts [`MIN_BATCH_STEPS`], and its ticks. Tries the sizes by doubling;
    /// a batch of the maximum size may be shorter. `timed` runs a batch and returns its ticks.
    ///
    /// # Errors
    /// Returns the error of `timed`.
    pub fn batch_size<E>(
        &self,
        sizes: RangeInclusive<usize>,
        mut timed: impl FnMut(usize) -> Result<u64, E>,
    ) -> Result<(usize, u64), E> {
        /// Batches per size, because a stall makes a short batch look long.
        const ATTEMPTS: usize = 3;
        let (mut size, max) = sizes.into_inner();
        loop {
            let mut shortest = u64::MAX;
            for _ in 0..ATTEMPTS {
                shortest = shortest.min(timed(size)?);
            }
            if shortest >= MIN_BATCH_STEPS * self.step || size >= max {
                return Ok((size, shortest));
            }
            size = size.saturating_mul(2).min(max);
        }
    }

    /// Converts ticks to nanoseconds.
    pub fn nanoseconds(&self, ticks: f64) -> f64 {
        ticks * 1e9 / self.hertz
    }

    /// Converts a time to ticks, at least one.
    pub fn ticks(&self, time: Duration) -> u64 {
        self.rate().ticks(time)
    }

    /// Returns the rate at which it advances.
    pub fn rate(&self) -> TickRate {
        TickRate { hertz: self.hertz }
    }

    /// Checks whether the counter can measure time.
    fn usable() -> Result<(), Unavailable> {
        if cpu::lacks_time() {
            return Err(Unavailable::new(
                "this CPU is emulated (QEMU TCG), so no time can be measured",
                "use real or KVM hardware",
            ));
        }
        let cpuid = CpuId::new();
        if !cpuid.get_advanced_power_mgmt_info().is_some_and(|power| power.has_invariant_tsc()) {
            return Err(Unavailable::new(
                "the time-stamp counter is not invariant (CPUID 0x80000007 EDX bit 8)",
                "use a newer CPU, or have the hypervisor expose it",
            ));
        }
        if !cpuid
            .get_extended_processor_and_feature_identifiers()
            .is_some_and(|features| features.has_rdtscp())
        {
            return Err(Unavailable::new(
                "the CPU has no rdtscp (CPUID 0x80000001 EDX bit 27)",
                "have the hypervisor expose it",
            ));
        }
        Ok(())
    }

    fn measure() -> Result<Self, Unavailable> {
        Self::usable()?;
        let calibrated = calibrate()?;
        let (overhead, min_overhead) = overhead();
        Ok(Self {
            hertz: confirmed(reported(&CpuId::new()), calibrated),
            step: step(&stamps()),
            overhead,
            min_overhead,
        })
    }
}

/// Returns the frequency in hertz that CPUID reports: leaf 0x15, else the hypervisor's leaf 0x40000010.
fn reported(cpuid: &CpuId<raw_cpuid::CpuIdReaderNative>) -> Option<f64> {
    let cpu = cpuid.get_tsc_info().and_then(|info| info.tsc_frequency());
    let hypervisor = || {
        let kilohertz = cpuid.get_hypervisor_info()?.tsc_frequency()?;
        Some(u64::from(kilohertz) * 1000)
    };
    cpu.or_else(hypervisor).filter(|hertz| *hertz > 0).map(|hertz| hertz as f64)
}

/// Returns CPUID's frequency, which is exact, if the system's clock confirms it; else the calibrated one.
fn confirmed(reported: Option<f64>, calibrated: f64) -> f64 {
    reported.filter(|hertz| (hertz / calibrated - 1.0).abs() < AGREEMENT).unwrap_or(calibrated)
}

/// Calibrates the counter's frequency in hertz against CLOCK_MONOTONIC_RAW.
fn calibrate() -> Result<f64, Unavailable> {
    let (first_tick, first_time) = paired_reading();
    std::thread::sleep(CALIBRATION);
    let (last_tick, last_time) = paired_reading();
    if last_tick <= first_tick || last_time <= first_time {
        return Err(Unavailable::new(
            "the time-stamp counter does not advance",
            "report this hypervisor",
        ));
    }
    Ok((last_tick - first_tick) as f64 * 1e9 / (last_time - first_time) as f64)
}

/// Reads the counter and the clock (ns) at one moment: the narrowest of several bracketed readings.
fn paired_reading() -> (u64, u64) {
    let bracketed = || {
        let before = start();
        let time = clock_gettime(ClockId::MonotonicRaw);
        // Not every CPU has rdtscp, which `stop` needs.
        let after = start();
        let nanoseconds = time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
        (after.saturating_sub(before), before + after.saturating_sub(before) / 2, nanoseconds)
    };
    let mut best = bracketed();
    for _ in 0..100 {
        let next = bracketed();
        if next.0 < best.0 {
            best = next;
        }
    }
    (best.1, best.2)
}

/// Takes readings with varied pauses, so that a regular rhythm is not mistaken for the counter's step.
fn stamps() -> Vec<u64> {
    let mut stamps = vec![0; 1024];
    for (index, stamp) in stamps.iter_mut().enumerate() {
        for pause in 0..index * 7 % 33 {
            std::hint::black_box(pause);
        }
        *stamp = read();
    }
    stamps
}

/// Derives the counter's step: the largest number of which most differences between stamps are multiples.
///
/// Not all differences need to be multiples, because a reading at a step may show one tick more. If few are
/// exact multiples, the hypervisor may scale the counter by a fraction, so that steps of 25.6 appear as 25
/// and 26: then differences within a tick of a multiple count, if the step is long enough for this to be
/// meaningful.
fn step(stamps: &[u64]) -> u64 {
    const MAX_STEP: u64 = 128;
    const MIN_SCALED: u64 = 8;
    let differences: Vec<u64> = stamps
        .windows(2)
        .map(|pair| pair[1].saturating_sub(pair[0]))
        .filter(|difference| *difference > 1)
        .collect();
    let count = |is_multiple: &dyn Fn(u64) -> bool| {
        differences.iter().filter(|difference| is_multiple(**difference)).count()
    };
    let most = |count: usize| count * 4 >= differences.len() * 3 && count > 0;
    let exact = |step: u64| count(&|difference| difference % step == 0);
    let nearly = |step: u64| count(&|difference| (difference + 1) % step <= 2);
    if let Some(step) = (2..=MAX_STEP).rev().find(|step| most(exact(*step))) {
        return step;
    }
    let scaled = (MIN_SCALED..=MAX_STEP).max_by_key(|step| (nearly(*step), *step));
    scaled.filter(|step| most(nearly(*step))).unwrap_or(1)
}

/// Measures the median and the minimum of empty fenced pairs, in ticks.
fn overhead() -> (u64, u64) {
    let mut pairs = vec![0; 2001];
    for pair in &mut pairs {
        let begin = start();
        *pair = stop().saturating_sub(begin);
    }
    pairs.sort_unstable();
    (pairs[pairs.len() / 2], pairs[0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    /// Returns the stamps at the given times of a counter that moves in steps.
    fn counted(step: f64, times: impl Iterator<Item = u64>) -> Vec<u64> {
        times.map(|time| ((time as f64 / step).floor() * step) as u64).collect()
    }

    /// Returns times with irregular gaps of 20 to 99.
    fn times() -> impl Iterator<Item = u64> {
        (0..1000u64).scan(0, |time, index| {
            *time += 20 + index * 37 % 80;
            Some(*time)
        })
    }

    #[test]
    fn the_step_is_shared_by_most_differences() {
        assert_eq!(step(&counted(26.0, times())), 26);
        assert_eq!(step(&counted(2.0, times())), 2);
        assert_eq!(step(&counted(1.0, times())), 1);
        assert_eq!(step(&[7]), 1);
    }

    #[test]
    fn a_stray_tick_does_not_hide_the_step() {
        let mut stamps = counted(26.0, times());
        stamps.iter_mut().step_by(20).for_each(|stamp| *stamp += 1);
        assert_eq!(step(&stamps), 26);
    }

    #[test]
    fn a_scaled_step_is_found_within_a_tick() {
        let found = step(&counted(25.6, times()));
        assert!((25..=26).contains(&found), "{found}");
    }

    #[test]
    fn batches_are_doubled_until_they_are_long() {
        let tsc = Tsc { hertz: 1e9, step: 10, overhead: 0, min_overhead: 0 };
        let size = |sizes, ticks: u64| {
            let mut tried = Vec::new();
            let found = tsc.batch_size(sizes, |size| {
                tried.push(size);
                // The second batch of each size is stalled.
                let stall = if tried.len() % 3 == 2 { 1 << 20 } else { 0 };
                Ok::<_, ()>(size as u64 * ticks + stall)
            });
            (found.unwrap(), tried)
        };
        assert_eq!(size(3..=100, 1000), ((12, 12_000), vec![3, 3, 3, 6, 6, 6, 12, 12, 12]));
        assert_eq!(size(3..=100, 0).0, (100, 0));
        assert_eq!(tsc.batch_size(1..=1, |_| Err("no")), Err("no"));
    }

    #[test]
    fn the_reported_frequency_needs_confirmation() {
        assert_eq!(confirmed(Some(2.0e9), 2.0001e9), 2.0e9);
        assert_eq!(confirmed(Some(2.0e9), 2.1e9), 2.1e9);
        assert_eq!(confirmed(None, 2.1e9), 2.1e9);
    }

    #[test]
    fn this_counter_is_plausible() {
        let Some(tsc) = crate::untested::tsc("the time-stamp counter") else { return };
        println!("{tsc:?}");
        assert!(tsc.hertz > 5e8 && tsc.hertz < 1e10, "{tsc:?}");
        assert!(tsc.step >= 1 && tsc.step <= 128, "{tsc:?}");
        assert!(tsc.min_overhead <= tsc.overhead && tsc.overhead < 100_000, "{tsc:?}");
    }

    #[test]
    fn the_rate_for_waits_is_that_of_the_counter() {
        let rate = TickRate::get().unwrap();
        assert_eq!(rate.ticks(Duration::from_secs(1)), rate.hertz as u64);
        assert_eq!(rate.ticks(Duration::ZERO), 1);
        match Tsc::get() {
            Ok(tsc) => assert_eq!(rate, tsc.rate()),
            Err(_) => assert!(rate.hertz > 1e6, "{rate:?}"),
        }
    }

    #[test]
    fn the_counter_agrees_with_the_system_clock() {
        let Some(tsc) = crate::untested::tsc("the time-stamp counter") else { return };
        // This thread may lose its CPU between any two readings, so the counter is read between two readings
        // of the clock at both ends.
        let (outer, begin, inner) = (Instant::now(), start(), Instant::now());
        std::thread::sleep(Duration::from_millis(50));
        let (inner, end, outer) = (inner.elapsed(), stop(), outer.elapsed());
        let time = tsc.nanoseconds((end - begin) as f64);
        let (least, most) = (inner.as_nanos() as f64, outer.as_nanos() as f64);
        assert!(time > least * 0.99 && time < most * 1.01, "{least} <= {time} <= {most} ns");
    }
}
