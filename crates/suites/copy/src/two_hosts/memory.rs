//! Memory that both hosts map: a page of control cells, then the data.

use std::arch::x86_64::{_mm_lfence, _mm_sfence};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use lab::factor::LevelType;
use lab::measure::Measurement;
use lab::sample::Failure;
use machine::mapping::{Mapping, PAGE, Sharing};

use crate::frames::Cell;
use crate::memory::{CachingLevel, MemoryKind, file_folder, physical};
use crate::metrics::MEMORY_TYPE;

/// Name of the file of `memory = file`.
const FILE: &str = "tollgate-two-hosts";

/// Value of a total that is not known yet.
const UNKNOWN: u64 = u64::MAX;

/// Which memory both hosts map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, LevelType)]
pub(crate) enum CommonMemory {
    /// Memory of a device, by its physical address.
    Device,
    /// A PCI BAR.
    PciBar,
    /// A DAX device.
    Dax,
    /// A file in a folder of both hosts, or of this host if both roles run on it.
    File,
}

/// A number that one host publishes and the other one reads, with two cache lines to itself.
///
/// Acquire and release order accesses to write-back memory only. On write-combining memory earlier stores may reach the
/// memory later than the number, and loads may be executed early, so the cell fences both.
#[derive(Debug)]
#[repr(transparent)]
pub(super) struct FencedCell(Cell);

impl FencedCell {
    /// Loads the number: earlier loads are complete before, later ones start afterwards.
    pub(super) fn get(&self) -> u64 {
        load_fence();
        let number = self.0.get();
        load_fence();
        number
    }

    /// Publishes the number after all earlier stores, and without delay.
    pub(super) fn set(&self, number: u64) {
        store_fence();
        self.0.set(number);
        // Otherwise the number may wait in a write-combining buffer.
        store_fence();
    }
}

/// Completes all earlier stores, also those in write-combining buffers, before later ones.
pub(super) fn store_fence() {
    // SAFETY: every x86-64 CPU has SSE.
    unsafe { _mm_sfence() };
}

/// Completes all earlier loads before later ones.
fn load_fence() {
    // SAFETY: every x86-64 CPU has SSE2.
    unsafe { _mm_lfence() };
}

/// The control cells of a sample. The writer clears them before the roles start.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Control {
    /// Number of the sample, by which the reader recognises the writer's memory.
    pub(super) number: FencedCell,
    /// The same number, stored by the reader.
    pub(super) answer: FencedCell,
    /// Frames or copies that the writer has published.
    pub(super) head: FencedCell,
    /// Frames that the reader has finished.
    pub(super) tail: FencedCell,
    /// Copies that the reader has seen published.
    pub(super) seen: FencedCell,
    /// Copies for which the reader is ready.
    pub(super) watched: FencedCell,
    /// Copies after which the writer decided whether it makes another.
    pub(super) decided: FencedCell,
    /// Total number of frames or copies once the writer knows it; [`UNKNOWN`] before.
    pub(super) last: FencedCell,
}

const _: () = assert!(size_of::<Control>() <= PAGE);

/// The mapped memory of one role.
#[derive(Debug)]
pub(super) struct SharedMemory {
    mapping: Mapping,
    /// The memory type that the kernel gave the mapping, or why it is unknown; `None` for a file, which is write-back.
    memory_type: Option<String>,
    /// The file that this role created.
    file: Option<PathBuf>,
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        if let Some(path) = &self.file {
            // A file that is left is replaced by the next sample.
            let _ = fs::remove_file(path);
        }
    }
}

impl CommonMemory {
    /// Checks that this machine has the kind of memory.
    ///
    /// # Errors
    /// Returns the cause and a remedy.
    pub(super) fn available(self) -> Result<(), Failure> {
        match self.kind() {
            Some(kind) => kind.available(),
            None => Ok(()),
        }
    }

    fn kind(self) -> Option<MemoryKind> {
        match self {
            Self::Device => Some(MemoryKind::Device),
            Self::PciBar => Some(MemoryKind::PciBar),
            Self::Dax => Some(MemoryKind::Dax),
            Self::File => None,
        }
    }

    /// Maps `bytes` bytes as the writer, which creates the file, before the roles start.
    ///
    /// # Errors
    /// Returns the cause and a remedy if the memory is unavailable, or the user must allow or name it first.
    pub(super) fn create(
        self,
        bytes: usize,
        options: &BTreeMap<String, String>,
    ) -> Result<SharedMemory, Failure> {
        let remedy = "--set file-folder=DIR, a folder in which both roles may create files";
        let mut memory = self.map(bytes, options, create_file, remedy)?;
        memory.file = self.kind().is_none().then(|| file(options));
        Ok(memory)
    }

    /// Maps the same memory as the reader, after the roles have started.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub(super) fn open(
        self,
        bytes: usize,
        options: &BTreeMap<String, String>,
    ) -> Result<SharedMemory, Failure> {
        let remedy = "run both roles on one host, or --set file-folder=DIR, a folder of both";
        self.map(bytes, options, open_file, remedy)
    }

    /// Maps the memory; a file by `map_file`, with the remedy if that fails.
    fn map(
        self,
        bytes: usize,
        options: &BTreeMap<String, String>,
        map_file: fn(&Path, usize) -> io::Result<Mapping>,
        remedy: &str,
    ) -> Result<SharedMemory, Failure> {
        let (mapping, memory_type) = match self.kind() {
            Some(kind) => {
                let (mapping, given) =
                    physical::open(kind, bytes, true, CachingLevel::Default, options)?;
                (mapping, Some(given))
            }
            None => {
                let path = file(options);
                let mapping = map_file(&path, bytes).map_err(|why| {
                    Failure::unavailable(format!("{}: {why}", path.display()), remedy)
                })?;
                (mapping, None)
            }
        };
        SharedMemory::of(mapping, memory_type)
    }
}

/// Returns the path of the file of `memory = file`.
fn file(options: &BTreeMap<String, String>) -> PathBuf {
    file_folder(options).join(FILE)
}

/// Replaces a file that an earlier sample left.
fn create_file(path: &Path, bytes: usize) -> io::Result<Mapping> {
    match fs::remove_file(path) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => return Err(why),
        Ok(()) | Err(_) => {}
    }
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?;
    file.set_len(bytes as u64)?;
    Mapping::open_file(&file, bytes, Sharing::SharedWritable).map_err(io::Error::other)
}

fn open_file(path: &Path, bytes: usize) -> io::Result<Mapping> {
    let file = File::options().read(true).write(true).custom_flags(libc::O_NOFOLLOW).open(path)?;
    // An access beyond the end of a file raises SIGBUS.
    if file.metadata()?.len() < bytes as u64 {
        return Err(io::Error::other(format!("it has less than {bytes} B")));
    }
    Mapping::open_file(&file, bytes, Sharing::SharedWritable).map_err(io::Error::other)
}

impl SharedMemory {
    fn of(mapping: Mapping, memory_type: Option<String>) -> Result<Self, Failure> {
        if !(mapping.as_ptr() as usize).is_multiple_of(PAGE) {
            let why = "the address of the common memory is not a multiple of 4096; name another";
            return Err(Failure::failed(why));
        }
        Ok(Self { mapping, memory_type, file: None })
    }

    /// Adds the memory type of this role's mapping to its results.
    pub(super) fn describe(&self, measurement: Measurement) -> Measurement {
        match &self.memory_type {
            Some(given) => measurement.covariate(MEMORY_TYPE, given.as_str()),
            None => measurement,
        }
    }

    /// Returns the control cells.
    pub(super) fn control(&self) -> &Control {
        // SAFETY: the page is in the mapping and aligned; Control consists of atomics, valid for any bits.
        unsafe { &*self.mapping.as_ptr().cast::<Control>() }
    }

    /// Returns the first byte of the data, which is page-aligned.
    pub(super) fn data(&self) -> *mut u8 {
        self.mapping.as_mut_ptr().wrapping_add(PAGE)
    }

    /// Returns the first byte, if the memory has no control cells.
    pub(super) fn start(&self) -> *mut u8 {
        self.mapping.as_mut_ptr()
    }

    /// Clears the control cells.
    pub(super) fn clear(&self) {
        let Control { number, answer, head, tail, seen, watched, decided, last } = self.control();
        let cells = [number, answer, head, tail, seen, watched, decided];
        cells.iter().for_each(|cell| cell.set(0));
        last.set(UNKNOWN);
    }
}

#[cfg(test)]
mod tests {
    use std::arch::x86_64::_mm_stream_si32;

    use super::*;

    #[test]
    fn both_roles_map_one_file_that_the_writer_removes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap().to_owned();
        let options = BTreeMap::from([("file-folder".to_owned(), path)]);
        let absent = CommonMemory::File.open(2 * PAGE, &options).unwrap_err();
        assert!(absent.remedy.unwrap().contains("both roles on one host"), "{}", absent.why);
        // A file that a killed run left is replaced, not written.
        std::fs::write(folder.path().join(FILE), "left").unwrap();
        let left = File::open(folder.path().join(FILE)).unwrap();
        let writer = CommonMemory::File.create(2 * PAGE, &options).unwrap();
        assert_eq!(io::read_to_string(left).unwrap(), "left");
        let reader = CommonMemory::File.open(2 * PAGE, &options).unwrap();
        writer.control().head.set(5);
        assert_eq!(reader.control().head.get(), 5);
        writer.clear();
        assert_eq!(reader.control().head.get(), 0);
        assert!(CommonMemory::File.open(3 * PAGE, &options).is_err(), "it is shorter");
        drop(writer);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    /// Stores that bypass the caches wait in write-combining buffers, like all stores to write-combining memory.
    #[test]
    fn a_number_is_not_visible_before_the_stores_that_it_publishes() {
        const ROUNDS: u64 = 2000;
        const LINES: usize = 8;
        const LINE: usize = 64 / size_of::<i32>();
        if std::thread::available_parallelism().unwrap().get() < 2 {
            return machine::untested::note("the order of publications", &"only one CPU");
        }
        let mapping = Mapping::anonymous(2 * PAGE).unwrap();
        let memory = &SharedMemory::of(mapping, None).unwrap();
        memory.clear();
        // One unit per line: a line that is written in part stays in its buffer.
        let unit = |line: usize| memory.data().cast::<i32>().wrapping_add(line * LINE);
        let wait = |cell: &FencedCell, number| {
            let mut checks = 0;
            while cell.get() != number {
                checks += 1;
                // The other side may need this CPU.
                if checks % 10_000 == 0 { std::thread::yield_now() } else { std::hint::spin_loop() }
            }
        };
        let early = std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 1..=ROUNDS {
                    for line in 0..LINES {
                        // SAFETY: the unit is in the mapping and aligned, and the reader waits for the number.
                        unsafe { _mm_stream_si32(unit(line), number as i32) };
                    }
                    memory.control().head.set(number);
                    wait(&memory.control().seen, number);
                }
            });
            let mut early = 0;
            for number in 1..=ROUNDS {
                wait(&memory.control().head, number);
                for line in 0..LINES {
                    // SAFETY: the unit is in the mapping and aligned; the writer waits for the answer.
                    let seen = unsafe { unit(line).read_volatile() };
                    early += u64::from(seen != number as i32);
                }
                memory.control().seen.set(number);
            }
            early
        });
        assert_eq!(early, 0, "units that were not stored when their number was visible");
    }

    #[test]
    fn a_sample_states_the_type_of_its_memory() {
        let given = |memory_type: Option<&str>| {
            let mapping = Mapping::anonymous(PAGE).unwrap();
            let memory = SharedMemory::of(mapping, memory_type.map(str::to_owned)).unwrap();
            memory.describe(Measurement::default()).covariates.remove(MEMORY_TYPE)
        };
        assert_eq!(given(Some("write-combining")), Some("write-combining".into()));
        assert_eq!(given(None), None);
    }

    #[test]
    fn physical_memory_needs_permission() {
        for memory in [CommonMemory::Device, CommonMemory::PciBar, CommonMemory::Dax] {
            let refused = memory.create(PAGE, &BTreeMap::new()).unwrap_err();
            assert_eq!(refused.remedy.as_deref(), Some("--allow physical"));
        }
    }
}
