//! All that a process started, also what its dead children left behind.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::time::{Duration, Instant};

/// How long those may take who put back what a dead process changed.
const PUT_BACK: Duration = Duration::from_millis(200);

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

/// Kills and reaps every descendant of this process, but for those of `spare` and below.
pub fn end(spare: &[u32]) {
    // What is killed may have forked just before: look again until nothing is left.
    for _ in 0..100 {
        let found = below(std::process::id(), spare);
        if found.is_empty() {
            return;
        }
        found.iter().for_each(|process| kill(*process));
        for process in &found {
            // SAFETY: waitpid without a status only reaps; it fails for what is not our child.
            unsafe { libc::waitpid(*process as i32, std::ptr::null_mut(), 0) };
        }
    }
}

/// Kills some children, gives what they leave behind a moment (it may be putting back what they
/// changed), then kills all the rest.
pub fn end_in_turn(first: &[u32]) {
    first.iter().for_each(|child| kill(*child));
    let begun = Instant::now();
    while begun.elapsed() < PUT_BACK && !below(std::process::id(), &[]).is_empty() {
        reap_ended();
        std::thread::sleep(Duration::from_millis(1));
    }
    end(&[]);
}

/// The children of this process.
pub fn children() -> Vec<u32> {
    let own = std::process::id();
    below(own, &[]).into_iter().filter(|child| parent(*child) == Some(own)).collect()
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

/// Reaps whatever children have ended.
fn reap_ended() {
    // SAFETY: waitpid without a status only reaps.
    while unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) } > 0 {}
}
