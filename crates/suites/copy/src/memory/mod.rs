//! Kinds of memory that a copy writes or reads.

// Options and the peer process may supply any numbers: this crate is built without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod caching;
mod gpu;
mod peer;
pub(crate) mod physical;
mod region;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use lab::capability::has;
use lab::factor::{LevelType, Levels};
use lab::option::FILE_FOLDER;
use lab::quantity::format_bytes;
use lab::sample::Failure;
use machine::huge_pages;
use machine::topology::{Node, Topology};

use crate::pattern::Pattern;

pub use caching::CachingLevel;
pub use gpu::capability as gpu_capability;
pub(crate) use gpu::{DriverCopies, GpuMemory, PinnedMemory};
pub use physical::{ALLOW, ALLOW_WRITE};
pub use region::Region;

/// Returns the folder of measured files.
pub(crate) fn file_folder(options: &BTreeMap<String, String>) -> PathBuf {
    lab::option::folder(options, FILE_FOLDER.name)
}

/// One copy: its offset in both buffers, and its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Call {
    /// Offset from the start of both buffers, in bytes.
    pub at: u32,
    /// Length in bytes.
    pub length: u32,
}

/// Results of verifying copies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VerifyCounts {
    /// Copies that arrived completely.
    pub delivered: u64,
    /// Bytes of these copies.
    pub bytes: u64,
    /// Copies whose first byte is wrong: never made, or wrong from the start.
    pub missing: u64,
    /// Copies that arrived in part.
    pub torn: u64,
    /// Index of the first wrong byte of the last torn copy, relative to the first copy's buffer.
    pub torn_at: u64,
}

impl VerifyCounts {
    /// Verifies that `bytes` contain the pattern from `position` on. Allocates no memory.
    fn add(&mut self, pattern: Pattern, position: usize, bytes: &[u8]) {
        self.record(position, bytes.len(), pattern.first_mismatch(position, bytes));
    }

    /// Counts the copy of `length` bytes at `position` whose first wrong byte is at `mismatch`.
    pub(crate) fn record(&mut self, position: usize, length: usize, mismatch: Option<usize>) {
        match mismatch {
            None => {
                self.delivered = self.delivered.saturating_add(1);
                self.bytes = self.bytes.saturating_add(length as u64);
            }
            Some(0) => self.missing = self.missing.saturating_add(1),
            Some(first) => {
                self.torn = self.torn.saturating_add(1);
                self.torn_at = position.saturating_add(first) as u64;
            }
        }
    }

    /// Adds the results of other copies.
    pub(crate) fn join(&mut self, other: Self) {
        self.delivered = self.delivered.saturating_add(other.delivered);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.missing = self.missing.saturating_add(other.missing);
        self.torn = self.torn.saturating_add(other.torn);
        self.torn_at = self.torn_at.max(other.torn_at);
    }
}

/// A level of the factor `memory`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MemoryKind {
    /// Private memory in 4 KiB pages.
    Heap,
    /// Private memory in 2 MiB pages.
    HeapHuge,
    /// A memfd that a peer process maps too and fills or verifies.
    Shared,
    /// A mapped file.
    FileMapped,
    /// The same file, copied by `pread` and `pwrite`.
    FileIo,
    /// Memory of this host, mapped by its physical address.
    HostPhysical,
    /// Memory of a device, mapped by its physical address.
    Device,
    /// A PCI BAR through sysfs.
    PciBar,
    /// Persistent or device memory through DAX.
    Dax,
    /// Memory of a GPU, copied by calls of its driver.
    Gpu,
    /// Memory of a GPU, mapped through its BAR.
    GpuBar,
    /// Private memory on one NUMA node.
    NumaNode(usize),
}

const NAMES: [(MemoryKind, &str); 11] = [
    (MemoryKind::Heap, "heap"),
    (MemoryKind::HeapHuge, "heap-huge"),
    (MemoryKind::Shared, "shared"),
    (MemoryKind::FileMapped, "file-mapped"),
    (MemoryKind::FileIo, "file-io"),
    (MemoryKind::HostPhysical, "host-physical"),
    (MemoryKind::Device, "device"),
    (MemoryKind::PciBar, "pci-bar"),
    (MemoryKind::Dax, "dax"),
    (MemoryKind::Gpu, "gpu"),
    (MemoryKind::GpuBar, "gpu-bar"),
];

impl fmt::Display for MemoryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, NAMES.iter().find(|(kind, _)| kind == self)) {
            (_, Some((_, name))) => f.pad(name),
            (Self::NumaNode(node), None) => write!(f, "numa-node-{node}"),
            (_, None) => Err(fmt::Error),
        }
    }
}

impl LevelType for MemoryKind {
    const LEVELS: Levels = Levels::Checked(|text| Self::parse(text).map(|kind| kind.to_string()));

    fn from_level(level: &str) -> Option<Self> {
        Self::parse(level).ok()
    }
}

impl MemoryKind {
    /// Parses a level.
    ///
    /// # Errors
    /// Returns one line that lists the levels.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some((kind, _)) = NAMES.iter().find(|(_, name)| *name == text) {
            return Ok(*kind);
        }
        let node = text.strip_prefix("numa-node-").and_then(|node| node.parse().ok());
        node.map(Self::NumaNode).ok_or_else(|| {
            let names = NAMES.map(|(_, name)| name).join(", ");
            format!("unknown memory '{text}'; expected one of {names}, numa-node-N")
        })
    }

    /// Returns the properties of this kind of memory.
    fn traits(self) -> Traits {
        let program = Traits {
            owner: Owner::Program,
            calls: false,
            huge: false,
            discardable: true,
            max_bytes: None,
        };
        let hardware = Traits {
            owner: Owner::Hardware,
            discardable: false,
            max_bytes: Some(physical::MAX_DEVICE_BYTES),
            ..program
        };
        let gpu = Traits { owner: Owner::Gpu, discardable: false, ..program };
        match self {
            Self::Heap | Self::Shared | Self::FileMapped | Self::NumaNode(_) => program,
            Self::HeapHuge => Traits { huge: true, ..program },
            Self::FileIo => Traits { calls: true, discardable: false, ..program },
            Self::HostPhysical => Traits { max_bytes: Some(physical::MAX_HOST_BYTES), ..hardware },
            Self::Device | Self::PciBar | Self::Dax => hardware,
            Self::Gpu => Traits { calls: true, ..gpu },
            Self::GpuBar => gpu,
        }
    }

    /// Returns whether it is private memory in 2 MiB pages.
    pub(crate) fn is_huge(self) -> bool {
        self.traits().huge
    }

    /// Returns whether the memory is that of a GPU.
    pub(crate) fn is_gpu(self) -> bool {
        self.traits().owner == Owner::Gpu
    }

    /// Returns whether copies are calls of the kernel or of a driver, so that no copy function is used.
    pub(crate) fn is_copied_by_calls(self) -> bool {
        self.traits().calls
    }

    /// Checks that this machine has the kind of memory. Opens and maps no device.
    ///
    /// # Errors
    /// Returns the cause and a remedy if it does not.
    pub fn available(self) -> Result<(), Failure> {
        match self {
            Self::Heap | Self::Shared | Self::FileMapped | Self::FileIo => Ok(()),
            Self::HeapHuge => huge_pages_available(),
            Self::HostPhysical | Self::Device => has("dev-mem"),
            Self::PciBar => has("pci-bar"),
            Self::Dax => has("dax"),
            Self::Gpu | Self::GpuBar => gpu::available(),
            Self::NumaNode(node) => node_available(node),
        }
    }

    /// Checks that the kernel has as many bytes: else it would kill this process when it writes to them.
    pub(super) fn check_free(self, bytes: usize) -> Result<(), Failure> {
        let free = match self {
            Self::Heap | Self::Shared => machine::proc::available_memory(),
            Self::NumaNode(node) => available_on(node),
            // The pool of huge pages is not part of the available memory.
            Self::HeapHuge
            | Self::FileMapped
            | Self::FileIo
            | Self::HostPhysical
            | Self::Device
            | Self::PciBar
            | Self::Dax
            | Self::Gpu
            | Self::GpuBar => return Ok(()),
        };
        if bytes as u64 <= free {
            return Ok(());
        }
        let (needed, free) = (format_bytes(bytes as u64), format_bytes(free >> 20 << 20));
        let why = format!("it needs {needed} of {self}, and {free} are free");
        Err(Failure::unavailable(why, "use a machine with more memory, or a smaller length"))
    }

    /// Returns whether the memory belongs to hardware, so that only explicit options enable access.
    pub fn is_physical(self) -> bool {
        self.traits().owner == Owner::Hardware
    }

    /// Returns the maximum bytes of one mapping; `None` if only the memory's size limits it.
    pub fn max_bytes(self) -> Option<usize> {
        self.traits().max_bytes
    }

    /// Returns whether the pages of a mapping can be discarded, so that a copy touches them first.
    pub fn can_be_cold(self) -> bool {
        self.traits().discardable
    }
}

/// Owner of the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// The program, or a file that it created.
    Program,
    /// Hardware, so that only explicit options enable access.
    Hardware,
    /// A GPU.
    Gpu,
}

/// Properties of a kind of memory.
#[derive(Debug, Clone, Copy)]
struct Traits {
    owner: Owner,
    /// Whether copies are calls of the kernel or of a driver.
    calls: bool,
    /// Whether it is in 2 MiB pages.
    huge: bool,
    /// Whether its pages can be discarded.
    discardable: bool,
    /// Maximum bytes of one mapping; `None` if only the memory's size limits it.
    max_bytes: Option<usize>,
}

/// Checks that huge pages come from the pool, or from the kernel on `madvise(2)`.
fn huge_pages_available() -> Result<(), Failure> {
    let policy = Path::new("/sys/kernel/mm/transparent_hugepage/enabled");
    let policy = std::fs::read_to_string(policy).unwrap_or_default();
    let transparent = policy.contains("[always]") || policy.contains("[madvise]");
    if transparent || huge_pages::free().is_ok_and(|free| free > 0) {
        return Ok(());
    }
    Err(Failure::unavailable(
        "no huge pages: the pool is empty and transparent huge pages are off",
        huge_pages::RESERVE,
    )
    .with_cause("no huge pages"))
}

/// Returns the free bytes of a NUMA node.
fn available_on(node: usize) -> u64 {
    let nodes = Topology::detect().nodes;
    nodes.iter().find(|one| one.id == node).map_or(u64::MAX, Node::available_memory)
}

fn node_available(node: usize) -> Result<(), Failure> {
    let nodes: Vec<_> = Topology::detect().nodes.iter().map(|node| node.id).collect();
    if nodes.contains(&node) {
        return Ok(());
    }
    let cause = format!("no NUMA node {node}");
    Err(Failure::unavailable(
        format!("{cause}: the kernel lists {nodes:?}"),
        "online CXL or persistent memory as a node (daxctl reconfigure-device --mode=system-ram dax0.0), enable nodes per \
         socket in the firmware, or use a machine with more sockets",
    )
    .with_cause(cause))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_memory_than_is_free_is_unavailable() {
        let free = machine::proc::available_memory() as usize;
        assert_eq!(MemoryKind::Heap.check_free(4096), Ok(()));
        let why = MemoryKind::Heap.check_free(free.saturating_mul(2)).unwrap_err();
        assert!(why.why.starts_with("it needs ") && why.remedy.is_some(), "{why}");
        assert_eq!(MemoryKind::FileIo.check_free(usize::MAX), Ok(()));
        assert!(
            MemoryKind::NumaNode(0).check_free(usize::MAX).is_err() || available_on(0) == u64::MAX
        );
    }

    #[test]
    fn every_level_parses_to_its_kind() {
        for (kind, name) in NAMES {
            assert_eq!(MemoryKind::parse(name), Ok(kind));
            assert_eq!(kind.to_string(), name);
        }
        assert_eq!(MemoryKind::parse("numa-node-3"), Ok(MemoryKind::NumaNode(3)));
        assert_eq!(MemoryKind::NumaNode(3).to_string(), "numa-node-3");
        assert!(
            MemoryKind::parse("numa-node-").is_err()
                && MemoryKind::parse("tape").unwrap_err().contains("heap,")
        );
    }

    #[test]
    fn unavailable_memory_states_cause_and_remedy() {
        for (kind, _) in NAMES.into_iter().chain([(MemoryKind::NumaNode(77), "")]) {
            if let Err(failure) = kind.available() {
                assert_eq!(failure.kind, lab::sample::FailureKind::Unavailable);
                assert!(
                    !failure.why.is_empty()
                        && failure.remedy.is_some_and(|remedy| !remedy.is_empty())
                );
            }
        }
        assert!(MemoryKind::NumaNode(77).available().is_err());
    }
}
