//! The other thread of a core, kept busy.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use lab::sample::Failure;
use machine::pin;
use machine::topology::Topology;

use crate::timing::{Data, State, TimingLoop};

/// Loops between two looks whether to stop.
const LOOPS: u64 = 100;
/// How long it may take to start.
const START: Duration = Duration::from_secs(2);

/// Code that runs on another CPU until it is dropped.
pub(crate) struct Sibling {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// The CPU that shares this one's core.
///
/// # Errors
/// Where there is none, or this process may not use it.
pub(crate) fn cpu() -> Result<usize, Failure> {
    let here = pin::current_cpu();
    let topology = Topology::detect();
    let other = topology.siblings(here).iter().copied().find(|cpu| *cpu != here);
    let remedy = "enable SMT in the firmware, or have the hypervisor show it";
    other.ok_or_else(|| {
        Failure::unavailable("a core here has one thread: it has no sibling", remedy)
    })
}

impl Sibling {
    /// Starts code on this CPU's sibling and waits until it runs.
    ///
    /// # Errors
    /// Where there is no sibling, or no thread can be started on it.
    pub(crate) fn start(
        looped: TimingLoop,
        begin: impl FnOnce(&Data) -> State + Send + 'static,
    ) -> Result<Self, Failure> {
        Self::start_on(cpu()?, looped, begin)
    }

    fn start_on(
        cpu: usize,
        looped: TimingLoop,
        begin: impl FnOnce(&Data) -> State + Send + 'static,
    ) -> Result<Self, Failure> {
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&stop);
        let (running, wait) = mpsc::channel();
        let thread = pin::spawn_pinned(cpu, move || {
            let Ok(data) = Data::new() else { return };
            let state = begin(&data);
            while !asked.load(Ordering::Relaxed) {
                // The form ran on this CPU's sibling before; a fault here ends the thread alone.
                if looped.run(&mut state.clone(), LOOPS).is_err() {
                    return;
                }
                let _ = running.send(());
            }
        })
        .map_err(|e| Failure::failed(format!("a thread on CPU {cpu}: {e}")))?;
        let sibling = Self { stop, thread: Some(thread) };
        let told = wait.recv_timeout(START);
        told.map_err(|_| Failure::failed(format!("nothing runs on CPU {cpu}")))?;
        Ok(sibling)
    }
}

impl Drop for Sibling {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::topology::allowed_cpus;

    #[test]
    fn code_runs_beside_until_it_is_dropped() {
        let cpu = allowed_cpus()[0];
        let looped = TimingLoop::new(&[0x48, 0xFF, 0xC0], false).unwrap();
        let sibling = Sibling::start_on(cpu, looped, State::new).unwrap();
        assert!(!sibling.thread.as_ref().unwrap().is_finished());
        drop(sibling);
        let faulty = TimingLoop::new(&crate::timing::UD2, false).unwrap();
        assert!(Sibling::start_on(cpu, faulty, State::new).is_err());
    }

    #[test]
    fn without_a_sibling_the_reason_is_told() {
        match cpu() {
            Ok(other) => assert_ne!(other, pin::current_cpu()),
            Err(failure) => assert!(failure.to_string().contains("SMT"), "{failure}"),
        }
    }
}
