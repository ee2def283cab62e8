//! Opens each kind of memory.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use lab::sample::Failure;
use machine::mapping::Mapping;
use machine::memfd::Memfd;
use machine::{SysError, huge_pages};

use super::other::Other;
use super::{Kind, Region, physical};

/// The option that names the folder of the file that is mapped, read and written.
const FILE_FOLDER: &str = "file-folder";
/// The part of a mapping that must lie on huge pages for it to count as such.
const MOSTLY: f64 = 0.95;

impl Region {
    /// Opens so many bytes, for the program to write them where `write`. Pages are not touched yet.
    ///
    /// # Errors
    /// What the machine lacks, or what a person must allow or name first.
    pub fn open(
        kind: Kind,
        bytes: usize,
        write: bool,
        options: &BTreeMap<String, String>,
    ) -> Result<Self, Failure> {
        let region = |mapping| Self { kind, mapping, file: None, other: None, pages: None };
        match kind {
            Kind::Heap => Ok(region(private(Mapping::anonymous(bytes))?)),
            Kind::HeapHuge => huge(bytes),
            Kind::Shared => shared(bytes),
            Kind::FileMapped | Kind::FileIo => file(kind, bytes, options),
            Kind::HostPhysical | Kind::Device | Kind::PciBar | Kind::Dax => {
                physical::open(kind, bytes, write, options).map(region)
            }
            Kind::NumaNode(node) => {
                let mapping = private(Mapping::anonymous(bytes))?;
                mapping.bind(node).map_err(unavailable)?;
                Ok(region(mapping))
            }
        }
    }
}

pub(super) fn unavailable(refusal: SysError) -> Failure {
    Failure::unavailable(format!("{}: {}", refusal.attempt, refusal.source), refusal.remedy)
}

/// Keeps private memory out of forked children: a page that a child shares is copied at the next
/// write, so warm memory would be cold.
fn private(mapping: Result<Mapping, SysError>) -> Result<Mapping, Failure> {
    let mapping = mapping.map_err(unavailable)?;
    let whole = mapping.len().next_multiple_of(machine::mapping::PAGE);
    // SAFETY: the pages are the mapping's own, and the advice changes only what a fork copies.
    if unsafe { libc::madvise(mapping.as_mut_ptr().cast(), whole, libc::MADV_DONTFORK) } != 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    Ok(mapping)
}

/// From the pool where it has enough, else transparent ones.
fn huge(bytes: usize) -> Result<Region, Failure> {
    let whole = bytes.next_multiple_of(huge_pages::SIZE);
    let enough = huge_pages::free().is_ok_and(|free| free >= whole / huge_pages::SIZE);
    let region = |mapping, pages| Region {
        kind: Kind::HeapHuge,
        mapping,
        file: None,
        other: None,
        pages: Some(pages),
    };
    if enough {
        return Ok(region(private(Mapping::huge(whole))?, "pool"));
    }
    let region = region(private(Mapping::transparent_huge(whole))?, "transparent");
    region.prefault()?;
    let smaps = std::fs::read_to_string("/proc/self/smaps")?;
    let share = huge_share(&smaps, region.start() as usize).unwrap_or(0.0);
    if share < MOSTLY {
        return Err(Failure::unavailable(
            format!("the kernel put {:.0}% of the memory on huge pages", share * 100.0),
            huge_pages::RESERVE,
        ));
    }
    Ok(region)
}

/// Which part of the present pages of the mapping at an address are huge, by /proc/self/smaps.
fn huge_share(smaps: &str, address: usize) -> Option<f64> {
    let holds = |line: &str| {
        let (first, last) = line.split(' ').next()?.split_once('-')?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        Some((number(first)?..number(last)?).contains(&address))
    };
    let mut lines = smaps.lines().skip_while(|line| holds(line) != Some(true));
    let mut kibibytes = |key: &str| {
        let rest = lines.find_map(|line| line.strip_prefix(key))?;
        rest.split_whitespace().next()?.parse::<f64>().ok()
    };
    let present = kibibytes("Rss:")?;
    (present > 0.0).then_some(kibibytes("AnonHugePages:")? / present)
}

fn shared(bytes: usize) -> Result<Region, Failure> {
    let memfd = Memfd::create("tollgate-shared", bytes)?;
    let mapping = Mapping::shared(&memfd, bytes).map_err(unavailable)?;
    let other = Other::start(&mapping)?;
    Ok(Region { kind: Kind::Shared, mapping, file: None, other: Some(other), pages: None })
}

/// A file without a name, which is gone with the process.
fn file(kind: Kind, bytes: usize, options: &BTreeMap<String, String>) -> Result<Region, Failure> {
    let folder = options.get(FILE_FOLDER).map_or_else(std::env::temp_dir, PathBuf::from);
    let file = File::options().read(true).write(true).custom_flags(libc::O_TMPFILE).open(&folder);
    let file = file.map_err(|error| {
        let why = format!("no nameless file in {}: {error}", folder.display());
        Failure::unavailable(
            why,
            format!("--set {FILE_FOLDER}=DIR, a folder on ext4, xfs, btrfs or tmpfs"),
        )
    })?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let mapping = Mapping::file(&path, bytes, true).map_err(unavailable)?;
    let pages = Some(file_system(&file));
    let file = (kind == Kind::FileIo).then_some(file);
    Ok(Region { kind, mapping, file, other: None, pages })
}

/// The file system by its magic number, as in statfs(2).
fn file_system(file: &File) -> &'static str {
    match rustix::fs::fstatfs(file).map(|status| status.f_type as u64) {
        Ok(0xef53) => "ext4",
        Ok(0x5846_5342) => "xfs",
        Ok(0x9123_683e) => "btrfs",
        Ok(0x0102_1994) => "tmpfs",
        Ok(0x794c_7630) => "overlayfs",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_huge_pages_is_that_of_the_right_mapping() {
        let smaps = "7f0000000000-7f0000200000 rw-p 00000000 00:00 0\nRss:  2048 kB\nAnonHugePages:  0 kB\n\
            7f0000200000-7f0000600000 rw-p 00000000 00:00 0\nRss:  4096 kB\nAnonHugePages:  2048 kB\n";
        assert_eq!(huge_share(smaps, 0x7f00_0000_0000), Some(0.0));
        assert_eq!(huge_share(smaps, 0x7f00_0020_0000), Some(0.5));
        assert_eq!(huge_share(smaps, 0x7f00_0060_0000), None);
    }
}
