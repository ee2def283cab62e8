//! Names of microarchitectures in uops.info's file.

use std::sync::LazyLock;

use lab::data::{DataError, read_toml};
use machine::cpu::Cpu;
use serde::Deserialize;

const FILE: &str = "exchange/architectures.toml";
static BUILT_IN: LazyLock<Result<Architectures, DataError>> =
    LazyLock::new(|| read_toml(FILE, include_str!("../../architectures.toml")));

/// Names of microarchitectures, by CPU.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Architectures {
    architecture: Vec<Architecture>,
}

/// Microarchitecture.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Architecture {
    name: String,
    vendor: String,
    family: u32,
    #[serde(default)]
    models: Vec<u32>,
    /// Models whose cores have the same design and other parts.
    #[serde(default)]
    related: Vec<u32>,
    /// Smallest model, if all from it on have this microarchitecture.
    min_model: Option<u32>,
    /// Smallest and largest stepping.
    steppings: Option<[u32; 2]>,
}

impl Architectures {
    /// Returns the built-in data.
    ///
    /// # Errors
    /// Returns the first fault with its line.
    pub(crate) fn built_in() -> Result<&'static Self, DataError> {
        BUILT_IN.as_ref().map_err(Clone::clone)
    }

    /// Returns the name of a CPU's microarchitecture, if it is known.
    pub(crate) fn of(&self, cpu: &Cpu) -> Option<KnownArchitecture<'_>> {
        let found = |models: fn(&Architecture) -> &[u32]| {
            self.architecture.iter().find(|one| one.has(cpu, models(one)))
        };
        let same = found(|one| &one.models);
        let known = same.or_else(|| found(|one| &one.related))?;
        Some(KnownArchitecture { name: &known.name, is_same: same.is_some() })
    }
}

impl Architecture {
    /// Returns whether a CPU has one of some models, and the other properties.
    fn has(&self, cpu: &Cpu, models: &[u32]) -> bool {
        let has_model =
            models.contains(&cpu.model) || self.min_model.is_some_and(|min| cpu.model >= min);
        let steppings = self.steppings.unwrap_or([0, u32::MAX]);
        self.vendor == cpu.vendor
            && self.family == cpu.family
            && has_model
            && (steppings[0]..=steppings[1]).contains(&cpu.stepping)
    }
}

/// Microarchitecture of a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KnownArchitecture<'a> {
    /// Its name.
    pub(crate) name: &'a str,
    /// Whether the CPU is one of those that have the name, and not only one with cores of the same design.
    pub(crate) is_same: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_have_the_names_of_uops_info() {
        let architectures = Architectures::built_in().unwrap();
        let cpu = |vendor: &str, family, model, stepping| {
            let cpu = Cpu { vendor: vendor.into(), family, model, stepping, ..Cpu::default() };
            architectures.of(&cpu).map_or_else(String::new, |known| {
                format!("{}{}", known.name, if known.is_same { "" } else { ", related" })
            })
        };
        assert_eq!(cpu("GenuineIntel", 6, 94, 3), "SKL");
        assert_eq!(cpu("GenuineIntel", 6, 85, 4), "SKX");
        assert_eq!(cpu("GenuineIntel", 6, 85, 7), "CLX");
        assert_eq!(cpu("GenuineIntel", 6, 207, 2), "EMR");
        assert_eq!(cpu("GenuineIntel", 6, 126, 5), "ICL");
        assert_eq!(cpu("GenuineIntel", 6, 106, 6), "ICL, related");
        assert_eq!(cpu("AuthenticAMD", 25, 97, 2), "ZEN4");
        assert_eq!(cpu("AuthenticAMD", 25, 33, 0), "ZEN3");
        assert_eq!(cpu("AuthenticAMD", 26, 68, 0), "ZEN5");
        assert_eq!(cpu("GenuineIntel", 5, 4, 3), "");
        assert_eq!(cpu("", 0, 0, 0), "");
    }
}
