//! `enclave/ecall`: the cost of ECALLs, OCALLs and loading.
//!
//! On an emulated CPU a fixed number of calls is made, and the right results are counted.

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
use crate::loaded::{self, LoadedEnclave, checked, clock, failed};
use crate::method::{EnclaveMethod, TIMES};
use crate::params::EnclaveParams;

/// Minimum number of OCALLs per ECALL, so that the ECALL itself contributes little.
const LEAVES: u64 = 64;
/// The block size of short ECALLs, in bytes.
const SHORT: u64 = 64;
/// The minimum and maximum number of loads behind a median.
const LOADS: std::ops::Range<usize> = 3..100;
/// Number of ECALLs and of OCALLs that are counted.
const COUNTED: u64 = 200;
/// Number of parts that share the time budget.
const PARTS: u32 = 5;

/// The method that times ECALLs, OCALLs and loading.
pub static ECALL: EnclaveMethod<EnclaveParams> = EnclaveMethod {
    name: "ecall",
    how: "Batches of empty calls are timed by the time-stamp counter; the value is the median over the \
          batches. No ECALL may fail, every OCALL must return its result to the code inside, and a blocked \
          system call fails the sample.",
    metrics: TIMES,
    available: loaded::available_with_own_heap,
    expected: |_, budget| budget + LOADING * 4,
    measure,
};

fn measure(context: &mut Context, params: &EnclaveParams) -> Result<Measurement, Failure> {
    loaded::available_with_own_heap(params)?;
    match clock(context)? {
        Some(tsc) => timed(tsc, context, params),
        None => counted(context, params),
    }
}

/// Makes a fixed number of calls and counts those with the right result; the others fail the check.
fn counted(context: &Context, params: &EnclaveParams) -> Result<Measurement, Failure> {
    let enclave = LoadedEnclave::load(params, 1, context)?;
    let (inside, heap) = (enclave.enclave(), enclave.enclave().heap());
    let mut answered = 0;
    for number in 0..COUNTED {
        let nothing = checked(inside.nothing())?;
        let block = checked(inside.malloc(SHORT))?;
        let last = block.saturating_add(SHORT - 1);
        let is_inside = [block, last].iter().all(|byte| heap.contains(&(*byte as usize)));
        if nothing != 0 || !is_inside {
            let why = format!("ECALLs {number}: {nothing} instead of 0, and a block at {block:#x}");
            return Err(Failure::check(why));
        }
        checked(inside.free(block))?;
        answered += 3;
    }
    let left = checked(inside.leave(COUNTED))?;
    if left != COUNTED {
        return Err(wrong_ocalls(left, COUNTED));
    }
    enclave.check_no_syscalls()?;
    Ok(Measurement::default().value("calls_answered", (answered + left) as f64))
}

fn wrong_ocalls(right: u64, made: u64) -> Failure {
    Failure::check(format!("{right} of {made} OCALLs returned the right result"))
}

fn timed(tsc: &Tsc, context: &Context, params: &EnclaveParams) -> Result<Measurement, Failure> {
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
            back => Err(wrong_ocalls(back, times)),
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
