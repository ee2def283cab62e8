//! `enclave/ecall`: the cost of ECALLs, OCALLs and loading.

use std::hint::black_box;
use std::time::{Duration, Instant};

use enclave_interface::{Ecall, Enter, WORDS};
use lab::measure::{Context, Measurement};
use lab::sample::Failure;
use lab::statistics::median;
use machine::core_clock;
use machine::tsc::{self, Tsc};

use crate::allocation::LOADING;
use crate::batch;
use crate::loaded::{self, LoadedEnclave, failed};
use crate::method::{EnclaveMethod, TIMES};
use crate::params::EnclaveParams;

/// Minimum number of OCALLs per ECALL, so that the ECALL itself contributes little.
const LEAVES: u64 = 64;
/// The block size of short ECALLs, in bytes.
const SHORT: u64 = 64;
/// The minimum and maximum number of loads behind a median.
const LOADS: std::ops::Range<usize> = 3..100;
/// Number of parts that share the time budget.
const PARTS: u32 = 5;

/// The method that times ECALLs, OCALLs and loading.
pub static ECALL: EnclaveMethod<EnclaveParams> = EnclaveMethod {
    name: "ecall",
    metrics: TIMES,
    available: loaded::available_with_own_heap,
    expected: |_, budget| budget + LOADING * 4,
    measure,
};

fn measure(context: &mut Context, params: &EnclaveParams) -> Result<Measurement, Failure> {
    let tsc = context.tsc()?;
    loaded::available_with_own_heap(params)?;
    let budget = context.budget / PARTS;
    let load = load(tsc, budget, params, context)?;
    let enclave = LoadedEnclave::load(params, 1, context)?;
    let inside = enclave.enclave();
    let failed = |why| failed(0, &why);
    let before = core_clock::hertz()?;
    let plain = batch::each(tsc, budget, 64, plain)?;
    let ecall = batch::each(tsc, budget, 1, |times| {
        inside.repeat(Ecall::nothing, [0; WORDS], times).map(drop).map_err(failed)
    })?;
    let after = core_clock::hertz()?;
    let ocall =
        batch::each(tsc, budget, LEAVES, |times| match inside.leave(times).map_err(failed)? {
            back if back == times => Ok(()),
            back => {
                Err(Failure::check(format!("{back} of {times} OCALLs returned the right result")))
            }
        })?;
    let short = batch::each(tsc, budget, 2, |times| {
        (0..times / 2).try_for_each(|_| {
            let block = inside.malloc(SHORT).map_err(failed)?;
            if block == 0 {
                return Err(Failure::check("malloc returned NULL"));
            }
            inside.free(block).map(drop).map_err(failed)
        })
    })?;
    enclave.check_no_syscalls()?;
    Ok(Measurement::default()
        .value("ecall", ecall)
        .value("ocall", ocall)
        .value("short", short)
        .value("plain", plain)
        .value("ecall_over_plain", (ecall - plain) * f64::midpoint(before, after) / 1e9)
        .value("load", load)
        .value("load_in_ecalls", load / ecall))
}

/// Times loading without unloading; returns the median, in ns.
fn load(
    tsc: &Tsc,
    budget: Duration,
    params: &EnclaveParams,
    context: &Context,
) -> Result<f64, Failure> {
    let end = Instant::now() + budget;
    let mut times = Vec::new();
    while times.len() < LOADS.start || (Instant::now() < end && times.len() < LOADS.end) {
        let begin = tsc::start();
        let enclave = LoadedEnclave::load(params, 1, context)?;
        let ticks = tsc::stop().saturating_sub(begin).saturating_sub(tsc.overhead);
        drop(enclave);
        times.push(tsc.nanoseconds(ticks as f64));
    }
    median(&times).ok_or_else(|| Failure::failed("no enclave was loaded"))
}

/// Makes plain calls of an empty function with the words of an ECALL.
fn plain(times: u64) -> Result<(), Failure> {
    extern "sysv64" fn nothing(_: u64, _: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
        0
    }
    type Function = extern "sysv64" fn(u64, u64, u64, u64, u64, u64) -> u64;
    // Hidden from the compiler, so that it is not inlined.
    let function: Function = black_box(nothing);
    for number in 0..times {
        black_box(function(number, 0, 0, 0, 0, 0));
    }
    Ok(())
}
