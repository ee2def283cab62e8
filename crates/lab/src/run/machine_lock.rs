//! The lock of the machine, which one run at a time holds: two that measure at once would disturb each other.

use std::fs::{File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Event, RunError, RunObserver, RunRequest};
use crate::journal::now;

/// File that all users lock. The kernel releases the lock if the process is killed.
const FILE: &str = "/tmp/tollgate.lock";
/// Environment variable that names another file, e.g. for tests that run in parallel.
const VARIABLE: &str = "TOLLGATE_LOCK";
/// Pause between two attempts.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum length of the description of the holder, in bytes.
const MAX_HOLDER: u64 = 4096;

/// The lock, held until it is dropped.
#[derive(Debug)]
pub(super) struct MachineLock(File);

impl MachineLock {
    /// Takes the lock; if another run has it, waits for it if the request allows that.
    ///
    /// # Errors
    /// Returns [`RunError::Busy`] if another run has it, [`RunError::Interrupted`] if the user interrupts the wait, or
    /// [`RunError::Lock`] if the file cannot be locked.
    pub(super) fn take(
        request: &RunRequest,
        observer: &mut dyn RunObserver,
    ) -> Result<Self, RunError> {
        let path = std::env::var_os(VARIABLE).map_or_else(|| FILE.into(), PathBuf::from);
        let mut is_reported = false;
        loop {
            let attempt = Self::attempt(&path, &request.results);
            let holder =
                match attempt.map_err(|error| RunError::Lock { path: path.clone(), error })? {
                    Ok(lock) => return Ok(lock),
                    Err(holder) => holder,
                };
            if !request.waits {
                return Err(RunError::Busy(holder));
            }
            if !is_reported {
                observer.event(Event::Waiting(&holder));
                is_reported = true;
            }
            if request.interrupted.load(Ordering::Relaxed) {
                return Err(RunError::Interrupted);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Takes the lock for a run with this results folder, or returns the description of its holder.
    fn attempt(path: &Path, results: &Path) -> io::Result<Result<Self, String>> {
        let mut file = machine::file::open_shared(path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return holder(&file).map(Err),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let results = std::path::absolute(results)?;
        let (pid, since, results) = (std::process::id(), now(), results.display());
        file.set_len(0)?;
        write!(file, "pid {pid}, since {since}, results in {results}")?;
        Ok(Ok(Self(file)))
    }
}

impl Drop for MachineLock {
    fn drop(&mut self) {
        // The next holder would replace it too.
        let _ = self.0.set_len(0);
        // A process that another thread has just forked shares the file until it executes another program.
        let _ = self.0.unlock();
    }
}

/// Returns the description of the holder of the lock.
fn holder(file: &File) -> io::Result<String> {
    let text = machine::file::read_to_limit(file, MAX_HOLDER)?;
    let text = String::from_utf8_lossy(&text);
    Ok(if text.trim().is_empty() { "an unknown process".into() } else { text.trim().into() })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn one_run_at_a_time_holds_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let take = || MachineLock::attempt(&path, Path::new("/mine"));
        let first = take().unwrap().unwrap();
        let holder = take().unwrap().unwrap_err();
        let pid = std::process::id();
        assert!(holder.starts_with(&format!("pid {pid}, since 20")), "{holder}");
        assert!(holder.ends_with("Z, results in /mine"), "{holder}");
        drop(first);
        take().unwrap().unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o666);
        // A killed run leaves its description, but no lock.
        fs::write(&path, "pid 1, since long, results in /gone and more").unwrap();
        let second = take().unwrap().unwrap();
        assert!(take().unwrap().unwrap_err().starts_with(&format!("pid {pid}, ")));
        fs::write(&path, "").unwrap();
        assert_eq!(take().unwrap().unwrap_err(), "an unknown process");
        drop(second);
        // Another user may have planted a link.
        fs::remove_file(&path).unwrap();
        symlink("/dev/null", &path).unwrap();
        assert!(take().is_err());
    }
}
