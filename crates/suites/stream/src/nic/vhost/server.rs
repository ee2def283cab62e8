//! The socket at which drivers connect, one at a time.

use std::io;
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use vhost::vhost_user::BackendReqHandler;

use super::super::remote::{ServerError, SocketPath};
use super::backend::Backend;
use super::requests::VhostControl;

/// Wait after a connection that could not be accepted, usually for lack of a file descriptor.
const RETRY: Duration = Duration::from_millis(20);

/// A server that connects drivers to a NIC until it is dropped: one at a time, the next when the previous has gone.
pub struct VhostServer {
    shared: Arc<Shared>,
    listener: UnixListener,
    thread: Option<JoinHandle<()>>,
    // Dropped last, when no driver is served any more.
    _path: SocketPath,
}

#[derive(Default)]
struct Shared {
    closed: AtomicBool,
    /// The connected driver's socket.
    driver: Mutex<Option<UnixStream>>,
}

impl Shared {
    fn driver(&self) -> MutexGuard<'_, Option<UnixStream>> {
        self.driver.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl VhostServer {
    /// Listens at a path for drivers of a device with `queues` pairs of rings. `control` is that of its
    /// [engine](super::VirtioNet).
    ///
    /// # Errors
    /// Returns an error if the path is in use or cannot be listened at.
    pub fn open(path: &Path, queues: u32, control: VhostControl) -> Result<Self, ServerError> {
        let failed = |why| ServerError::System(path.to_path_buf(), why);
        let (listener, socket_path) = SocketPath::listen(path)?;
        let shared = Arc::new(Shared::default());
        let (accepting, state) = (listener.try_clone().map_err(failed)?, Arc::clone(&shared));
        let thread = std::thread::Builder::new()
            .name("vhost-user".into())
            .spawn(move || accept(&accepting, queues, &control, &state))
            .map_err(failed)?;
        Ok(Self { shared, listener, thread: Some(thread), _path: socket_path })
    }
}

impl Drop for VhostServer {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Release);
        // SAFETY: the descriptor is the listener's; this wakes the accepting thread.
        unsafe { libc::shutdown(self.listener.as_raw_fd(), libc::SHUT_RDWR) };
        if let Some(driver) = &*self.shared.driver() {
            let _ = driver.shutdown(Shutdown::Both);
        }
        if let Some(thread) = self.thread.take() {
            // A panic has been printed.
            let _ = thread.join();
        }
    }
}

fn accept(listener: &UnixListener, queues: u32, control: &VhostControl, shared: &Shared) {
    loop {
        let accepted = listener.accept();
        if shared.closed.load(Ordering::Acquire) {
            return;
        }
        let served = accepted.and_then(|(socket, _)| serve(socket, queues, control, shared));
        if served.is_err() {
            std::thread::sleep(RETRY);
        }
    }
}

/// Serves a driver until it disconnects or breaks the protocol. Its rings are stopped, and its memory unmapped, when this
/// returns.
fn serve(
    socket: UnixStream,
    queues: u32,
    control: &VhostControl,
    shared: &Shared,
) -> io::Result<()> {
    *shared.driver() = Some(socket.try_clone()?);
    let backend = Arc::new(Mutex::new(Backend::new(queues, control.clone())));
    let mut handler = BackendReqHandler::from_stream(socket, Arc::clone(&backend));
    let is_lost = || backend.lock().unwrap_or_else(PoisonError::into_inner).is_lost();
    loop {
        // The server may have been dropped before it saw this driver.
        let is_closed = shared.closed.load(Ordering::Acquire);
        if is_closed || handler.handle_request().is_err() || is_lost() {
            break;
        }
    }
    *shared.driver() = None;
    Ok(())
}
