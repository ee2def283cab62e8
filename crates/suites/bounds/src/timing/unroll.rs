//! Number of copies in a loop: as many as fit into the CPU's cache of decoded instructions.

use std::sync::LazyLock;

use iced_x86::{Decoder, DecoderOptions};
use lab::data::{DataError, read_toml};
use lab::sample::Failure;
use machine::cpu::Cpu;
use serde::Deserialize;

const FILE: &str = "decoded.toml";
static BUILT_IN: LazyLock<Result<Caches, DataError>> =
    LazyLock::new(|| read_toml(FILE, include_str!("../../decoded.toml")));

/// Assumed micro-operations per instruction. Instructions with more run from microcode or are slow anyway.
const PER_INSTRUCTION: usize = 4;
/// Maximum number of copies: a CPU that issues eight instructions per cycle takes 30 cycles per loop.
const MAX_COPIES: usize = 240;
/// Instructions per loop on an unknown CPU.
const UNKNOWN: usize = 48;
/// Granularity: this many copies and half of them fill whole cycles of CPUs that issue 4, 6 or 8 instructions per cycle.
const STEP: usize = 48;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Caches {
    cpu: Vec<DecodedCache>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DecodedCache {
    vendor: String,
    family: u32,
    #[serde(default)]
    models: Vec<u32>,
    micro_ops: usize,
}

impl Caches {
    /// Returns how many instructions of a loop fit into the cache of a CPU.
    fn instructions(&self, vendor: &str, family: u32, model: u32) -> usize {
        let is = |it: &&DecodedCache| {
            it.vendor == vendor
                && it.family == family
                && (it.models.is_empty() || it.models.contains(&model))
        };
        self.cpu.iter().find(is).map_or(UNKNOWN, |it| it.micro_ops / PER_INSTRUCTION)
    }
}

/// Returns the maximum number of instructions of a loop on this CPU.
///
/// # Errors
/// Returns `failed` if `decoded.toml` is invalid.
pub(crate) fn instructions() -> Result<usize, Failure> {
    static HERE: LazyLock<Result<usize, Failure>> = LazyLock::new(|| {
        let caches = BUILT_IN.as_ref().map_err(|fault| Failure::failed(fault.to_string()))?;
        let Cpu { vendor, family, model, .. } = Cpu::detect();
        Ok(caches.instructions(&vendor, family, model))
    });
    HERE.clone()
}

/// Returns the number of copies of some code in a loop on this CPU: a multiple of 4, so that half of them are even.
///
/// # Errors
/// As [`instructions`].
pub(crate) fn copies(code: &[u8]) -> Result<usize, Failure> {
    Ok(fitting(instructions()? / length(code).max(1)))
}

/// Rounds down the number of copies that fit.
fn fitting(copies: usize) -> usize {
    match copies.min(MAX_COPIES) {
        many @ STEP.. => many / STEP * STEP,
        few => (few / 4 * 4).max(4),
    }
}

/// Counts the instructions of code.
fn length(code: &[u8]) -> usize {
    Decoder::new(64, code, DecoderOptions::MPX).into_iter().count()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn known_cpus_have_long_loops_and_unknown_ones_short_ones() {
        let caches = BUILT_IN.as_ref().unwrap();
        assert_eq!(caches.instructions("GenuineIntel", 6, 94), 384);
        assert_eq!(caches.instructions("AuthenticAMD", 25, 17), 1024);
        // Alder Lake has two kinds of cores.
        for unknown in [("GenuineIntel", 6, 151), ("HygonGenuine", 24, 1), ("", 0, 0)] {
            assert_eq!(caches.instructions(unknown.0, unknown.1, unknown.2), UNKNOWN);
        }
        assert!(instructions().unwrap() >= UNKNOWN);
    }

    #[test]
    fn each_model_is_listed_once_and_fits_a_loop() {
        let mut seen = BTreeSet::new();
        for one in &BUILT_IN.as_ref().unwrap().cpu {
            let models = if one.models.is_empty() { vec![u32::MAX] } else { one.models.clone() };
            for model in models {
                assert!(seen.insert((&one.vendor, one.family, model)), "{one:?}");
            }
            assert!(one.micro_ops / PER_INSTRUCTION >= UNKNOWN, "{one:?}");
        }
    }

    #[test]
    fn copies_fit_and_are_a_multiple_of_four() {
        for fit in 0..2000 {
            let copies = fitting(fit);
            assert!(
                copies <= fit.max(4) && copies <= MAX_COPIES && copies.is_multiple_of(4),
                "{fit}"
            );
        }
        assert_eq!([fitting(1000), fitting(384), fitting(200), fitting(50)], [240, 240, 192, 48]);
        assert_eq!([fitting(47), fitting(3), fitting(0)], [44, 4, 4]);
        // mov eax, 1; add rax, rbx
        assert_eq!(length(&[0xB8, 1, 0, 0, 0, 0x48, 0x01, 0xD8]), 2);
    }
}
