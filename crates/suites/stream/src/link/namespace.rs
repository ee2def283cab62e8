//! Network namespaces without a name, which end with the last process and descriptor that use them.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use machine::SysError;
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

use super::refused;

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
