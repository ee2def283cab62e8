//! The archive of a bundle: written so that the same entries give the same bytes, and read with limits, because it may
//! come from others.

use std::fs::File;
use std::io::{self, Cursor, Read as _, Seek, Write};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use zip::result::{ZipError, ZipResult};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipArchive, ZipWriter};

use super::BundleError;

/// Maximum number of entries; a full run has some hundreds.
const MAX_ENTRIES: usize = 10_000;
/// Maximum size of all entries together, in bytes.
const MAX_BYTES: u64 = 4 << 30;
/// Maximum factor by which the entries together are larger than the file, beyond [`FREE_BYTES`]. A journal of equal lines
/// has about 100; a bomb has 1000.
const MAX_FACTOR: u64 = 250;
/// Size that the entries of any file may have, in bytes.
const FREE_BYTES: u64 = 16 << 20;

/// Size of a part of an entry in memory, in bytes.
const PART: usize = 64 << 10;

/// Returns the bytes of an archive of entries, in their order.
pub(super) fn write<'e>(entries: impl Iterator<Item = (&'e str, &'e [u8])>) -> ZipResult<Vec<u8>> {
    let mut archive = ArchiveWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in entries {
        archive.start(name)?;
        archive.write(bytes)?;
    }
    Ok(archive.finish()?.into_inner())
}

/// An archive that is written so that the same entries give the same bytes.
pub(super) struct ArchiveWriter<W: Write + Seek>(ZipWriter<W>);

impl<W: Write + Seek> ArchiveWriter<W> {
    pub(super) fn new(to: W) -> Self {
        Self(ZipWriter::new(to))
    }

    /// Starts an entry.
    pub(super) fn start(&mut self, name: &str) -> ZipResult<()> {
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Deflated)
            .compression_level(Some(6))
            .last_modified_time(DateTime::DEFAULT)
            .unix_permissions(0o644);
        self.0.start_file(name, options)
    }

    /// Adds to the content of the entry that was started last.
    pub(super) fn write(&mut self, part: &[u8]) -> io::Result<()> {
        self.0.write_all(part)
    }

    /// Ends the archive and returns what it was written to.
    pub(super) fn finish(self) -> ZipResult<W> {
        self.0.finish()
    }
}

/// Bytes of the record at the end of an archive, without its comment, and the largest comment.
const END: u64 = 22;
const MAX_COMMENT: u64 = u16::MAX as u64;

/// Returns the number of entries that the end of an archive states; `None` without such an end.
fn listed_entries(file: &File, size: u64) -> io::Result<Option<usize>> {
    let start = size.saturating_sub(END + MAX_COMMENT);
    let mut tail = vec![0; usize::try_from(size - start).unwrap_or_default()];
    file.read_exact_at(&mut tail, start)?;
    let ends = tail.windows(END as usize).rev();
    let mut ends = ends.filter(|bytes| bytes.starts_with(b"PK\x05\x06"));
    Ok(ends.next().map(|end| usize::from(u16::from_le_bytes([end[10], end[11]]))))
}

/// An archive whose names and sizes are checked.
pub(super) struct Archive<'p> {
    path: &'p Path,
    file: File,
    size: u64,
    zip: ZipArchive<File>,
}

impl<'p> Archive<'p> {
    /// Opens an archive.
    ///
    /// # Errors
    /// Returns an error if the file is not an archive, a name is not a relative path of plain names, a name occurs twice,
    /// or the entries are too many or too large.
    pub(super) fn open(path: &'p Path) -> Result<Self, BundleError> {
        let remedy = "make it a regular file with read permission";
        let system = |error| BundleError::System { path: path.into(), error, remedy };
        // A FIFO does not block.
        let mut options = File::options();
        let file = options.read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(system)?;
        let size = file.metadata().map_err(system)?.len();
        if !file.metadata().map_err(system)?.is_file() {
            return Err(damaged(path, "is not a bundle (not a regular file)"));
        }
        let listed = listed_entries(&file, size).map_err(system)?;
        let zip = ZipArchive::new(file.try_clone().map_err(system)?);
        let zip = zip.map_err(|why| damaged(path, &format!("is not a bundle ({why})")))?;
        let mut archive = Self { path, file, size, zip };
        // The library keeps one of several entries with the same name; another reader may keep another one.
        if listed != Some(archive.zip.len()) {
            return Err(damaged(path, "a name occurs twice"));
        }
        archive.check()?;
        Ok(archive)
    }

    fn check(&mut self) -> Result<(), BundleError> {
        let refuse = |what: &str| Err(damaged(self.path, what));
        if self.zip.len() > MAX_ENTRIES {
            return refuse(&format!("it has more than {MAX_ENTRIES} entries"));
        }
        let (mut total, mut next) = (0u64, 0);
        for index in 0..self.zip.len() {
            let entry = self.zip.by_index_raw(index).map_err(|why| self::entry(self.path, &why))?;
            let name = entry.name();
            if !is_plain(name) || !entry.is_file() {
                return refuse(&format!("entry '{name}' is not a file within it"));
            }
            // Overlapping entries make a small file large.
            if entry.header_start() < next {
                return refuse(&format!("entry '{name}' overlaps another one"));
            }
            next = entry.data_start().unwrap_or(0).saturating_add(entry.compressed_size());
            total = total.saturating_add(entry.size());
        }
        if total > MAX_BYTES
            || total > FREE_BYTES.saturating_add(self.size.saturating_mul(MAX_FACTOR))
        {
            return refuse(&format!("its entries are larger than they may be: {total} bytes"));
        }
        Ok(())
    }

    /// Returns the names in their order.
    pub(super) fn names(&self) -> Vec<String> {
        self.zip.file_names().map(String::from).collect()
    }

    /// Returns the file, of which only positions may be read, and its size.
    pub(super) fn file(&self) -> (&File, u64) {
        (&self.file, self.size)
    }

    /// Returns the content of an entry of at most `max` bytes; `None` if there is no such entry.
    ///
    /// # Errors
    /// Returns an error if the entry is damaged, larger than it states, or larger than `max`.
    pub(super) fn read(&mut self, name: &str, max: u64) -> Result<Option<Vec<u8>>, BundleError> {
        let mut bytes = Vec::new();
        if self.zip.by_name(name).is_ok_and(|entry| entry.size() > max) {
            return Err(damaged(self.path, &format!("entry '{name}' is larger than it may be")));
        }
        let is_present = self.copy(name, &mut |part: &[u8]| {
            bytes.extend_from_slice(part);
            Ok(())
        })?;
        Ok(is_present.then_some(bytes))
    }

    /// Passes the content of an entry to `each`, part by part; returns whether there is such an entry.
    ///
    /// # Errors
    /// Returns an error if the entry is damaged, or larger than it states, and the error of `each`.
    pub(super) fn copy(
        &mut self,
        name: &str,
        each: &mut dyn FnMut(&[u8]) -> Result<(), BundleError>,
    ) -> Result<bool, BundleError> {
        let path = self.path;
        let mut file = match self.zip.by_name(name) {
            Ok(file) => file,
            Err(ZipError::FileNotFound) => return Ok(false),
            Err(why) => return Err(entry(path, &why)),
        };
        let (mut part, size, mut total) = (vec![0; PART], file.size(), 0u64);
        loop {
            let read = match file.read(&mut part) {
                Ok(0) => break,
                Ok(read) => read,
                Err(why) if why.kind() == io::ErrorKind::Interrupted => continue,
                Err(why) => {
                    return Err(damaged(path, &format!("entry '{name}' is damaged ({why})")));
                }
            };
            total += read as u64;
            if total > size {
                break;
            }
            each(&part[..read])?;
        }
        match total == size {
            true => Ok(true),
            false => Err(damaged(path, &format!("entry '{name}' has another size than it states"))),
        }
    }
}

/// Returns the error of a damaged file.
pub(super) fn damaged(path: &Path, what: &str) -> BundleError {
    BundleError::Damaged { path: path.into(), what: what.into() }
}

fn entry(path: &Path, why: &ZipError) -> BundleError {
    damaged(path, &format!("an entry is damaged ({why})"))
}

/// Returns whether a name is a relative path of letters, digits, `.`, `-` and `_`, without `..`.
pub(super) fn is_plain(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let is_component =
        |part: &str| !part.is_empty() && !part.starts_with('.') && part.chars().all(is_plain);
    name.len() <= 200 && name.split('/').all(is_component)
}
