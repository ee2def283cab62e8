//! Persistent or device memory without the page cache (DAX).

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use rustix::mm::MapFlags;

use super::Mapping;
use super::device::{number, open_checked};
use crate::SysError;

/// Symbolic links to all character devices by number, in sysfs.
const CHARACTER_DEVICES: &str = "/sys/dev/char";
const NAME_ONE: &str = "name a /dev/dax device or a file on a file system mounted with dax";

impl Mapping {
    /// Maps memory of a `/dev/dax*` device or of a file on a DAX mount.
    ///
    /// A device can only map multiples of its alignment: the length is rounded up.
    ///
    /// # Errors
    /// Fails if the path cannot be opened, is shorter than the length, is a device outside the kernel's
    /// subsystem dax, or is on a file system that is not mounted with DAX.
    pub fn dax(path: &Path, length: usize, write: bool) -> Result<Self, SysError> {
        let attempt = format!("map {length} B of DAX memory {}", path.display());
        let refused = |why, remedy: &str| SysError::new(&attempt, why, remedy);
        let mut device = None;
        let (file, metadata) = open_checked(path, write, 0, |_, metadata| {
            if metadata.file_type().is_char_device() {
                device = Some(Device::read(Path::new(CHARACTER_DEVICES), number(metadata))?);
            } else if !metadata.is_file() {
                return Err(io::Error::other("it is neither a DAX device nor a file"));
            }
            Ok(())
        })
        .map_err(|why| refused(why, NAME_ONE))?;
        let has = device.as_ref().map_or(metadata.len(), |device| device.size);
        let whole = length
            .checked_next_multiple_of(device.as_ref().map_or(1, |device| device.alignment))
            .filter(|whole| *whole as u64 <= has);
        let Some(whole) = whole else {
            return Err(SysError::invalid(&attempt, format!("it has {has} B"), "request less"));
        };
        if let Some(device) = device {
            let mapping = Self::of_device(&file, 0, whole, write)
                .map_err(|why| refused(why, "bind the device to the driver device_dax"))?;
            return Ok(Self { length, physical: device.address, ..mapping });
        }
        // The kernel refuses MAP_SYNC unless the file is on DAX.
        Self::of_file(file.as_fd(), 0, length, write, MapFlags::SHARED_VALIDATE | MapFlags::SYNC)
            .map_err(|why| refused(why, "mount its file system with -o dax on persistent memory"))
    }
}

/// Properties of a DAX device in sysfs, in bytes.
#[derive(Debug, PartialEq, Eq)]
struct Device {
    alignment: usize,
    size: u64,
    /// Physical address of the first byte; `None` if the kernel hides it.
    address: Option<u64>,
}

impl Device {
    fn read(devices: &Path, (major, minor): (u32, u32)) -> io::Result<Self> {
        let folder: PathBuf = devices.join(format!("{major}:{minor}"));
        let subsystem = fs::read_link(folder.join("subsystem"));
        if !subsystem.is_ok_and(|link| link.ends_with("dax")) {
            return Err(io::Error::other("it is not a DAX device"));
        }
        let bytes = |name: &str| -> io::Result<u64> {
            let file = folder.join(name);
            let unread = |why: String| io::Error::other(format!("{}: {why}", file.display()));
            let text = fs::read_to_string(&file).map_err(|why| unread(why.to_string()))?;
            text.trim().parse().map_err(|_| unread(format!("'{}' is not a number", text.trim())))
        };
        let alignment = usize::try_from(bytes("align")?).ok().filter(|one| one.is_power_of_two());
        let alignment = alignment.ok_or_else(|| io::Error::other("its alignment is unknown"))?;
        let resource = fs::read_to_string(folder.join("resource")).unwrap_or_default();
        let address = resource.trim().strip_prefix("0x");
        let address = address.and_then(|digits| u64::from_str_radix(digits, 16).ok());
        Ok(Self { alignment, size: bytes("size")?, address })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn another_device_is_refused() {
        for path in ["/dev/zero", "/dev/null", "/dev/mem", "/dev/tty"] {
            if !Path::new(path).exists() {
                continue;
            }
            let refusal = Mapping::dax(Path::new(path), 4096, true).unwrap_err().to_string();
            assert!(refusal.contains("not a DAX device"), "{refusal}");
        }
        let refusal = Mapping::dax(Path::new("/dev"), 4096, false).unwrap_err().to_string();
        assert!(refusal.contains("neither a DAX device nor a file"), "{refusal}");
    }

    #[test]
    fn alignment_and_size_of_a_device_are_read_from_sysfs() {
        let devices = tempfile::tempdir().unwrap();
        let folder = devices.path().join("250:3");
        fs::create_dir(&folder).unwrap();
        let read = || Device::read(devices.path(), (250, 3));
        symlink("../../../../../../bus/dax", folder.join("subsystem")).unwrap();
        assert!(read().unwrap_err().to_string().contains("align"), "the alignment is not guessed");
        fs::write(folder.join("align"), "2097152\n").unwrap();
        fs::write(folder.join("size"), "62914560\n").unwrap();
        let hidden = Device { alignment: 2 << 20, size: 60 << 20, address: None };
        assert_eq!(read().unwrap(), hidden);
        fs::write(folder.join("resource"), "0x10200000\n").unwrap();
        assert_eq!(read().unwrap(), Device { address: Some(0x1020_0000), ..hidden });
        fs::write(folder.join("align"), "3\n").unwrap();
        assert!(read().is_err());
        fs::remove_file(folder.join("subsystem")).unwrap();
        symlink("../../../../class/mem", folder.join("subsystem")).unwrap();
        assert!(read().unwrap_err().to_string().contains("not a DAX device"));
    }

    #[test]
    fn a_file_without_dax_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(4096).unwrap();
        let refusal = Mapping::dax(file.path(), 4096, true).unwrap_err().to_string();
        assert!(refusal.contains("-o dax"), "{refusal}");
        let refusal = Mapping::dax(file.path(), 4097, true).unwrap_err().to_string();
        assert!(refusal.contains("it has 4096 B"), "{refusal}");
    }
}
