//! The time that the threads of testpmd were kept from running.

use std::fs;
use std::path::Path;
use std::time::Duration;

use machine::noise::WaitClock;

/// Start of the name of a thread that forwards; the name is from DPDK's environment.
const WORKER: &str = "rte-worker-";

/// The threads that forward.
pub(super) struct Workers(Vec<WaitClock>);

impl Workers {
    /// Finds the threads of a process. There are none if the kernel does not report how long they wait.
    pub(super) fn of(process: u32) -> Self {
        let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten();
        let folders = threads.flatten().map(|thread| thread.path());
        let is_worker = |folder: &Path| {
            fs::read_to_string(folder.join("comm")).is_ok_and(|name| name.starts_with(WORKER))
        };
        Self(folders.filter(|it| is_worker(it)).filter_map(|it| WaitClock::open(&it)).collect())
    }

    /// Returns how long the threads have been ready to run while others had their CPUs, together, since they started.
    /// `None` if the kernel does not report it.
    pub(super) fn waited(&self) -> Option<Duration> {
        let all = self.0.iter().map(WaitClock::now).sum::<Option<Duration>>();
        all.filter(|_| !self.0.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_threads_that_forward_count() {
        assert_eq!(Workers::of(std::process::id()).waited(), None);
        let named = std::thread::Builder::new().name(format!("{WORKER}7"));
        let (ready, is_ready) = std::sync::mpsc::sync_channel(0);
        let (end, ended) = std::sync::mpsc::sync_channel::<()>(0);
        let thread = named.spawn(move || {
            ready.send(()).unwrap();
            let _ = ended.recv();
        });
        is_ready.recv().unwrap();
        let workers = Workers::of(std::process::id());
        let counts = WaitClock::of_this_thread().is_some();
        assert_eq!((workers.0.len() == 1, workers.waited().is_some()), (counts, counts));
        drop(end);
        thread.unwrap().join().unwrap();
    }
}
