//! An open region of memory: opening, filling and verifying it.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use lab::sample::Failure;
use machine::SysError;
use machine::huge_pages;
use machine::mapping::{Mapping, Sharing};
use machine::memfd::Memfd;

use super::gpu::{Gpu, GpuMemory};
use super::peer::PeerProcess;
use super::{CachingLevel, Call, MemoryKind, VerifyCounts, file_folder, physical};
use crate::pattern::Pattern;

/// Minimum share of a mapping on huge pages.
const MIN_HUGE_SHARE: f64 = 0.95;

/// Open memory of one kind.
#[derive(Debug)]
pub struct Region {
    kind: MemoryKind,
    /// The memory; inaccessible addresses if it is that of a GPU and not mapped.
    mapping: Mapping,
    /// The memory of a GPU.
    device: Option<GpuMemory>,
    /// The underlying file, if copies are system calls.
    file: Option<File>,
    /// The process that shares the memory, if there is one.
    peer: Option<PeerProcess>,
    /// How the kernel provides the pages, unless the kind determines it.
    pages: Option<&'static str>,
    caching: CachingLevel,
    /// The memory type that the kernel gave, or why it is unknown; `None` if none was requested of ordinary memory.
    memory_type: Option<String>,
}

impl Region {
    /// Returns the address of the first byte, which is page-aligned.
    pub fn start(&self) -> *mut u8 {
        self.mapping.as_mut_ptr()
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.mapping.len()
    }

    /// Returns false: see [`Mapping::is_empty`].
    pub fn is_empty(&self) -> bool {
        self.mapping.is_empty()
    }

    /// Returns the kind of memory.
    pub fn kind(&self) -> MemoryKind {
        self.kind
    }

    /// Returns whether the mapping is writable.
    pub fn is_writable(&self) -> bool {
        self.mapping.is_writable()
    }

    /// Returns the memory of the GPU.
    pub(crate) fn device(&self) -> Option<&GpuMemory> {
        self.device.as_ref()
    }

    /// Returns the file whose `pread` and `pwrite` are the copies.
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }

    /// Returns the observed kind of pages: `pool` or `transparent` huge pages, or a file system.
    pub fn pages(&self) -> Option<&'static str> {
        self.pages
    }

    /// Returns the requested caching attribute.
    pub fn caching(&self) -> CachingLevel {
        self.caching
    }

    /// Returns the memory type that the kernel gave, or why it is unknown.
    pub fn memory_type(&self) -> Option<&str> {
        self.memory_type.as_deref()
    }

    /// Makes every page present. Memory of a GPU always is.
    ///
    /// # Errors
    /// Returns an error if there is not enough memory.
    pub fn prefault(&self) -> Result<(), Failure> {
        if self.device.is_some() {
            return Ok(());
        }
        Ok(self.mapping.prefault()?)
    }

    /// Discards the pages, so that the next access to each one faults.
    pub fn madvise_dontneed(&self) {
        self.mapping.madvise_dontneed();
    }

    /// Fills `length` bytes from `start` with a pattern; the peer process fills shared memory.
    ///
    /// # Errors
    /// Returns an error if the region is read-only or too short, or the peer process has exited.
    pub fn fill(&mut self, pattern: Pattern, start: usize, length: usize) -> Result<(), Failure> {
        self.check_bounds(start, length)?;
        if !self.mapping.is_writable() {
            return Err(Failure::failed(format!("{} is open for reading only", self.kind)));
        }
        if let Some(peer) = &mut self.peer {
            return peer.fill(pattern, start, length);
        }
        if let Some(device) = &self.device {
            let mut bytes = vec![0; length];
            pattern.fill(0, &mut bytes);
            return device.write(start, &bytes);
        }
        // SAFETY: the span is within this writable mapping, and no thread copies while it is filled.
        let bytes = unsafe { std::slice::from_raw_parts_mut(self.start().add(start), length) };
        pattern.fill(0, bytes);
        Ok(())
    }

    /// Verifies that each copy left the pattern at its offset from `start`; the peer process verifies
    /// shared memory.
    ///
    /// # Errors
    /// Returns an error if a copy exceeds the region, or the peer process has exited.
    pub fn verify(
        &mut self,
        pattern: Pattern,
        start: usize,
        calls: &[Call],
    ) -> Result<VerifyCounts, Failure> {
        for call in calls {
            self.check_bounds(start.saturating_add(call.at as usize), call.length as usize)?;
        }
        if let Some(peer) = &mut self.peer {
            return peer.verify(pattern, start, calls);
        }
        let mut counts = VerifyCounts::default();
        let end = calls.iter().map(|call| (call.at as usize).saturating_add(call.length as usize));
        let span = end.max().unwrap_or(0);
        let mut copied = Vec::new();
        let bytes = match &self.device {
            // The driver's copy also shows whether stores through the BAR arrived.
            Some(device) => {
                copied.resize(span, 0);
                device.read(start, &mut copied)?;
                &copied[..]
            }
            // SAFETY: the span is within this mapping, and no thread copies while it is verified.
            None => unsafe { std::slice::from_raw_parts(self.start().add(start), span) },
        };
        for call in calls {
            let (at, length) = (call.at as usize, call.length as usize);
            counts.add(pattern, at, &bytes[at..at.saturating_add(length)]);
        }
        Ok(counts)
    }

    fn check_bounds(&self, start: usize, length: usize) -> Result<(), Failure> {
        match start.checked_add(length) {
            Some(end) if end <= self.len() => Ok(()),
            _ => Err(Failure::failed(format!(
                "{length} B at {start} exceed the {} B of {}",
                self.len(),
                self.kind
            ))),
        }
    }

    /// Opens `bytes` bytes, writable if `write`. The pages of private memory are not yet present.
    ///
    /// # Errors
    /// Returns the cause and a remedy if the machine lacks the memory or the attribute, or the user must allow or name
    /// it first.
    pub fn open(
        kind: MemoryKind,
        bytes: usize,
        write: bool,
        caching: CachingLevel,
        options: &BTreeMap<String, String>,
    ) -> Result<Self, Failure> {
        caching.check(kind)?;
        kind.check_free(bytes)?;
        let region = match kind {
            MemoryKind::Heap => Self::new(kind, private(Mapping::anonymous(bytes))?),
            MemoryKind::HeapHuge => huge(bytes)?,
            MemoryKind::Shared => shared(bytes)?,
            MemoryKind::FileMapped | MemoryKind::FileIo => file(kind, bytes, options)?,
            MemoryKind::HostPhysical
            | MemoryKind::Device
            | MemoryKind::PciBar
            | MemoryKind::Dax => {
                let (mapping, given) = physical::open(kind, bytes, write, caching, options)?;
                Self { memory_type: Some(given), ..Self::new(kind, mapping) }
            }
            MemoryKind::Gpu | MemoryKind::GpuBar => {
                Self::on_gpu(kind, GpuMemory::alloc(Gpu::get()?, bytes)?, bytes)?
            }
            MemoryKind::NumaNode(node) => {
                let mapping = private(Mapping::anonymous(bytes))?;
                mapping.bind(node).map_err(Failure::refused)?;
                Self::new(kind, mapping)
            }
        };
        let unlisted = || "not verified: the kernel lists no types of system RAM".to_owned();
        let memory_type = region.memory_type.or_else(|| caching.requested().map(|_| unlisted()));
        Ok(Self { caching, memory_type, ..region })
    }

    /// Opens allocated memory of a GPU, mapped for `gpu-bar`.
    pub(super) fn on_gpu(
        kind: MemoryKind,
        device: GpuMemory,
        bytes: usize,
    ) -> Result<Self, Failure> {
        let mapping = if kind == MemoryKind::GpuBar {
            device.map(bytes)?
        } else {
            // Its addresses fault, so that no copy bypasses the driver.
            Mapping::inaccessible(bytes).map_err(Failure::refused)?
        };
        Ok(Self { device: Some(device), ..Self::new(kind, mapping) })
    }

    fn new(kind: MemoryKind, mapping: Mapping) -> Self {
        Self {
            kind,
            mapping,
            device: None,
            file: None,
            peer: None,
            pages: None,
            caching: CachingLevel::Default,
            memory_type: None,
        }
    }
}

/// Keeps private memory out of forked children: the next write to a page that a child shares would
/// copy it, so warm memory would be cold.
fn private(mapping: Result<Mapping, SysError>) -> Result<Mapping, Failure> {
    let mapping = mapping.map_err(Failure::refused)?;
    mapping.madvise_dontfork()?;
    Ok(mapping)
}

/// Opens huge pages: reserved ones if enough are free, otherwise transparent ones.
fn huge(bytes: usize) -> Result<Region, Failure> {
    let whole = bytes.next_multiple_of(huge_pages::SIZE);
    let enough = huge_pages::free().is_ok_and(|free| free >= whole / huge_pages::SIZE);
    let region = |mapping, pages| Region {
        pages: Some(pages),
        ..Region::new(MemoryKind::HeapHuge, mapping)
    };
    if enough {
        return Ok(region(private(Mapping::huge(whole))?, "pool"));
    }
    let region = region(private(Mapping::transparent_huge(whole))?, "transparent");
    region.prefault()?;
    let smaps = std::fs::read_to_string("/proc/self/smaps")?;
    let share = huge_share(&smaps, region.start() as usize).unwrap_or(0.0);
    if share < MIN_HUGE_SHARE {
        return Err(Failure::unavailable(
            format!("the kernel put only {:.0}% of the memory on huge pages", share * 100.0),
            huge_pages::RESERVE,
        ));
    }
    Ok(region)
}

/// Returns the huge share of the resident pages of the mapping at `address`, from
/// /proc/self/smaps.
fn huge_share(smaps: &str, address: usize) -> Option<f64> {
    let contains_address = |line: &str| {
        let (first, last) = line.split(' ').next()?.split_once('-')?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        Some((number(first)?..number(last)?).contains(&address))
    };
    let mut lines = smaps.lines().skip_while(|line| contains_address(line) != Some(true));
    let mut kibibytes = |key: &str| {
        let rest = lines.find_map(|line| line.strip_prefix(key))?;
        rest.split_whitespace().next()?.parse::<f64>().ok()
    };
    let present = kibibytes("Rss:")?;
    (present > 0.0).then_some(kibibytes("AnonHugePages:")? / present)
}

fn shared(bytes: usize) -> Result<Region, Failure> {
    let memfd = Memfd::create("tollgate-shared", bytes)?;
    let mapping = Mapping::shared(&memfd, bytes).map_err(Failure::refused)?;
    let peer = PeerProcess::start(&mapping)?;
    Ok(Region { peer: Some(peer), ..Region::new(MemoryKind::Shared, mapping) })
}

/// Opens an unnamed file, which the kernel deletes with the process.
fn file(
    kind: MemoryKind,
    bytes: usize,
    options: &BTreeMap<String, String>,
) -> Result<Region, Failure> {
    let folder = file_folder(options);
    let file = File::options().read(true).write(true).custom_flags(libc::O_TMPFILE).open(&folder);
    let file = file.map_err(|error| {
        let why = format!("cannot create an unnamed file in {}: {error}", folder.display());
        Failure::unavailable(why, "--set file-folder=DIR, a folder on ext4, xfs, btrfs or tmpfs")
    })?;
    file.set_len(bytes as u64)?;
    let mapping =
        Mapping::open_file(&file, bytes, Sharing::SharedWritable).map_err(Failure::refused)?;
    let pages = Some(file_system(&file));
    let file = (kind == MemoryKind::FileIo).then_some(file);
    Ok(Region { file, pages, ..Region::new(kind, mapping) })
}

/// Returns the file system's name by its magic number: see statfs(2).
fn file_system(file: &File) -> &'static str {
    match rustix::fs::fstatfs(file).map(|status| status.f_type) {
        Ok(libc::EXT4_SUPER_MAGIC) => "ext4",
        Ok(libc::XFS_SUPER_MAGIC) => "xfs",
        Ok(libc::BTRFS_SUPER_MAGIC) => "btrfs",
        Ok(libc::TMPFS_MAGIC) => "tmpfs",
        Ok(libc::OVERLAYFS_SUPER_MAGIC) => "overlayfs",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_huge_page_share_is_read_for_the_mapping_at_the_address() {
        let smaps = "7f0000000000-7f0000200000 rw-p 00000000 00:00 0\nRss:  2048 kB\nAnonHugePages:  0 kB\n\
            7f0000200000-7f0000600000 rw-p 00000000 00:00 0\nRss:  4096 kB\nAnonHugePages:  2048 kB\n";
        assert_eq!(huge_share(smaps, 0x7f00_0000_0000), Some(0.0));
        assert_eq!(huge_share(smaps, 0x7f00_0020_0000), Some(0.5));
        assert_eq!(huge_share(smaps, 0x7f00_0060_0000), None);
    }
}
