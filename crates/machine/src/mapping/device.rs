//! Memory that a path names: files, physical memory, PCI BARs and DAX.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::mm::MapFlags;

use super::Mapping;
use crate::Refusal;

impl Mapping {
    /// A file, shared with whoever maps it too. With `write` it is created and grown where it has to be.
    ///
    /// # Errors
    /// Where it cannot be opened, or is shorter than the length and may not be written.
    pub fn file(path: &Path, length: usize, write: bool) -> Result<Self, Refusal> {
        let attempt = format!("map {length} B of {}", path.display());
        let refused =
            |why| Refusal::new(&attempt, why, "check the path, its permissions and the space");
        let file =
            OpenOptions::new().read(true).write(write).create(write).truncate(false).open(path);
        let file = file.map_err(refused)?;
        let has = file.metadata().map_err(refused)?.len();
        if has < length as u64 {
            if !write {
                return Err(Refusal::invalid(
                    &attempt,
                    format!("it has {has} B"),
                    "ask for less, or to write",
                ));
            }
            file.set_len(length as u64).map_err(refused)?;
        }
        Self::of_file(file.as_fd(), 0, length, write, MapFlags::SHARED).map_err(refused)
    }

    /// Physical memory from an address, uncached, through `/dev/mem`; read-only unless `write`. Reading a
    /// device's registers can have effects too.
    ///
    /// # Errors
    /// Where there is no `/dev/mem`, the kernel bars the range, or a write would hit the kernel's own memory.
    pub fn physical(address: u64, length: usize, write: bool) -> Result<Self, Refusal> {
        let attempt = format!("map {length} B of physical memory at {address:#x}");
        let end = address.checked_add(length as u64).filter(|end| *end <= 1 << 52);
        let Some(end) = end else {
            return Err(Refusal::invalid(
                attempt,
                "beyond the 52-bit physical space",
                "correct the address",
            ));
        };
        let file = open_device(Path::new("/dev/mem"), write).map_err(|why| {
            let remedy = match why.kind() {
                io::ErrorKind::NotFound => "use a kernel with CONFIG_DEVMEM",
                _ => "run as root",
            };
            Refusal::new(format!("{attempt} through /dev/mem"), why, remedy)
        })?;
        if write {
            let iomem = fs::read_to_string("/proc/iomem").unwrap_or_default();
            spare_the_kernel(&iomem, address, end).map_err(|why| {
                let remedy = "keep the range from the kernel with memmap= on its command line, and run as root";
                Refusal::invalid(&attempt, why, remedy)
            })?;
        }
        let remedy = "boot with iomem=relaxed, or a kernel without CONFIG_STRICT_DEVMEM";
        Self::of_device(&file, address, length, write)
            .map_err(|why| Refusal::new(attempt, why, remedy))
    }

    /// A PCI BAR through sysfs, `/sys/bus/pci/devices/*/resourceN`; read-only unless `write`.
    ///
    /// # Errors
    /// Where it cannot be opened, is shorter than the length, or is of I/O ports.
    pub fn resource(path: &Path, length: usize, write: bool) -> Result<Self, Refusal> {
        let attempt = format!("map {length} B of PCI resource {}", path.display());
        let remedy =
            "name a memory BAR, as root, with the device enabled and the kernel not locked down";
        let file = open_device(path, write).map_err(|why| Refusal::new(&attempt, why, remedy))?;
        let has = file.metadata().map_err(|why| Refusal::new(&attempt, why, remedy))?.len();
        if has < length as u64 {
            return Err(Refusal::invalid(attempt, format!("the BAR has {has} B"), "ask for less"));
        }
        Self::of_device(&file, 0, length, write).map_err(|why| Refusal::new(attempt, why, remedy))
    }

    /// Persistent or device memory without the page cache: a `/dev/dax*` device, or a file on a DAX mount.
    ///
    /// # Errors
    /// Where it cannot be opened, is shorter than the length, or its file system is not mounted with DAX.
    pub fn dax(path: &Path, length: usize, write: bool) -> Result<Self, Refusal> {
        let attempt = format!("map {length} B of DAX memory {}", path.display());
        let refused = |why, remedy: &str| Refusal::new(&attempt, why, remedy);
        let open = |why| {
            refused(why, "name a /dev/dax device or a file on a file system mounted with dax")
        };
        let file = OpenOptions::new().read(true).write(write).open(path).map_err(open)?;
        let kind = file.metadata().map_err(open)?;
        if kind.file_type().is_char_device() {
            // A device maps whole pages of its own alignment only, and refuses what it does not have.
            let remedy = "ask for a multiple of the device's alignment, no longer than the device";
            return Self::of_device(&file, 0, length, write).map_err(|why| refused(why, remedy));
        }
        if kind.len() < length as u64 {
            return Err(Refusal::invalid(
                &attempt,
                format!("it has {} B", kind.len()),
                "ask for less",
            ));
        }
        // MAP_SYNC is refused where the file is not truly DAX.
        Self::of_file(file.as_fd(), 0, length, write, MapFlags::SHARED_VALIDATE | MapFlags::SYNC)
            .map_err(|why| refused(why, "mount its file system with -o dax on persistent memory"))
    }

    fn of_device(file: &File, start: u64, length: usize, write: bool) -> io::Result<Self> {
        let mapping = Self::of_file(file.as_fd(), start, length, write, MapFlags::SHARED)?;
        Ok(Self { device: true, ..mapping })
    }
}

/// Opens with O_SYNC, which makes the mapping of `/dev/mem` uncached.
fn open_device(path: &Path, write: bool) -> io::Result<File> {
    OpenOptions::new().read(true).write(write).custom_flags(libc::O_SYNC).open(path)
}

/// Refuses a range that touches System RAM in `/proc/iomem`, or a file that hides its addresses.
fn spare_the_kernel(iomem: &str, address: u64, end: u64) -> Result<(), String> {
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    let range = |line: &str| {
        let (range, "System RAM") = line.split_once(" : ")? else {
            return None;
        };
        let (first, last) = range.trim().split_once('-')?;
        Some((number(first)?, number(last)?))
    };
    let memory: Vec<(u64, u64)> =
        iomem.lines().filter_map(range).filter(|(_, last)| *last > 0).collect();
    if memory.is_empty() {
        return Err("/proc/iomem does not show which memory is the kernel's".to_owned());
    }
    match memory.iter().find(|(first, last)| address <= *last && *first < end) {
        Some((first, last)) => Err(format!("{first:#x} to {last:#x} is the kernel's memory")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IOMEM: &str = "00000000-00000fff : Reserved\n00001000-0009fbff : System RAM\n100000000-2ffffffff : System RAM\n  200000000-200ffffff : Kernel code\n";

    #[test]
    fn the_kernels_memory_is_spared() {
        assert_eq!(spare_the_kernel(IOMEM, 0, 0x1000), Ok(()));
        assert_eq!(spare_the_kernel(IOMEM, 0x3_0000_0000, 0x4_0000_0000), Ok(()));
        let refused = |first, end| spare_the_kernel(IOMEM, first, end).unwrap_err();
        assert!(refused(0, 0x1001).starts_with("0x1000 to 0x9fbff"));
        assert!(refused(0x2_ffff_ffff, 0x3_0000_0000).starts_with("0x100000000 to"));
    }

    #[test]
    fn hidden_addresses_spare_nothing() {
        let hidden = "00000000-00000000 : Reserved\n00000000-00000000 : System RAM\n";
        assert!(spare_the_kernel(hidden, 0x20_8000_0000, 0x20_8000_1000).is_err());
        assert!(spare_the_kernel("", 0x20_8000_0000, 0x20_8000_1000).is_err());
    }
}
