//! The descendants of this process, including orphans of its dead children.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::time::{Duration, Instant};

use machine::proc::stat_field;
use machine::restorer::{self, is_restorer};

/// The time for restorers, which restore the settings that a dead process changed: longer than they try.
const MAX_RESTORE_TIME: Duration = restorer::MAX_TIME.saturating_add(Duration::from_secs(1));
/// How often restorers are checked.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// The maximum number of passes that kill processes.
const MAX_PASSES: u32 = 2000;

/// Makes this process the parent of the orphans of its dead children, so that it can end them.
///
/// # Errors
/// Returns the `errno` of `prctl(2)`.
pub fn adopt() -> io::Result<()> {
    // SAFETY: `prctl` with these arguments sets a flag of this process and accesses no memory.
    match unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Kills and reaps every descendant of this process, except the processes in `spare` and their descendants. Waits for
/// restorers, and kills them only if they take too long.
pub fn end(spare: &[u32]) {
    let start = Instant::now();
    // A killed process may have forked just before, so repeat until no descendant is left.
    let mut passes = 0;
    while passes < MAX_PASSES {
        let found = find(std::process::id(), spare);
        if found.is_empty() {
            return;
        }
        let waits = start.elapsed() < MAX_RESTORE_TIME;
        let (restorers, others): (Vec<u32>, Vec<u32>) =
            found.into_iter().partition(|process| waits && is_restorer(*process));
        others.iter().for_each(|process| kill(*process));
        others.iter().for_each(|process| reap(*process, 0));
        restorers.iter().for_each(|process| reap(*process, libc::WNOHANG));
        if !others.is_empty() {
            passes += 1;
        }
        if !restorers.is_empty() {
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

/// Returns the descendants of a process, except those in `spare`.
fn find(root: u32, spare: &[u32]) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    for process in entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) {
        if let Some(parent) = parent(process) {
            children.entry(parent).or_default().push(process);
        }
    }
    let mut found = Vec::new();
    let mut open = vec![root];
    while let Some(process) = open.pop() {
        let children = children.remove(&process).unwrap_or_default();
        for child in children.into_iter().filter(|child| !spare.contains(child)) {
            found.push(child);
            open.push(child);
        }
    }
    found
}

fn parent(process: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat_field(&stat, 4)
}

fn kill(process: u32) {
    // SAFETY: `kill` takes two integers.
    unsafe { libc::kill(process as i32, libc::SIGKILL) };
}

/// Reaps a process; without options waits for its end. Does nothing if it is not a child of this process.
fn reap(process: u32, options: i32) {
    // SAFETY: `waitpid` accepts a null status pointer.
    unsafe { libc::waitpid(process as i32, std::ptr::null_mut(), options) };
}
