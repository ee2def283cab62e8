//! Files of the host that are the memory of guests' devices.

use std::fmt::Display;
use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lab::sample::Failure;
use machine::mapping::{Mapping, Sharing};
use machine::memfd::Memfd;
use rustix::fs::{FallocateFlags, OFlags};

/// A file of the host that is a device's memory.
#[derive(Debug, Clone)]
pub struct BackingFile {
    /// Name by which arguments refer to it: `{name}`.
    pub name: String,
    /// Its content, which several guests can share.
    pub content: Arc<Backing>,
}

/// Where the content of a [`BackingFile`] is.
#[derive(Debug)]
pub enum Backing {
    /// Anonymous memory.
    Memory(Memfd),
    /// A file.
    File(PathBuf),
}

impl BackingFile {
    /// Creates a file of this length, in memory or in `folder`; there, one that exists keeps its content.
    ///
    /// # Errors
    /// Returns one line if it cannot be made.
    pub(crate) fn create(name: &str, bytes: u64, folder: Option<&Path>) -> Result<Self, String> {
        let content = match folder {
            None => usize::try_from(bytes)
                .map_err(std::io::Error::other)
                .and_then(|bytes| Memfd::create(name, bytes))
                .map(Backing::Memory),
            Some(folder) => {
                let path = folder.join(name);
                create_in(&path, bytes).map(|()| Backing::File(path))
            }
        };
        let fix = match folder {
            None => "name a folder with --guest-files",
            Some(_) => "create the folder, or choose another with --guest-files",
        };
        let content =
            content.map_err(|why| format!("backing file '{name}' of {bytes} B: {why}; {fix}"))?;
        Ok(Self { name: name.into(), content: Arc::new(content) })
    }

    /// Maps it, for reading and writing.
    ///
    /// # Errors
    /// Returns one line if it cannot be opened or mapped.
    pub(crate) fn map(&self, length: usize) -> Result<Mapping, String> {
        let failed = |why: &dyn Display| {
            format!("map backing file '{}': {why}; choose another --guest-files folder", self.name)
        };
        match &*self.content {
            Backing::Memory(memory) => Mapping::shared(memory, length).map_err(|why| failed(&why)),
            Backing::File(path) => {
                let file = File::options().read(true).write(true).open(path);
                let file = file.map_err(|why| failed(&why))?;
                Mapping::open_file(&file, length, Sharing::SharedWritable)
                    .map_err(|why| failed(&why))
            }
        }
    }

    /// Returns its path as a value of an option of QEMU. A file in memory is inherited and added to `held`.
    ///
    /// # Errors
    /// Returns `failed` if its path is not UTF-8, and the error of `fcntl(2)`.
    pub(crate) fn path_for_child(&self, held: &mut Vec<Memfd>) -> Result<String, Failure> {
        match &*self.content {
            Backing::Memory(memory) => {
                let copy = memory.try_clone()?;
                let fd = copy.inherit()?;
                held.push(copy);
                Ok(format!("/proc/self/fd/{fd}"))
            }
            Backing::File(path) => escaped(path),
        }
    }
}

/// Creates a file, or extends one that exists, and allocates all its blocks: a store to a block that a full disk lacks
/// would kill its process.
fn create_in(path: &Path, bytes: u64) -> io::Result<()> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)?;
    let found = file.metadata()?;
    if !found.is_file() || found.len() > bytes {
        let what = if found.is_file() { "longer" } else { "not a regular file" };
        return Err(io::Error::other(format!("{} exists and is {what}", path.display())));
    }
    Ok(rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes)?)
}

/// Returns a path as a value of QEMU's options, in which a comma is written twice.
fn escaped(path: &Path) -> Result<String, Failure> {
    let path = path.to_str().ok_or_else(|| {
        Failure::failed(format!("{}: QEMU takes UTF-8 only; choose another folder", path.display()))
    })?;
    Ok(path.replace(',', ",,"))
}
