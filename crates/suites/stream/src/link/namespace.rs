//! Network namespaces: those without a name, which end with the last process and descriptor that use them, and named ones.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use machine::SysError;
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

use super::refused;

/// Folder of the namespaces that have a name.
const NAMED: &str = "/run/netns";

/// A network namespace.
#[derive(Debug)]
pub struct Namespace(OwnedFd);

impl Namespace {
    /// Creates a namespace, which contains only a loopback interface.
    ///
    /// # Errors
    /// Returns the error of `unshare(2)`.
    pub fn new() -> Result<Self, SysError> {
        let create = || -> std::io::Result<OwnedFd> {
            // SAFETY: only the network namespace of this thread changes; it shares its descriptors with the others.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
            Ok(File::open("/proc/thread-self/ns/net")?.into())
        };
        in_thread(create).flatten().map(Self).map_err(|why| {
            refused(
                "create a network namespace",
                why,
                "run as root, on a kernel with CONFIG_NET_NS",
            )
        })
    }

    /// Opens the namespace that `ip netns` gave a name.
    ///
    /// # Errors
    /// Returns that there is none.
    pub fn open(name: &str) -> Result<Self, SysError> {
        let found = match Self::is_name(name) {
            true => File::open(Path::new(NAMED).join(name)),
            false => Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, "not a name")),
        };
        found.map(|file| Self(file.into())).map_err(|why| {
            refused(
                format!("find the network namespace {name}"),
                why,
                "name one that 'ip netns' lists",
            )
        })
    }

    /// Returns whether a text can be the name of a namespace.
    pub(crate) fn is_name(text: &str) -> bool {
        !text.is_empty() && text != "." && text != ".." && !text.contains(['/', '\0'])
    }

    /// Runs a function in a thread in this namespace. Sockets that it opens stay there.
    ///
    /// # Errors
    /// Returns the error of `setns(2)`.
    pub fn run<T: Send>(&self, body: impl FnOnce() -> T + Send) -> Result<T, SysError> {
        let enter = || -> std::io::Result<T> {
            move_into_link_name_space(self.as_fd(), Some(LinkNameSpaceType::Network))?;
            Ok(body())
        };
        let entered = in_thread(enter).flatten();
        entered.map_err(|why| refused("enter a network namespace", why, "run as root"))
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Runs a function in a new thread, to which its namespace is confined.
fn in_thread<T: Send>(body: impl FnOnce() -> T + Send) -> std::io::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, body)?;
        thread.join().map_err(|_| std::io::Error::other("a thread panicked"))
    })
}
