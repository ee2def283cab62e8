//! The ceiling: how fast the same two cores move lines of 64 B where they do nothing else.
//!
//! The least that an echo of 64 B needs of two cores is this, for each packet: the one writes a line, the
//! other reads it and adds 1 to a byte, the first reads it again. So a packet of the echo needs one line
//! there and back, and `ceiling` counts lines that went there and back. Each core works at a chunk of lines
//! at a time, both at once, with a flag a chunk: no ring, no notification, no doorbell, nothing looked up.
//! Which chunks suit two cores best depends on how near they are and on their caches, so a few are tried,
//! and the best counts.
//!
//! `ceiling_one_way` is the same without the way back: the other core only reads, and the first only writes.
//! It need not be higher: lines that the other read are shared, and stores to them wait one after the other,
//! where loads of lines that come back are fetched many at once.

mod pool;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lab::sample::Failure;
use machine::pin::spawn_pinned;
use machine::tsc::Tsc;

use super::setting::Cpus;
use pool::{Given, Pool};

/// Lines of a chunk: those that were best on some machine.
const LINES: [usize; 3] = [128, 512, 2048];
/// How long each way is measured with each size of chunk.
const DURATION: Duration = Duration::from_micros(400);
/// How long the two threads may take to meet, and to end: on a busy machine each first waits for its CPU.
const PATIENCE: Duration = Duration::from_millis(50);

/// Lines a second.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Ceiling {
    /// There and back.
    pub back: f64,
    /// There.
    pub one_way: f64,
}

impl Ceiling {
    /// The higher of each.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self { back: self.back.max(other.back), one_way: self.one_way.max(other.one_way) }
    }
}

/// Measures the core of the NIC with the first of the application. Where others held the CPUs it is 0.
///
/// # Errors
/// Where a line did not come as it was written.
pub fn measure(cpus: &Cpus, tsc: &Tsc) -> Result<Ceiling, Failure> {
    let mut ceiling = Ceiling::default();
    for lines in LINES {
        let back = between::<true>(cpus, lines, tsc)?;
        let one_way = between::<false>(cpus, lines, tsc)?;
        ceiling = ceiling.or(Ceiling { back, one_way });
    }
    Ok(ceiling)
}

/// Lines a second in chunks of so many; 0 where too few were passed in time.
fn between<const BACK: bool>(cpus: &Cpus, lines: usize, tsc: &Tsc) -> Result<f64, Failure> {
    let pool = Arc::new(Pool::new(lines, tsc)?);
    let other = Arc::clone(&pool);
    let thread = |cpu: usize| {
        move |why| {
            Failure::failed(format!("measure the ceiling on CPU {cpu}: {why}; name an allowed CPU"))
        }
    };
    let taker = spawn_pinned(cpus.applications[0], move || other.take::<BACK>())
        .map_err(thread(cpus.applications[0]))?;
    let own = Arc::clone(&pool);
    let giver = spawn_pinned(cpus.nic, move || own.give::<BACK>()).map_err(thread(cpus.nic));
    let given = giver.map(|giver| giver.join().unwrap_or_default());
    pool.last.store(0, Ordering::Relaxed);
    let taken = taker.join().unwrap_or_default();
    match given?.zip(taken) {
        Some((Given { rate, sound: true }, true)) => Ok(rate * tsc.hertz),
        Some(_) => Err(Failure::check("a line between two cores did not come as it was written")),
        None => Ok(0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long the two threads may take to meet: on a busy machine they miss each other.
    const SOON: Duration = Duration::from_secs(120);

    #[test]
    fn lines_go_there_and_back_as_they_were_written() {
        let Some(tsc) = machine::untested::tsc("stream: the ceiling") else { return };
        let allowed = machine::topology::allowed_cpus();
        let Ok((nic, other)) = lab::proximity::pair(&allowed) else {
            machine::untested::note("stream: the ceiling", &"it needs two CPUs");
            return;
        };
        let cpus = Cpus { nic, applications: vec![other] };
        let (begun, mut ceiling) = (std::time::Instant::now(), Ceiling::default());
        while ceiling.back == 0.0 || ceiling.one_way == 0.0 {
            assert!(begun.elapsed() < SOON, "the two threads never met: {ceiling:?}");
            ceiling = ceiling.or(measure(&cpus, tsc).unwrap());
        }
    }
}
