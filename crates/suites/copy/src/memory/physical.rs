//! Memory of hardware: mapped only when a person allows it by name, and bounded.

use std::collections::BTreeMap;
use std::path::Path;

use lab::option::{self, is_allowed};
use lab::quantity;
use lab::sample::Failure;
use machine::mapping::Mapping;

use super::Kind;
use super::open::unavailable;

/// Allows to map physical memory, for reading.
pub const ALLOW: &str = "allow-physical";
/// Allows to write it, too.
pub const ALLOW_WRITE: &str = "allow-physical-write";

/// Linux bars more than this of its own memory, says the seed.
const MOST_OF_HOST: usize = 512 << 10;
/// The seed's region.
const MOST_OF_DEVICE: usize = (256 << 20) + machine::mapping::PAGE;

/// The most bytes of a kind that are mapped at once; `None` if only the memory itself sets a limit.
pub(super) fn most(kind: Kind) -> Option<usize> {
    match kind {
        Kind::HostPhysical => Some(MOST_OF_HOST),
        kind if kind.is_physical() => Some(MOST_OF_DEVICE),
        _ => None,
    }
}

/// How a remedy writes an address: no number, which somebody would copy.
const ADDRESS: &str = "ADDRESS, as /proc/iomem lists it";

/// Maps so many bytes.
pub(super) fn open(
    kind: Kind,
    bytes: usize,
    write: bool,
    options: &BTreeMap<String, String>,
) -> Result<Mapping, Failure> {
    if !is_allowed(options, ALLOW) {
        let why = format!("{kind} is touched only when allowed by name");
        return Err(Failure::unavailable(why, "--allow physical"));
    }
    if write && !is_allowed(options, ALLOW_WRITE) {
        let why = format!("{kind} is written only when that is allowed by name");
        return Err(Failure::unavailable(
            why,
            "--allow physical-write, if nothing else uses that memory",
        ));
    }
    if let Some(most) = most(kind).filter(|most| bytes > *most) {
        let why = format!(
            "{bytes} B are more than the {} that are mapped of {kind}",
            quantity::format_bytes(most as u64)
        );
        return Err(Failure::unavailable(why, "copy less"));
    }
    let named = |option: &str, example: &str| {
        options.get(option).map(String::as_str).ok_or_else(|| {
            Failure::unavailable(
                format!("{kind}: none is named"),
                format!("--set {option}={example}"),
            )
        })
    };
    let mapping = match kind {
        Kind::PciBar => {
            let path = named("pci-resource", "/sys/bus/pci/devices/0000:00:02.0/resource0")?;
            Mapping::resource(Path::new(path), bytes, write)
        }
        Kind::Dax => Mapping::dax(Path::new(named("dax-device", "/dev/dax0.0")?), bytes, write),
        Kind::HostPhysical => {
            Mapping::physical(address(named("physical-address", ADDRESS)?)?, bytes, write)
        }
        // No address is the device's on every machine: ESCAPE's is RAM where CXL memory begins there.
        _ => Mapping::physical(address(named("device-address", ADDRESS)?)?, bytes, write),
    };
    mapping.map_err(unavailable)
}

fn address(text: &str) -> Result<u64, Failure> {
    option::address(text)
        .ok_or_else(|| Failure::failed(format!("'{text}' is no address: write 0x2080000000")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
    }

    #[test]
    fn nothing_is_mapped_unasked() {
        for kind in [Kind::HostPhysical, Kind::Device, Kind::PciBar, Kind::Dax] {
            for none in [options(&[]), options(&[(ALLOW, "no")])] {
                let unasked = open(kind, 4096, false, &none).unwrap_err();
                assert_eq!(unasked.remedy.as_deref(), Some("--allow physical"));
            }
            let read = [(ALLOW, "yes")];
            for read_only in [options(&read), options(&[read[0], (ALLOW_WRITE, "no")])] {
                let unasked = open(kind, 4096, true, &read_only).unwrap_err();
                assert!(unasked.remedy.unwrap().starts_with("--allow physical-write"));
            }
        }
        let too_much =
            open(Kind::HostPhysical, 1 << 20, false, &options(&[(ALLOW, "yes")])).unwrap_err();
        assert!(too_much.why.contains("512 KiB"), "{too_much}");
        let unnamed = open(Kind::PciBar, 4096, false, &options(&[(ALLOW, "yes")])).unwrap_err();
        assert!(unnamed.remedy.unwrap().contains("pci-resource="));
    }

    #[test]
    fn no_address_is_assumed() {
        let allowed = options(&[(ALLOW, "yes"), (ALLOW_WRITE, "yes")]);
        for write in [false, true] {
            let device = open(Kind::Device, 4096, write, &allowed).unwrap_err();
            assert!(device.remedy.unwrap().contains("--set device-address="), "{}", device.why);
            let host = open(Kind::HostPhysical, 4096, write, &allowed).unwrap_err();
            assert!(host.remedy.unwrap().contains("--set physical-address="), "{}", host.why);
        }
    }

    #[test]
    fn addresses() {
        assert_eq!(address("0x2080000000").unwrap(), 0x20_8000_0000);
        assert_eq!(address("4096").unwrap(), 4096);
        assert!(address("0x").is_err() && address("here").is_err());
    }
}
