//! The report that a standalone guest prints, and its parser.
//!
//! Each line starts with `tollgate-guest ` and ends with ` #` and 8 hexadecimal digits: the 32-bit FNV-1a
//! checksum of the text before. Other lines, e.g. of a boot loader, are skipped. In order:
//!
//! ```text
//! tollgate-guest begin version=3 samples=S rounds=R crossings=N warmup=N seed=N #xxxxxxxx
//! tollgate-guest vendor AuthenticAMD #xxxxxxxx
//! tollgate-guest brand AMD EPYC 9B14 96-Core Processor #xxxxxxxx
//! tollgate-guest hypervisor KVMKVMKVM #xxxxxxxx
//! tollgate-guest cpu signature=CPUID.1:EAX hypervisor=yes|no pcid=yes|no #xxxxxxxx
//! tollgate-guest clock stated-hertz=N pit-ticks=N pit-count=N adds=N multiplies=N #xxxxxxxx
//! tollgate-guest sample position=P round=R kind=K stamp=S isolation=off|on made=N stamped=N
//!     cs=N floor-user=N floor-handler=N adds-before=N adds-after=N
//!     multiplies-before=N multiplies-after=N longest=N,N,N empty=BINS u2k=BINS k2u=BINS #xxxxxxxx        (one line, S times)
//! tollgate-guest end samples=S #xxxxxxxx
//! ```
//!
//! BINS is `TICKS:COUNT,TICKS:COUNT...`, ascending, or `-`. `longest` is, for each of the three histograms, its
//! maximum if the last bin was used, or 0. `stated-hertz` is the counter's frequency by CPUID leaf 0x15, or 0.
//! `pit-ticks` is the number of ticks in `pit-count` steps of the PIT, or 0. `adds-before` and `adds-after` are
//! the ticks of `adds` dependent adds before and after the sample, `multiplies-before` and `multiplies-after`
//! those of `multiplies` dependent integer multiplies. After an unexpected exception the remaining lines are
//! replaced by `tollgate-guest fault vector=N error=N rip=N cs=N cr2=N variant=N isolation=N #xxxxxxxx`.

mod line;
mod parse;
#[cfg(test)]
pub(crate) mod tests;

use lab::measure::Measurement;
use lab::sample::{Clock, Failure};
use machine::core_clock;

use super::GuestCrossing;
use super::counts::SampleCounts;

pub use parse::parse;

/// Frequency of the PIT, Hz.
const PIT_HERTZ: f64 = 1_193_181.666;
/// Maximum relative difference of CPUID's and the PIT's frequency of the counter at which CPUID's is used.
const MAX_DIFFERENCE: f64 = 1e-3;

/// An error in a line of the report.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}: {remedy}")]
pub struct ReportError {
    /// Line number, from 1.
    pub line: usize,
    /// The error.
    pub what: String,
    /// The fix.
    pub remedy: &'static str,
}

/// A parsed report.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Number of rounds.
    pub rounds: u64,
    /// Crossings per sample.
    pub crossings: u64,
    /// Warm-up crossings before each sample.
    pub warmup: u64,
    /// Seed of the order of samples.
    pub seed: u64,
    /// CPU.
    pub cpu: GuestCpu,
    /// Clock calibration.
    pub clocks: Clocks,
    /// Samples in the order in which they were taken.
    pub samples: Vec<Sample>,
}

/// The CPU, as identified by CPUID.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestCpu {
    /// Vendor, e.g. `AuthenticAMD`.
    pub vendor: String,
    /// Brand string.
    pub brand: String,
    /// Family, model and stepping as packed by CPUID leaf 1.
    pub signature: u32,
    /// Signature of the hypervisor; `None` on bare metal.
    pub hypervisor: Option<String>,
    /// Whether CR3 was switched with PCID, without a flush.
    pub pcid: bool,
}

/// Calibration of the counter, and lengths of the core-clock chains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clocks {
    /// Frequency of the counter by CPUID, Hz, or 0.
    pub stated_hertz: u64,
    /// Ticks in `pit_count` steps of the PIT, or 0.
    pub pit_ticks: u64,
    /// Steps of the PIT.
    pub pit_count: u64,
    /// Length of the chain of adds, instructions.
    pub adds: u64,
    /// Length of the chain of multiplies, instructions.
    pub multiplies: u64,
}

/// One sample of the report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// Round, from 0.
    pub round: u64,
    /// Crossing.
    pub crossing: GuestCrossing,
    /// Counts.
    pub counts: SampleCounts,
    /// Ticks of the chain of adds before and after.
    pub adds: [u64; 2],
    /// Ticks of the chain of multiplies before and after.
    pub multiplies: [u64; 2],
}

impl GuestCpu {
    /// Returns the display family.
    pub fn family(&self) -> u32 {
        let base = self.signature >> 8 & 0xf;
        if base == 0xf { base + (self.signature >> 20 & 0xff) } else { base }
    }

    /// Returns the display model.
    pub fn model(&self) -> u32 {
        let base = self.signature >> 4 & 0xf;
        let extended = self.signature >> 16 & 0xf;
        if matches!(self.signature >> 8 & 0xf, 0x6 | 0xf) { extended << 4 | base } else { base }
    }

    /// Returns the stepping.
    pub fn stepping(&self) -> u32 {
        self.signature & 0xf
    }

    /// Returns whether it is emulated, so that times are meaningless.
    pub fn is_emulated(&self) -> bool {
        machine::cpu::is_emulated(self.hypervisor.as_deref(), &self.brand)
    }
}

impl Clocks {
    /// Returns the frequency of the counter, Hz: CPUID's, which is exact, if the PIT confirms it or is absent;
    /// otherwise the PIT's.
    pub fn tsc_hertz(&self) -> Option<f64> {
        let stated = (self.stated_hertz > 0).then_some(self.stated_hertz as f64);
        let counted = (self.pit_ticks > 0 && self.pit_count > 0)
            .then(|| self.pit_ticks as f64 * PIT_HERTZ / self.pit_count as f64);
        match (stated, counted) {
            (Some(stated), Some(counted)) if (stated / counted - 1.0).abs() < MAX_DIFFERENCE => {
                Some(stated)
            }
            (stated, counted) => counted.or(stated),
        }
    }
}

impl Report {
    /// Returns the frequency of the counter, Hz.
    ///
    /// # Errors
    /// Returns `unavailable` if the CPU was emulated or the guest found no reference clock.
    pub fn tsc_hertz(&self) -> Result<f64, Failure> {
        if self.cpu.is_emulated() {
            return Err(Failure::unavailable(
                "the guest ran on an emulated CPU (QEMU TCG), whose times are meaningless",
                "boot it on bare metal or under hardware virtualisation",
            ));
        }
        self.clocks.tsc_hertz().ok_or_else(|| {
            Failure::unavailable(
                "the guest found no reference for its counter (CPUID leaf 0x15, PIT)",
                "enable the legacy timer (8254) in the firmware",
            )
        })
    }

    /// Estimates the step of the counter, ticks: the largest number that divides three quarters of all times.
    pub fn step(&self) -> u64 {
        const MAX_STEP: u64 = 128;
        let bins = self.samples.iter().flat_map(|Sample { counts, .. }| {
            [&counts.empty, &counts.u2k, &counts.k2u].into_iter().flat_map(|times| &times.bins)
        });
        let times: Vec<(u64, u64)> = bins
            .map(|(ticks, count)| (u64::from(*ticks), *count))
            .filter(|(ticks, _)| *ticks > 1)
            .collect();
        let multiples = |step: u64| -> u64 {
            times.iter().filter(|(ticks, _)| ticks % step == 0).map(|(_, count)| count).sum()
        };
        let all = multiples(1);
        (2..=MAX_STEP).rev().find(|step| all > 0 && multiples(*step) * 4 >= all * 3).unwrap_or(1)
    }

    /// Converts one of the samples to metrics.
    ///
    /// # Errors
    /// Returns `unavailable` if times are meaningless or ring 0 was not real, `check` if a crossing was not stamped.
    pub fn measurement(&self, sample: &Sample) -> Result<Measurement, Failure> {
        let measurement =
            sample.counts.to_measurement(sample.crossing, self.tsc_hertz()?, self.step())?;
        Ok(measurement.covariate("pcid", if self.cpu.pcid { "yes" } else { "no" }))
    }

    /// Estimates the latency of a multiply on the guest's CPU, cycles, from that of an add, as
    /// [`core_clock`] does.
    fn multiply_latency(&self) -> Option<u64> {
        let ratios = self.samples.iter().flat_map(|sample| {
            let per_instruction = |ticks: u64, count: u64| net(sample, ticks) / count.max(1) as f64;
            let ratio = |at: usize| {
                let multiply = per_instruction(sample.multiplies[at], self.clocks.multiplies);
                multiply / per_instruction(sample.adds[at], self.clocks.adds)
            };
            [ratio(0), ratio(1)]
        });
        core_clock::agreed_latency(&ratios.collect::<Vec<_>>())
    }

    /// Returns the clocks of one of the samples; from adds only if the latency of a multiply is unknown.
    ///
    /// # Errors
    /// Returns `unavailable` if times are meaningless.
    pub fn clock(&self, sample: &Sample) -> Result<Clock, Failure> {
        let tsc_hertz = self.tsc_hertz()?;
        let latency = self.multiply_latency();
        let core = |at: usize| {
            let hertz = |cycles: f64, ticks: u64| cycles * tsc_hertz / net(sample, ticks);
            let adds = hertz(self.clocks.adds as f64, sample.adds[at]);
            let Some(latency) = latency else { return (adds, None) };
            let cycles = self.clocks.multiplies as f64 * latency as f64;
            let multiplies = hertz(cycles, sample.multiplies[at]);
            (adds.max(multiplies), Some(adds.min(multiplies)))
        };
        let ((core_before, second_before), (core_after, second_after)) = (core(0), core(1));
        Ok(Clock {
            tsc_hertz,
            tsc_step: self.step(),
            tsc_overhead: sample.counts.empty.median(),
            core_before,
            core_after,
            second_before,
            second_after,
            issue_before: None,
            issue_after: None,
        })
    }
}

/// Returns the ticks of a chain less the empty pair, at least 1.
fn net(sample: &Sample, ticks: u64) -> f64 {
    ticks.saturating_sub(sample.counts.empty.median()).max(1) as f64
}
