//! `enclave/ecall`: what entering and leaving costs, and loading.

use std::hint::black_box;
use std::time::{Duration, Instant};

use enclave_interface::{Ecall, Enter, WORDS};
use lab::measure::{Context, Measurement};
use lab::method::Probe;
use lab::point::Point;
use lab::sample::Failure;
use lab::statistics::median;
use machine::core_clock;
use machine::tsc::{self, Tsc};

use crate::batch;
use crate::entered::{self, Entered, failed};
use crate::setting::Setting;

/// OCALLs of one ECALL at least, so that the ECALL around them is a small part.
const LEAVES: u64 = 64;
/// The size that short ECALLs allocate, bytes.
const SHORT: u64 = 64;
/// The least loads that make a median, and the most.
const LOADS: std::ops::Range<usize> = 3..100;
/// What is timed one after another within the budget.
const PARTS: u32 = 5;

/// What measures the points of one order.
pub fn probe() -> Box<dyn Probe> {
    Box::new(Calls)
}

struct Calls;

impl Probe for Calls {
    fn measure(&mut self, context: &mut Context, point: &Point) -> Result<Measurement, Failure> {
        let tsc = context.tsc()?;
        let setting = Setting::of(point)?;
        entered::available_with_own_heap(&setting)?;
        let budget = context.budget / PARTS;
        let load = load(tsc, budget, &setting, context)?;
        let enclave = Entered::load(&setting, context)?;
        let inside = enclave.enclave();
        let failed = |why| failed(0, &why);
        let before = core_clock::hertz()?;
        let plain = batch::each(tsc, budget, 64, plain)?;
        let ecall = batch::each(tsc, budget, 1, |times| {
            inside.repeat(Ecall::nothing, [0; WORDS], times).map(drop).map_err(failed)
        })?;
        let after = core_clock::hertz()?;
        let ocall = batch::each(tsc, budget, LEAVES, |times| {
            match inside.leave(times).map_err(failed)? {
                back if back == times => Ok(()),
                back => Err(Failure::check(format!("{back} of {times} OCALLs came back right"))),
            }
        })?;
        let short = batch::each(tsc, budget, 2, |times| {
            (0..times / 2).try_for_each(|_| {
                let block = inside.malloc(SHORT).map_err(failed)?;
                if block == 0 {
                    return Err(Failure::check("a malloc gave NULL"));
                }
                inside.free(block).map(drop).map_err(failed)
            })
        })?;
        enclave.behaved()?;
        Ok(Measurement::default()
            .value("ecall", ecall)
            .value("ocall", ocall)
            .value("short", short)
            .value("plain", plain)
            .value("ecall_over_plain", (ecall - plain) * f64::midpoint(before, after) / 1e9)
            .value("load", load)
            .value("load_in_ecalls", load / ecall))
    }
}

/// What loading takes, ns: the median; unloading is outside.
fn load(tsc: &Tsc, budget: Duration, setting: &Setting, context: &Context) -> Result<f64, Failure> {
    let end = Instant::now() + budget;
    let mut times = Vec::new();
    while times.len() < LOADS.start || (Instant::now() < end && times.len() < LOADS.end) {
        let begin = tsc::start();
        let enclave = Entered::load(setting, context)?;
        let ticks = tsc::stop().saturating_sub(begin).saturating_sub(tsc.overhead);
        drop(enclave);
        times.push(tsc.nanoseconds(ticks as f64));
    }
    median(&times).ok_or_else(|| Failure::failed("no enclave was loaded"))
}

/// Plain calls of a function that takes the words of an ECALL and does nothing.
fn plain(times: u64) -> Result<(), Failure> {
    extern "sysv64" fn nothing(_: u64, _: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
        0
    }
    type Function = extern "sysv64" fn(u64, u64, u64, u64, u64, u64) -> u64;
    // Not known to the compiler, so that it is called.
    let function: Function = black_box(nothing);
    for number in 0..times {
        black_box(function(number, 0, 0, 0, 0, 0));
    }
    Ok(())
}

/// How long a sample takes with all that it prepares.
pub fn expected(point: &Point, budget: Duration) -> Duration {
    let Ok(setting) = Setting::of(point) else { return Duration::ZERO };
    match entered::available_with_own_heap(&setting) {
        Ok(()) => budget + crate::allocation::LOADING * 4,
        Err(_) => Duration::ZERO,
    }
}
