//! A load on the core's other hardware thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use lab::sample::Failure;
use machine::pin;
use machine::topology::Topology;

use super::list::InstructionForm;
use super::plan::memory;
use super::prepared::Prepared;
use super::register_set::RegisterSet;
use crate::timing::{Data, State, TimingLoop};

/// Number of loops between checks of the stop flag.
const LOOPS: u64 = 100;
/// Time limit for the start. A busy host may let an emulated CPU wait.
const START: Duration = Duration::from_secs(20);

/// Code that runs on another CPU until this value is dropped.
pub(crate) struct Sibling {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Returns the CPU that shares this CPU's core.
///
/// # Errors
/// Returns `unavailable` if there is none.
pub(crate) fn cpu() -> Result<usize, Failure> {
    let current = pin::current_cpu();
    let topology = Topology::detect();
    let other = topology.siblings(current).iter().copied().find(|cpu| *cpu != current);
    let remedy = "enable SMT in the firmware, or expose it to the VM";
    other.ok_or_else(|| {
        Failure::unavailable("this core has one hardware thread: no sibling", remedy)
    })
}

/// Checks that a sibling can execute a form.
///
/// # Errors
/// Returns `unavailable` if it cannot.
pub(super) fn check(form: &InstructionForm) -> Result<(), Failure> {
    if form.reset_inputs {
        let why = "its registers point to memory of this thread";
        return Err(Failure::unavailable(why, "measure it with the sibling idle"));
    }
    Ok(())
}

impl Sibling {
    /// Starts copies of a form on this CPU's sibling and waits until they run.
    ///
    /// # Errors
    /// Returns the errors of [`start`](Self::start).
    pub(super) fn of_form(
        form: &InstructionForm,
        prepared: &Prepared,
        timing_loop: TimingLoop,
    ) -> Result<Self, Failure> {
        let (form, plan) = (form.clone(), prepared.plan.clone());
        Self::start(timing_loop, move |data| {
            data.fill(memory(&form));
            plan.state(&form, data, RegisterSet::Whole)
        })
    }

    /// Starts code on this CPU's sibling and waits until it runs.
    ///
    /// # Errors
    /// Returns `unavailable` if there is no sibling, `failed` if no thread can run on it.
    fn start(
        timing_loop: TimingLoop,
        init: impl FnOnce(&Data) -> State + Send + 'static,
    ) -> Result<Self, Failure> {
        Self::start_on(cpu()?, timing_loop, init)
    }

    fn start_on(
        cpu: usize,
        timing_loop: TimingLoop,
        init: impl FnOnce(&Data) -> State + Send + 'static,
    ) -> Result<Self, Failure> {
        let stop = Arc::new(AtomicBool::new(false));
        let stop_flag = Arc::clone(&stop);
        let (running, wait) = mpsc::channel();
        let thread = pin::spawn_pinned(cpu, move || {
            let Ok(data) = Data::new() else { return };
            let state = init(&data);
            while !stop_flag.load(Ordering::Relaxed) {
                // The form has already run on this CPU's sibling. A fault here ends only this thread.
                if timing_loop.run(&mut state.clone(), LOOPS).is_err() {
                    return;
                }
                let _ = running.send(());
            }
        })
        .map_err(|e| Failure::failed(format!("a thread on CPU {cpu}: {e}")))?;
        let sibling = Self { stop, thread: Some(thread) };
        let started = wait.recv_timeout(START);
        started.map_err(|_| Failure::failed(format!("the code does not run on CPU {cpu}")))?;
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
    fn code_runs_until_it_is_dropped() {
        let cpu = allowed_cpus()[0];
        let timing_loop = TimingLoop::new(&[0x48, 0xFF, 0xC0], false).unwrap();
        let sibling = Sibling::start_on(cpu, timing_loop, State::new).unwrap();
        assert!(!sibling.thread.as_ref().unwrap().is_finished());
        drop(sibling);
        let faulty = TimingLoop::new(&crate::timing::UD2, false).unwrap();
        assert!(Sibling::start_on(cpu, faulty, State::new).is_err());
    }

    #[test]
    fn a_missing_sibling_has_a_reason() {
        match cpu() {
            Ok(other) => assert_ne!(other, pin::current_cpu()),
            Err(failure) => assert!(failure.to_string().contains("SMT"), "{failure}"),
        }
    }
}
