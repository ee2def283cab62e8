//! CPUs, cores, packages and NUMA nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use rustix::thread::{CpuSet, sched_getaffinity};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A physical core, as reported by the hypervisor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Core {
    /// Its package.
    pub package: usize,
    /// Its number within the package.
    pub id: usize,
    /// Its CPUs; several CPUs are SMT siblings.
    pub cpus: Vec<usize>,
}

const DEVICES: &str = "/sys/devices/system";

/// A NUMA node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Node {
    /// Its number.
    pub id: usize,
    /// Its CPUs; empty for a memory-only node.
    pub cpus: Vec<usize>,
    /// Its memory in bytes.
    pub memory: u64,
}

impl Node {
    /// Returns the bytes of this machine's node that are free or only cache files; `u64::MAX` if the kernel does not report
    /// them.
    pub fn available_memory(&self) -> u64 {
        let path = Path::new(DEVICES).join(format!("node/node{}/meminfo", self.id));
        let text = fs::read_to_string(path).ok();
        text.and_then(|text| available_memory(&text)).unwrap_or(u64::MAX)
    }
}

/// The topology of a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Topology {
    /// The online CPUs.
    pub online: Vec<usize>,
    /// The cores of these CPUs.
    pub cores: Vec<Core>,
    /// Number of packages (sockets).
    pub packages: usize,
    /// NUMA nodes; empty if the kernel does not support NUMA.
    pub nodes: Vec<Node>,
}

impl Topology {
    /// Detects this machine's topology.
    pub fn detect() -> Self {
        Self::read(Path::new(DEVICES))
    }

    /// Reads the topology of a tree such as `/sys/devices/system`. Skips unreadable entries.
    pub fn read(root: &Path) -> Self {
        let online = read_list(&root.join("cpu/online")).unwrap_or_default();
        let cores = read_cores(&root.join("cpu"), &online);
        let packages = cores.iter().map(|core| core.package).collect::<BTreeSet<_>>().len();
        Self { online, cores, packages, nodes: read_nodes(&root.join("node")) }
    }

    /// Returns the number of physical cores.
    pub fn physical_cores(&self) -> usize {
        self.cores.len()
    }

    /// Returns the CPUs of this CPU's core, including itself.
    pub fn siblings(&self, cpu: usize) -> &[usize] {
        let core = self.cores.iter().find(|core| core.cpus.contains(&cpu));
        core.map_or(&[], |core| &core.cpus)
    }

    /// Returns one allowed CPU of each core, then the SMT siblings: the order in which to assign CPUs.
    pub fn spread(&self, allowed: &[usize]) -> Vec<usize> {
        let rank = |cpu: &usize| {
            let siblings = self.siblings(*cpu).iter().filter(|sibling| allowed.contains(sibling));
            siblings.take_while(|sibling| *sibling != cpu).count()
        };
        let mut cpus = allowed.to_vec();
        cpus.sort_by_key(|cpu| (rank(cpu), *cpu));
        cpus
    }
}

/// Returns the CPUs on which this thread may run; empty if the kernel does not report them.
pub fn allowed_cpus() -> Vec<usize> {
    let set = sched_getaffinity(None).unwrap_or_default();
    (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect()
}

/// Parses a CPU list, e.g. `0-3,8\n`; `None` if it is invalid.
pub(crate) fn parse_cpu_list(text: &str) -> Option<Vec<usize>> {
    let text = text.trim();
    if text.is_empty() {
        return Some(Vec::new());
    }
    let mut cpus = Vec::new();
    for part in text.split(',') {
        match part.split_once('-') {
            Some((first, last)) => {
                let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
                cpus.extend(first..=last);
            }
            None => cpus.push(part.parse().ok()?),
        }
    }
    Some(cpus)
}

/// Returns the first CPU number beyond all possible CPUs of this machine.
#[cfg(test)]
pub(crate) fn absent_cpu() -> usize {
    let possible = read_list(Path::new("/sys/devices/system/cpu/possible"));
    possible.and_then(|cpus| cpus.into_iter().max()).map_or(CpuSet::MAX_CPU, |last| last + 1)
}

fn read_number(path: &Path) -> Option<usize> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn read_list(path: &Path) -> Option<Vec<usize>> {
    parse_cpu_list(&fs::read_to_string(path).ok()?)
}

fn read_cores(root: &Path, online: &[usize]) -> Vec<Core> {
    let mut cores = BTreeMap::<(usize, usize), Vec<usize>>::new();
    for cpu in online {
        let folder = root.join(format!("cpu{cpu}/topology"));
        let package = read_number(&folder.join("physical_package_id")).unwrap_or(0);
        // Core numbers repeat across dies, so a core is identified by its first sibling if that is known.
        let siblings = read_list(&folder.join("thread_siblings_list"));
        let first = siblings.and_then(|list| list.first().copied());
        let id = first.or_else(|| read_number(&folder.join("core_id")));
        cores.entry((package, id.unwrap_or(*cpu))).or_default().push(*cpu);
    }
    let core = |((package, first), cpus): ((usize, usize), Vec<usize>)| Core {
        package,
        id: read_number(&root.join(format!("cpu{}/topology/core_id", cpus[0]))).unwrap_or(first),
        cpus,
    };
    cores.into_iter().map(core).collect()
}

fn read_nodes(root: &Path) -> Vec<Node> {
    let node = |id: usize| {
        let folder = root.join(format!("node{id}"));
        let memory = fs::read_to_string(folder.join("meminfo")).ok();
        Some(Node {
            id,
            cpus: read_list(&folder.join("cpulist"))?,
            memory: memory.and_then(|text| node_bytes(&text, "MemTotal:")).unwrap_or(0),
        })
    };
    let online = read_list(&root.join("online")).unwrap_or_default();
    online.into_iter().filter_map(node).collect()
}

/// Parses the size in bytes of a line such as `Node 0 MemTotal:       24684084 kB`.
fn node_bytes(meminfo: &str, label: &str) -> Option<u64> {
    let line = meminfo.lines().find(|line| line.contains(label))?;
    let kibibytes: u64 = line.split_whitespace().rev().nth(1)?.parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// Returns the bytes of a node that are free or only cache files.
fn available_memory(meminfo: &str) -> Option<u64> {
    let bytes = |label| node_bytes(meminfo, label);
    let files = bytes("Active(file):").zip(bytes("Inactive(file):"));
    let cached = files.map_or(0, |(active, inactive)| active.saturating_add(inactive));
    Some(bytes("MemFree:")?.saturating_add(cached))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Two packages with two cores of two threads each, numbered as in Linux: siblings are 4 apart.
    fn two_sockets() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let write = |path: String, value: String| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, value + "\n").unwrap();
        };
        write("cpu/online".into(), "0-7".into());
        for cpu in 0..8 {
            let folder = format!("cpu/cpu{cpu}/topology");
            write(format!("{folder}/physical_package_id"), (cpu % 4 / 2).to_string());
            write(format!("{folder}/core_id"), (cpu % 2).to_string());
            write(format!("{folder}/thread_siblings_list"), format!("{},{}", cpu % 4, cpu % 4 + 4));
        }
        write("node/online".into(), "0-1".into());
        for (node, cpus) in [(0, "0-1,4-5"), (1, "2-3,6-7")] {
            write(format!("node/node{node}/cpulist"), cpus.into());
            write(
                format!("node/node{node}/meminfo"),
                format!("Node {node} MemTotal:  1024 kB\nNode {node} MemFree: 1 kB"),
            );
        }
        root
    }

    #[test]
    fn two_sockets_with_siblings() {
        let root = two_sockets();
        let topology = Topology::read(root.path());
        assert_eq!(topology.online.len(), 8);
        assert_eq!(topology.physical_cores(), 4);
        assert_eq!(topology.packages, 2);
        assert_eq!(topology.siblings(6), [2, 6]);
        assert_eq!(topology.cores[3], Core { package: 1, id: 1, cpus: vec![3, 7] });
        assert_eq!(topology.nodes[1].memory, 1024 * 1024);
        assert!(topology.nodes[1].cpus.contains(&7));
        assert_eq!(topology.spread(&[0, 4, 1, 5, 6]), [0, 1, 6, 4, 5]);
    }

    #[test]
    fn memory_that_caches_files_is_available() {
        let line = |label: &str, kibibytes: u64| format!("Node 1 {label} {kibibytes:>8} kB\n");
        let free = line("MemTotal:", 4096) + &line("MemFree:", 1024);
        assert_eq!(available_memory(&free), Some(1 << 20));
        let text = free + &line("Active(file):", 3) + &line("Inactive(file):", 4);
        assert_eq!(available_memory(&text), Some((1 << 20) + 7 * 1024));
        assert_eq!(available_memory("Node 1 MemTotal: 1 kB"), None);
    }

    #[test]
    fn an_empty_tree_yields_an_empty_topology() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(Topology::read(root.path()), Topology::default());
    }

    #[test]
    fn the_topology_contains_the_allowed_cpus() {
        let topology = Topology::detect();
        let allowed = allowed_cpus();
        assert!(!allowed.is_empty());
        assert!(allowed.iter().all(|cpu| topology.online.contains(cpu)), "{topology:?}");
        assert!(topology.physical_cores() >= 1 && topology.packages >= 1);
    }

    #[test]
    fn cpu_lists_have_ranges_and_singles() {
        assert_eq!(parse_cpu_list("0-3,8\n"), Some(vec![0, 1, 2, 3, 8]));
        assert_eq!(parse_cpu_list("5"), Some(vec![5]));
        assert_eq!(parse_cpu_list("\n"), Some(vec![]));
        assert_eq!(parse_cpu_list("0-x"), None);
        assert_eq!(parse_cpu_list("0,,1"), None);
    }

    proptest! {
        #[test]
        fn any_list_of_singles_is_parsed(cpus in prop::collection::vec(0usize..4096, 1..40)) {
            let text = cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
            prop_assert_eq!(parse_cpu_list(&text), Some(cpus));
        }
    }
}
