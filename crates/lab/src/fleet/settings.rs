//! Settings of nodes: what may explain that one differs from the others.

use std::collections::{BTreeMap, HashMap};

use machine::environment::Environment;
use schemars::JsonSchema;
use serde::Serialize;

use crate::format;
use crate::journal::RunRecord;
use crate::quantity;
use crate::statistics::median;

/// Share of the other nodes that may have the value of an outlier which still is named as its difference.
const RARE: f64 = 0.5;
/// Difference of memory sizes, as a share, from which they differ: firmware and kernel reserve some of it.
const MEMORY_DIFFERS: f64 = 0.05;
/// Difference of the shares of samples with a busy sibling from which they differ.
const SHARING_DIFFERS: f64 = 0.1;
/// Maximum number of values of a setting that are listed.
const MAX_VALUES: usize = 5;
/// Value of a setting that a node does not report.
const ABSENT: &str = "none";

/// Settings of one node.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Settings {
    /// Values by name.
    pub(super) texts: BTreeMap<String, String>,
    /// Memory in bytes; 0 if unknown.
    pub(super) memory: u64,
    /// Share of the samples whose core a busy SMT sibling shared; `None` if unknown.
    pub(super) sharing: Option<f64>,
}

impl Settings {
    /// Returns the settings of a run in an environment.
    pub(super) fn of(record: &RunRecord, environment: Option<&Environment>) -> Self {
        let mut texts = BTreeMap::from([("nice value".to_owned(), record.nice.to_string())]);
        let options = record.options.iter();
        texts.extend(options.map(|(name, value)| (format!("--set {name}"), value.clone())));
        let Some(environment) = environment else { return Self { texts, ..Self::default() } };
        texts.extend(of_environment(environment));
        Self { texts, memory: environment.memory, sharing: None }
    }
}

/// Returns the settings of an environment in words. The host name and the boot differ on every node.
fn of_environment(one: &Environment) -> Vec<(String, String)> {
    let optional = |text: &Option<String>| text.clone().unwrap_or_else(|| ABSENT.into());
    let digest = |text: &str| blake3::hash(text.as_bytes()).to_hex()[..8].to_owned();
    let cpu = &one.cpu;
    let (cpus, cores) = (one.topology.online.len(), one.topology.physical_cores());
    let program = one.program_hash.as_deref().map_or(ABSENT, |hash| hash.get(..8).unwrap_or(hash));
    let mut settings = vec![
        ("governor".into(), optional(&one.governor)),
        ("transparent huge pages".into(), optional(&one.transparent_huge_pages)),
        ("mitigations".into(), one.mitigation_words.join(" ")),
        ("microcode".into(), optional(&cpu.microcode)),
        ("kernel".into(), format!("{} {}", one.kernel_release, one.kernel_version)),
        ("CPU".into(), cpu.brand.clone()),
        ("CPU stepping".into(), format!("{}/{}/{}", cpu.family, cpu.model, cpu.stepping)),
        (
            "CPU features".into(),
            format!("{} flags, {}", cpu.features.len(), digest(&cpu.features.join(" "))),
        ),
        ("hypervisor".into(), optional(&cpu.hypervisor)),
        ("CPUs".into(), format!("{cpus} on {cores} cores")),
        ("NUMA nodes".into(), one.topology.nodes.len().to_string()),
        ("C library".into(), optional(&one.libc)),
        ("NICs".into(), one.nics.join(" ")),
        ("program".into(), format!("{} {program}", one.program_version)),
    ];
    let vulnerabilities = one.vulnerabilities.iter();
    settings.extend(
        vulnerabilities.map(|(name, state)| (format!("vulnerability {name}"), state.clone())),
    );
    let tunables = one.libc_tunables.iter();
    settings.extend(tunables.map(|(name, value)| (format!("tunable {name}"), value.clone())));
    for (_, value) in &mut settings {
        if value.is_empty() {
            *value = ABSENT.into();
        }
    }
    settings
}

/// A setting in which an outlier differs from the other nodes.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct SettingDifference {
    /// Name, e.g. `governor`.
    pub setting: String,
    /// Value of the outlier.
    pub value: String,
    /// Most frequent value of the nodes that are no outliers; for an amount, their median.
    pub others: String,
    /// Share (0 to 1) of these nodes that have the value of the outlier.
    pub share: f64,
}

/// Values of a setting that differs between nodes.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct SettingValues {
    /// Name, e.g. `governor`.
    pub setting: String,
    /// Its most frequent values.
    pub values: Vec<SettingCount>,
    /// Number of nodes with other values.
    pub others: usize,
}

/// A value of a setting with its number of nodes.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct SettingCount {
    /// Value.
    pub value: String,
    /// Number of nodes.
    pub nodes: usize,
}

/// Settings of nodes, in which equal texts are stored once.
#[derive(Debug, Default)]
pub(super) struct Table {
    texts: HashMap<String, u32>,
    by_number: Vec<String>,
}

/// Settings of one node in a [`Table`].
#[derive(Debug, Clone, Default)]
pub(super) struct Row {
    /// Numbers of names and values, in the order of the names' numbers.
    values: Vec<(u32, u32)>,
    memory: u64,
    sharing: Option<f64>,
}

/// How often each value of each setting is in some rows.
#[derive(Debug)]
pub(super) struct Counts {
    /// Number of nodes by the numbers of a name and a value.
    counts: BTreeMap<u32, HashMap<u32, usize>>,
    nodes: usize,
    memory: Option<f64>,
    sharing: Option<f64>,
}

impl Table {
    fn number(&mut self, text: &str) -> u32 {
        if let Some(number) = self.texts.get(text) {
            return *number;
        }
        let number = u32::try_from(self.by_number.len()).unwrap_or(u32::MAX);
        self.texts.insert(text.to_owned(), number);
        self.by_number.push(text.to_owned());
        number
    }

    /// Stores the settings of a node.
    pub(super) fn row(&mut self, settings: &Settings) -> Row {
        let numbers = settings.texts.iter().map(|(name, value)| {
            let name = self.number(name);
            (name, self.number(value))
        });
        let mut values: Vec<_> = numbers.collect();
        values.sort_unstable();
        Row { values, memory: settings.memory, sharing: settings.sharing }
    }

    fn text(&self, number: u32) -> &str {
        self.by_number.get(number as usize).map_or(ABSENT, String::as_str)
    }

    /// Counts the values of some nodes.
    pub(super) fn counts<'r>(rows: impl Iterator<Item = &'r Row> + Clone) -> Counts {
        let mut counts: BTreeMap<u32, HashMap<u32, usize>> = BTreeMap::new();
        for (name, value) in rows.clone().flat_map(|row| &row.values) {
            *counts.entry(*name).or_default().entry(*value).or_default() += 1;
        }
        let memory: Vec<f64> =
            rows.clone().map(|row| row.memory as f64).filter(|it| *it > 0.0).collect();
        let sharing: Vec<f64> = rows.clone().filter_map(|row| row.sharing).collect();
        Counts { counts, nodes: rows.count(), memory: median(&memory), sharing: median(&sharing) }
    }

    /// Returns the settings in which a node differs from the counted ones, the rarest value first.
    pub(super) fn differences(&self, row: &Row, others: &Counts) -> Vec<SettingDifference> {
        let difference = |(name, value): &(u32, u32)| {
            let of_others = others.counts.get(name)?;
            let (most, _) = most_frequent(of_others)?;
            let same = of_others.get(value).copied().unwrap_or_default();
            let share = same as f64 / others.nodes.max(1) as f64;
            (most != *value && share < RARE).then(|| SettingDifference {
                setting: self.text(*name).into(),
                value: self.text(*value).into(),
                others: self.text(most).into(),
                share,
            })
        };
        let mut all: Vec<_> = row.values.iter().filter_map(difference).collect();
        all.extend(amounts(row, others));
        all.sort_by(|a, b| a.share.total_cmp(&b.share).then_with(|| order(a).cmp(&order(b))));
        all
    }

    /// Returns the settings that differ between the counted nodes, and their most frequent values.
    pub(super) fn differing(&self, counts: &Counts) -> Vec<SettingValues> {
        let differs = counts.counts.iter().filter(|(_, values)| {
            values.len() > 1 || values.values().sum::<usize>() < counts.nodes
        });
        let all = differs.map(|(name, values)| {
            let mut sorted: Vec<_> = values.iter().map(|(value, nodes)| (*nodes, *value)).collect();
            sorted.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| self.text(a.1).cmp(self.text(b.1))));
            let listed = sorted.iter().take(MAX_VALUES);
            let listed: Vec<_> = listed
                .map(|(nodes, value)| SettingCount {
                    value: self.text(*value).into(),
                    nodes: *nodes,
                })
                .collect();
            let others = counts.nodes - listed.iter().map(|one| one.nodes).sum::<usize>();
            SettingValues { setting: self.text(*name).into(), values: listed, others }
        });
        let mut all: Vec<_> = all.collect();
        all.sort_by(|a, b| rank(&a.setting).cmp(&rank(&b.setting)).then(a.setting.cmp(&b.setting)));
        all
    }
}

/// Returns the most frequent value; of equally frequent ones the first that was stored.
fn most_frequent(values: &HashMap<u32, usize>) -> Option<(u32, usize)> {
    let values = values.iter().map(|(value, nodes)| (*value, *nodes));
    values.max_by(|a, b| a.1.cmp(&b.1).then(b.0.cmp(&a.0)))
}

/// Returns the amounts in which a node differs from the medians of others.
fn amounts(row: &Row, others: &Counts) -> Vec<SettingDifference> {
    let mut found = Vec::new();
    if let (Some(median), true) = (others.memory, row.memory > 0)
        && (row.memory as f64 / median - 1.0).abs() > MEMORY_DIFFERS
    {
        let text = |bytes: u64| quantity::format_bytes(rounded(bytes));
        found.push(SettingDifference {
            setting: "memory".into(),
            value: text(row.memory),
            others: text(median as u64),
            share: 0.0,
        });
    }
    if let (Some(median), Some(sharing)) = (others.sharing, row.sharing)
        && (sharing - median).abs() > SHARING_DIFFERS
    {
        let text = |share| format!("{} of samples", format::percent(share));
        found.push(SettingDifference {
            setting: "busy SMT sibling".into(),
            value: text(sharing),
            others: text(median),
            share: 0.0,
        });
    }
    found
}

/// Rounds a memory size to GiB, or to MiB below 16 GiB.
fn rounded(bytes: u64) -> u64 {
    let step: u64 = if bytes < 16 << 30 { 1 << 20 } else { 1 << 30 };
    bytes.saturating_add(step / 2) / step * step
}

/// Orders differences of equal shares: settings that an administrator chooses before those that follow from them.
fn order(one: &SettingDifference) -> (usize, &str) {
    (rank(&one.setting), &one.setting)
}

/// Position of a setting in lists.
fn rank(setting: &str) -> usize {
    const FIRST: [&str; 10] = [
        "governor",
        "transparent huge pages",
        "mitigations",
        "microcode",
        "kernel",
        "memory",
        "busy SMT sibling",
        "CPU",
        "CPUs",
        "nice value",
    ];
    FIRST.iter().position(|one| *one == setting).unwrap_or(FIRST.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pairs: &[(&str, &str)], memory: u64, sharing: Option<f64>) -> Settings {
        let texts = pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        Settings { texts, memory, sharing }
    }

    #[test]
    fn the_rarest_difference_is_first() {
        let mut table = Table::default();
        let common = [("governor", "performance"), ("kernel", "6.1"), ("microcode", "0x2")];
        let other_kernel = [("governor", "performance"), ("kernel", "6.6"), ("microcode", "0x2")];
        let row = |table: &mut Table, pairs: &[(&str, &str)]| {
            table.row(&settings(pairs, 64 << 30, Some(0.02)))
        };
        let mut rows: Vec<Row> = (0..6).map(|_| row(&mut table, &common)).collect();
        rows.extend((0..3).map(|_| row(&mut table, &other_kernel)));
        let outlier = [("governor", "powersave"), ("kernel", "6.6"), ("microcode", "0x2")];
        let outlier = table.row(&settings(&outlier, 32 << 30, Some(0.4)));
        let counts = Table::counts(rows.iter());
        let found = table.differences(&outlier, &counts);
        let names: Vec<_> = found.iter().map(|one| one.setting.as_str()).collect();
        assert_eq!(names, ["governor", "memory", "busy SMT sibling", "kernel"]);
        assert_eq!(
            (found[0].value.as_str(), found[0].others.as_str()),
            ("powersave", "performance")
        );
        assert_eq!((found[1].value.as_str(), found[1].others.as_str()), ("32 GiB", "64 GiB"));
        assert_eq!(found[2].value, "40% of samples");
        assert!((found[3].share - 1.0 / 3.0).abs() < 1e-9);
        assert_eq!(table.differences(&rows[0], &counts), []);
        let differing = table.differing(&counts);
        assert_eq!(differing.len(), 1);
        assert_eq!((differing[0].setting.as_str(), differing[0].values[0].nodes), ("kernel", 6));
    }

    #[test]
    fn an_environment_has_the_settings_of_its_node() {
        let environment = Environment::capture();
        let texts: BTreeMap<_, _> = of_environment(&environment).into_iter().collect();
        for name in ["governor", "transparent huge pages", "mitigations", "microcode", "kernel"] {
            assert!(texts.get(name).is_some_and(|value| !value.is_empty()), "{name}: {texts:?}");
        }
        assert!(!texts.values().any(|value| *value == environment.boot_id));
        let mut other = environment.clone();
        other.governor = Some("another".into());
        let other: BTreeMap<_, _> = of_environment(&other).into_iter().collect();
        let differing: Vec<_> = texts.iter().filter(|(name, it)| other[*name] != **it).collect();
        assert_eq!(differing.len(), 1);
    }

    #[test]
    fn memory_is_rounded_as_it_is_sold() {
        let text = |bytes| quantity::format_bytes(rounded(bytes));
        assert_eq!(text(67_382_304_768), "63 GiB");
        assert_eq!(text(2 << 30), "2 GiB");
    }
}
