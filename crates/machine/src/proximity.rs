//! How near two CPUs are: a cache line passed back and forth.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::pin::spawn_pinned;
use crate::topology::Topology;
use crate::tsc::{self, Tsc};

/// Round trips in one timed batch: enough that the counter's step is small beside them.
const BATCH: u64 = 10;
/// Batches of a full measurement, 2000 round trips.
const BATCHES: usize = 200;
/// Fewer batches than this before the deadline are no measurement.
const LEAST_BATCHES: usize = 10;
/// How long the round trips may take together.
const DEADLINE: Duration = Duration::from_millis(3);
/// How long the two threads may take to meet: on a busy machine each first waits for its CPU.
const MEETING: Duration = Duration::from_millis(50);
/// A round trip below this is near, ns. On the AMD VMs that set it, CPUs under one last-level cache took
/// 76 to 107 ns and CPUs on two 309 to 500 ns, with nothing between; the limit lies in that gap, towards
/// far, for what is on the way only adds. Other processors may need another.
const NEAR_BELOW: f64 = 250.0;

/// How near two CPUs are, in words. Samples of different classes are not compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Hardware threads of one core, by the topology that the kernel shows.
    Same,
    /// Under one last-level cache: a round trip under 250 ns.
    Near,
    /// Further than that.
    Far,
}

/// How near two CPUs were at one moment. Under a hypervisor CPUs move: measure before and after.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Proximity {
    /// Median time of a cache line from one CPU to the other and back, ns.
    pub round_trip_ns: f64,
    /// What that means.
    pub class: Class,
}

/// Why there is no proximity.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The two CPUs are one.
    #[error("proximity of CPU {0} to itself: name two CPUs")]
    OneCpu(usize),
    /// The counter gives no time.
    #[error(transparent)]
    Tsc(#[from] tsc::Unavailable),
    /// A thread could not be pinned.
    #[error("pin a thread to CPU {cpu}: {source}; name an allowed CPU")]
    Pin {
        /// The CPU.
        cpu: usize,
        /// Why.
        source: io::Error,
    },
    /// Others held the CPUs.
    #[error(
        "CPUs {0} and {1} exchanged too little in time: other processes hold them; free them or try again"
    )]
    TimedOut(usize, usize),
}

/// The line that goes back and forth, and what both sides agree on; each on lines of its own, two at
/// a time because of the adjacent-line prefetcher.
#[derive(Default)]
struct Exchange {
    line: Padded,
    arrived: AtomicU32,
    over: AtomicBool,
}

#[derive(Default)]
#[repr(align(128))]
struct Padded(AtomicU64);

/// Measures how near two CPUs are, by up to 2000 round trips in at most 3 ms once both threads run.
///
/// # Errors
/// See [`Error`]. It never hangs.
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
    // A panic there would have shown as missing answers here.
    let _ = answer.join();
    let median = median(batches?).ok_or(Error::TimedOut(cpu_a, cpu_b))?;
    let round_trip_ns = tsc.nanoseconds(median) / BATCH as f64;
    let class = if Topology::detect().siblings(cpu_a).contains(&cpu_b) {
        Class::Same
    } else {
        class(round_trip_ns)
    };
    Ok(Proximity { round_trip_ns, class })
}

fn class(round_trip_ns: f64) -> Class {
    if round_trip_ns < NEAR_BELOW { Class::Near } else { Class::Far }
}

/// The median of the batches, ticks; none where there are too few.
fn median(mut batches: Vec<f64>) -> Option<f64> {
    if batches.len() < LEAST_BATCHES {
        return None;
    }
    batches.sort_unstable_by(f64::total_cmp);
    Some(batches[batches.len() / 2])
}

/// Waits for the other side, spinning; false where it does not come.
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

/// Sends odd numbers and waits for each next even one; the ticks of each batch.
fn call(exchange: &Exchange, tsc: &Tsc) -> Vec<f64> {
    let mut batches = Vec::with_capacity(BATCHES);
    if !meet(exchange, tsc) {
        return batches;
    }
    let end = tsc::start() + tsc.ticks(DEADLINE);
    let mut number = 0;
    while batches.len() < BATCHES {
        let begin = tsc::start();
        for _ in 0..BATCH {
            exchange.line.0.store(number + 1, Ordering::Release);
            if !wait_for(&exchange.line.0, number + 2, || tsc::start() > end) {
                return batches;
            }
            number += 2;
        }
        batches.push(tsc.net(begin, tsc::stop()));
    }
    batches
}

/// Answers every odd number with the next, until the caller is done.
fn answer(exchange: &Exchange, tsc: &Tsc) {
    if !meet(exchange, tsc) {
        return;
    }
    // The caller ends first; this is for a caller that has died.
    let end = tsc::start() + tsc.ticks(DEADLINE + MEETING);
    let mut number = 1;
    while wait_for(&exchange.line.0, number, || {
        exchange.over.load(Ordering::Relaxed) || tsc::start() > end
    }) {
        exchange.line.0.store(number + 1, Ordering::Release);
        number += 2;
    }
}

/// Spins until the line holds the number; false once `expired`, which is asked only now and then.
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
    fn two_cpus_have_a_distance() {
        let [a, b, ..] = allowed_cpus()[..] else {
            crate::untested::note("the distance of two CPUs", &"there is one CPU");
            return;
        };
        // Only that others held the CPUs, for so long, is no fault of what measures.
        let end = Instant::now() + Duration::from_secs(60);
        let measured = loop {
            match measure(a, b) {
                Err(Error::TimedOut(..)) if Instant::now() < end => {}
                Err(why @ (Error::TimedOut(..) | Error::Tsc(_))) => {
                    crate::untested::note("the distance of two CPUs", &why);
                    return;
                }
                measured => break measured.unwrap(),
            }
        };
        println!("{measured:?}");
        assert!(measured.round_trip_ns > 1.0 && measured.round_trip_ns < 1e5, "{measured:?}");
    }

    #[test]
    fn it_ends_though_the_other_never_answers() {
        let Some(tsc) = crate::untested::tsc("the end of an exchange") else { return };
        let exchange = Exchange::default();
        let begin = Instant::now();
        assert!(!meet(&exchange, tsc));
        exchange.arrived.store(1, Ordering::Relaxed);
        assert!(call(&exchange, tsc).is_empty());
        // It spins until a deadline of milliseconds, however busy the machine.
        assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", begin.elapsed());
    }

    #[test]
    fn one_cpu_or_an_absent_one_is_refused() {
        let cpu = allowed_cpus()[0];
        assert!(matches!(measure(cpu, cpu), Err(Error::OneCpu(_))));
        if crate::untested::tsc("the distance of an absent CPU").is_none() {
            return;
        }
        let absent = crate::topology::absent_cpu();
        for (a, b) in [(cpu, absent), (absent, cpu)] {
            let Err(Error::Pin { cpu: refused, .. }) = measure(a, b) else { panic!("{a} {b}") };
            assert_eq!(refused, absent);
        }
    }

    #[test]
    fn the_limit_parts_near_from_far() {
        assert_eq!(class(107.0), Class::Near);
        assert_eq!(class(500.0), Class::Far);
        assert_eq!(median(vec![5.0; LEAST_BATCHES - 1]), None);
        assert_eq!(median((0..11).rev().map(f64::from).collect()), Some(5.0));
    }
}
