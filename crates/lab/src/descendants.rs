//! All that a process started, also what its dead children left behind.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::time::{Duration, Instant};

use machine::restorer::{self, is_restorer};

/// How long those may take who put back what a dead process changed: longer than they try.
const PUT_BACK: Duration = restorer::MAX_TIME.saturating_add(Duration::from_secs(1));
/// The pause between two looks at those.
const PAUSE: Duration = Duration::from_millis(1);
/// How often processes are killed at most.
const PASSES: u32 = 2000;

/// Makes this process the parent of what its dead children leave behind, so that it can end it.
///
/// # Errors
/// When the kernel refuses.
pub fn adopt() -> io::Result<()> {
    // SAFETY: prctl with these arguments sets a flag of this process and touches no memory.
    match unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Kills and reaps every descendant of this process, but for those of `spare` and below. Those who put back
/// what a dead process changed are waited for instead, and killed only when they take too long.
pub fn end(spare: &[u32]) {
    let begun = Instant::now();
    // What is killed may have forked just before: look again until nothing is left.
    let mut passes = 0;
    while passes < PASSES {
        let found = below(std::process::id(), spare);
        if found.is_empty() {
            return;
        }
        let patient = begun.elapsed() < PUT_BACK;
        let (restorers, others): (Vec<u32>, Vec<u32>) =
            found.into_iter().partition(|process| patient && is_restorer(*process));
        others.iter().for_each(|process| kill(*process));
        others.iter().for_each(|process| reap(*process, 0));
        restorers.iter().for_each(|process| reap(*process, libc::WNOHANG));
        if !others.is_empty() {
            passes += 1;
        }
        if !restorers.is_empty() {
            std::thread::sleep(PAUSE);
        }
    }
}

/// The descendants of a process, as the kernel lists them now.
fn below(root: u32, spare: &[u32]) -> Vec<u32> {
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
        let those = children.remove(&process).unwrap_or_default();
        let those = those.into_iter().filter(|child| !spare.contains(child));
        for child in those {
            found.push(child);
            open.push(child);
        }
    }
    found
}

fn parent(process: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name may hold blanks and brackets: what counts comes behind the last one.
    stat[stat.rfind(')')? + 1..].split_whitespace().nth(1)?.parse().ok()
}

fn kill(process: u32) {
    // SAFETY: kill takes numbers only.
    unsafe { libc::kill(process as i32, libc::SIGKILL) };
}

/// Reaps a process that has ended, or with no options waits until it has; does nothing with one that is
/// not our child.
fn reap(process: u32, options: i32) {
    // SAFETY: waitpid without a status only reaps.
    unsafe { libc::waitpid(process as i32, std::ptr::null_mut(), options) };
}
