//! Events that count micro-operations and ports, by vendor, family and model (`counters.toml`).

use std::sync::LazyLock;

use lab::data::{DataError, read_toml};
use lab::sample::Failure;
use machine::counters::Event;
use machine::cpu::Cpu;
use serde::Deserialize;

const FILE: &str = "counters.toml";
static BUILT_IN: LazyLock<Result<Events, DataError>> =
    LazyLock::new(|| read_toml(FILE, include_str!("../../counters.toml")));

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Events {
    cpu: Vec<CpuEvents>,
}

/// Events of a group of CPUs.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CpuEvents {
    vendor: String,
    family: u32,
    /// Models of the family; empty for all.
    #[serde(default)]
    models: Vec<u32>,
    pub(super) uops: Named,
    #[serde(default)]
    pub(super) ports: Vec<Port>,
}

/// Event with the name in the vendor's documentation.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Named {
    pub(super) name: String,
    number: u16,
    mask: u8,
}

/// Event of one or several ports.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Port {
    pub(super) metric: String,
    name: String,
    number: u16,
    mask: u8,
}

impl Named {
    pub(super) fn event(&self) -> Event {
        Event::raw(self.number, self.mask)
    }
}

impl Port {
    pub(super) fn event(&self) -> Event {
        Event::raw(self.number, self.mask)
    }
}

impl Events {
    fn find(&self, vendor: &str, family: u32, model: u32) -> Option<&CpuEvents> {
        self.cpu.iter().find(|it| {
            it.vendor == vendor
                && it.family == family
                && (it.models.is_empty() || it.models.contains(&model))
        })
    }
}

/// Returns the events of this CPU.
///
/// # Errors
/// Returns `unavailable` if the table has none.
pub(super) fn of_this_cpu() -> Result<&'static CpuEvents, Failure> {
    let events = BUILT_IN.as_ref().map_err(|fault| Failure::failed(fault.to_string()))?;
    let Cpu { vendor, family, model, .. } = Cpu::detect();
    events.find(&vendor, family, model).ok_or_else(|| {
        Failure::unavailable(
            format!("{FILE} has no events of {vendor}, family {family}, model {model}"),
            format!("add the CPU to {FILE} of the bounds suite"),
        )
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn cpus_are_found_by_vendor_family_and_model() {
        let events = BUILT_IN.as_ref().unwrap();
        let skylake = events.find("GenuineIntel", 6, 94).unwrap();
        assert_eq!(skylake.uops.name, "UOPS_EXECUTED.THREAD");
        assert_eq!(skylake.uops.event(), Event::raw(0xB1, 1));
        assert_eq!(skylake.ports.len(), 8);
        assert_eq!(skylake.ports[7].event(), Event::raw(0xA1, 0x80));
        let zen4 = events.find("AuthenticAMD", 25, 17).unwrap();
        assert_eq!((zen4.uops.event(), zen4.ports.len()), (Event::raw(0xC1, 0), 0));
        // Alder Lake has two kinds of cores.
        assert_eq!(events.find("GenuineIntel", 6, 151), None);
        assert_eq!(events.find("HygonGenuine", 24, 1), None);
    }

    #[test]
    fn each_model_is_listed_once_and_each_port_has_a_metric_and_a_distinct_event() {
        let events = BUILT_IN.as_ref().unwrap();
        let mut seen = BTreeSet::new();
        for one in &events.cpu {
            let models = if one.models.is_empty() { vec![u32::MAX] } else { one.models.clone() };
            for model in models {
                assert!(seen.insert((&one.vendor, one.family, model)), "{one:?}");
            }
            let ports: BTreeSet<_> =
                one.ports.iter().map(|port| (port.number, port.mask)).collect();
            assert_eq!(ports.len(), one.ports.len());
            for port in &one.ports {
                let is_metric = super::super::METRICS.iter().any(|it| it.name == port.metric);
                assert!(is_metric, "{}", port.metric);
                let named = port.name.to_lowercase().ends_with(&format!(".{}", port.metric));
                assert!(named, "{} {}", port.name, port.metric);
            }
        }
    }

    #[test]
    fn errors_in_the_table_name_the_file() {
        let text = "[[cpu]]\nvendor = \"X\"\nfamily = 6\nuops = { name = \"u\", number = 1, mask = 256 }\n";
        let fault = read_toml::<Events>("mine.toml", text).unwrap_err().to_string();
        assert!(fault.contains("mine.toml") && !fault.contains('\n'), "{fault}");
        assert!(read_toml::<Events>("mine.toml", "[[cpu]]\nvendor = \"X\"\n").is_err());
    }
}
