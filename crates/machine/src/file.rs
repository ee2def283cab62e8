//! Files that a user names, and files in folders that another user may have filled.
//!
//! [`Output`] writes what a user names: a regular or absent file is replaced as a whole, anything else
//! (a device, a FIFO, `/dev/stdout`) is written through and stays what it is. [`open`], [`append`] and
//! [`create_new`] are for files in a results folder or a cache: they follow no link and take regular
//! files only, so that a planted link, FIFO or device neither redirects, blocks nor exhausts the reader.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, BufWriter, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, Gid, OFlags, Uid};
use tempfile::{NamedTempFile, TempPath};

/// The largest file that is read into memory as a whole, if its format sets no smaller limit.
pub const MAX_WHOLE_BYTES: u64 = 64 << 20;

/// A file under its final name or a temporary one, until [`Output::finish`].
#[derive(Debug)]
pub struct Output {
    file: BufWriter<File>,
    // Declared after the file: a temporary file is closed before it is removed.
    replaces: Option<Replacement>,
}

/// The place that a file takes at the end.
#[derive(Debug)]
struct Replacement {
    /// The file's name until then, removed when dropped. `None` if it has no name: then nothing is left of it
    /// even if this process is killed.
    temporary: Option<TempPath>,
    target: PathBuf,
}

impl Output {
    /// Opens what a user named for writing.
    ///
    /// An absent or regular file is written next to its place and replaces it in [`Output::finish`],
    /// with its owner, group and permissions, but not setuid, setgid or sticky. A file that this user may not
    /// write, or whose owner or group cannot be kept, is refused. A symbolic link stays: the regular file that it names is replaced; a link
    /// that names nothing is refused. A device, a FIFO or one of this process's own descriptors
    /// (`/dev/stdout`, `/proc/self/fd/3`) is written through. Opening a FIFO waits for its reader.
    ///
    /// # Errors
    /// What the system refused, or why the path cannot be written, without the path.
    pub fn create(path: &Path) -> io::Result<Self> {
        Self::create_checked(path, |_| Ok(()))
    }

    /// As [`Output::create`], but replaces an existing regular file only if it is empty or starts with
    /// `header`, so that no foreign file is lost to a default name.
    ///
    /// # Errors
    /// As [`Output::create`]; [`ErrorKind::AlreadyExists`] if the file starts with something else.
    pub fn create_over(path: &Path, header: &[u8]) -> io::Result<Self> {
        Self::create_checked(path, |existing| {
            let mut start = Vec::new();
            open(existing)?.take(header.len() as u64).read_to_end(&mut start)?;
            if start.is_empty() || start == header {
                return Ok(());
            }
            Err(io::Error::new(ErrorKind::AlreadyExists, "holds something else, which is kept"))
        })
    }

    /// Writes a file of a results folder or cache: it takes the place of whatever has its name, so that a
    /// planted link, FIFO or device neither redirects nor blocks the writer.
    ///
    /// # Errors
    /// What the system refused, without the path.
    pub fn replace(path: &Path) -> io::Result<Self> {
        Self::beside(path.to_owned(), None)
    }

    fn create_checked(
        path: &Path,
        may_replace: impl FnOnce(&Path) -> io::Result<()>,
    ) -> io::Result<Self> {
        if let Some(number) = own_descriptor(path) {
            return Ok(Self::through(duplicate(number)?));
        }
        // Follows links as the kernel allows it: a link that another user planted in a shared sticky
        // folder is refused here, which reading the links ourselves would miss.
        let found = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, 0.into());
        let found = match found {
            Ok(found) => File::from(found),
            Err(rustix::io::Errno::NOENT) if fs::symlink_metadata(path).is_ok() => {
                return Err(io::Error::other("is a link to nothing"));
            }
            Err(rustix::io::Errno::NOENT) => return Self::beside(path.to_owned(), None),
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
        // A rename needs no right to write the file.
        rustix::fs::accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS)?;
        may_replace(&target)?;
        Self::beside(target, Some(&kind))
    }

    /// A device or FIFO: whoever reads it sees the bytes, and it stays what it is.
    fn into_special(path: &Path, is_socket: bool) -> io::Result<Self> {
        check_special(path, is_socket)?;
        let flags = OFlags::NOCTTY.bits().cast_signed();
        OpenOptions::new().write(true).custom_flags(flags).open(path).map(Self::through)
    }

    /// Checks that [`Output::create_over`] may write there, and leaves everything as it is: a FIFO or device is not
    /// opened, because opening a FIFO already gives its reader an end, and a device may act on it.
    ///
    /// # Errors
    /// As [`Output::create_over`], as far as it shows without opening.
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

    /// A temporary file in the folder of the target, without a name if the file system can make such a file.
    fn beside(target: PathBuf, replaced: Option<&Metadata>) -> io::Result<Self> {
        if target.file_name().is_none() {
            return Err(io::Error::new(ErrorKind::InvalidInput, "is no name of a file"));
        }
        let folder = folder_of(&target);
        // As the system does for a new file: what the umask leaves of this. One that replaces another gets its
        // mode below.
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

    /// Writes the remaining bytes and puts the file in its place, on disk.
    ///
    /// # Errors
    /// What the system refused; a regular file then stays as it was.
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

/// A new file without a name; `None` if the file system cannot make one, or the folder takes no file.
fn unnamed(folder: &Path, mode: u32) -> Option<File> {
    let flags = OFlags::TMPFILE.bits().cast_signed();
    let file = OpenOptions::new().write(true).custom_flags(flags).mode(mode).open(folder).ok()?;
    // The file gets its name by this link.
    fs::symlink_metadata(descriptor_path(file.as_fd())).is_ok().then_some(file)
}

/// A new file with a temporary name.
fn named(folder: &Path, mode: u32) -> io::Result<(File, TempPath)> {
    let open = |path: &Path| OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    Ok(with_temporary_name(folder, open)?.into_parts())
}

/// Gives a file without a name a temporary one.
fn given_name(file: &File, folder: &Path) -> io::Result<TempPath> {
    let own = descriptor_path(file.as_fd());
    let link = |path: &Path| Ok(rustix::fs::linkat(CWD, &own, CWD, path, AtFlags::SYMLINK_FOLLOW)?);
    Ok(with_temporary_name(folder, link)?.into_temp_path())
}

/// Makes something with an unpredictable name. An error does not tell the name, which says nothing to the user.
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
        return Err(io::Error::other("is a socket, which is no file to write"));
    }
    Ok(rustix::fs::accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS)?)
}

/// Gives a new file the owner, group and permissions of the one that it replaces.
fn inherit(new: &File, replaced: &Metadata) -> io::Result<()> {
    let (user, group) = (replaced.uid(), replaced.gid());
    let own = new.metadata()?;
    if (own.uid(), own.gid()) != (user, group) {
        // What is already right is left alone: only root may change an owner.
        let owner = (own.uid() != user).then(|| Uid::from_raw(user));
        let given =
            rustix::fs::fchown(new, owner, (own.gid() != group).then(|| Gid::from_raw(group)));
        given.map_err(|why| {
            let why = io::Error::from(why);
            io::Error::other(format!("its owner {user} and group {group} cannot be kept: {why}"))
        })?;
    }
    // What is written now must not run as another user or group.
    new.set_permissions(Permissions::from_mode(replaced.mode() & 0o777))
}

/// Names the folder that refuses a new file.
fn in_folder(why: io::Error, folder: &Path) -> io::Error {
    match why.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            let text = format!("no file can be made in the folder {}: {why}", folder.display());
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

/// What helps if a file cannot be written: half a line.
pub fn remedy(why: &io::Error) -> &'static str {
    match why.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "free space or choose another file",
        ErrorKind::FileTooLarge => {
            "raise the limit of file sizes (ulimit -f) or choose another file"
        }
        ErrorKind::NotFound | ErrorKind::NotADirectory => {
            "make its folder first or choose another file"
        }
        ErrorKind::PermissionDenied => "choose a file that you may write",
        _ => "choose another file",
    }
}

/// Has writes beyond the limit of file sizes (`ulimit -f`) fail with EFBIG in this process and those that it
/// starts: by default the kernel ends the process by SIGXFSZ.
pub fn survive_size_limit() {
    // SAFETY: ignoring a signal runs no code of ours.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Writes what a user named as a whole; see [`Output::create`].
///
/// # Errors
/// As [`Output::create`] and [`Output::finish`].
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut output = Output::create(path)?;
    output.write_all(bytes)?;
    output.finish()
}

/// Writes a file of a results folder or cache as a whole; see [`Output::replace`].
///
/// # Errors
/// What the system refused; what was there then stays.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut output = Output::replace(path)?;
    output.write_all(bytes)?;
    output.finish()
}

/// Makes a folder inside a results folder or cache, unless it is there.
///
/// # Errors
/// What the system refused; [`ErrorKind::NotADirectory`] if the name is a link or a file.
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
/// [`ErrorKind::InvalidInput`] for anything but a regular file, else what the system refused.
pub fn open(path: &Path) -> io::Result<File> {
    open_with(path, OpenOptions::new().read(true))
}

/// Opens a regular file for reading and appending, and makes it if it is absent, under the rules of
/// [`open`].
///
/// # Errors
/// As [`open`].
pub fn append(path: &Path) -> io::Result<File> {
    open_with(path, OpenOptions::new().read(true).append(true).create(true))
}

/// Makes a file that must be absent; a link counts as present.
///
/// # Errors
/// [`ErrorKind::AlreadyExists`], or what the system refused.
pub fn create_new(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

fn open_with(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    // NONBLOCK lets a FIFO open at once, to be refused; on a regular file it has no effect.
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

/// Reads a regular file as a whole, under the rules of [`open`].
///
/// # Errors
/// As [`open`]; [`ErrorKind::FileTooLarge`] above `limit` bytes.
pub fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    read_to_limit(open(path)?, limit)
}

/// Reads a whole input that a user named: links are followed and a FIFO or `/dev/stdin` is read to its
/// end.
///
/// # Errors
/// What the system refused; [`ErrorKind::FileTooLarge`] above `limit` bytes.
pub fn read_input(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    read_to_limit(File::open(path)?, limit)
}

/// As [`read_input`], for text.
///
/// # Errors
/// As [`read_input`]; [`ErrorKind::InvalidData`] if it is not UTF-8.
pub fn read_input_text(path: &Path, limit: u64) -> io::Result<String> {
    let bytes = read_input(path, limit)?;
    String::from_utf8(bytes)
        .map_err(|_| io::Error::new(ErrorKind::InvalidData, "is not UTF-8 text"))
}

/// Reads to the end of something that may have no end.
///
/// # Errors
/// As the reader; [`ErrorKind::FileTooLarge`] above `limit` bytes.
pub fn read_to_limit(reader: impl Read, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        let why = format!("holds more than {limit} bytes");
        return Err(io::Error::new(ErrorKind::FileTooLarge, why));
    }
    Ok(bytes)
}

/// Puts the names in a folder on disk, so that a new file survives a loss of power.
///
/// # Errors
/// What the system refused.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    match File::open(folder)?.sync_all() {
        // Some file systems cannot sync a folder; the file itself is on disk.
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

/// The number of the descriptor of this process that a path means, as `/dev/stdout` does. Writing
/// through a duplicate keeps the position and also reaches sockets, which cannot be opened by name.
fn own_descriptor(path: &Path) -> Option<RawFd> {
    /// The kernel's own limit is 40; `/dev/stdout` takes one.
    const MAX_LINKS: usize = 8;
    let own = format!("/proc/{}/", std::process::id());
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        let folder = fs::canonicalize(folder_of(&path)).ok()?;
        if folder.ends_with("fd") && folder.starts_with(&own) {
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
    // SAFETY: the number is only handed to the kernel, which refuses it if nothing is open under it;
    // the borrow ends before this function does.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    Ok(File::from(borrowed.try_clone_to_owned()?))
}

#[cfg(test)]
mod tests;
