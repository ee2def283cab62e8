//! Kinds of memory that this machine has.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::State;
use crate::huge_pages;
use crate::mapping::Mapping;
use crate::topology::Topology;

pub(super) fn huge_pages_2m() -> State {
    // Mapping reserves a page of the pool without touching it.
    match Mapping::huge(huge_pages::SIZE) {
        Ok(_) => State::present(format!("{} free", huge_pages::free().unwrap_or(0))),
        Err(_) => no_huge_pages("2048kB", "2 MiB", huge_pages::RESERVE),
    }
}

pub(super) fn huge_pages_1g() -> State {
    match Mapping::gigantic(1 << 30) {
        Ok(_) => State::present("at least one free"),
        Err(_) => no_huge_pages("1048576kB", "1 GiB", huge_pages::RESERVE_GIGANTIC),
    }
}

fn no_huge_pages(folder: &str, size: &str, remedy: &str) -> State {
    let pool = format!("/sys/kernel/mm/hugepages/hugepages-{folder}");
    if !Path::new(&pool).exists() {
        let remedy = "use a CPU and a kernel that support them";
        return State::absent(format!("the kernel does not support {size} pages"), remedy);
    }
    State::absent(format!("no {size} page is free"), remedy)
}

pub(super) fn dev_mem() -> State {
    let path = Path::new("/dev/mem");
    if !path.exists() {
        return State::absent("/dev/mem does not exist", "use a kernel with CONFIG_DEVMEM");
    }
    match fs::File::open(path) {
        Ok(_) => State::present("/dev/mem opens for reading"),
        Err(why) => State::absent(
            format!("/dev/mem: {why}"),
            "run as root on a kernel that is not locked down",
        ),
    }
}

pub(super) fn pci_bar() -> State {
    let bars = resources(Path::new("/sys/bus/pci/devices"));
    let Some(first) = bars.first() else {
        return State::absent(
            "sysfs lists no memory BAR that can be mapped",
            "use a kernel with CONFIG_SYSFS and HAVE_PCI_MMAP, and a PCI device with memory",
        );
    };
    match fs::File::open(first) {
        Ok(_) => State::present(format!("{} BARs, e.g. {}", bars.len(), first.display())),
        Err(why) => State::absent(format!("{}: {why}", first.display()), "run as root"),
    }
}

/// Lists the `resourceN` files of all devices that are memory of at least one page.
fn resources(devices: &Path) -> Vec<PathBuf> {
    let mut bars = Vec::new();
    for device in fs::read_dir(devices).into_iter().flatten().flatten() {
        let table = fs::read_to_string(device.path().join("resource")).unwrap_or_default();
        for (number, line) in table.lines().take(6).enumerate() {
            let bar = device.path().join(format!("resource{number}"));
            if is_memory(line) && bar.exists() {
                bars.push(bar);
            }
        }
    }
    bars.sort();
    bars
}

/// Tests a line `first last flags` of the table in sysfs; flag 0x200 marks memory.
fn is_memory(line: &str) -> bool {
    let mut flags = line.split_whitespace().skip(2);
    let flags =
        flags.next().and_then(|flags| u64::from_str_radix(flags.trim_start_matches("0x"), 16).ok());
    flags.is_some_and(|flags| flags & 0x200 != 0)
}

pub(super) fn dax() -> State {
    let device = dax_device(Path::new("/dev"));
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    match (device, dax_mount(&mounts)) {
        (Some((device, Ok(_))), _) => State::present(device.display().to_string()),
        (_, Some(mount)) => State::present(format!("file system at {mount}")),
        (Some((device, Err(why))), None) => State::absent(
            format!("{}: {why}", device.display()),
            "run as root; a device that is memory of a NUMA node: `daxctl reconfigure-device --mode=devdax`",
        ),
        (None, None) => State::absent(
            "no /dev/dax device and no file system mounted with dax",
            "attach persistent or CXL memory (`ndctl create-namespace -m devdax`), or boot with memmap=nn!ss",
        ),
    }
}

/// Returns the first DAX device of a folder that opens for reading; if none does, the first. A device that is memory of a
/// NUMA node keeps its file, but no driver opens it.
fn dax_device(folder: &Path) -> Option<(PathBuf, io::Result<fs::File>)> {
    let is_dax = |path: &PathBuf| {
        let number = path.file_name()?.to_str()?.strip_prefix("dax")?;
        number.starts_with(|c: char| c.is_ascii_digit()).then_some(())
    };
    let files = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut devices: Vec<_> = files.filter(|path| is_dax(path).is_some()).collect();
    devices.sort();
    let opened = |path: &PathBuf| (path.clone(), fs::File::open(path));
    devices.iter().map(opened).find(|(_, file)| file.is_ok()).or(devices.first().map(opened))
}

/// Returns where a file system is mounted with `dax` or `dax=always`.
fn dax_mount(mounts: &str) -> Option<&str> {
    mounts.lines().find_map(|line| {
        let mut words = line.split(' ');
        let (place, options) = (words.nth(1)?, words.nth(1)?);
        options.split(',').any(|option| option == "dax" || option == "dax=always").then_some(place)
    })
}

pub(super) fn numa() -> State {
    match Topology::detect().nodes.len() {
        nodes @ 2.. => State::present(format!("{nodes} nodes")),
        nodes => State::absent(
            format!("the kernel reports {nodes} node"),
            "use a machine with more sockets, or enable several nodes per socket in its firmware",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_memory_bars_with_a_file() {
        let root = tempfile::tempdir().unwrap();
        let device = root.path().join("0000:00:01.0");
        fs::create_dir(&device).unwrap();
        let table = "0x4000000000 0x400007ffff 0x140204\n0xc000 0xc01f 0x40101\n0x0 0x0 0x0\n";
        fs::write(device.join("resource"), table).unwrap();
        assert!(resources(root.path()).is_empty());
        fs::write(device.join("resource0"), "").unwrap();
        fs::write(device.join("resource1"), "").unwrap();
        assert_eq!(resources(root.path()), [device.join("resource0")]);
    }

    #[test]
    fn a_dax_device_that_opens_is_preferred() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let found = || dax_device(folder.path()).map(|(path, file)| (path, file.is_ok()));
        fs::write(path("daxctl"), "").unwrap();
        assert_eq!(found(), None);
        std::os::unix::fs::symlink("/no/such", path("dax0.0")).unwrap();
        assert_eq!(found(), Some((path("dax0.0"), false)));
        for name in ["dax1.0", "dax0.1"] {
            fs::write(path(name), "").unwrap();
        }
        assert_eq!(found(), Some((path("dax0.1"), true)));
    }

    #[test]
    fn dax_is_a_mount_option() {
        let mounts = "/dev/vda / ext4 rw,relatime 0 0\n/dev/pmem0 /mnt xfs rw,dax=always 0 0\n";
        assert_eq!(dax_mount(mounts), Some("/mnt"));
        assert_eq!(dax_mount("/dev/vda / ext4 rw,dax=never 0 0\n"), None);
    }
}
