//! The lock of the machine, which one run at a time has: two that measure at once would disturb each other.

use std::fs::{File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::{Event, RunError, RunObserver};
use crate::journal::now;

/// File that all users lock. The kernel releases the lock if the process is killed.
const FILE: &str = "/tmp/tollgate.lock";
/// Environment variable that names another file, e.g. for tests that run in parallel.
const VARIABLE: &str = "TOLLGATE_LOCK";
/// Pause between two attempts.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Attempts to share the lock with a holder of the same purpose that is taking it: it describes itself under an exclusive
/// lock, and the kernel releases that lock for an instant while it becomes a shared one.
const SHARED_ATTEMPTS: u32 = 20;
/// Pause between two of them.
const SHARED_INTERVAL: Duration = Duration::from_millis(5);
/// Maximum length of the description of the holder, in bytes.
const MAX_HOLDER: u64 = 4096;

/// Description of a holder that has not described itself.
const UNKNOWN_HOLDER: &str = "an unknown process";

/// The lock of the machine, held until it is dropped.
#[derive(Debug)]
pub struct MachineLock(File);

/// Who takes the lock, and how.
#[derive(Debug, Clone, Copy)]
pub struct LockRequest<'a> {
    /// What the holder does, for the others, e.g. `results in /home/me/results`.
    pub purpose: &'a str,
    /// Whether other processes with this purpose that set this too may have the lock at the same time: the hosts of one
    /// guest.
    pub is_shared: bool,
    /// Whether to wait while another process has it.
    pub waits: bool,
    /// Set by Ctrl-C: ends the wait.
    pub interrupted: &'a AtomicBool,
}

/// Returns the purpose of a run with this results folder.
///
/// # Errors
/// Returns [`RunError::Start`] if the current folder no longer exists.
pub fn purpose_of_run(results: &Path) -> Result<String, RunError> {
    let results = std::path::absolute(results).map_err(|why| RunError::Start(why.to_string()))?;
    Ok(format!("results in {}", results.display()))
}

impl MachineLock {
    /// Takes the lock; if another process has it, waits for it if the request allows that.
    ///
    /// # Errors
    /// Returns [`RunError::Busy`] if another run has it, [`RunError::Interrupted`] if the user interrupts the wait, or
    /// [`RunError::Lock`] if the file cannot be locked.
    pub fn take(request: LockRequest, observer: &mut dyn RunObserver) -> Result<Self, RunError> {
        let path = std::env::var_os(VARIABLE).map_or_else(|| FILE.into(), PathBuf::from);
        let mut is_reported = false;
        loop {
            let attempt = Self::attempt(&path, request.purpose, request.is_shared);
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

    /// Takes the lock for this purpose, or returns the description of its holder.
    fn attempt(path: &Path, purpose: &str, is_shared: bool) -> io::Result<Result<Self, String>> {
        let may_be_shared =
            |holder: &str| is_shared && (holder == UNKNOWN_HOLDER || has_purpose(holder, purpose));
        for _ in 1..SHARED_ATTEMPTS {
            match Self::attempt_once(path, purpose, is_shared)? {
                Err(holder) if may_be_shared(&holder) => std::thread::sleep(SHARED_INTERVAL),
                result => return Ok(result),
            }
        }
        Self::attempt_once(path, purpose, is_shared)
    }

    fn attempt_once(
        path: &Path,
        purpose: &str,
        is_shared: bool,
    ) -> io::Result<Result<Self, String>> {
        let mut file = machine::file::open_shared(path)?;
        if is_locked(file.try_lock())? {
            let (pid, since) = (std::process::id(), now());
            file.set_len(0)?;
            // In one write, so that no other process reads a part.
            file.write_all(format!("pid {pid}, since {since}, {purpose}").as_bytes())?;
            // Others share the lock from now on. If one of them took it at this moment, it is busy.
            if !is_shared || is_locked(file.try_lock_shared())? {
                return Ok(Ok(Self(file)));
            }
        } else if is_shared && is_locked(file.try_lock_shared())? {
            // The first of those that share it described their purpose.
            let holder = holder(&file)?;
            if has_purpose(&holder, purpose) {
                return Ok(Ok(Self(file)));
            }
            return Ok(Err(holder));
        }
        holder(&file).map(Err)
    }
}

/// Returns whether the description of a holder states this purpose.
pub(crate) fn has_purpose(holder: &str, purpose: &str) -> bool {
    holder.ends_with(&format!("Z, {purpose}"))
}

/// Returns whether the file is locked, `false` if another process has it.
fn is_locked(result: Result<(), TryLockError>) -> io::Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

impl Drop for MachineLock {
    fn drop(&mut self) {
        // Others that share it need its description. The next holder would replace it too.
        if self.0.try_lock().is_ok() {
            let _ = self.0.set_len(0);
        }
        // A process that another thread has just forked shares the file until it executes another program.
        let _ = self.0.unlock();
    }
}

/// Returns the description of the holder of the lock.
fn holder(file: &File) -> io::Result<String> {
    let text = machine::file::read_to_limit(file, MAX_HOLDER)?;
    let text = String::from_utf8_lossy(&text);
    Ok(if text.trim().is_empty() { UNKNOWN_HOLDER.into() } else { text.trim().into() })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn hosts_that_start_at_the_same_moment_share_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let barrier = Barrier::new(2);
        let share = || {
            barrier.wait();
            let lock = MachineLock::attempt(&path, "one of two hosts", true).unwrap();
            barrier.wait();
            lock.map(drop)
        };
        for _ in 0..200 {
            let results = std::thread::scope(|scope| {
                let other = scope.spawn(share);
                [share(), other.join().unwrap()]
            });
            assert_eq!(results, [Ok(()), Ok(())]);
        }
    }

    #[test]
    fn one_run_at_a_time_holds_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let take = || MachineLock::attempt(&path, "results in /mine", false);
        let share = || MachineLock::attempt(&path, "one of two hosts", true);
        let first = take().unwrap().unwrap();
        let holder = take().unwrap().unwrap_err();
        let pid = std::process::id();
        assert!(holder.starts_with(&format!("pid {pid}, since 20")), "{holder}");
        assert!(holder.ends_with("Z, results in /mine"), "{holder}");
        assert!(share().unwrap().is_err());
        drop(first);
        let [first_host, second_host] = [share().unwrap().unwrap(), share().unwrap().unwrap()];
        let of_another = || MachineLock::attempt(&path, "another one of two hosts", true);
        assert!(of_another().unwrap().unwrap_err().ends_with("Z, one of two hosts"));
        // The other host keeps the lock and its description.
        drop(first_host);
        assert!(take().unwrap().unwrap_err().ends_with("one of two hosts"));
        assert!(of_another().unwrap().is_err());
        drop(second_host);
        drop(of_another().unwrap().unwrap());
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
