//! The ceiling: the rate at which the same two cores pass cache lines of 64 B and do nothing else.
//!
//! An echo of a 64 B packet needs at least this of two cores: one writes a line, the other reads it and adds 1 to a
//! byte, and the first reads it again. `ceiling` counts such round trips of a line. Each core works on one chunk of
//! lines at a time, both cores concurrently, with one flag per chunk: no ring, no notification, no doorbell, no
//! lookup. The best chunk size depends on the distance of the cores and on their caches, so a few are tried and the
//! highest rate is taken.
//!
//! `ceiling_one_way` is the same without the way back: the other core only reads, and the first only writes. It is
//! not necessarily higher: stores to lines that the other core shares wait for one another, while loads of returned
//! lines are fetched many at a time.

mod chunks;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lab::sample::Failure;
use machine::pin::spawn_pinned;
use machine::tsc::Tsc;

use super::testbed_config::Cpus;
use chunks::{Chunks, Sent};

/// Numbers of lines per chunk: each was the best on some machine.
const LINES: [usize; 3] = [128, 512, 2048];
/// Measuring time for each direction and chunk size.
const DURATION: Duration = Duration::from_micros(400);
/// Time limit for the two threads to meet and to finish: on a busy machine each first waits for its CPU.
const TIMEOUT: Duration = Duration::from_millis(50);

/// Cache lines passed per second.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Ceiling {
    /// To the other core and back.
    pub back: f64,
    /// To the other core only.
    pub one_way: f64,
}

impl Ceiling {
    /// Returns the higher of both in each field.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self { back: self.back.max(other.back), one_way: self.one_way.max(other.one_way) }
    }
}

/// Measures between the NIC's core and the application's first core. Rates are 0 if the CPUs were busy.
///
/// # Errors
/// Returns `check` if a line differs from what was written, `failed` if a thread cannot run.
pub fn measure(cpus: &Cpus, tsc: &Tsc) -> Result<Ceiling, Failure> {
    let mut ceiling = Ceiling::default();
    for lines in LINES {
        let back = between::<true>(cpus, lines, tsc)?;
        let one_way = between::<false>(cpus, lines, tsc)?;
        ceiling = ceiling.max(Ceiling { back, one_way });
    }
    Ok(ceiling)
}

/// Returns the lines passed per second in chunks of `lines`; 0 if the threads did not meet in time.
fn between<const BACK: bool>(cpus: &Cpus, lines: usize, tsc: &Tsc) -> Result<f64, Failure> {
    let pool = Arc::new(Chunks::new(lines, tsc)?);
    let other = Arc::clone(&pool);
    let thread = |cpu: usize| {
        move |why| {
            Failure::failed(format!("measure the ceiling on CPU {cpu}: {why}; name an allowed CPU"))
        }
    };
    let receiver = spawn_pinned(cpus.applications[0], move || other.receive::<BACK>())
        .map_err(thread(cpus.applications[0]))?;
    let shared = Arc::clone(&pool);
    let sender = spawn_pinned(cpus.nic, move || shared.send::<BACK>()).map_err(thread(cpus.nic));
    let sent = sender.map(|sender| sender.join().unwrap_or_default());
    pool.last.store(0, Ordering::Relaxed);
    let received = receiver.join().unwrap_or_default();
    match sent?.zip(received) {
        Some((Sent { rate, intact: true }, true)) => Ok(rate * tsc.hertz),
        Some(_) => Err(Failure::check("a line between two cores differs from what was written")),
        None => Ok(0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Time limit for the two threads to meet: on a busy machine they miss each other.
    const SOON: Duration = Duration::from_secs(120);

    #[test]
    fn lines_make_the_round_trip_intact() {
        let Some(tsc) = machine::untested::tsc("stream: the ceiling") else { return };
        let allowed = machine::topology::allowed_cpus();
        let Ok((nic, other)) = lab::proximity::pair(&allowed) else {
            machine::untested::note("stream: the ceiling", &"needs two CPUs");
            return;
        };
        let cpus = Cpus { nic, applications: vec![other] };
        let (start, mut ceiling) = (std::time::Instant::now(), Ceiling::default());
        while ceiling.back == 0.0 || ceiling.one_way == 0.0 {
            assert!(start.elapsed() < SOON, "the two threads never met: {ceiling:?}");
            ceiling = ceiling.max(measure(&cpus, tsc).unwrap());
        }
    }
}
