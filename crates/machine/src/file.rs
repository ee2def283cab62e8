//! Files that the user names, and files in folders that another user may have filled.
//!
//! [`Output`] writes a file that the user names: a regular or absent file is replaced as a whole; anything
//! else (a device, a FIFO, `/dev/stdout`) is written in place. [`open`], [`append`] and [`create_new`] are
//! for files in a results folder or cache: they follow no link and accept only regular files, so a planted
//! link, FIFO or device cannot redirect, block or exhaust the reader.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, BufWriter, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, Gid, OFlags, Uid};
use tempfile::{NamedTempFile, TempPath};

/// Maximum size of a file that is read into memory as a whole, unless its format sets a smaller limit.
pub const MAX_WHOLE_BYTES: u64 = 64 << 20;

/// An output file under its final or a temporary name, until [`Output::finish`].
#[derive(Debug)]
pub struct Output {
    file: BufWriter<File>,
    // Declared after the file, so that a temporary file is closed before it is removed.
    replaces: Option<Replacement>,
}

/// The destination of a new file.
#[derive(Debug)]
struct Replacement {
    /// The temporary name, removed when dropped. `None` if the file has no name; it then disappears even if
    /// this process is killed.
    temporary: Option<TempPath>,
    target: PathBuf,
}

impl Output {
    /// Opens a file that the user named for writing.
    ///
    /// An absent or regular file is written under a temporary name in the same folder. [`Output::finish`]
    /// puts it in place, with owner, group and permissions of the file that it replaces except setuid, setgid
    /// and sticky. A file that this user may not write, or whose owner or group cannot be kept, is refused. A
    /// symbolic link stays: the regular file that it names is replaced, and a dangling link is refused. A
    /// device, a FIFO or a descriptor of this process (`/dev/stdout`, `/proc/self/fd/3`) is written in place.
    /// Opening a FIFO waits for its reader.
    ///
    /// # Errors
    /// Returns the system's error, or why the path cannot be written. The error does not contain the path.
    pub fn create(path: &Path) -> io::Result<Self> {
        Self::create_checked(path, |_| Ok(()))
    }

    /// Like [`Output::create`], but replaces an existing regular file only if it is empty or starts with
    /// `header`, so that a default name never overwrites an unrelated file.
    ///
    /// # Errors
    /// See [`Output::create`]; [`ErrorKind::AlreadyExists`] if the file starts with something else.
    pub fn create_over(path: &Path, header: &[u8]) -> io::Result<Self> {
        Self::create_checked(path, |existing| {
            let mut start = Vec::new();
            open(existing)?.take(header.len() as u64).read_to_end(&mut start)?;
            if start.is_empty() || start == header {
                return Ok(());
            }
            Err(io::Error::new(
                ErrorKind::AlreadyExists,
                "exists with other contents; not overwritten",
            ))
        })
    }

    /// Writes a file in a results folder or cache. It replaces anything of that name, so a planted link, FIFO
    /// or device cannot redirect or block the writer.
    ///
    /// # Errors
    /// Returns the system's error, without the path.
    pub fn replace(path: &Path) -> io::Result<Self> {
        Self::in_folder_of(path.to_owned(), None)
    }

    fn create_checked(
        path: &Path,
        may_replace: impl FnOnce(&Path) -> io::Result<()>,
    ) -> io::Result<Self> {
        if let Some(number) = own_descriptor(path) {
            return Ok(Self::through(duplicate(number)?));
        }
        // Follows links as the kernel allows: it refuses a link that another user planted in a shared sticky
        // folder, which resolving links ourselves would miss.
        let found = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, 0.into());
        let found = match found {
            Ok(found) => File::from(found),
            Err(rustix::io::Errno::NOENT) if fs::symlink_metadata(path).is_ok() => {
                return Err(io::Error::other("is a dangling link"));
            }
            Err(rustix::io::Errno::NOENT) => return Self::in_folder_of(path.to_owned(), None),
            Err(why) => return Err(why.into()),
        };
        let kind = found.metadata()?;
        if kind.is_dir() {
            return Err(ErrorKind::IsADirectory.into());
        }
        if !kind.is_file() {
            return Self::into_special(path, kind.file_type().is_socket());
        }
        let target = if fs::symlink_metadata(path)?.is_symlink() {
            fs::read_link(descriptor_path(found.as_fd()))?
        } else {
            path.to_owned()
        };
        // A rename requires no write permission for the file.
        rustix::fs::accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS)?;
        may_replace(&target)?;
        Self::in_folder_of(target, Some(&kind))
    }

    /// Writes to a device or FIFO in place.
    fn into_special(path: &Path, is_socket: bool) -> io::Result<Self> {
        check_special(path, is_socket)?;
        let flags = OFlags::NOCTTY.bits().cast_signed();
        OpenOptions::new().write(true).custom_flags(flags).open(path).map(Self::through)
    }

    /// Checks that [`Output::create_over`] may write there, without side effects: a FIFO or device is not
    /// opened, because opening affects the reader of a FIFO and may affect a device.
    ///
    /// # Errors
    /// See [`Output::create_over`], as far as it is visible without opening.
    pub fn check_over(path: &Path, header: &[u8]) -> io::Result<()> {
        let special = path.metadata().ok().filter(|found| !found.is_file() && !found.is_dir());
        match special {
            Some(found) if own_descriptor(path).is_none() => {
                check_special(path, found.file_type().is_socket())
            }
            _ => Self::create_over(path, header).map(drop),
        }
    }

    fn through(file: File) -> Self {
        Self { file: BufWriter::new(file), replaces: None }
    }

    /// Creates a temporary file in the folder of the target, without a name if the file system supports that.
    fn in_folder_of(target: PathBuf, replaced: Option<&Metadata>) -> io::Result<Self> {
        if target.file_name().is_none() {
            return Err(io::Error::new(ErrorKind::InvalidInput, "is not a file name"));
        }
        let folder = folder_of(&target);
        // The default mode of a new file, less the umask. A file that replaces another gets its mode below.
        let mode = if replaced.is_some() { 0o600 } else { 0o666 };
        let (file, temporary) = match unnamed(folder, mode) {
            Some(file) => (file, None),
            None => {
                let (file, name) = named(folder, mode).map_err(|why| in_folder(why, folder))?;
                (file, Some(name))
            }
        };
        if let Some(replaced) = replaced {
            inherit(&file, replaced)?;
        }
        let replaces = Some(Replacement { temporary, target });
        Ok(Self { file: BufWriter::new(file), replaces })
    }

    /// Writes the remaining bytes, syncs the file and puts it in place.
    ///
    /// # Errors
    /// Returns the system's error; an existing file is then unchanged.
    pub fn finish(mut self) -> io::Result<()> {
        self.file.flush()?;
        let Some(Replacement { temporary, target }) = self.replaces else { return Ok(()) };
        let file = self.file.get_ref();
        file.sync_all()?;
        let temporary = match temporary {
            Some(temporary) => temporary,
            None => given_name(file, folder_of(&target))?,
        };
        temporary.persist(&target).map_err(|failed| failed.error)?;
        sync_folder(folder_of(&target))
    }
}

/// Creates a file without a name; `None` if the file system or folder does not support it.
fn unnamed(folder: &Path, mode: u32) -> Option<File> {
    let flags = OFlags::TMPFILE.bits().cast_signed();
    let file = OpenOptions::new().write(true).custom_flags(flags).mode(mode).open(folder).ok()?;
    // The file gets its name through this link.
    fs::symlink_metadata(descriptor_path(file.as_fd())).is_ok().then_some(file)
}

/// Creates a file with a temporary name.
fn named(folder: &Path, mode: u32) -> io::Result<(File, TempPath)> {
    let open = |path: &Path| OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    Ok(with_temporary_name(folder, open)?.into_parts())
}

/// Links a file without a name under a temporary name.
fn given_name(file: &File, folder: &Path) -> io::Result<TempPath> {
    let unnamed = descriptor_path(file.as_fd());
    let link =
        |path: &Path| Ok(rustix::fs::linkat(CWD, &unnamed, CWD, path, AtFlags::SYMLINK_FOLLOW)?);
    Ok(with_temporary_name(folder, link)?.into_temp_path())
}

/// Creates something under an unpredictable name. Errors do not contain the name, which means nothing to the
/// user.
fn with_temporary_name<T>(
    folder: &Path,
    mut make: impl FnMut(&Path) -> io::Result<T>,
) -> io::Result<NamedTempFile<T>> {
    let mut refused = None;
    tempfile::Builder::new()
        .prefix(".tollgate-")
        .suffix(".new")
        .make_in(folder, |path| make(path).inspect_err(|why| refused = why.raw_os_error()))
        .map_err(|why| refused.map_or(why, io::Error::from_raw_os_error))
}

/// Checks that a device or FIFO may be written, without opening it.
fn check_special(path: &Path, is_socket: bool) -> io::Result<()> {
    if is_socket {
        return Err(io::Error::other("is a socket, not a file"));
    }
    Ok(rustix::fs::accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS)?)
}

/// Copies owner, group and permissions from the file that is replaced.
fn inherit(new: &File, replaced: &Metadata) -> io::Result<()> {
    let (user, group) = (replaced.uid(), replaced.gid());
    let metadata = new.metadata()?;
    if (metadata.uid(), metadata.gid()) != (user, group) {
        // Only root may change an owner, so equal values are not set.
        let owner = (metadata.uid() != user).then(|| Uid::from_raw(user));
        let given =
            rustix::fs::fchown(new, owner, (metadata.gid() != group).then(|| Gid::from_raw(group)));
        given.map_err(|why| {
            let why = io::Error::from(why);
            io::Error::other(format!("its owner {user} and group {group} cannot be kept: {why}"))
        })?;
    }
    // The new contents must not run as another user or group.
    new.set_permissions(Permissions::from_mode(replaced.mode() & 0o777))
}

/// Adds the folder to the error of creating a file in it.
fn in_folder(why: io::Error, folder: &Path) -> io::Error {
    match why.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            let text = format!("no file can be created in the folder {}: {why}", folder.display());
            io::Error::new(why.kind(), text)
        }
        _ => why,
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Returns the remedy for a file that cannot be written.
pub fn remedy(why: &io::Error) -> &'static str {
    match why.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "free space or choose another file",
        ErrorKind::FileTooLarge => {
            "raise the limit of file sizes (ulimit -f) or choose another file"
        }
        ErrorKind::NotFound | ErrorKind::NotADirectory => {
            "create its folder first or choose another file"
        }
        ErrorKind::PermissionDenied => "choose a file that you can write",
        _ => "choose another file",
    }
}

/// Makes writes beyond the file size limit (`ulimit -f`) fail with EFBIG in this process and its children. By
/// default the kernel ends the process with SIGXFSZ.
pub fn survive_size_limit() {
    // SAFETY: ignoring a signal runs no handler.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Writes a whole file that the user named; see [`Output::create`].
///
/// # Errors
/// See [`Output::create`] and [`Output::finish`].
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut output = Output::create(path)?;
    output.write_all(bytes)?;
    output.finish()
}

/// Writes a whole file in a results folder or cache; see [`Output::replace`].
///
/// # Errors
/// Returns the system's error; an existing file is then unchanged.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut output = Output::replace(path)?;
    output.write_all(bytes)?;
    output.finish()
}

/// Creates a folder in a results folder or cache unless it exists.
///
/// # Errors
/// Returns the system's error; [`ErrorKind::NotADirectory`] if the name is a link or a file.
pub fn create_folder(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(why) if why.kind() == ErrorKind::AlreadyExists => {
            let kind = fs::symlink_metadata(path)?;
            if kind.is_dir() { Ok(()) } else { Err(ErrorKind::NotADirectory.into()) }
        }
        other => other,
    }
}

/// Opens a regular file for reading. Follows no link in the last component and never blocks.
///
/// # Errors
/// Returns [`ErrorKind::InvalidInput`] for anything but a regular file, else the system's error.
pub fn open(path: &Path) -> io::Result<File> {
    open_with(path, OpenOptions::new().read(true))
}

/// Opens a regular file for reading and appending under the rules of [`open`], and creates it if absent.
///
/// # Errors
/// As [`open`].
pub fn append(path: &Path) -> io::Result<File> {
    open_with(path, OpenOptions::new().read(true).append(true).create(true))
}

/// Opens a regular file that all users share for reading and writing under the rules of [`open`], and creates it if
/// absent.
///
/// # Errors
/// As [`open`].
pub fn open_shared(path: &Path) -> io::Result<File> {
    let existing = || open_with(path, OpenOptions::new().read(true).write(true));
    // In a sticky folder the kernel refuses O_CREAT for a file of another user.
    match existing() {
        Err(why) if why.kind() == ErrorKind::NotFound => {}
        other => return other,
    }
    match OpenOptions::new().read(true).write(true).create_new(true).open(path) {
        Ok(file) => {
            file.set_permissions(Permissions::from_mode(0o666))?;
            Ok(file)
        }
        // Another process was faster.
        Err(why) if why.kind() == ErrorKind::AlreadyExists => existing(),
        Err(why) => Err(why),
    }
}

/// Creates a file that must not exist; a link counts as existing.
///
/// # Errors
/// Returns [`ErrorKind::AlreadyExists`] or the system's error.
pub fn create_new(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

fn open_with(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    // NONBLOCK makes a FIFO open at once, to be refused; it has no effect on a regular file.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let flags = flags.bits().cast_signed();
    let file = options.custom_flags(flags).open(path).map_err(|why| match why.raw_os_error() {
        Some(libc::ELOOP) => irregular("a symbolic link"),
        Some(libc::ENXIO) => irregular("a FIFO or socket"),
        _ => why,
    })?;
    let kind = file.metadata()?.file_type();
    let found = match () {
        () if kind.is_file() => return Ok(file),
        () if kind.is_dir() => "a folder",
        () if kind.is_fifo() => "a FIFO or socket",
        () => "a device",
    };
    Err(irregular(found))
}

fn irregular(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, format!("is {what}, not a regular file"))
}

/// Reads a whole regular file under the rules of [`open`].
///
/// # Errors
/// See [`open`]; [`ErrorKind::FileTooLarge`] above `limit` bytes.
pub fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    read_to_limit(open(path)?, limit)
}

/// Reads a whole input that the user named. Links are followed; a FIFO or `/dev/stdin` is read to its end.
///
/// # Errors
/// Returns the system's error; [`ErrorKind::FileTooLarge`] above `limit` bytes.
pub fn read_input(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    read_to_limit(File::open(path)?, limit)
}

/// Like [`read_input`], for text.
///
/// # Errors
/// See [`read_input`]; [`ErrorKind::InvalidData`] if it is not UTF-8.
pub fn read_input_text(path: &Path, limit: u64) -> io::Result<String> {
    let bytes = read_input(path, limit)?;
    String::from_utf8(bytes)
        .map_err(|_| io::Error::new(ErrorKind::InvalidData, "is not UTF-8 text"))
}

/// Reads to the end of a stream that may be endless.
///
/// # Errors
/// Returns the reader's error; [`ErrorKind::FileTooLarge`] above `limit` bytes.
pub fn read_to_limit(reader: impl Read, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        let why = format!("has more than {limit} bytes");
        return Err(io::Error::new(ErrorKind::FileTooLarge, why));
    }
    Ok(bytes)
}

/// Syncs the names in a folder, so that a new file survives a power failure.
///
/// # Errors
/// Returns the error of `open(2)` or `fsync(2)`.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    match File::open(folder)?.sync_all() {
        // Some file systems cannot sync a folder; the file itself is synced.
        Err(why) if matches!(why.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => {
            Ok(())
        }
        other => other,
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn descriptor_path(file: BorrowedFd<'_>) -> PathBuf {
    use std::os::fd::AsRawFd;
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Returns the descriptor of this process that a path refers to, as `/dev/stdout` does. Writing through a
/// duplicate keeps the position and also reaches sockets, which cannot be opened by name.
fn own_descriptor(path: &Path) -> Option<RawFd> {
    /// The kernel's limit is 40; `/dev/stdout` uses one.
    const MAX_LINKS: usize = 8;
    let this_process = format!("/proc/{}/", std::process::id());
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        let folder = fs::canonicalize(folder_of(&path)).ok()?;
        if folder.ends_with("fd") && folder.starts_with(&this_process) {
            return path.file_name()?.to_str()?.parse().ok();
        }
        path = folder.join(fs::read_link(&path).ok()?);
    }
    None
}

fn duplicate(number: RawFd) -> io::Result<File> {
    if number < 0 {
        return Err(ErrorKind::NotFound.into());
    }
    // SAFETY: the number is only passed to the kernel, which refuses it if it is not open; the borrow ends
    // before this function returns.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    Ok(File::from(borrowed.try_clone_to_owned()?))
}

#[cfg(test)]
mod tests;
