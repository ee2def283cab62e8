//! Memory of devices and physical memory, mapped through a file of the kernel: `/dev/mem`, PCI BARs, DMA-BUFs.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FsWord;
use rustix::mm::MapFlags;

use super::{Mapping, PAGE};
use crate::SysError;
use crate::caching::Caching;

/// Device number of `/dev/mem`, major and minor.
const DEV_MEM: (u32, u32) = (1, 1);

impl Mapping {
    /// Maps physical memory from an address through `/dev/mem`; read-only unless `write`. Reading device registers can
    /// have side effects.
    ///
    /// The kernel maps uncached for [`Caching::Uncached`] and [`Caching::WriteCombining`], which only an MTRR of the range
    /// can provide, and as the MTRRs permit for [`Caching::WriteBack`]: see [`Mapping::memory_type`].
    ///
    /// # Errors
    /// Fails without `/dev/mem`, if the kernel forbids the range, or if a write could hit System RAM of any
    /// kind. That is also assumed if `/proc/iomem` hides the addresses.
    pub fn physical(
        address: u64,
        length: usize,
        write: bool,
        caching: Caching,
    ) -> Result<Self, SysError> {
        let attempt = format!("map {length} B of physical memory at {address:#x}");
        let end = address.checked_add(length as u64).filter(|end| *end <= 1 << 52);
        let Some(end) = end else {
            return Err(SysError::invalid(
                attempt,
                "beyond the 52-bit physical space",
                "correct the address",
            ));
        };
        let file = open_dev_mem(write, caching).map_err(|why| {
            let remedy = match why.kind() {
                io::ErrorKind::NotFound => "use a kernel with CONFIG_DEVMEM",
                _ => "run as root on a kernel that is not locked down",
            };
            SysError::new(format!("{attempt} through /dev/mem"), why, remedy)
        })?;
        if write {
            spare_system_ram(address, end).map_err(|why| {
                let remedy = "reserve a range with memmap=SIZE$ADDRESS on the kernel's command line, and run as root";
                SysError::invalid(&attempt, why, remedy)
            })?;
        }
        let page = address - address % PAGE as u64;
        let mapping = Self::of_device(&file, address, length, write).map_err(|why| {
            let remedy = dev_mem_remedy(&why);
            SysError::new(&attempt, why, remedy)
        })?;
        if write {
            // Memory may have come online since the first check; later changes go unnoticed.
            spare_system_ram(address, end).map_err(|why| {
                SysError::invalid(attempt, why, "keep the range offline and try again")
            })?;
        }
        Ok(Self { physical: Some(page), ..mapping })
    }

    /// Maps a PCI BAR through sysfs, `/sys/bus/pci/devices/*/resourceN`, or `resourceN_wc` for write-combining; read-only
    /// unless `write`.
    ///
    /// # Errors
    /// Fails if the file cannot be opened, is not in sysfs, is shorter than the length, or is a range of I/O
    /// ports.
    pub fn resource(path: &Path, length: usize, write: bool) -> Result<Self, SysError> {
        let attempt = format!("map {length} B of PCI resource {}", path.display());
        let refused = |why: io::Error| {
            let remedy = bar_remedy(&why);
            SysError::new(&attempt, why, remedy)
        };
        let (file, metadata) = open_checked(path, write, 0, |file, _| {
            if bar_number(path).is_some() && file_system(file)? == libc::SYSFS_MAGIC {
                return Ok(());
            }
            Err(io::Error::new(NOT_A_BAR, "it is not a resource file of sysfs"))
        })
        .map_err(refused)?;
        if metadata.len() < length as u64 {
            let has = format!("the BAR has {} B", metadata.len());
            return Err(SysError::invalid(attempt, has, "request less"));
        }
        let mapping = Self::of_device(&file, 0, length, write).map_err(refused)?;
        Ok(Self { physical: bar_address(path), ..mapping })
    }

    /// Maps the start of an exported DMA-BUF for reading and writing.
    ///
    /// # Errors
    /// Fails if the driver that exported it maps no memory for the CPU.
    pub fn dma_buf(file: &File, length: usize) -> Result<Self, SysError> {
        Self::of_device(file, 0, length, true).map_err(|why| {
            SysError::new(
                format!("map {length} B of a DMA-BUF"),
                why,
                "use a driver that maps its DMA-BUFs for the CPU, or memory = gpu",
            )
        })
    }

    /// Maps device memory, which is not touched before it is used.
    pub(super) fn of_device(
        file: &File,
        start: u64,
        length: usize,
        write: bool,
    ) -> io::Result<Self> {
        let mapping = Self::of_file(file.as_fd(), start, length, write, MapFlags::SHARED)?;
        Ok(Self { device: true, ..mapping })
    }
}

/// Opens `/dev/mem` after checking that it is the memory device.
fn open_dev_mem(write: bool, caching: Caching) -> io::Result<File> {
    // With O_SYNC the kernel maps uncached.
    let flags = match caching {
        Caching::Uncached | Caching::WriteCombining => libc::O_SYNC,
        Caching::WriteBack => 0,
    };
    let (file, _) = open_checked(Path::new("/dev/mem"), write, flags, |_, metadata| {
        if metadata.file_type().is_char_device() && number(metadata) == DEV_MEM {
            return Ok(());
        }
        Err(io::Error::other("it is not the device 1:1"))
    })?;
    Ok(file)
}

/// Opens a file after a check of its metadata. The check precedes the opening because opening a device can
/// have side effects, and the inode that was checked is the one opened.
pub(super) fn open_checked(
    path: &Path,
    write: bool,
    flags: i32,
    check: impl FnOnce(&File, &fs::Metadata) -> io::Result<()>,
) -> io::Result<(File, fs::Metadata)> {
    let place = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path)?;
    let metadata = place.metadata()?;
    check(&place, &metadata)?;
    let same = format!("/proc/self/fd/{}", place.as_raw_fd());
    let file = OpenOptions::new().read(true).write(write).custom_flags(flags).open(same)?;
    Ok((file, metadata))
}

/// Returns the number of a device file, major and minor.
pub(super) fn number(metadata: &fs::Metadata) -> (u32, u32) {
    (libc::major(metadata.rdev()), libc::minor(metadata.rdev()))
}

/// Returns the magic number of a file's system.
fn file_system(file: &File) -> io::Result<FsWord> {
    Ok(rustix::fs::fstatfs(file)?.f_type)
}

/// Ending of the file that maps a prefetchable BAR write-combining.
const WRITE_COMBINING: &str = "_wc";

/// Returns the number of the BAR if a path ends like its file: `resource0` to `resource5`, or `resourceN_wc`.
fn bar_number(path: &Path) -> Option<usize> {
    let number = path.file_name()?.to_str()?.strip_prefix("resource")?;
    let number = number.strip_suffix(WRITE_COMBINING).unwrap_or(number);
    number.parse().ok().filter(|number| *number < 6)
}

/// Returns the physical address of a BAR from the table `resource` of its device.
fn bar_address(path: &Path) -> Option<u64> {
    let table = fs::read_to_string(path.with_file_name("resource")).ok()?;
    let first = table.lines().nth(bar_number(path)?)?.split_whitespace().next()?;
    u64::from_str_radix(first.strip_prefix("0x")?, 16).ok().filter(|address| *address != 0)
}

/// Returns the file of sysfs that maps the BAR of `path` with a caching attribute: `resourceN` or `resourceN_wc`. The path
/// is returned as it is if it names no BAR.
///
/// # Errors
/// Fails for [`Caching::WriteBack`], and for [`Caching::WriteCombining`] if the BAR is not prefetchable.
pub fn resource_with(path: &Path, caching: Caching) -> Result<PathBuf, SysError> {
    let Some(number) = bar_number(path) else { return Ok(path.to_owned()) };
    let attempt = || format!("map BAR {} {}", path.display(), caching.name());
    let plain = format!("resource{number}");
    match caching {
        Caching::Uncached => Ok(path.with_file_name(plain)),
        Caching::WriteCombining => {
            let file = path.with_file_name(plain + WRITE_COMBINING);
            if file.exists() {
                return Ok(file);
            }
            let why = format!("{} does not exist: the BAR is not prefetchable", file.display());
            Err(SysError::invalid(attempt(), why, "name a prefetchable BAR"))
        }
        Caching::WriteBack => {
            let why = "sysfs maps BARs uncached or write-combining";
            Err(SysError::invalid(attempt(), why, "use caching = uncached or write-combining"))
        }
    }
}

/// Kind of the error for a file that is no BAR.
const NOT_A_BAR: io::ErrorKind = io::ErrorKind::InvalidInput;

/// Returns the remedy for an error of opening or mapping a BAR; see drivers/pci/pci-sysfs.c and mmap.c.
fn bar_remedy(why: &io::Error) -> &'static str {
    match (why.kind(), why.raw_os_error()) {
        (io::ErrorKind::NotFound, _) | (NOT_A_BAR, None) => {
            "name /sys/bus/pci/devices/DEVICE/resource0 to resource5 of a device that lspci -D lists"
        }
        (io::ErrorKind::PermissionDenied, _) => "run as root on a kernel that is not locked down",
        // I/O ports, or memory that a driver claims exclusively.
        (_, Some(libc::EINVAL | libc::ENODEV | libc::EIO)) => {
            "name a BAR that lspci -v lists as memory, and unbind the driver of the device"
        }
        _ => "name a memory BAR of an enabled device (echo 1 to the file enable in its folder)",
    }
}

/// Returns the remedy for an error of mmap(2) on `/dev/mem`; see drivers/char/mem.c and mm/pat/memtype.c.
fn dev_mem_remedy(why: &io::Error) -> &'static str {
    match why.raw_os_error() {
        // CONFIG_STRICT_DEVMEM forbids System RAM regardless of iomem=, and CONFIG_IO_STRICT_DEVMEM also
        // forbids ranges that a driver claims.
        Some(libc::EPERM) => {
            "if the range is System RAM: use a kernel without CONFIG_STRICT_DEVMEM (iomem=relaxed does \
             not help), or reserve the range with memmap=SIZE$ADDRESS; if a driver claims it: unbind \
             the driver, or boot with iomem=relaxed"
        }
        // System RAM would get two memory types.
        Some(libc::EINVAL) => {
            "if the range is System RAM: boot with nopat, or reserve the range with \
             memmap=SIZE$ADDRESS; else name an address that the CPU has"
        }
        // The range is already mapped with another memory type.
        Some(libc::EAGAIN) => {
            "a driver maps the range write-back: unbind it (`nd_pmem` for persistent memory)"
        }
        _ => "name a range that /proc/iomem lists, as root",
    }
}

/// Refuses a range that is or may be System RAM.
fn spare_system_ram(address: u64, end: u64) -> Result<(), String> {
    let shown = || -> io::Result<String> {
        let file = File::open("/proc/iomem")?;
        if file_system(&file)? != libc::PROC_SUPER_MAGIC {
            return Err(io::Error::other("it is not a file of the kernel"));
        }
        io::read_to_string(file)
    };
    let iomem = shown().map_err(|why| format!("/proc/iomem: {why}"))?;
    spare(&iomem, address, end)
}

/// Refuses a range that overlaps a line of `/proc/iomem`, nested or not, whose name starts with 'System RAM':
/// 'System RAM (kmem)' is device memory that the kernel uses as memory. Refuses every range if such a line
/// hides its addresses.
fn spare(iomem: &str, address: u64, end: u64) -> Result<(), String> {
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    let mut any = false;
    for line in iomem.lines() {
        let Some((range, name)) = line.split_once(" : ") else { continue };
        if !name.trim().starts_with("System RAM") {
            continue;
        }
        any = true;
        let range = range.trim().split_once('-');
        let range = range.and_then(|(first, last)| Some((number(first)?, number(last)?)));
        match range {
            None | Some((_, 0)) => {
                return Err("/proc/iomem hides which ranges are System RAM".to_owned());
            }
            Some((first, last)) if address <= last && first < end => {
                return Err(format!(
                    "{first:#x} to {last:#x} is used by the kernel, {}",
                    name.trim()
                ));
            }
            Some(_) => {}
        }
    }
    if any { Ok(()) } else { Err("/proc/iomem lists no System RAM".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    const IOMEM: &str = "00000000-00000fff : Reserved\n\
        00001000-0009fbff : System RAM\n\
        100000000-2ffffffff : System RAM\n\
        \x20\x20200000000-200ffffff : Kernel code\n\
        2080000000-24ffffffff : CXL Window 0\n\
        \x20\x202080000000-20ffffffff : region0\n\
        \x20\x20\x20\x202080000000-20ffffffff : dax0.0\n\
        \x20\x20\x20\x20\x20\x202080000000-20bfffffff : System RAM (kmem)\n";

    /// Returns the inode of the file mapped at an address, from /proc/self/maps.
    fn mapped_at(address: usize) -> Option<u64> {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().find_map(|line| {
            let mut words = line.split_whitespace();
            let (first, last) = words.next()?.split_once('-')?;
            let number = |text| usize::from_str_radix(text, 16).ok();
            let inside = (number(first)?..number(last)?).contains(&address);
            inside.then(|| words.nth(3)?.parse().ok()).flatten()
        })
    }

    #[test]
    fn a_device_stays_mapped_until_its_mapping_is_dropped() {
        // A file represents the device: the kernel maps both by the same call.
        let file = tempfile::tempfile().unwrap();
        file.set_len(4 * PAGE as u64).unwrap();
        let mapping = Mapping::of_device(&file, PAGE as u64 + 8, 2 * PAGE, true).unwrap();
        let (address, inode) = (mapping.as_ptr() as usize, file.metadata().unwrap().ino());
        assert_eq!(mapped_at(address), Some(inode), "it was unmapped at once");
        assert_eq!(mapped_at(address + 2 * PAGE - 1), Some(inode));
        // SAFETY: inside the mapping, which only this test uses.
        unsafe { mapping.as_mut_ptr().add(5).write_volatile(77) };
        let mut byte = [0];
        file.read_exact_at(&mut byte, PAGE as u64 + 13).unwrap();
        assert_eq!(byte, [77]);
        drop(mapping);
        assert_ne!(mapped_at(address), Some(inode));
    }

    #[test]
    fn system_ram_is_refused() {
        assert_eq!(spare(IOMEM, 0, 0x1000), Ok(()));
        assert_eq!(spare(IOMEM, 0x3_0000_0000, 0x4_0000_0000), Ok(()));
        let refused = |first, end| spare(IOMEM, first, end).unwrap_err();
        assert!(refused(0, 0x1001).starts_with("0x1000 to 0x9fbff"));
        assert!(refused(0x2_ffff_ffff, 0x3_0000_0000).starts_with("0x100000000 to"));
    }

    #[test]
    fn device_memory_used_by_the_kernel_is_refused() {
        let refused = spare(IOMEM, 0x20_8000_0000, 0x20_8000_1000).unwrap_err();
        assert!(refused.ends_with("System RAM (kmem)"), "{refused}");
        assert_eq!(spare(IOMEM, 0x20_c000_0000, 0x20_c000_1000), Ok(()));
    }

    #[test]
    fn hidden_addresses_refuse_every_range() {
        let hidden = "00000000-00000000 : Reserved\n00000000-00000000 : System RAM\n";
        assert!(spare(hidden, 0x20_8000_0000, 0x20_8000_1000).is_err());
        assert!(spare("", 0x20_8000_0000, 0x20_8000_1000).is_err());
        assert!(spare("what : System RAM\n", 0x20_8000_0000, 0x20_8000_1000).is_err());
        let half = format!("{IOMEM}00000000-00000000 : System RAM (kmem)\n");
        assert!(spare(&half, 0x20_c000_0000, 0x20_c000_1000).is_err());
    }

    #[test]
    fn each_error_of_dev_mem_has_its_remedy() {
        let remedy = |errno| dev_mem_remedy(&io::Error::from_raw_os_error(errno));
        assert!(remedy(libc::EPERM).contains("without CONFIG_STRICT_DEVMEM"));
        assert!(remedy(libc::EINVAL).contains("nopat"));
        assert!(remedy(libc::EAGAIN).contains("unbind"));
        for errno in [libc::EPERM, libc::EINVAL, libc::EAGAIN, libc::ENXIO] {
            assert!(!remedy(errno).contains('\n') && !remedy(errno).contains("  "));
        }
    }

    #[test]
    fn only_a_resource_of_sysfs_is_a_bar() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("resource0");
        fs::write(&path, [0; 2 * PAGE]).unwrap();
        for path in [&path, Path::new("/dev/zero"), Path::new("/sys/kernel/mm")] {
            let refusal = Mapping::resource(path, PAGE, true).unwrap_err().to_string();
            assert!(refusal.contains("not a resource file of sysfs; name /sys/bus"), "{refusal}");
        }
        for (name, number) in [
            ("resource2", Some(2)),
            ("resource4_wc", Some(4)),
            ("resource", None),
            ("resource6", None),
            ("resource0_wc_wc", None),
            ("config", None),
        ] {
            assert_eq!(bar_number(Path::new(name)), number, "{name}");
        }
    }

    #[test]
    fn each_error_of_a_bar_has_its_remedy() {
        let remedy = |errno| bar_remedy(&io::Error::from_raw_os_error(errno));
        assert!(remedy(libc::ENOENT).contains("lspci -D"));
        assert!(remedy(libc::EPERM).contains("not locked down"));
        assert!(remedy(libc::EACCES).contains("as root"));
        assert!(remedy(libc::EINVAL).contains("as memory"));
        assert!(remedy(libc::ENXIO).contains("enable"));
        let absent = Path::new("/sys/bus/pci/devices/none/resource0");
        let refusal = Mapping::resource(absent, PAGE, true).unwrap_err().to_string();
        assert!(refusal.ends_with("of a device that lspci -D lists"), "{refusal}");
    }

    #[test]
    fn the_file_of_a_bar_has_the_requested_attribute() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["resource0", "resource2", "resource2_wc"] {
            fs::write(path(name), "").unwrap();
        }
        let file = |name: &str, caching| resource_with(&path(name), caching);
        for name in ["resource2", "resource2_wc"] {
            assert_eq!(file(name, Caching::Uncached).unwrap(), path("resource2"));
            assert_eq!(file(name, Caching::WriteCombining).unwrap(), path("resource2_wc"));
            assert!(file(name, Caching::WriteBack).unwrap_err().to_string().contains("sysfs"));
        }
        let refusal = file("resource0", Caching::WriteCombining).unwrap_err().to_string();
        assert!(refusal.contains("not prefetchable"), "{refusal}");
        // Another file is refused when it is mapped.
        assert_eq!(file("config", Caching::WriteBack).unwrap(), path("config"));
        fs::write(
            path("resource"),
            "0x0 0x0 0x0\n0xc000 0xc01f 0x40101\n0xfe000000 0xfe0fffff 0x14220c\n",
        )
        .unwrap();
        assert_eq!(bar_address(&path("resource2_wc")), Some(0xfe00_0000));
        assert_eq!(bar_address(&path("resource0")), None, "an absent BAR has address 0");
        assert_eq!(bar_address(&path("resource3")), None);
    }
}
