//! Connections to NICs, each shared by all devices of the process: the NIC counts a process as one program.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use stream::nic::InterfaceConfig;
use stream::nic::remote::{ConnectError, Connection};

use crate::error::{Code, Failure};

/// A NIC to which the process is connected.
pub(crate) struct Nic {
    path: PathBuf,
    config: InterfaceConfig,
    connection: Arc<Connection>,
}

impl Nic {
    /// Connects to a NIC, or returns the connection that other devices use.
    ///
    /// # Errors
    /// Returns why there is no such NIC.
    pub(crate) fn connect(path: &Path, config: InterfaceConfig) -> Result<Arc<Self>, Failure> {
        let absolute = std::path::absolute(path)
            .map_err(|why| Failure::new(Code::Invalid, format!("{}: {why}", path.display())))?;
        let mut all = all();
        all.retain(|nic| nic.strong_count() > 0);
        let existing = all.iter().filter_map(Weak::upgrade).find(|nic| {
            nic.path == absolute && nic.config == config && !nic.connection.is_closed()
        });
        if let Some(nic) = existing {
            return Ok(nic);
        }
        let connection = without_signals(|| Connection::open(path, config)).map_err(failure)?;
        let nic = Arc::new(Self { path: absolute, config, connection });
        all.push(Arc::downgrade(&nic));
        Ok(nic)
    }

    /// Returns the connection.
    pub(crate) fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    /// Ends a device's use of the connection. The last device disconnects, so that the NIC frees all that the process
    /// has at once, instead of each pipe on its own.
    pub(crate) fn leave(self: Arc<Self>) {
        // No other device can join until the connection is closed.
        let _all = all();
        if Arc::strong_count(&self) == 1 {
            self.connection.close();
        }
        // Before the next device counts.
        drop(self);
    }
}

fn all() -> MutexGuard<'static, Vec<Weak<Nic>>> {
    static ALL: Mutex<Vec<Weak<Nic>>> = Mutex::new(Vec::new());
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

fn failure(error: ConnectError) -> Failure {
    match error {
        ConnectError::NoServer(path, why) => {
            let path = path.display();
            let why = format!(
                "no NIC at {path} ({why}); start one with tollgate stream generate PCAP RATE --nic {path}, or \
                 use the path of its socket"
            );
            Failure::new(Code::NoNic, why)
        }
        ConnectError::Refused(..) => Failure::new(Code::Refused, error.to_string()),
    }
}

/// Calls `body` with all signals blocked. The threads that it starts keep them blocked, so that the program's handlers
/// run on its own threads.
fn without_signals<T>(body: impl FnOnce() -> T) -> T {
    // SAFETY: all bit patterns of a signal set are valid, and the functions write only to the given sets.
    let mut before: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut set);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const set, &raw mut before);
    }
    let result = body();
    // SAFETY: the set is the thread's previous one.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    result
}
