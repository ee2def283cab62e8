//! `enclave/allocation`: the loop of the Open Enclave sample, run by many threads in one enclave.
//! `enclave/heap-sizes`: the same with heaps that may be too small.
//!
//! On an emulated CPU the blocks are counted and not timed.

use std::time::Duration;

use enclave_interface::Enter;
use lab::measure::{Context, Measurement};
use lab::sample::Failure;

use crate::error::EcallError;
use crate::loaded::{self, LoadedEnclave, WorkError, check_answers, clock};
use crate::method::{EnclaveMethod, TIMES};
use crate::params::{AllocationParams, YesNo};
use crate::threads::{EnclaveThreads, WorkTime, seed};

/// Metric that counts the blocks, also on an emulated CPU.
pub const CHECKED: &str = "blocks_checked";
/// Expected duration of loading an enclave and of the lab's overhead per sample.
pub const LOADING: Duration = Duration::from_millis(8);
/// Expected duration of an allocation by a single thread.
const ALONE: Duration = Duration::from_nanos(40);
/// Expected duration of an allocation under a contended lock, divided by the number of threads.
const CONTENDED: Duration = Duration::from_nanos(150);

/// The loop with a sufficient heap.
pub static ALLOCATION: EnclaveMethod<AllocationParams> = EnclaveMethod {
    name: "allocation",
    how: "Threads enter a new enclave and start the sample's loop together; the time is from the first \
          thread's start to the last one's end. No allocation may return NULL or a pointer outside the heap; \
          touch = yes writes a byte of each page, and contents are not checked.",
    metrics: TIMES,
    available: |params| loaded::available(&params.enclave),
    expected,
    measure: |context, params| measure(context, params, Failure::from),
};

/// The loop with varied heaps: a heap that is too small is a result and not an error.
pub static HEAP_SIZES: EnclaveMethod<AllocationParams> = EnclaveMethod {
    name: "heap-sizes",
    how: "Threads run the sample's loop together in a heap of the given size; the time is from the first \
          thread's start to the last one's end. An allocation that returns NULL makes the point unavailable; a \
          pointer outside the heap or a failed ECALL fails the sample.",
    metrics: TIMES,
    available: |params| loaded::available_with_own_heap(&params.enclave),
    expected,
    measure: measure_heap_sizes,
};

fn expected(params: &AllocationParams, _: Duration) -> Duration {
    expected_duration(params.threads, params.num_allocations)
}

fn measure_heap_sizes(
    context: &mut Context,
    params: &AllocationParams,
) -> Result<Measurement, Failure> {
    loaded::available_with_own_heap(&params.enclave)?;
    measure(context, params, excuse_nulls)
}

/// Measures the loop; `failure` converts an error in a thread's work.
fn measure(
    context: &mut Context,
    params: &AllocationParams,
    failure: fn(WorkError) -> Failure,
) -> Result<Measurement, Failure> {
    let tsc = clock(context)?;
    let AllocationParams { num_allocations, threads, .. } = *params;
    let enclave = LoadedEnclave::load(&params.enclave, threads, context)?;
    let round = context.round;
    let (answers, time) = EnclaveThreads::of(threads, context)
        .work(&enclave, |thread| allocate(&enclave, params, seed(round, thread)))?;
    check_answers(&answers).map_err(failure)?;
    enclave.check_no_syscalls()?;
    let made = (num_allocations * threads) as f64;
    let measurement = match tsc.map(|tsc| time.wall(tsc)) {
        Some(wall) => common_metrics(&enclave, wall, &time).value("rate", made * 1e9 / wall),
        None => call_counts(&enclave),
    };
    Ok(measurement.value(CHECKED, made))
}

/// Converts NULLs to `unavailable`, because a heap that is too small is a result.
fn excuse_nulls(error: WorkError) -> Failure {
    match error {
        // Without numbers, so that equal causes are reported once.
        WorkError::Null { .. } => {
            let why = "allocations returned NULL: the heap is too small";
            Failure::unavailable(why, "use more pages")
        }
        WorkError::Outside { .. } | WorkError::Ecall { .. } => error.into(),
    }
}

/// Runs one thread's share of the sample's loop; returns its errors, encoded.
#[inline]
pub fn allocate(
    enclave: &LoadedEnclave,
    params: &AllocationParams,
    seed: u64,
) -> Result<u64, EcallError> {
    let AllocationParams { num_allocations, max_size, .. } = *params;
    let touch = match params.touch {
        YesNo::No => 0,
        YesNo::Yes => 1,
    };
    enclave.enclave().enclave_thread(num_allocations, max_size, seed, touch)
}

/// Returns the times of all threads and the numbers of OCALLs.
pub fn common_metrics(enclave: &LoadedEnclave, wall: f64, time: &WorkTime) -> Measurement {
    call_counts(enclave).value("wall", wall).value("cpu", time.cpu_ns)
}

/// Returns the numbers of OCALLs.
pub fn call_counts(enclave: &LoadedEnclave) -> Measurement {
    Measurement::default()
        .value("ocalls", enclave.enclave().ocalls() as f64)
        .value("waits", enclave.enclave().waits() as f64)
}

/// Returns the expected duration of loading and of `each` allocations per thread under a contended lock.
pub fn expected_duration(threads: u64, each: u64) -> Duration {
    let one = if threads == 1 { ALONE } else { CONTENDED };
    LOADING + one * u32::try_from(each.saturating_mul(threads)).unwrap_or(u32::MAX)
}
