//! Caching attribute of mapped physical memory: the requested one, and the one that the kernel gave.
//!
//! x86 combines the page attribute table (PAT) of a mapping with the memory type range registers (MTRR) of its physical
//! address. The kernel lists the type of each mapped range outside of its own memory in debugfs, and the registers in
//! `/proc/mtrr`. A hypervisor may ignore the type that its guest chose; no list shows that.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::ops::Range;
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

/// A caching attribute that a mapping can request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caching {
    /// Each load and store reaches the memory.
    Uncached,
    /// Stores are collected in buffers; loads are uncached.
    WriteCombining,
    /// Loads and stores use the caches.
    WriteBack,
}

impl Caching {
    /// Returns the name, as the kernel writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Uncached => "uncached",
            Self::WriteCombining => "write-combining",
            Self::WriteBack => "write-back",
        }
    }

    /// Returns whether memory of this type has the attribute.
    pub fn is(self, kind: MemoryType) -> bool {
        match self {
            Self::Uncached => matches!(kind, MemoryType::Uncached | MemoryType::UncachedMinus),
            Self::WriteCombining => kind == MemoryType::WriteCombining,
            Self::WriteBack => kind == MemoryType::WriteBack,
        }
    }
}

/// The memory type of a range. A type of the kernel's list is combined with the MTRRs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryType {
    /// Strongly uncached.
    Uncached,
    /// Uncached, and no MTRR makes it write-combining.
    UncachedMinus,
    /// Write-combining.
    WriteCombining,
    /// Write-through.
    WriteThrough,
    /// Write-protected.
    WriteProtected,
    /// Write-back.
    WriteBack,
}

const TYPES: [(MemoryType, &str); 6] = [
    (MemoryType::Uncached, "uncached"),
    (MemoryType::UncachedMinus, "uncached-minus"),
    (MemoryType::WriteCombining, "write-combining"),
    (MemoryType::WriteThrough, "write-through"),
    (MemoryType::WriteProtected, "write-protected"),
    (MemoryType::WriteBack, "write-back"),
];

impl fmt::Display for MemoryType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = TYPES.iter().find(|(kind, _)| kind == self).map(|(_, name)| *name);
        f.pad(name.unwrap_or_default())
    }
}

/// Returns the memory type of a mapped range of physical addresses.
///
/// # Errors
/// Returns the reason, in one line, if the kernel does not show it.
pub fn memory_type(range: Range<u64>) -> Result<MemoryType, String> {
    let list = pat_list()?;
    let listed = listed_type(&list, &range)?;
    // Without the file the kernel has no MTRRs to show, or none are in use.
    let registers = fs::read_to_string("/proc/mtrr").unwrap_or_default();
    combined(listed, &registers, &range)
}

/// Reads the kernel's list of types, from debugfs wherever it is mounted, or from a detached mount that is removed with
/// its last open file: no mount table changes.
fn pat_list() -> Result<String, String> {
    const LIST: &str = "x86/pat_memtype_list";
    let refused = |what: &str, why: &dyn fmt::Display| match rustix::process::geteuid().is_root() {
        true => format!("{what}: {why}"),
        false => format!("{what}: {why}; only root can read it"),
    };
    let mounted = || File::open(format!("/sys/kernel/debug/{LIST}"));
    let mut file = mounted().or_else(|why| match why.kind() {
        io::ErrorKind::NotFound => {
            let root = detached_debugfs().map_err(|why| refused("debugfs", &why))?;
            let file = openat(&root, LIST, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
            let absent = |why: rustix::io::Errno| match why {
                rustix::io::Errno::NOENT => {
                    "the kernel keeps no list of memory types: it runs without PAT".to_owned()
                }
                why => refused("pat_memtype_list", &why),
            };
            file.map(File::from).map_err(absent)
        }
        _ => Err(refused("pat_memtype_list", &why)),
    })?;
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(|why| refused("pat_memtype_list", &why))?;
    Ok(text)
}

fn detached_debugfs() -> rustix::io::Result<OwnedFd> {
    let system = fsopen("debugfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&system)?;
    fsmount(&system, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::MOUNT_ATTR_RDONLY)
}

/// Parses `PAT: [mem 0x00000000bffe0000-0x00000000bffe1000] write-back`; the end is exclusive. `None` for other lines.
fn entry(line: &str) -> Option<(Range<u64>, MemoryType)> {
    let (range, name) = line.strip_prefix("PAT: [mem ")?.split_once("] ")?;
    let (start, end) = range.split_once('-')?;
    let number = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
    let (kind, _) = TYPES.iter().find(|(_, known)| *known == name.trim())?;
    Some((number(start)?..number(end)?, *kind))
}

/// Returns the type in the kernel's list: that of the entries that overlap the range, one of which contains it.
fn listed_type(list: &str, range: &Range<u64>) -> Result<MemoryType, String> {
    let text = |range: &Range<u64>| format!("{:#x} to {:#x}", range.start, range.end);
    let overlaps = |one: &Range<u64>| one.start < range.end && range.start < one.end;
    let entries: Vec<_> = list.lines().filter_map(entry).filter(|(one, _)| overlaps(one)).collect();
    let contains =
        |(one, _): &&(Range<u64>, MemoryType)| one.start <= range.start && range.end <= one.end;
    let Some((_, kind)) = entries.iter().find(contains) else {
        return Err(format!("the kernel's list has no entry for {}", text(range)));
    };
    match entries.iter().find(|(_, other)| other != kind) {
        None => Ok(*kind),
        Some((part, other)) => {
            Err(format!("{} is {kind} and {} is {other}", text(range), text(part)))
        }
    }
}

/// Combines the type of a mapping with the MTRRs: they can only turn `uncached-minus` into write-combining, because the
/// kernel has considered them for every other type.
fn combined(kind: MemoryType, mtrr: &str, range: &Range<u64>) -> Result<MemoryType, String> {
    if kind != MemoryType::UncachedMinus {
        return Ok(kind);
    }
    let is_combining = |line: &&str| line.trim_end().ends_with("write-combining");
    for line in mtrr.lines().filter(is_combining) {
        let register =
            register(line).ok_or_else(|| format!("/proc/mtrr: cannot read '{}'", line.trim()))?;
        if register.start <= range.start && range.end <= register.end {
            return Ok(MemoryType::WriteCombining);
        }
        if register.start < range.end && range.start < register.end {
            return Err("an MTRR makes a part of the range write-combining".to_owned());
        }
    }
    Ok(kind)
}

/// Parses the range of `reg01: base=0x0d0000000 ( 3328MB), size=  256MB, count=1: write-combining`.
fn register(line: &str) -> Option<Range<u64>> {
    let base = line.split_once("base=0x")?.1.split([' ', '(']).next()?;
    let base = u64::from_str_radix(base, 16).ok()?;
    let size = line.split_once("size=")?.1.split(',').next()?.trim();
    let (number, scale) = match size.strip_suffix("MB") {
        Some(number) => (number, 20),
        None => (size.strip_suffix("KB")?, 10),
    };
    let bytes = number.trim().parse::<u64>().ok()?.checked_shl(scale)?;
    Some(base..base.checked_add(bytes)?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIST: &str = "PAT memtype list:\n\
        PAT: [mem 0x0000000008000000-0x0000000008005000] write-back\n\
        PAT: [mem 0x0000000010000000-0x0000000024000000] write-back\n\
        PAT: [mem 0x00000000fe000000-0x00000000fe100000] write-combining\n\
        PAT: [mem 0x00000000fe000000-0x00000000fe001000] write-combining\n\
        PAT: [mem 0x00000000feb80000-0x00000000feb84000] uncached-minus\n";
    const MTRR: &str = "reg00: base=0x0c0000000 ( 3072MB), size= 1024MB, count=1: uncachable\n\
        reg01: base=0x0feb80000 ( 4075MB), size=   16KB, count=1: write-combining\n";

    #[test]
    fn the_type_of_a_range_is_that_of_its_entry() {
        let listed = |start, end| listed_type(LIST, &(start..end));
        assert_eq!(listed(0x800_0000, 0x800_5000), Ok(MemoryType::WriteBack));
        assert_eq!(listed(0x1000_0000, 0x1000_1000), Ok(MemoryType::WriteBack));
        assert_eq!(listed(0xfe00_0000, 0xfe10_0000), Ok(MemoryType::WriteCombining));
        assert_eq!(listed(0xfeb8_1000, 0xfeb8_2000), Ok(MemoryType::UncachedMinus));
        // The end of an entry is exclusive, and a range that only starts in an entry has no known type.
        for (start, end) in [(0x800_5000, 0x800_6000), (0x800_4000, 0x800_6000), (0, 0x1000)] {
            let why = listed(start, end).unwrap_err();
            assert!(why.contains("no entry for"), "{why}");
        }
    }

    #[test]
    fn two_types_of_one_range_are_not_one() {
        let two = format!("{LIST}PAT: [mem 0x000000000800000-0x0000000008001000] uncached\n");
        let why = listed_type(&two, &(0x800_0000..0x800_2000)).unwrap_err();
        assert!(why.contains("is write-back and") && why.contains("is uncached"), "{why}");
    }

    #[test]
    fn an_mtrr_makes_an_uncached_minus_range_write_combining() {
        let kind = |kind, start, end| combined(kind, MTRR, &(start..end));
        let minus = MemoryType::UncachedMinus;
        assert_eq!(kind(minus, 0xfeb8_0000, 0xfeb8_4000), Ok(MemoryType::WriteCombining));
        assert_eq!(kind(minus, 0xfe00_0000, 0xfe10_0000), Ok(minus));
        assert!(kind(minus, 0xfeb8_3000, 0xfeb8_5000).is_err(), "half of it");
        assert_eq!(kind(MemoryType::Uncached, 0xfeb8_0000, 0xfeb8_1000), Ok(MemoryType::Uncached));
        assert_eq!(combined(minus, "", &(0..4096)), Ok(minus));
        assert!(combined(minus, "reg00: write-combining\n", &(0..4096)).is_err());
    }

    #[test]
    fn a_request_is_compared_with_the_type() {
        assert!(Caching::Uncached.is(MemoryType::UncachedMinus));
        assert!(Caching::Uncached.is(MemoryType::Uncached));
        assert!(!Caching::Uncached.is(MemoryType::WriteCombining));
        assert!(!Caching::WriteBack.is(MemoryType::UncachedMinus));
        for (kind, name) in TYPES {
            assert_eq!(kind.to_string(), name);
            let requests = [Caching::Uncached, Caching::WriteCombining, Caching::WriteBack];
            assert!(requests.into_iter().filter(|one| one.is(kind)).count() <= 1);
        }
    }

    #[test]
    fn the_list_of_this_kernel_is_read_or_the_reason_is_stated() {
        match pat_list() {
            Ok(list) => {
                // The kernel maps the firmware's tables and its devices.
                assert!(list.lines().any(|line| entry(line).is_some()), "{list}");
                let (range, kind) = list.lines().find_map(entry).unwrap();
                assert_eq!(listed_type(&list, &range), Ok(kind));
            }
            Err(why) => {
                assert!(!why.is_empty() && !why.contains('\n'));
                crate::untested::note("the kernel's list of memory types", &why);
            }
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(list in "(PAT: \\[mem 0x[0-9a-f]{0,17}-0x[0-9a-f]{0,17}\\] write-back\n|[^\n]*\n){0,4}", start: u64, end: u64) {
            let _ = listed_type(&list, &(start..end));
            let _ = combined(MemoryType::UncachedMinus, &list, &(start..end));
        }

        #[test]
        fn any_register_is_parsed_or_refused(base: u64, size: u64, unit in "[KMG]B") {
            let line = format!("reg00: base=0x{base:09x} ( 1MB), size={size:5}{unit}, count=1: write-combining");
            if let Some(range) = register(&line) {
                prop_assert!(unit != "GB" && range.start == base && range.end >= base);
            }
        }
    }
}
