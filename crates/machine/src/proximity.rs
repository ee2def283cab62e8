//! The proximity of two CPUs, measured by passing a cache line back and forth.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Unavailable;
use crate::pin::spawn_pinned;
use crate::topology::Topology;
use crate::tsc::{self, Tsc};

/// Round trips per timed batch: enough to make the counter's step negligible.
const BATCH: u64 = 10;
/// Batches of a full measurement: 2000 round trips.
const BATCHES: usize = 200;
/// Minimum number of batches before the deadline.
const MIN_BATCHES: usize = 10;
/// Time limit for all round trips.
const DEADLINE: Duration = Duration::from_millis(3);
/// Time limit for the two threads to meet: on a busy machine each first waits for its CPU.
const MEETING: Duration = Duration::from_millis(50);
/// A round trip shorter than this is near, in ns, unless the samples of the machine show another limit. On
/// the AMD VMs on which it was chosen, CPUs under one last-level cache took 76 to 107 ns and CPUs under two
/// 309 to 500 ns. The limit is in this gap, closer to the upper values because disturbances only add time.
pub const PRIOR_LIMIT_NS: f64 = 250.0;

/// Proximity classes of two CPUs. Samples of different classes are not compared.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// SMT siblings, according to the kernel's topology.
    Same,
    /// At the smallest distance: e.g. under one last-level cache.
    Near,
    /// At a distance between near and far, on machines with three or more.
    Middle,
    /// At the largest distance.
    Far,
}

impl Class {
    /// Returns the class of two CPUs on separate cores by [`PRIOR_LIMIT_NS`].
    pub fn by_prior_limit(round_trip_ns: f64) -> Self {
        if round_trip_ns < PRIOR_LIMIT_NS { Self::Near } else { Self::Far }
    }

    /// Returns the name in claims and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Near => "near",
            Self::Middle => "middle",
            Self::Far => "far",
        }
    }
}

/// The proximity of two CPUs at one moment. A hypervisor moves CPUs: measure before and after a sample.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Proximity {
    /// Median time in ns for a cache line to travel from one CPU to the other and back.
    pub round_trip_ns: f64,
    /// The class of the CPUs, by [`PRIOR_LIMIT_NS`].
    pub class: Class,
}

/// Reasons why the proximity is unknown.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Both CPUs are the same.
    #[error("proximity of CPU {0} to itself: name two CPUs")]
    OneCpu(usize),
    /// The time-stamp counter is unusable.
    #[error(transparent)]
    Tsc(#[from] Unavailable),
    /// A thread could not be pinned.
    #[error("pin a thread to CPU {cpu}: {source}; name an allowed CPU")]
    Pin {
        /// The CPU.
        cpu: usize,
        /// The cause.
        source: io::Error,
    },
    /// Other processes had the CPUs.
    #[error(
        "CPUs {0} and {1} exchanged too few messages in time: other processes have them; free them or try again"
    )]
    TimedOut(usize, usize),
}

/// The cache line that is passed, and the state that both sides share, each on a separate pair of lines
/// because of the adjacent-line prefetcher.
#[derive(Default)]
struct Exchange {
    line: Padded,
    arrived: AtomicU32,
    over: AtomicBool,
}

#[derive(Default)]
#[repr(align(128))]
struct Padded(AtomicU64);

/// Measures the proximity of two CPUs by up to 2000 round trips, in at most 3 ms once both threads run.
///
/// # Errors
/// See [`Error`]. The measurement always ends.
pub fn measure(cpu_a: usize, cpu_b: usize) -> Result<Proximity, Error> {
    if cpu_a == cpu_b {
        return Err(Error::OneCpu(cpu_a));
    }
    let tsc = *Tsc::get()?;
    let exchange = Arc::new(Exchange::default());
    let (caller, answerer) = (Arc::clone(&exchange), Arc::clone(&exchange));
    let pin = |cpu| move |source| Error::Pin { cpu, source };
    let answer = spawn_pinned(cpu_b, move || answer(&answerer, &tsc)).map_err(pin(cpu_b))?;
    let call = spawn_pinned(cpu_a, move || call(&caller, &tsc)).map_err(pin(cpu_a));
    let batches = call.map(|thread| thread.join().unwrap_or_default());
    exchange.over.store(true, Ordering::Relaxed);
    // A panic there would have shown here as missing answers.
    let _ = answer.join();
    let median = upper_median(batches?).ok_or(Error::TimedOut(cpu_a, cpu_b))?;
    let round_trip_ns = tsc.nanoseconds(median) / BATCH as f64;
    let class = if Topology::detect().siblings(cpu_a).contains(&cpu_b) {
        Class::Same
    } else {
        Class::by_prior_limit(round_trip_ns)
    };
    Ok(Proximity { round_trip_ns, class })
}

/// Returns the upper median of the batches in ticks; `None` if there are too few.
fn upper_median(mut batches: Vec<f64>) -> Option<f64> {
    if batches.len() < MIN_BATCHES {
        return None;
    }
    batches.sort_unstable_by(f64::total_cmp);
    Some(batches[batches.len() / 2])
}

/// Spins until the other side arrives; false if it does not.
fn meet(exchange: &Exchange, tsc: &Tsc) -> bool {
    exchange.arrived.fetch_add(1, Ordering::AcqRel);
    let end = tsc::start() + tsc.ticks(MEETING);
    while exchange.arrived.load(Ordering::Acquire) < 2 {
        if tsc::start() > end || exchange.over.load(Ordering::Relaxed) {
            return false;
        }
        std::hint::spin_loop();
    }
    true
}

/// Sends odd numbers and waits for each next even one. Returns the ticks of each batch.
fn call(exchange: &Exchange, tsc: &Tsc) -> Vec<f64> {
    let mut batches = Vec::with_capacity(BATCHES);
    if !meet(exchange, tsc) {
        return batches;
    }
    let end = tsc::start() + tsc.ticks(DEADLINE);
    let mut number = 0;
    while batches.len() < BATCHES {
        let start = tsc::start();
        for _ in 0..BATCH {
            exchange.line.0.store(number + 1, Ordering::Release);
            if !wait_for(&exchange.line.0, number + 2, || tsc::start() > end) {
                return batches;
            }
            number += 2;
        }
        batches.push(tsc.net(start, tsc::stop()));
    }
    batches
}

/// Answers every odd number with the next one until the caller is done.
fn answer(exchange: &Exchange, tsc: &Tsc) {
    if !meet(exchange, tsc) {
        return;
    }
    // The caller ends first; this deadline covers a caller that has died.
    let end = tsc::start() + tsc.ticks(DEADLINE + MEETING);
    let mut number = 1;
    while wait_for(&exchange.line.0, number, || {
        exchange.over.load(Ordering::Relaxed) || tsc::start() > end
    }) {
        exchange.line.0.store(number + 1, Ordering::Release);
        number += 2;
    }
}

/// Spins until the line contains the number. Returns false after the deadline, which is checked rarely.
#[inline(always)]
fn wait_for(line: &AtomicU64, number: u64, expired: impl Fn() -> bool) -> bool {
    loop {
        for _ in 0..256 {
            if line.load(Ordering::Acquire) == number {
                return true;
            }
        }
        if expired() {
            return false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::allowed_cpus;
    use std::time::Instant;

    #[test]
    fn two_cpus_have_a_proximity() {
        let [a, b, ..] = allowed_cpus()[..] else {
            crate::untested::note("the proximity of two CPUs", &"there is one CPU");
            return;
        };
        // CPUs that stay busy are the only acceptable failure.
        let end = Instant::now() + Duration::from_secs(60);
        let measured = loop {
            match measure(a, b) {
                Err(Error::TimedOut(..)) if Instant::now() < end => {}
                Err(why @ (Error::TimedOut(..) | Error::Tsc(_))) => {
                    crate::untested::note("the proximity of two CPUs", &why);
                    return;
                }
                measured => break measured.unwrap(),
            }
        };
        println!("{measured:?}");
        assert!(measured.round_trip_ns > 1.0 && measured.round_trip_ns < 1e5, "{measured:?}");
    }

    #[test]
    fn the_caller_ends_without_answers() {
        let Some(tsc) = crate::untested::tsc("the end of an exchange") else { return };
        let exchange = Exchange::default();
        let start = Instant::now();
        assert!(!meet(&exchange, tsc));
        exchange.arrived.store(1, Ordering::Relaxed);
        assert!(call(&exchange, tsc).is_empty());
        // It spins until a deadline of milliseconds, regardless of load.
        assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
    }

    #[test]
    fn equal_and_absent_cpus_are_refused() {
        let cpu = allowed_cpus()[0];
        assert!(matches!(measure(cpu, cpu), Err(Error::OneCpu(_))));
        if crate::untested::tsc("the proximity of an absent CPU").is_none() {
            return;
        }
        let absent = crate::topology::absent_cpu();
        for (a, b) in [(cpu, absent), (absent, cpu)] {
            let Err(Error::Pin { cpu: refused, .. }) = measure(a, b) else { panic!("{a} {b}") };
            assert_eq!(refused, absent);
        }
    }

    #[test]
    fn the_prior_limit_separates_near_from_far() {
        assert_eq!(Class::by_prior_limit(107.0), Class::Near);
        assert_eq!(Class::by_prior_limit(500.0), Class::Far);
        assert_eq!(upper_median(vec![5.0; MIN_BATCHES - 1]), None);
        assert_eq!(upper_median((0..11).rev().map(f64::from).collect()), Some(5.0));
    }
}
