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
    restore_settings()?;
    Ok(Some(lock))
}

/// Restores the settings that an earlier holder of the lock left changed. Another run may use them until the lock is taken.
fn restore_settings() -> Result<(), Ended> {
    let left = machine::setting::restore_left();
    left.restored.iter().for_each(|path| log(&format!("{}: restored", path.display())));
    match left.failed.first() {
        Some(why) => Err(refused(why.to_string())),
        None => Ok(()),
    }
}

/// Takes the lock of the machine; `None` if another worker of the run has it, because two hosts of the run are this machine. An
/// earlier worker of the same run may still be ending; other runs are waited for only if the user wants that.
fn take_lock(options: &RemoteOptions) -> Result<Option<MachineLock>, Ended> {
    let (start, mut is_reported) = (Instant::now(), false);
    loop {
        let holder = match attempt(options)? {
            Ok(lock) => return Ok(Some(lock)),
            Err(holder) => holder,
        };
        let relation = Relation::of(&holder, options);
        if relation == Relation::SameRun {
            log(&format!("another worker of the run has the lock of this machine: {holder}"));
            return Ok(None);
        }
        let is_ending = relation == Relation::Earlier && start.elapsed() < MAX_LOCK_WAIT;
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

/// Takes the lock of the machine before an order, if the worker of the run that had it has ended. Does not wait for another
/// run: the lab starts a worker that does.
pub(super) fn keep_lock(
    options: &RemoteOptions,
    lock: &mut Option<MachineLock>,
) -> Result<(), Ended> {
    if lock.is_some() {
        return Ok(());
    }
    match attempt(options)? {
        Ok(taken) => {
            log("this worker takes the lock of the machine: the one that had it has ended");
            restore_settings()?;
            *lock = Some(taken);
            Ok(())
        }
        Err(holder) if Relation::of(&holder, options) != Relation::Foreign => Ok(()),
        Err(holder) => Err(refused(RunError::Busy(holder).to_string())),
    }
}

/// Takes the lock, or returns the description of its holder.
fn attempt(options: &RemoteOptions) -> Result<Result<MachineLock, String>, Ended> {
    let request = LockRequest {
        purpose: &purpose(options),
        is_shared: false,
        waits: false,
        interrupted: &AtomicBool::new(false),
    };
    match MachineLock::take(request, &mut NoObserver) {
        Ok(lock) => Ok(Ok(lock)),
        Err(RunError::Busy(holder)) => Ok(Err(holder)),
        Err(why) => Err(refused(why.to_string())),
    }
}

/// Returns the description of this worker as the holder of the lock.
fn purpose(RemoteOptions { purpose, run, worker, .. }: &RemoteOptions) -> String {
    format!("{purpose}{RUN}{run}-{worker}")
}

/// Precedes the ID of the run in a description.
const RUN: &str = ", run ";

/// Relation of the holder of the lock to a worker.
#[derive(Debug, PartialEq, Eq)]
enum Relation {
    /// It is another worker of this session.
    SameRun,
    /// It is an earlier worker in the place of this one, of this session or of an earlier one of the run.
    Earlier,
    /// It is of another run.
    Foreign,
}

impl Relation {
    fn of(holder: &str, options: &RemoteOptions) -> Self {
        let Some((described, id)) = holder.rsplit_once(RUN) else { return Self::Foreign };
        match id.split_once('-') {
            Some((run, worker)) if run == options.run && !run.is_empty() => {
                if worker == options.worker { Self::Earlier } else { Self::SameRun }
            }
            _ if has_purpose(described, &options.purpose) => Self::Earlier,
            _ => Self::Foreign,
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_worker_of_the_same_session_shares_the_lock() {
        let options = |name: &str, run: &str, worker: &str| RemoteOptions {
            purpose: format!("results in /r on lab for '{name}'"),
            takes_lock: true,
            waits: false,
            nice: 0,
            cpus: Vec::new(),
            max_silence: 1000,
            run: run.into(),
            worker: worker.into(),
        };
        let held_by = |other: &RemoteOptions| {
            let holder = format!("pid 7, since 2026-01-01T00:00:00Z, {}", purpose(other));
            Relation::of(&holder, &options("a", "0123", "0.0"))
        };
        assert_eq!(held_by(&options("b", "0123", "0.1")), Relation::SameRun);
        assert_eq!(held_by(&options("a", "0123", "0.1")), Relation::SameRun);
        assert_eq!(held_by(&options("a", "0123", "0.0")), Relation::Earlier);
        assert_eq!(held_by(&options("a", "4567", "0.0")), Relation::Earlier, "of a killed lab");
        // The folder and the names of another run may be the same.
        assert_eq!(held_by(&options("b", "4567", "0.1")), Relation::Foreign);
        assert_eq!(held_by(&options("b, run 0123", "4567", "0.1")), Relation::Foreign);
        let here = "pid 7, since 2026-01-01T00:00:00Z, results in /r on lab for 'a'";
        assert_eq!(Relation::of(here, &options("a", "0123", "0.0")), Relation::Foreign);
        assert_eq!(Relation::of("an unknown process", &options("a", "", "")), Relation::Foreign);
    }
}
