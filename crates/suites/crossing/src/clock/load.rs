//! Loads that change the core clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use lab::measure::Context;
use lab::sample::Failure;

use super::LoadKind;
use super::slow::SlowClock;

/// Time for a CPU to settle on another clock.
const SETTLE_TIME: Duration = Duration::from_millis(1);

/// Checks that a load is available here.
pub(super) fn available(load: LoadKind, cpus: &[usize]) -> Result<(), Failure> {
    match load {
        LoadKind::OtherCore if cpus.len() < 2 => Err(Failure::unavailable(
            "no other CPU for the load",
            "allow this process at least two CPUs",
        )),
        LoadKind::SlowClock => SlowClock::available(cpus.first().copied().unwrap_or_default()),
        LoadKind::None | LoadKind::OtherCore => Ok(()),
    }
}

/// A load that can be started and stopped.
pub(super) enum Load {
    None,
    Others(OtherCpus),
    Slow(SlowClock),
}

impl Load {
    /// Prepares the load without starting it.
    pub(super) fn prepare(load: LoadKind, context: &Context) -> Result<Self, Failure> {
        let Some((first, others)) = context.cpus.split_first() else {
            return Err(Failure::failed("no allowed CPU"));
        };
        Ok(match load {
            LoadKind::OtherCore => Self::Others(OtherCpus { cpus: others.into(), busy: None }),
            LoadKind::SlowClock => Self::Slow(SlowClock::of(*first, context.options)?),
            LoadKind::None => Self::None,
        })
    }

    /// Starts the load, and waits until the clock has settled.
    pub(super) fn start(&mut self) -> Result<(), Failure> {
        match self {
            Self::None => return Ok(()),
            Self::Others(others) => others.start()?,
            Self::Slow(slow) => slow.start()?,
        }
        std::thread::sleep(SETTLE_TIME);
        Ok(())
    }

    /// Stops the load, and waits until the clock has settled.
    pub(super) fn stop(&mut self) -> Result<(), Failure> {
        match self {
            Self::None => return Ok(()),
            Self::Others(others) => others.busy = None,
            Self::Slow(slow) => slow.stop()?,
        }
        std::thread::sleep(SETTLE_TIME);
        Ok(())
    }
}

/// A load on the other CPUs.
pub(super) struct OtherCpus {
    cpus: Vec<usize>,
    busy: Option<BusyThreads>,
}

impl OtherCpus {
    fn start(&mut self) -> Result<(), Failure> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut busy = BusyThreads { stop: Arc::clone(&stop), threads: Vec::new() };
        for cpu in &self.cpus {
            let stop = Arc::clone(&stop);
            let body = move || {
                while !stop.load(Ordering::Relaxed) {
                    multiply_vectors();
                }
            };
            busy.threads.push(machine::pin::spawn_pinned(*cpu, body)?);
        }
        self.busy = Some(busy);
        Ok(())
    }
}

/// Threads that compute until this is dropped.
struct BusyThreads {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Drop for BusyThreads {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A thread that only computes does not panic.
            let _ = thread.join();
        }
    }
}

/// Multiplies independent vectors for some microseconds, to draw much power, which lowers the core clock.
fn multiply_vectors() {
    let mut lanes = [[1.000_000_1_f64; 8]; 8];
    for _ in 0..1000 {
        for lane in &mut lanes {
            for value in lane.iter_mut() {
                *value = *value * 1.000_000_1 + 1e-9;
            }
        }
    }
    std::hint::black_box(lanes);
}
