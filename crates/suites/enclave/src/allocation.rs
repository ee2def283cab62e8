//! `enclave/allocation`: the seed's loop, in one enclave by many threads; `enclave/room`: the same with
//! heaps that may be too small.

use std::time::Duration;

use enclave_interface::Enter;
use lab::measure::{Context, Measurement};
use lab::method::Probe;
use lab::point::Point;
use lab::sample::Failure;

use crate::crew::{Crew, Took};
use crate::entered::{self, Entered, Flaw, flawless};
use crate::setting::Setting;

/// What measures the points of one order.
pub fn probe() -> Box<dyn Probe> {
    Box::new(Allocation { may_be_too_small: false })
}

/// The same where heaps are varied: that one is too small is then a result, and no fault.
pub fn with_any_room() -> Box<dyn Probe> {
    Box::new(Allocation { may_be_too_small: true })
}

struct Allocation {
    may_be_too_small: bool,
}

impl Allocation {
    fn failure(&self, flaw: Flaw) -> Failure {
        match flaw {
            // Said without numbers, so that what has one cause is told once.
            Flaw::Null { .. } if self.may_be_too_small => Failure::unavailable(
                "allocations gave NULL: the heap is too small",
                "take more pages",
            ),
            _ => flaw.into(),
        }
    }
}

impl Probe for Allocation {
    fn measure(&mut self, context: &mut Context, point: &Point) -> Result<Measurement, Failure> {
        let tsc = context.tsc()?;
        let setting = Setting::of(point)?;
        if self.may_be_too_small {
            entered::available_with_own_heap(&setting)?;
        }
        let enclave = Entered::load(&setting, context)?;
        let Setting { num_allocations, max_size, .. } = setting;
        let round = context.round;
        let (answers, took) = Crew::of(setting.threads, context).work(&enclave, |thread| {
            let seed = Setting::seed(round, thread);
            enclave.enclave().enclave_thread(
                num_allocations,
                max_size,
                seed,
                u64::from(setting.touch),
            )
        })?;
        flawless(&answers).map_err(|flaw| self.failure(flaw))?;
        enclave.behaved()?;
        let wall = took.wall(tsc);
        let made = (num_allocations * setting.threads) as f64;
        Ok(timed(&enclave, wall, &took).value("rate", made * 1e9 / wall))
    }
}

/// The time of all threads' parts, and how often they left.
pub fn timed(enclave: &Entered, wall: f64, took: &Took) -> Measurement {
    Measurement::default()
        .value("wall", wall)
        .value("cpu", took.cpu_ns)
        .value("ocalls", enclave.enclave().ocalls() as f64)
        .value("waits", enclave.enclave().waits() as f64)
}

/// How long a sample takes: loading, and allocations as slow as under a lock that many want.
pub fn expected(point: &Point) -> Duration {
    let Ok(setting) = Setting::of(point) else { return Duration::ZERO };
    let each = if setting.threads == 1 { ALONE } else { CONTENDED };
    let allocations = setting.num_allocations.saturating_mul(setting.threads);
    match entered::available(&setting) {
        Ok(()) => LOADING + each * u32::try_from(allocations).unwrap_or(u32::MAX),
        Err(_) => Duration::ZERO,
    }
}

/// What loading an enclave takes, with the lab's own part of a sample.
pub const LOADING: Duration = Duration::from_millis(8);
/// What an allocation takes by one thread.
const ALONE: Duration = Duration::from_nanos(40);
/// What an allocation takes while others want the lock, their waiting shared among them.
const CONTENDED: Duration = Duration::from_nanos(150);
