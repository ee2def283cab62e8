//! The factor `caching`: the attribute with which memory is mapped, and whether the kernel gave it.

use std::path::{Path, PathBuf};

use lab::factor::LevelType;
use lab::sample::Failure;
use machine::caching::Caching;
use machine::mapping::{self, Mapping};

use super::MemoryKind;

/// A level of the factor `caching`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, LevelType)]
pub enum CachingLevel {
    /// As the kernel maps the kind of memory, uncached for physical addresses.
    Default,
    /// Each load and store reaches the memory.
    Uncached,
    /// Stores are collected in buffers; loads are uncached.
    WriteCombining,
    /// Loads and stores use the caches.
    WriteBack,
}

impl CachingLevel {
    /// Returns the requested attribute; `None` for the default.
    pub(crate) fn requested(self) -> Option<Caching> {
        match self {
            Self::Default => None,
            Self::Uncached => Some(Caching::Uncached),
            Self::WriteCombining => Some(Caching::WriteCombining),
            Self::WriteBack => Some(Caching::WriteBack),
        }
    }

    /// Checks that a kind of memory can be mapped with the attribute. For physical addresses only a mapping shows it.
    ///
    /// # Errors
    /// Returns the cause and a remedy if it cannot.
    pub(crate) fn check(self, kind: MemoryKind) -> Result<(), Failure> {
        let Some(caching) = self.requested() else { return Ok(()) };
        let is_write_back = caching == Caching::WriteBack;
        let refused = match kind {
            MemoryKind::HostPhysical | MemoryKind::Device => None,
            MemoryKind::Gpu | MemoryKind::GpuBar => {
                Some(("the driver chooses the attribute", "use caching = default"))
            }
            MemoryKind::PciBar => is_write_back.then_some((
                "sysfs maps a BAR only uncached or write-combining",
                "use memory = device with the address of the BAR",
            )),
            MemoryKind::Heap
            | MemoryKind::HeapHuge
            | MemoryKind::Shared
            | MemoryKind::FileMapped
            | MemoryKind::FileIo
            | MemoryKind::Dax
            | MemoryKind::NumaNode(_) => (!is_write_back).then_some((
                "Linux maps this memory only write-back",
                "use memory = host-physical, device or pci-bar",
            )),
        };
        let Some((why, remedy)) = refused else { return Ok(()) };
        let why = format!("memory = {kind} cannot be {}: {why}", caching.name());
        Err(Failure::unavailable(why, remedy)
            .with_cause(format!("{kind} cannot be {}", caching.name())))
    }

    /// Returns the file that maps the BAR of `path` with the attribute.
    pub(super) fn resource(self, path: &Path) -> Result<PathBuf, Failure> {
        match self.requested() {
            None => Ok(path.to_owned()),
            Some(caching) => mapping::resource_with(path, caching).map_err(Failure::refused),
        }
    }

    /// Checks that a mapping of hardware has the attribute. Returns the type that the kernel gave it, or why that is
    /// unknown.
    ///
    /// # Errors
    /// Returns `unavailable` if the type is another one, or is unknown and the request alone does not determine it: MTRRs
    /// and the PAT decide whether a mapping is write-back or write-combining.
    pub(super) fn verify(self, kind: MemoryKind, mapping: &Mapping) -> Result<String, Failure> {
        let given = mapping.memory_type();
        let Some(caching) = self.requested() else {
            return Ok(given.map_or_else(unverified, |given| given.to_string()));
        };
        let other = |why: String, remedy: &str| {
            let cause = format!("{kind} is not {}", caching.name());
            Err(Failure::unavailable(why, remedy).with_cause(cause))
        };
        match given {
            Ok(given) if caching.is(given) => Ok(given.to_string()),
            Ok(given) => {
                let why = format!("the kernel maps {kind} {given} instead of {}", caching.name());
                other(why, remedy(kind, caching))
            }
            // Only an MTRR that somebody set for the range makes it another type.
            Err(why) if caching == Caching::Uncached => Ok(unverified(why)),
            Err(why) => {
                other(format!("whether {kind} is {} is unknown: {why}", caching.name()), VISIBLE)
            }
        }
    }
}

/// How the type of a mapping becomes known.
const VISIBLE: &str =
    "run as root on a kernel that lists memory types (PAT and debugfs), or use caching = default";

/// Text of an attribute that the kernel does not show.
fn unverified(why: String) -> String {
    format!("not verified: {why}")
}

/// Returns how memory gets an attribute that the kernel did not give.
fn remedy(kind: MemoryKind, caching: Caching) -> &'static str {
    match (kind, caching) {
        (MemoryKind::HostPhysical | MemoryKind::Device, Caching::WriteCombining) => {
            "use memory = pci-bar with a prefetchable BAR, or have an MTRR make the range \
             write-combining: echo 'base=ADDRESS size=SIZE type=write-combining' > /proc/mtrr"
        }
        (_, Caching::WriteBack) => {
            "name a range that the MTRRs make write-back (/proc/mtrr), or use caching = default"
        }
        _ => "remove the MTRR of the range and end other mappings of it, or use caching = default",
    }
}

#[cfg(test)]
mod tests {
    use lab::sample::FailureKind;

    use super::*;

    const LEVELS: [CachingLevel; 4] = [
        CachingLevel::Default,
        CachingLevel::Uncached,
        CachingLevel::WriteCombining,
        CachingLevel::WriteBack,
    ];

    #[test]
    fn memory_without_an_attribute_is_refused_with_a_remedy() {
        let allowed = |kind| LEVELS.map(|level| level.check(kind).is_ok());
        for kind in [MemoryKind::Heap, MemoryKind::Shared, MemoryKind::FileIo, MemoryKind::Dax] {
            assert_eq!(allowed(kind), [true, false, false, true], "{kind}");
        }
        assert_eq!(allowed(MemoryKind::PciBar), [true, true, true, false]);
        assert_eq!(allowed(MemoryKind::Device), [true; 4]);
        assert_eq!(allowed(MemoryKind::GpuBar), [true, false, false, false]);
        let failure = CachingLevel::Uncached.check(MemoryKind::NumaNode(1)).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Unavailable);
        assert_eq!(
            failure.why,
            "memory = numa-node-1 cannot be uncached: Linux maps this memory only write-back"
        );
        assert!(failure.remedy.unwrap().contains("host-physical"));
    }

    #[test]
    fn an_unknown_type_is_stated() {
        // Private memory has no entry in the kernel's list, so its type is unknown.
        let mapping = Mapping::anonymous(4096).unwrap();
        let text = |level: CachingLevel, kind| level.verify(kind, &mapping);
        let unknown = "not verified: its physical address is unknown";
        for level in [CachingLevel::Default, CachingLevel::Uncached] {
            assert_eq!(text(level, MemoryKind::Device).as_deref(), Ok(unknown));
        }
        // MTRRs make a range uncached that is requested write-back, and only they make it write-combining.
        for level in [CachingLevel::WriteCombining, CachingLevel::WriteBack] {
            for kind in [MemoryKind::HostPhysical, MemoryKind::Device, MemoryKind::PciBar] {
                let failure = text(level, kind).unwrap_err();
                assert_eq!(failure.kind, FailureKind::Unavailable);
                assert!(failure.why.contains("is unknown"), "{failure}");
                assert!(failure.remedy.as_deref().unwrap().contains("PAT and debugfs"));
            }
        }
    }
}
