//! Kinds of memory that a copy goes into or comes from.

// Options and the other process may say any numbers: this crate is compiled without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod open;
mod other;
pub(crate) mod physical;
mod region;

use std::fmt;
use std::path::Path;

use lab::capability::has;
use lab::factor::{LevelType, Levels};
use lab::sample::Failure;
use machine::huge_pages;
use machine::topology::Topology;

pub use physical::{ALLOW, ALLOW_WRITE};
pub use region::{Region, Tally};

/// A level of the factor `memory`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Private memory in small pages.
    Heap,
    /// Private memory in pages of 2 MiB.
    HeapHuge,
    /// A memfd that another process maps too, which fills or checks it.
    Shared,
    /// A file, mapped.
    FileMapped,
    /// The same file by `pread` and `pwrite`.
    FileIo,
    /// Memory of this host by its physical address.
    HostPhysical,
    /// Memory of a device by its physical address.
    Device,
    /// A PCI BAR through sysfs.
    PciBar,
    /// Persistent or device memory by DAX.
    Dax,
    /// Private memory that lies on one NUMA node.
    NumaNode(usize),
}

const NAMES: [(Kind, &str); 9] = [
    (Kind::Heap, "heap"),
    (Kind::HeapHuge, "heap-huge"),
    (Kind::Shared, "shared"),
    (Kind::FileMapped, "file-mapped"),
    (Kind::FileIo, "file-io"),
    (Kind::HostPhysical, "host-physical"),
    (Kind::Device, "device"),
    (Kind::PciBar, "pci-bar"),
    (Kind::Dax, "dax"),
];

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, NAMES.iter().find(|(kind, _)| kind == self)) {
            (_, Some((_, name))) => f.pad(name),
            (Self::NumaNode(node), None) => write!(f, "numa-node-{node}"),
            (_, None) => Err(fmt::Error),
        }
    }
}

impl LevelType for Kind {
    const LEVELS: Levels = Levels::Checked(|text| Self::parse(text).map(|kind| kind.to_string()));

    fn from_level(level: &str) -> Option<Self> {
        Self::parse(level).ok()
    }
}

impl Kind {
    /// Reads a level.
    ///
    /// # Errors
    /// One line that names the levels.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some((kind, _)) = NAMES.iter().find(|(_, name)| *name == text) {
            return Ok(*kind);
        }
        let node = text.strip_prefix("numa-node-").and_then(|node| node.parse().ok());
        node.map(Self::NumaNode).ok_or_else(|| {
            let names = NAMES.map(|(_, name)| name).join(", ");
            format!("'{text}' is not one of {names}, numa-node-N")
        })
    }

    /// Whether this machine has it; opens and maps nothing of a device.
    ///
    /// # Errors
    /// The reason why not, and the remedy.
    pub fn available(self) -> Result<(), Failure> {
        match self {
            Self::Heap | Self::Shared | Self::FileMapped | Self::FileIo => Ok(()),
            Self::HeapHuge => huge_pages_available(),
            Self::HostPhysical | Self::Device => has("dev-mem"),
            Self::PciBar => has("pci-bar"),
            Self::Dax => has("dax"),
            Self::NumaNode(node) => node_available(node),
        }
    }

    /// Whether the memory belongs to hardware and is touched only when a person says so.
    pub fn is_physical(self) -> bool {
        matches!(self, Self::HostPhysical | Self::Device | Self::PciBar | Self::Dax)
    }

    /// The most bytes of it that are mapped at once; `None` if only the memory itself sets a limit.
    pub fn most(self) -> Option<usize> {
        physical::most(self)
    }

    /// Whether the pages of a mapping can be taken away, so that a copy touches them first.
    pub fn can_be_cold(self) -> bool {
        !self.is_physical() && self != Self::FileIo
    }
}

/// From the pool, or transparent where the kernel gives them on request.
fn huge_pages_available() -> Result<(), Failure> {
    let setting = Path::new("/sys/kernel/mm/transparent_hugepage/enabled");
    let setting = std::fs::read_to_string(setting).unwrap_or_default();
    let transparent = setting.contains("[always]") || setting.contains("[madvise]");
    if transparent || huge_pages::free().is_ok_and(|free| free > 0) {
        return Ok(());
    }
    Err(Failure::unavailable(
        "no huge pages: the pool is empty and transparent ones are off",
        huge_pages::RESERVE,
    ))
}

fn node_available(node: usize) -> Result<(), Failure> {
    let nodes: Vec<_> = Topology::detect().nodes.iter().map(|node| node.id).collect();
    if nodes.contains(&node) {
        return Ok(());
    }
    Err(Failure::unavailable(
        format!("there is no NUMA node {node}; the kernel shows {nodes:?}"),
        "use a machine with more sockets, or with nodes per socket set in its firmware",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_survive_the_round_trip() {
        for (kind, name) in NAMES {
            assert_eq!(Kind::parse(name), Ok(kind));
            assert_eq!(kind.to_string(), name);
        }
        assert_eq!(Kind::parse("numa-node-3"), Ok(Kind::NumaNode(3)));
        assert_eq!(Kind::NumaNode(3).to_string(), "numa-node-3");
        assert!(
            Kind::parse("numa-node-").is_err()
                && Kind::parse("tape").unwrap_err().contains("heap,")
        );
    }

    #[test]
    fn what_is_absent_says_why_and_how() {
        for (kind, _) in NAMES.into_iter().chain([(Kind::NumaNode(77), "")]) {
            if let Err(failure) = kind.available() {
                assert_eq!(failure.kind, lab::sample::FailureKind::Unavailable);
                assert!(
                    !failure.why.is_empty()
                        && failure.remedy.is_some_and(|remedy| !remedy.is_empty())
                );
            }
        }
        assert!(Kind::NumaNode(77).available().is_err());
    }
}
