//! A worker on another host than the lab: what it needs before its greeting, and how it notices that the lab is gone.

use std::io::Write;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use machine::topology::allowed_cpus;

use super::Ended;
use crate::host::{MAX_LOCK_WAIT, RemoteOptions};
use crate::message::{Answer, send};
use crate::run::{LockRequest, MachineLock, NoObserver, RunError, has_purpose};
use crate::terminal;

/// Pause between two attempts at the lock of the machine.
const LOCK_INTERVAL: Duration = Duration::from_millis(200);
/// How often the silence of the lab is checked.
const SILENCE_INTERVAL: Duration = Duration::from_millis(500);

/// Parses the options of a worker on another host.
pub(super) fn parse(json: &str) -> Result<RemoteOptions, Ended> {
    serde_json::from_str(json).map_err(|why| refused(format!("--remote: {why}")))
}

/// Sets the nice value and the CPUs of this thread, which its threads and processes inherit.
pub(super) fn set_scheduling(options: &RemoteOptions) -> Result<(), Ended> {
    let failed = |why: machine::SysError| refused(why.to_string());
    if machine::priority::current().map_err(failed)? != options.nice {
        std::mem::forget(machine::priority::raise(options.nice).map_err(failed)?);
    }
    if options.cpus.is_empty() {
        return Ok(());
    }
    let allowed = allowed_cpus();
    if let Some(absent) = options.cpus.iter().find(|cpu| !allowed.contains(cpu)) {
        let why =
            format!("'cpus': CPU {absent} is not online here, or not allowed; correct the list");
        return Err(refused(why));
    }
    std::mem::forget(machine::pin::spread(&options.cpus)?);
    Ok(())
}

/// Takes the lock of the machine, if the options say so, and restores the settings that a killed run had changed.
pub(super) fn prepare(options: &RemoteOptions) -> Result<Option<MachineLock>, Ended> {
    let version = env!("CARGO_PKG_VERSION");
    log(&format!("tollgate {version} started as process {}", std::process::id()));
    if !options.takes_lock {
        return Ok(None);
    }
    let Some(lock) = take_lock(options)? else { return Ok(None) };
    // Another run may use them until the lock is taken.
    let left = machine::setting::restore_left();
    left.restored.iter().for_each(|path| log(&format!("{}: restored", path.display())));
    if let Some(why) = left.failed.first() {
        return Err(refused(why.to_string()));
    }
    Ok(Some(lock))
}

/// Takes the lock of the machine; `None` if another worker of the run has it, because two hosts of the run are this machine. An
/// earlier worker of the same run may still be ending; other runs are waited for only if the user wants that.
fn take_lock(options: &RemoteOptions) -> Result<Option<MachineLock>, Ended> {
    let (start, mut is_reported) = (Instant::now(), false);
    let interrupted = AtomicBool::new(false);
    loop {
        let request = LockRequest {
            purpose: &options.purpose,
            is_shared: false,
            waits: false,
            interrupted: &interrupted,
        };
        let holder = match MachineLock::take(request, &mut NoObserver) {
            Err(RunError::Busy(holder)) => holder,
            taken => return taken.map(Some).map_err(|why| refused(why.to_string())),
        };
        if options.others.iter().any(|other| has_purpose(&holder, other)) {
            log(&format!("another worker of the run has the lock of this machine: {holder}"));
            return Ok(None);
        }
        let is_same_run = has_purpose(&holder, &options.purpose);
        let is_ending = is_same_run && start.elapsed() < MAX_LOCK_WAIT;
        if !options.waits && !is_ending {
            return Err(refused(RunError::Busy(holder).to_string()));
        }
        if !is_reported {
            is_reported = true;
            log(&format!("waiting for {holder}"));
            send(&mut std::io::stdout(), &Answer::Waiting { holder })?;
        }
        std::thread::sleep(LOCK_INTERVAL);
    }
}

/// Returns when the lab has been silent for longer than `max`.
pub(super) fn wait_for_silence(last: &Mutex<Instant>, max: Duration) {
    let silence = || last.lock().unwrap_or_else(PoisonError::into_inner).elapsed();
    while silence() <= max {
        std::thread::sleep(SILENCE_INTERVAL.min(max));
    }
    log("the lab is silent; the worker ends");
}

/// Writes a line to the log of the host. Errors are ignored: the connection may be gone.
pub(super) fn log(line: &str) {
    let _ = writeln!(terminal::stderr(), "{line}");
}

fn refused(why: String) -> Ended {
    Ended::Failed(std::io::Error::other(why))
}
