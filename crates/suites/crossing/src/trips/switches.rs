//! How often two threads give up their CPUs by themselves: the kernel's proof that they slept.

use std::sync::atomic::{AtomicI32, Ordering};

use lab::sample::Failure;
use rustix::thread::gettid;

/// The number of a partner's thread for the kernel, 0 until it runs.
#[derive(Debug, Default)]
pub(super) struct Partner(AtomicI32);

impl Partner {
    /// Called by the partner when it begins.
    pub(super) fn runs(&self) {
        self.0.store(this_thread(), Ordering::Release);
    }

    /// How often this thread and the partner have given up their CPUs by themselves.
    ///
    /// # Errors
    /// A thread that has ended, or a kernel that does not count.
    pub(super) fn switches(&self) -> Result<[u64; 2], Failure> {
        let partner = match self.0.load(Ordering::Acquire) {
            // It has not begun.
            0 => 0,
            thread => switches_of(thread)?,
        };
        Ok([switches_of(this_thread())?, partner])
    }
}

fn this_thread() -> i32 {
    gettid().as_raw_nonzero().get()
}

/// How often a thread of this process has given up its CPU by itself.
fn switches_of(thread: i32) -> Result<u64, Failure> {
    let path = format!("/proc/self/task/{thread}/status");
    let status = std::fs::read_to_string(&path)?;
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    let count = line.and_then(|count| count.trim().parse().ok());
    count.ok_or_else(|| Failure::failed(format!("{path} has no voluntary_ctxt_switches")))
}
