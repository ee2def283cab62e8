//! A listening socket with a name in the file system, which belongs to one process at a time.
//!
//! A killed process leaves its socket behind. It may be removed only if certainly no process listens at it, so all
//! servers first take an exclusive lock on `PATH.lock` and keep it as long as they live. Anything but a socket that
//! refuses connections is left alone.

use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags, fchmod, flock};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};

/// Maximum number of connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// Why a server cannot listen at a path.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// Another server listens there, or has its lock.
    #[error("{}: in use by another NIC or service; stop it, or choose another socket with --nic", .0.display())]
    Taken(PathBuf),
    /// The path names a file that is not a socket.
    #[error("{}: {} exists and is not replaced; choose another socket with --nic", .0.display(), .1)]
    NoSocket(PathBuf, &'static str),
    /// The lock file is not an empty file of this user.
    #[error("{}: not an empty file of this user, so not a lock; choose another socket with --nic", .0.display())]
    NoLock(PathBuf),
    /// A system call failed.
    #[error("{}: cannot listen ({}); choose another socket with --nic", .0.display(), .1)]
    System(PathBuf, io::Error),
}

impl ServerError {
    /// Returns whether the path itself is wrong, rather than temporarily in use.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::NoSocket(..) | Self::NoLock(_))
    }
}

/// The name of a listening socket, and the lock on the name.
#[derive(Debug)]
pub(in crate::nic) struct SocketPath {
    // Declared in this order: the socket is removed before its lock.
    _socket: Removed,
    _lock: Lock,
}

impl SocketPath {
    /// Listens at a path. Only this user may connect.
    ///
    /// # Errors
    /// Returns an error if the path is in use or a system call fails.
    pub(in crate::nic) fn listen(path: &Path) -> Result<(UnixListener, Self), ServerError> {
        let failed = |why: io::Error| ServerError::System(path.to_path_buf(), why);
        let lock = Lock::take(path)?;
        remove_dead(path)?;
        let socket = socket().map_err(|why| failed(why.into()))?;
        // The file gets the mode of the socket when it is bound.
        fchmod(&socket, Mode::RUSR | Mode::WUSR).map_err(|why| failed(why.into()))?;
        let address = SocketAddrUnix::new(path).map_err(|why| failed(why.into()))?;
        bind(&socket, &address).map_err(|why| match why {
            // Created since the check.
            Errno::ADDRINUSE => ServerError::Taken(path.to_path_buf()),
            why => failed(why.into()),
        })?;
        let made = fs::symlink_metadata(path).map_err(failed)?;
        let removed = Removed { path: path.to_path_buf(), inode: inode(&made) };
        listen(&socket, BACKLOG).map_err(|why| failed(why.into()))?;
        rustix::io::ioctl_fionbio(&socket, false).map_err(|why| failed(why.into()))?;
        Ok((UnixListener::from(socket), Self { _socket: removed, _lock: lock }))
    }
}

/// Creates a non-blocking stream socket.
fn socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

/// Removes the socket of a killed process, which refuses connections.
fn remove_dead(path: &Path) -> Result<(), ServerError> {
    let failed = |why: io::Error| ServerError::System(path.to_path_buf(), why);
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(why) => return Err(failed(why)),
    };
    if !found.file_type().is_socket() {
        return Err(ServerError::NoSocket(path.to_path_buf(), kind_of(&found)));
    }
    let address = SocketAddrUnix::new(path).map_err(|why| failed(why.into()))?;
    let answer = socket().and_then(|socket| connect(&socket, &address));
    match answer {
        Err(Errno::CONNREFUSED) => {}
        // A process listens: EAGAIN if its backlog is full, EPROTOTYPE if the socket has another type.
        Ok(()) | Err(Errno::AGAIN | Errno::PROTOTYPE | Errno::ACCESS) => {
            return Err(ServerError::Taken(path.to_path_buf()));
        }
        Err(why) => return Err(failed(why.into())),
    }
    match Removed::now(path, inode(&found)) {
        Ok(true) => Ok(()),
        Ok(false) => Err(ServerError::Taken(path.to_path_buf())),
        Err(why) => Err(failed(why)),
    }
}

fn kind_of(found: &Metadata) -> &'static str {
    let kind = found.file_type();
    match () {
        () if kind.is_file() => "a regular file",
        () if kind.is_symlink() => "a symbolic link",
        () if kind.is_dir() => "a folder",
        () if kind.is_fifo() => "a FIFO",
        () => "a device",
    }
}

/// Device and inode, which identify a file among all that exist at the same time.
type Inode = (u64, u64);

fn inode(of: &Metadata) -> Inode {
    (of.dev(), of.ino())
}

/// A name that is removed when this is dropped, unless it names another file by then.
#[derive(Debug)]
struct Removed {
    path: PathBuf,
    inode: Inode,
}

impl Removed {
    /// Removes a name if it names `file`. Returns whether it did.
    fn now(path: &Path, file: Inode) -> io::Result<bool> {
        let is = inode(&fs::symlink_metadata(path)?) == file;
        if is {
            fs::remove_file(path)?;
        }
        Ok(is)
    }
}

impl Drop for Removed {
    fn drop(&mut self) {
        // A missing or undeletable name is ignored at the end.
        let _ = Self::now(&self.path, self.inode);
    }
}

/// The lock on a path: an empty file next to it, locked as long as this exists.
#[derive(Debug)]
struct Lock {
    // Declared in this order: the name is removed while the lock is held.
    _name: Removed,
    _file: File,
}

impl Lock {
    fn take(path: &Path) -> Result<Self, ServerError> {
        let mut name = OsString::from(path);
        name.push(".lock");
        let name = PathBuf::from(name);
        loop {
            let file = Self::open(&name, path)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Err(ServerError::Taken(path.to_path_buf())),
                Err(why) => return Err(ServerError::System(path.to_path_buf(), why.into())),
            }
            let failed = |why| ServerError::System(name.clone(), why);
            let ours = inode(&file.metadata().map_err(failed)?);
            // The last owner may have removed the name after it was opened here. Then others create a new file, and this
            // lock protects nothing.
            match fs::symlink_metadata(&name) {
                Ok(named) if inode(&named) == ours => {
                    return Ok(Self { _name: Removed { path: name, inode: ours }, _file: file });
                }
                Ok(_) => {}
                Err(why) if why.kind() == io::ErrorKind::NotFound => {}
                Err(why) => return Err(failed(why)),
            }
        }
    }

    /// Opens or creates the file. A file that is not empty, or belongs to another user, is not a lock.
    fn open(name: &Path, path: &Path) -> Result<File, ServerError> {
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let opened = options.custom_flags(flags.bits().cast_signed()).open(name);
        let file = opened.map_err(|why| match Errno::from_io_error(&why) {
            Some(Errno::LOOP | Errno::NXIO | Errno::ISDIR) => ServerError::NoLock(name.into()),
            _ => ServerError::System(path.to_path_buf(), why),
        })?;
        let found = file.metadata().map_err(|why| ServerError::System(path.to_path_buf(), why))?;
        let user = rustix::process::geteuid().as_raw();
        if found.is_file() && found.len() == 0 && found.uid() == user {
            return Ok(file);
        }
        Err(ServerError::NoLock(name.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::{UnixDatagram, UnixStream};

    fn refused(path: &Path) -> String {
        let why = SocketPath::listen(path).map(|_| ()).unwrap_err().to_string();
        assert_eq!(why.lines().count(), 1, "{why}");
        assert!(why.contains("--nic"), "{why}");
        why
    }

    fn names(folder: &Path) -> Vec<String> {
        let names = fs::read_dir(folder).unwrap().map(|it| it.unwrap().file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn only_a_socket_that_refuses_connections_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nic");
        fs::write(&path, "kept").unwrap();
        assert!(refused(&path).contains("a regular file"));
        assert_eq!(fs::read(&path).unwrap(), b"kept");
        assert_eq!(names(folder.path()), ["nic"], "the lock is removed too");
        fs::remove_file(&path).unwrap();

        std::os::unix::fs::symlink("elsewhere", &path).unwrap();
        assert!(refused(&path).contains("a symbolic link"));
        assert_eq!(fs::read_link(&path).unwrap(), Path::new("elsewhere"));
        fs::remove_file(&path).unwrap();

        fs::create_dir(&path).unwrap();
        assert!(refused(&path).contains("a folder"));
        fs::remove_dir(&path).unwrap();

        let other = UnixDatagram::bind(&path).unwrap();
        assert!(refused(&path).contains("another NIC or service"));
        drop(other);
        fs::remove_file(&path).unwrap();

        // As left by a killed process.
        drop(UnixListener::bind(&path).unwrap());
        let (_listener, socket) = SocketPath::listen(&path).unwrap();
        assert_eq!(fs::symlink_metadata(&path).unwrap().mode() & 0o777, 0o600);
        drop(socket);
        assert_eq!(names(folder.path()), Vec::<String>::new());
    }

    #[test]
    fn a_service_whose_backlog_is_full_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nic");
        let service = socket().unwrap();
        bind(&service, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        listen(&service, 0).unwrap();
        let mut waiting = Vec::new();
        loop {
            let one = socket().unwrap();
            match connect(&one, &SocketAddrUnix::new(&path).unwrap()) {
                Ok(()) => waiting.push(one),
                Err(Errno::AGAIN) => break,
                Err(why) => panic!("{why}"),
            }
        }
        assert!(refused(&path).contains("another NIC or service"));
        assert!(fs::symlink_metadata(&path).unwrap().file_type().is_socket());
        rustix::net::accept(&service).unwrap();
        UnixStream::connect(&path).unwrap();
    }

    #[test]
    fn a_socket_that_took_the_name_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nic");
        let (listener, socket) = SocketPath::listen(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let other = UnixListener::bind(&path).unwrap();
        drop((listener, socket));
        UnixStream::connect(&path).unwrap();
        drop(other);
    }

    #[test]
    fn a_file_that_is_not_a_lock_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let (path, lock) = (folder.path().join("nic"), folder.path().join("nic.lock"));
        fs::write(&lock, "foreign").unwrap();
        assert!(refused(&path).contains("nic.lock"));
        assert_eq!(fs::read(&lock).unwrap(), b"foreign");
        fs::remove_file(&lock).unwrap();
        std::os::unix::fs::symlink(&path, &lock).unwrap();
        assert!(refused(&path).contains("nic.lock"));
        assert!(!path.exists());
        fs::remove_file(&lock).unwrap();
        // The lock of a killed server is taken.
        fs::write(&lock, "").unwrap();
        drop(SocketPath::listen(&path).unwrap());
        assert_eq!(names(folder.path()), Vec::<String>::new());
    }

    #[test]
    fn of_many_concurrent_servers_one_gets_the_name() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nic");
        // A dead socket that each of them may remove.
        drop(UnixListener::bind(&path).unwrap());
        let (listening, served) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        match SocketPath::listen(&path) {
                            Ok(mine) => {
                                assert_eq!(listening.fetch_add(1, Ordering::SeqCst), 0);
                                UnixStream::connect(&path).expect("the socket is still there");
                                listening.fetch_sub(1, Ordering::SeqCst);
                                served.fetch_add(1, Ordering::SeqCst);
                                drop(mine);
                            }
                            Err(ServerError::Taken(_)) => {}
                            Err(why) => panic!("{why}"),
                        }
                    }
                });
            }
        });
        assert!(served.into_inner() > 0);
        assert_eq!(names(folder.path()), Vec::<String>::new());
    }
}
