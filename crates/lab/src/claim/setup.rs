//! Machines and points to which published values apply.

use std::fmt;

use machine::capability;
use machine::environment::Environment;
use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::point::{Filter, Level, OneOrMany, Point};

/// Where a published value is expected.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CarriesOver {
    /// On any machine: `"anywhere"`.
    Anywhere,
    /// On no machine that can be recognised, because the source does not name its hardware or
    /// measured another program: `"nowhere"`.
    Nowhere,
    /// On these machines and points.
    #[serde(untagged)]
    To(Setup),
}

/// Properties of a machine, and of the points measured on it, all of which are required.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Table")]
pub struct Setup {
    /// CPU models, one of which is required; any if empty.
    pub cpu: Vec<CpuModel>,
    /// Name of a capability, as in `tollgate doctor`.
    pub capability: Option<String>,
    /// PCI vendor and device of a network interface, as `8086:1572`.
    pub nic: Option<String>,
    /// Whether a hypervisor is required or excluded. An emulator is one.
    pub hypervisor: Option<bool>,
    /// Points to which the value applies; the values of other points are shown and not judged.
    #[serde(rename = "where")]
    pub filter: Filter,
}

/// A family of CPUs, or a model of it: `Intel family 6 model 94`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(into = "String")]
#[schemars(with = "String")]
pub struct CpuModel {
    vendor: &'static Vendor,
    family: u32,
    model: Option<u32>,
}

/// Names of a vendor in claims and in CPUID.
#[derive(Debug, PartialEq, Eq)]
struct Vendor {
    name: &'static str,
    cpuid: &'static str,
}

const VENDORS: [Vendor; 2] = [
    Vendor { name: "Intel", cpuid: "GenuineIntel" },
    Vendor { name: "AMD", cpuid: "AuthenticAMD" },
];

/// A property that a machine or point lacks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Unmet {
    /// Required property, e.g. `cpu Intel family 6 model 94`.
    pub needed: String,
    /// Property of the machine or point, e.g. `AMD family 26 model 2`.
    pub found: String,
}

impl Unmet {
    /// What any machine lacks for a value that carries over nowhere.
    pub(super) fn source_itself() -> Self {
        let needed = "the machine and program of the source";
        Self { needed: needed.into(), found: "another".into() }
    }
}

/// The TOML table.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Table {
    cpu: Option<OneOrMany>,
    capability: Option<String>,
    nic: Option<String>,
    hypervisor: Option<bool>,
    #[serde(default, rename = "where")]
    filter: Filter,
}

impl TryFrom<Table> for Setup {
    type Error = String;

    fn try_from(table: Table) -> Result<Self, String> {
        let Table { cpu, capability, nic, hypervisor, filter } = table;
        let models = cpu.iter().flat_map(OneOrMany::levels).map(Level::as_str);
        let cpu = models.map(CpuModel::parse).collect::<Result<_, _>>()?;
        if let Some(unknown) =
            capability.as_deref().filter(|it| !capability::names().any(|name| name == *it))
        {
            let known: Vec<_> = capability::names().collect();
            return Err(format!(
                "unknown capability '{unknown}'; expected one of {}",
                known.join(", ")
            ));
        }
        if let Some(wrong) = nic.as_deref().filter(|id| !is_pci_id(id)) {
            return Err(format!(
                "'{wrong}' is not a network interface; write its PCI vendor and device, e.g. \"8086:1572\""
            ));
        }
        let setup = Self { cpu, capability, nic, hypervisor, filter };
        match setup == Self::default() {
            true => Err("names nothing; expected cpu, capability, nic, hypervisor or where".into()),
            false => Ok(setup),
        }
    }
}

impl Setup {
    /// Returns the properties that a machine lacks. A machine without a record lacks all.
    pub(super) fn unmet(&self, machine: Option<&Environment>) -> Vec<Unmet> {
        let of = |text: &dyn Fn(&Environment) -> String| {
            machine.map_or_else(|| "an unknown machine".into(), text)
        };
        let lacks = |met: &dyn Fn(&Environment) -> bool| !machine.is_some_and(met);
        let mut unmet = Vec::new();
        if !self.cpu.is_empty() && lacks(&|it| self.cpu.iter().any(|cpu| cpu.is_model_of(it))) {
            let models: Vec<_> = self.cpu.iter().map(CpuModel::to_string).collect();
            unmet.push(Unmet { needed: models.join(" or "), found: of(&cpu_of) });
        }
        if let Some(name) =
            self.capability.as_ref().filter(|name| lacks(&|it| it.capabilities.contains(name)))
        {
            let found = of(&|_| format!("no {name}"));
            unmet.push(Unmet { needed: format!("capability {name}"), found });
        }
        if let Some(id) = self.nic.as_ref().filter(|id| lacks(&|it| it.nics.contains(id))) {
            let found = of(&|it| match it.nics.is_empty() {
                true => "no PCI network interface".into(),
                false => it.nics.join(", "),
            });
            unmet.push(Unmet { needed: format!("network interface {id}"), found });
        }
        // An emulator is a hypervisor, even if it hides.
        let has_one = |it: &Environment| it.cpu.hypervisor.is_some() || it.emulated;
        if let Some(virtual_machine) =
            self.hypervisor.filter(|it| lacks(&|env| has_one(env) == *it))
        {
            let needed = if virtual_machine { "a hypervisor" } else { "no hypervisor" };
            let found = of(&|it| match &it.cpu.hypervisor {
                Some(name) => format!("hypervisor {name}"),
                None if it.emulated => "an emulated CPU".into(),
                None => "no hypervisor".into(),
            });
            unmet.push(Unmet { needed: needed.into(), found });
        }
        unmet
    }

    /// Returns the level that a point lacks.
    pub(super) fn unmet_by(&self, point: &Point) -> Option<Unmet> {
        let (factor, levels) = self.filter.0.iter().find(|(factor, levels)| {
            !point.get(factor).is_some_and(|it| levels.levels().contains(it))
        })?;
        let levels: Vec<_> = levels.levels().iter().map(Level::as_str).collect();
        let needed = format!("{factor}={}", levels.join(","));
        Some(Unmet { needed, found: format!("{factor}={}", point.text(factor)) })
    }
}

impl CpuModel {
    /// Parses `VENDOR family NUMBER`, optionally followed by `model NUMBER`.
    fn parse(text: &str) -> Result<Self, String> {
        let words: Vec<_> = text.split_whitespace().collect();
        let parsed = match words.as_slice() {
            [vendor, "family", family] => Some((vendor, family.parse(), None)),
            [vendor, "family", family, "model", model] => {
                Some((vendor, family.parse(), Some(model.parse())))
            }
            _ => None,
        };
        let model = parsed.and_then(|(vendor, family, model)| {
            let vendor = VENDORS.iter().find(|known| known.name == *vendor)?;
            Some(Self { vendor, family: family.ok()?, model: model.transpose().ok()? })
        });
        model.ok_or_else(|| {
            format!(
                "'{text}' is not a CPU; write Intel or AMD with decimal numbers, e.g. \"Intel family 6 model 94\" \
                 or \"AMD family 25\""
            )
        })
    }

    fn is_model_of(&self, machine: &Environment) -> bool {
        let cpu = &machine.cpu;
        cpu.vendor == self.vendor.cpuid
            && cpu.family == self.family
            && self.model.is_none_or(|model| cpu.model == model)
    }
}

impl fmt::Display for CpuModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} family {}", self.vendor.name, self.family)?;
        self.model.map_or(Ok(()), |model| write!(f, " model {model}"))
    }
}

impl From<CpuModel> for String {
    fn from(model: CpuModel) -> Self {
        model.to_string()
    }
}

/// Returns the CPU of a machine in the notation of claims.
fn cpu_of(machine: &Environment) -> String {
    let cpu = &machine.cpu;
    let known = VENDORS.iter().find(|vendor| vendor.cpuid == cpu.vendor);
    let vendor = known.map_or(cpu.vendor.as_str(), |vendor| vendor.name);
    format!("{vendor} family {} model {}", cpu.family, cpu.model)
}

/// Returns whether a text is a PCI vendor and device, each of four lower-case hexadecimal digits.
fn is_pci_id(text: &str) -> bool {
    let is_number =
        |part: &str| part.len() == 4 && part.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'));
    text.split_once(':').is_some_and(|(vendor, device)| is_number(vendor) && is_number(device))
}

impl<'de> Deserialize<'de> for CarriesOver {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CarriesOverVisitor)
    }
}

struct CarriesOverVisitor;

impl<'de> Visitor<'de> for CarriesOverVisitor {
    type Value = CarriesOver;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "\"anywhere\", \"nowhere\" or the hardware of the value, e.g. { cpu = \"Intel family 6 model 94\" }",
        )
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<CarriesOver, E> {
        match text {
            "anywhere" => Ok(CarriesOver::Anywhere),
            "nowhere" => Ok(CarriesOver::Nowhere),
            other => Err(E::invalid_value(serde::de::Unexpected::Str(other), &self)),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<CarriesOver, A::Error> {
        Setup::deserialize(MapAccessDeserializer::new(map)).map(CarriesOver::To)
    }
}
