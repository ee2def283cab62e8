//! `enclave/allocation`: the loop of the Open Enclave sample, run by many threads in one enclave. `enclave/room`: the
//! same with heaps that may be too small.

use std::time::Duration;

use enclave_interface::Enter;
use lab::measure::{Context, Measurement};
use lab::sample::Failure;

use crate::loaded::{self, LoadedEnclave, WorkError, check_answers};
use crate::method::EnclaveMethod;
use crate::params::{AllocationParams, YesNo};
use crate::threads::{EnclaveThreads, WorkTime, seed};

/// The loop with a sufficient heap.
pub static ALLOCATION: EnclaveMethod<AllocationParams> = EnclaveMethod {
    name: "allocation",
    available: |params| loaded::available(&params.enclave),
    expected,
    measure: measure::<false>,
};

/// The loop with varied heaps: a heap that is too small is a result and not an error.
pub static ROOM: EnclaveMethod<AllocationParams> = EnclaveMethod {
    name: "room",
    available: |params| loaded::available_with_own_heap(&params.enclave),
    expected,
    measure: measure::<true>,
};

fn expected(params: &AllocationParams, _: Duration) -> Duration {
    allocating(params.threads, params.num_allocations)
}

fn measure<const MAY_BE_TOO_SMALL: bool>(
    context: &mut Context,
    params: &AllocationParams,
) -> Result<Measurement, Failure> {
    let tsc = context.tsc()?;
    if MAY_BE_TOO_SMALL {
        loaded::available_with_own_heap(&params.enclave)?;
    }
    let AllocationParams { num_allocations, max_size, threads, touch, .. } = *params;
    let enclave = LoadedEnclave::load(&params.enclave, threads, context)?;
    let round = context.round;
    let (answers, time) = EnclaveThreads::of(threads, context).work(&enclave, |thread| {
        let seed = seed(round, thread);
        enclave.enclave().enclave_thread(
            num_allocations,
            max_size,
            seed,
            u64::from(touch == YesNo::Yes),
        )
    })?;
    check_answers(&answers).map_err(failure::<MAY_BE_TOO_SMALL>)?;
    enclave.check_no_syscalls()?;
    let wall = time.wall(tsc);
    let made = (num_allocations * threads) as f64;
    Ok(timed(&enclave, wall, &time).value("rate", made * 1e9 / wall))
}

fn failure<const MAY_BE_TOO_SMALL: bool>(flaw: WorkError) -> Failure {
    if MAY_BE_TOO_SMALL && matches!(flaw, WorkError::Null { .. }) {
        // Without numbers, so that equal causes are reported once.
        let why = "allocations returned NULL: the heap is too small";
        return Failure::unavailable(why, "use more pages");
    }
    flaw.into()
}

/// Returns the times of all threads and the numbers of OCALLs.
pub fn timed(enclave: &LoadedEnclave, wall: f64, time: &WorkTime) -> Measurement {
    Measurement::default()
        .value("wall", wall)
        .value("cpu", time.cpu_ns)
        .value("ocalls", enclave.enclave().ocalls() as f64)
        .value("waits", enclave.enclave().waits() as f64)
}

/// Returns the expected duration of loading and of `each` allocations per thread under a contended lock.
pub fn allocating(threads: u64, each: u64) -> Duration {
    let one = if threads == 1 { ALONE } else { CONTENDED };
    LOADING + one * u32::try_from(each.saturating_mul(threads)).unwrap_or(u32::MAX)
}

/// Expected duration of loading an enclave and of the lab's overhead per sample.
pub const LOADING: Duration = Duration::from_millis(8);
/// Expected duration of an allocation by a single thread.
const ALONE: Duration = Duration::from_nanos(40);
/// Expected duration of an allocation under a contended lock, divided by the number of threads.
const CONTENDED: Duration = Duration::from_nanos(150);
