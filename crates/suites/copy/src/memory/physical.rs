//! Memory of hardware: mapped only with explicit permission, and bounded.

use std::collections::BTreeMap;
use std::path::Path;

use lab::option::{self, is_allowed};
use lab::quantity;
use lab::sample::Failure;
use machine::caching::Caching;
use machine::mapping::Mapping;

use super::{CachingLevel, MemoryKind};

/// The option that allows mapping physical memory for reading.
pub const ALLOW: &str = "allow-physical";
/// The option that also allows writing it.
pub const ALLOW_WRITE: &str = "allow-physical-write";

/// The option with the physical address of `host-physical`.
pub(crate) const HOST_ADDRESS: &str = "physical-address";
/// The option with the physical address of `device`.
pub(crate) const DEVICE_ADDRESS: &str = "device-address";
/// The option with the file of `pci-bar`.
pub(crate) const PCI_RESOURCE: &str = "pci-resource";
/// The option with the device of `dax`.
pub(crate) const DAX_DEVICE: &str = "dax-device";
/// ESCAPE's limit: according to it, Linux refuses to map more of its own memory.
pub(super) const MAX_HOST_BYTES: usize = 512 << 10;
/// The size of ESCAPE's device region, which the pool of two hosts may fill.
pub(super) const MAX_DEVICE_BYTES: usize = vm::rules::MAX_RUN_POOL;

// Placeholders in remedies: a user might copy a number, and overwrite the memory of a device.
const ADDRESS: &str = "ADDRESS, as /proc/iomem lists it";
const RESOURCE: &str = "/sys/bus/pci/devices/DEVICE/resourceN, a BAR that nothing uses";

/// Maps `bytes` bytes. Returns also the memory type that the kernel gave, or why it is unknown.
pub(crate) fn open(
    kind: MemoryKind,
    bytes: usize,
    write: bool,
    caching: CachingLevel,
    options: &BTreeMap<String, String>,
) -> Result<(Mapping, String), Failure> {
    caching.check(kind)?;
    if !is_allowed(options, ALLOW) {
        let why = format!("{kind} is not mapped without permission");
        return Err(Failure::unavailable(why, "--allow physical"));
    }
    if write && !is_allowed(options, ALLOW_WRITE) {
        let why = format!("{kind} is not written without permission");
        return Err(Failure::unavailable(
            why,
            "--allow physical-write, if nothing else uses the memory",
        ));
    }
    if let Some(max) = kind.max_bytes().filter(|max| bytes > *max) {
        let why = format!(
            "{bytes} B exceed the limit of {} for one mapping of {kind}",
            quantity::format_bytes(max as u64)
        );
        return Err(Failure::unavailable(why, "copy less"));
    }
    let named = |option: &str, example: &str| {
        options.get(option).map(String::as_str).ok_or_else(|| {
            Failure::unavailable(
                format!("no {kind} memory is named"),
                format!("--set {option}={example}"),
            )
        })
    };
    // ESCAPE maps physical addresses uncached.
    let through_dev_mem = caching.requested().unwrap_or(Caching::Uncached);
    let mapping = match kind {
        MemoryKind::PciBar => {
            let path = named(PCI_RESOURCE, RESOURCE)?;
            Mapping::resource(&caching.resource(Path::new(path))?, bytes, write)
        }
        MemoryKind::Dax => Mapping::dax(Path::new(named(DAX_DEVICE, "/dev/dax0.0")?), bytes, write),
        MemoryKind::HostPhysical => Mapping::physical(
            address(named(HOST_ADDRESS, ADDRESS)?)?,
            bytes,
            write,
            through_dev_mem,
        ),
        // There is no default: ESCAPE's address is RAM on a machine whose CXL memory begins there.
        MemoryKind::Device => Mapping::physical(
            address(named(DEVICE_ADDRESS, ADDRESS)?)?,
            bytes,
            write,
            through_dev_mem,
        ),
        MemoryKind::Heap
        | MemoryKind::HeapHuge
        | MemoryKind::Shared
        | MemoryKind::FileMapped
        | MemoryKind::FileIo
        | MemoryKind::Gpu
        | MemoryKind::GpuBar
        | MemoryKind::NumaNode(_) => {
            return Err(Failure::failed(format!("{kind} is not physical memory")));
        }
    };
    let mapping = mapping.map_err(Failure::refused)?;
    let given = caching.verify(kind, &mapping)?;
    Ok((mapping, given))
}

fn address(text: &str) -> Result<u64, Failure> {
    option::address(text).ok_or_else(|| {
        Failure::failed(format!("'{text}' is not an address; write e.g. 0x2080000000"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULT: CachingLevel = CachingLevel::Default;

    fn options(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
    }

    #[test]
    fn nothing_is_mapped_without_permission() {
        for kind in
            [MemoryKind::HostPhysical, MemoryKind::Device, MemoryKind::PciBar, MemoryKind::Dax]
        {
            for none in [options(&[]), options(&[(ALLOW, "no")])] {
                let unasked = open(kind, 4096, false, DEFAULT, &none).unwrap_err();
                assert_eq!(unasked.remedy.as_deref(), Some("--allow physical"));
            }
            let read = [(ALLOW, "yes")];
            for read_only in [options(&read), options(&[read[0], (ALLOW_WRITE, "no")])] {
                let unasked = open(kind, 4096, true, DEFAULT, &read_only).unwrap_err();
                assert!(unasked.remedy.unwrap().starts_with("--allow physical-write"));
            }
        }
        let too_much =
            open(MemoryKind::HostPhysical, 1 << 20, false, DEFAULT, &options(&[(ALLOW, "yes")]))
                .unwrap_err();
        assert!(too_much.why.contains("512 KiB"), "{too_much}");
        let unnamed = open(MemoryKind::PciBar, 4096, false, DEFAULT, &options(&[(ALLOW, "yes")]))
            .unwrap_err();
        assert!(unnamed.remedy.unwrap().contains("pci-resource="));
    }

    #[test]
    fn addresses_have_no_default() {
        let allowed = options(&[(ALLOW, "yes"), (ALLOW_WRITE, "yes")]);
        for write in [false, true] {
            let device = open(MemoryKind::Device, 4096, write, DEFAULT, &allowed).unwrap_err();
            assert!(device.remedy.unwrap().contains("--set device-address="), "{}", device.why);
            let host = open(MemoryKind::HostPhysical, 4096, write, DEFAULT, &allowed).unwrap_err();
            assert!(host.remedy.unwrap().contains("--set physical-address="), "{}", host.why);
        }
    }

    #[test]
    fn addresses_are_hexadecimal_or_decimal() {
        assert_eq!(address("0x2080000000").unwrap(), 0x20_8000_0000);
        assert_eq!(address("4096").unwrap(), 4096);
        assert!(address("0x").is_err() && address("here").is_err());
    }
}
