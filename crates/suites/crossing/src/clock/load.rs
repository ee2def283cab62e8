//! What changes the core clock under a trip.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use lab::measure::Context;
use lab::sample::Failure;

use super::LoadKind;
use super::slow::SlowClock;

/// How long a processor may take to settle on another clock.
const SETTLE: Duration = Duration::from_millis(1);

/// Whether a load can be put on here.
pub(super) fn available(load: LoadKind, cpus: &[usize]) -> Result<(), Failure> {
    match load {
        LoadKind::OtherCore if cpus.len() < 2 => Err(Failure::unavailable(
            "there is no other CPU to put a load on",
            "run where this process may use two CPUs",
        )),
        LoadKind::SlowClock => SlowClock::available(cpus.first().copied().unwrap_or_default()),
        LoadKind::None | LoadKind::OtherCore => Ok(()),
    }
}

/// A load that is put on and taken off by turns.
pub(super) enum Load {
    None,
    Others(Others),
    Slow(SlowClock),
}

impl Load {
    /// Makes ready what the load needs; changes nothing yet.
    pub(super) fn prepare(load: LoadKind, context: &Context) -> Result<Self, Failure> {
        let Some((own, others)) = context.cpus.split_first() else {
            return Err(Failure::failed("no CPU may be used"));
        };
        Ok(match load {
            LoadKind::OtherCore => Self::Others(Others { cpus: others.into(), busy: None }),
            LoadKind::SlowClock => Self::Slow(SlowClock::of(*own, context.options)?),
            LoadKind::None => Self::None,
        })
    }

    /// Puts it on, and waits until the clock has settled.
    pub(super) fn begin(&mut self) -> Result<(), Failure> {
        match self {
            Self::None => return Ok(()),
            Self::Others(others) => others.begin()?,
            Self::Slow(slow) => slow.begin()?,
        }
        std::thread::sleep(SETTLE);
        Ok(())
    }

    /// Takes it off, and waits until the clock has settled.
    pub(super) fn end(&mut self) -> Result<(), Failure> {
        match self {
            Self::None => return Ok(()),
            Self::Others(others) => others.busy = None,
            Self::Slow(slow) => slow.end()?,
        }
        std::thread::sleep(SETTLE);
        Ok(())
    }
}

/// The other CPUs, idle or busy.
pub(super) struct Others {
    cpus: Vec<usize>,
    busy: Option<Busy>,
}

impl Others {
    fn begin(&mut self) -> Result<(), Failure> {
        let over = Arc::new(AtomicBool::new(false));
        let mut busy = Busy { over: Arc::clone(&over), threads: Vec::new() };
        for cpu in &self.cpus {
            let over = Arc::clone(&over);
            let body = move || {
                while !over.load(Ordering::Relaxed) {
                    burn();
                }
            };
            busy.threads.push(machine::pin::spawn_pinned(*cpu, body)?);
        }
        self.busy = Some(busy);
        Ok(())
    }
}

/// Threads that burn until this is dropped.
struct Busy {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A thread that only computes does not panic.
            let _ = thread.join();
        }
    }
}

/// Some microseconds of multiplications on independent vectors: the more of them at once, the more
/// power, and the lower the clock that a processor keeps.
fn burn() {
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
