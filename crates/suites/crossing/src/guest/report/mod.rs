//! What the guest prints where it runs by itself, and how it is read back.
//!
//! Each line begins with `tollgate-guest ` and ends in ` #` and 8 digits: the FNV-1a checksum, 32 bits, of
//! all that stands before. Other lines, such as a boot loader's, are skipped. In order:
//!
//! ```text
//! tollgate-guest begin version=2 samples=S rounds=R crossings=N warmup=N seed=N #xxxxxxxx
//! tollgate-guest vendor AuthenticAMD #xxxxxxxx
//! tollgate-guest brand AMD EPYC 9B14 96-Core Processor #xxxxxxxx
//! tollgate-guest hypervisor KVMKVMKVM #xxxxxxxx
//! tollgate-guest cpu signature=CPUID.1:EAX hypervisor=yes|no pcid=yes|no #xxxxxxxx
//! tollgate-guest clock stated-hertz=N pit-ticks=N pit-count=N adds=N multiplies=N #xxxxxxxx
//! tollgate-guest sample position=P round=R kind=K isolation=off|on made=N stamped=N cs=N
//!     floor-user=N floor-handler=N adds-before=N adds-after=N
//!     multiplies-before=N multiplies-after=N longest=N,N,N empty=BINS u2k=BINS k2u=BINS #xxxxxxxx        (one line, S times)
//! tollgate-guest end samples=S #xxxxxxxx
//! ```
//!
//! BINS is `TICKS:COUNT,TICKS:COUNT...`, ascending, or `-`. `longest` holds, for the three, the longest
//! that was beyond the last bin, or 0. `stated-hertz` is the counter's rate by CPUID leaf 0x15, or 0;
//! `pit-ticks` is how many ticks passed in `pit-count` steps of the PIT, or 0. `adds-before` and
//! `adds-after` are the ticks of so many dependent adds before and after the sample, and `multiplies-before` and
//! `multiplies-after` those of dependent integer multiplies. In place of what follows an exception that nobody expected stands
//! `tollgate-guest fault vector=N error=N rip=N cs=N cr2=N kind=N isolation=N #xxxxxxxx`.

mod line;
mod parse;
#[cfg(test)]
pub(crate) mod tests;

use lab::measure::Measurement;
use lab::sample::{Clock, Failure};
use machine::core_clock;

use super::kind::Kind;
use super::tally::Tally;

pub use parse::parse;

/// Steps of the PIT a second.
const PIT_HERTZ: f64 = 1_193_181.666;
/// How far CPUID's rate of the counter may lie from the PIT's before it is disbelieved.
const AGREEMENT: f64 = 1e-3;
/// How QEMU's emulator signs.
const TCG: &str = "TCGTCGTCGTCG";

/// Why the text is no report.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}: {remedy}")]
pub struct ReportError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong there.
    pub what: String,
    /// What to do.
    pub remedy: &'static str,
}

/// What the guest printed.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Rounds.
    pub rounds: u64,
    /// Crossings a sample.
    pub crossings: u64,
    /// Crossings before those.
    pub warmup: u64,
    /// The seed of the order.
    pub seed: u64,
    /// The processor.
    pub processor: Processor,
    /// The clocks.
    pub clocks: Clocks,
    /// The samples, in the order in which they were taken.
    pub samples: Vec<Sample>,
}

/// The processor, by CPUID.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Processor {
    /// `AuthenticAMD`.
    pub vendor: String,
    /// The brand string.
    pub brand: String,
    /// The signature: family, model and stepping as CPUID leaf 1 packs them.
    pub signature: u32,
    /// How the hypervisor signs; none on bare metal.
    pub hypervisor: Option<String>,
    /// Whether CR3 was switched with PCID, without flushing.
    pub pcid: bool,
}

/// What the clocks were found to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clocks {
    /// The counter's rate as CPUID states it, hertz; or 0.
    pub stated_hertz: u64,
    /// Ticks that passed in `pit_count` steps of the PIT; or 0.
    pub pit_ticks: u64,
    /// Steps of the PIT.
    pub pit_count: u64,
    /// Instructions of the chain of adds.
    pub adds: u64,
    /// Instructions of the chain of multiplies.
    pub multiplies: u64,
}

/// One sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// The round, from 0.
    pub round: u64,
    /// How the kernel was entered and left.
    pub kind: Kind,
    /// Whether CR3 was switched.
    pub isolation: bool,
    /// What was counted.
    pub tally: Tally,
    /// Ticks of the chain of adds before and after.
    pub adds: [u64; 2],
    /// Ticks of the chain of multiplies before and after.
    pub multiplies: [u64; 2],
}

impl Processor {
    /// Display family.
    pub fn family(&self) -> u32 {
        let base = self.signature >> 8 & 0xf;
        if base == 0xf { base + (self.signature >> 20 & 0xff) } else { base }
    }

    /// Display model.
    pub fn model(&self) -> u32 {
        let base = self.signature >> 4 & 0xf;
        let extended = self.signature >> 16 & 0xf;
        if matches!(self.signature >> 8 & 0xf, 0x6 | 0xf) { extended << 4 | base } else { base }
    }

    /// Stepping.
    pub fn stepping(&self) -> u32 {
        self.signature & 0xf
    }

    /// Whether it is emulated, so that its times mean nothing.
    pub fn emulated(&self) -> bool {
        self.hypervisor.as_deref() == Some(TCG) || self.brand.contains("QEMU TCG")
    }
}

impl Clocks {
    /// The counter's rate, hertz: CPUID's where the PIT confirms it, for it is exact; else the PIT's.
    pub fn tsc_hertz(&self) -> Option<f64> {
        let stated = (self.stated_hertz > 0).then_some(self.stated_hertz as f64);
        let counted = (self.pit_ticks > 0 && self.pit_count > 0)
            .then(|| self.pit_ticks as f64 * PIT_HERTZ / self.pit_count as f64);
        match (stated, counted) {
            (Some(stated), Some(counted)) if (stated / counted - 1.0).abs() < AGREEMENT => {
                Some(stated)
            }
            (stated, counted) => counted.or(stated),
        }
    }
}

impl Report {
    /// The counter's rate where times may be told, hertz.
    ///
    /// # Errors
    /// Where the processor was emulated, or no clock was found.
    pub fn tsc_hertz(&self) -> Result<f64, Failure> {
        if self.processor.emulated() {
            return Err(Failure::unavailable(
                "the guest ran on an emulated processor (QEMU TCG), whose times mean nothing",
                "boot it on bare metal or under hardware virtualisation",
            ));
        }
        self.clocks.tsc_hertz().ok_or_else(|| {
            Failure::unavailable(
                "the guest found no clock to hold its counter against (CPUID leaf 0x15, PIT)",
                "enable the legacy timer (8254) in the firmware",
            )
        })
    }

    /// The step in which the counter moves, ticks: the largest number of which three quarters of all
    /// times are multiples.
    pub fn step(&self) -> u64 {
        const LONGEST: u64 = 128;
        let counts = self.samples.iter().flat_map(|Sample { tally, .. }| {
            [&tally.empty, &tally.u2k, &tally.k2u].into_iter().flat_map(|counts| &counts.bins)
        });
        let times: Vec<(u64, u64)> = counts
            .map(|(ticks, count)| (u64::from(*ticks), *count))
            .filter(|(ticks, _)| *ticks > 1)
            .collect();
        let of = |step: u64| -> u64 {
            times.iter().filter(|(ticks, _)| ticks % step == 0).map(|(_, count)| count).sum()
        };
        let all = of(1);
        (2..=LONGEST).rev().find(|step| all > 0 && of(*step) * 4 >= all * 3).unwrap_or(1)
    }

    /// The metrics of one of the samples.
    ///
    /// # Errors
    /// Where times mean nothing, a crossing was not stamped, or ring 0 was not real.
    pub fn measurement(&self, sample: &Sample) -> Result<Measurement, Failure> {
        let measurement = sample.tally.measurement(sample.kind, self.tsc_hertz()?, self.step())?;
        Ok(measurement.covariate("pcid", if self.processor.pcid { "yes" } else { "no" }))
    }

    /// How many cycles a multiply takes on the guest's processor, learnt in adds as [`core_clock`] learns it.
    fn latency(&self) -> Option<u64> {
        let ratios = self.samples.iter().flat_map(|sample| {
            let of_one = |ticks: u64, count: u64| net(sample, ticks) / count.max(1) as f64;
            let ratio = |at: usize| {
                let multiply = of_one(sample.multiplies[at], self.clocks.multiplies);
                multiply / of_one(sample.adds[at], self.clocks.adds)
            };
            [ratio(0), ratio(1)]
        });
        core_clock::agreed_latency(&ratios.collect::<Vec<_>>())
    }

    /// The clocks under one of the samples; by adds alone where the latency of a multiply could not be learnt.
    ///
    /// # Errors
    /// Where times mean nothing.
    pub fn clock(&self, sample: &Sample) -> Result<Clock, Failure> {
        let tsc_hertz = self.tsc_hertz()?;
        let latency = self.latency();
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
            tsc_overhead: sample.tally.empty.median(),
            core_before,
            core_after,
            second_before,
            second_after,
        })
    }
}

/// The ticks of a chain without the empty pair, at least one.
fn net(sample: &Sample, ticks: u64) -> f64 {
    ticks.saturating_sub(sample.tally.empty.median()).max(1) as f64
}
