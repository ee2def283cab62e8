//! `enclave/heap`: the smallest heap in which no allocation fails, and the usable share of a heap.

use enclave_interface::Enter;
use lab::measure::{Context, Measurement};
use lab::sample::{Failure, FailureKind, Trial};
use lab::search::{Search, TrialVerdict, Values, smallest};

use crate::allocation::{LOADING, allocate, expected_duration};
use crate::conf::PAGE;
use crate::loaded::{self, AllocErrors, LoadedEnclave, checked};
use crate::method::{COUNTS, EnclaveMethod};
use crate::params::{AllocationParams, EnclaveParams};
use crate::threads::{EnclaveThreads, seed};

/// The search step, in pages.
const STEP: f64 = 2.0;
/// The largest heap of the search, pages: four times the sample's.
const MAX_PAGES: u64 = 16384;
/// Number of further trials that must succeed.
const CONFIRMATIONS: u32 = 2;
/// Expected number of trials: the bisection steps, the first trial and the confirmations.
const TRIALS: u32 = 16;
/// The size of the blocks that drain a heap, in bytes.
const BLOCK: u64 = 64;

/// The method that searches for the smallest heap and drains one. It only counts, so no kind's times matter.
pub static HEAP: EnclaveMethod<AllocationParams> = EnclaveMethod {
    name: "heap",
    how: "Nothing is timed: a search bisects to the smallest heap in which no allocation of the loop fails, \
          and two more trials must confirm it. With one thread, blocks of 64 B then drain a heap of the given \
          size twice; they may not exceed it.",
    metrics: COUNTS,
    available: |params| loaded::runs_with_own_heap(&params.enclave),
    expected: |params, _| {
        expected_duration(params.threads, params.num_allocations) * TRIALS + LOADING
    },
    measure,
};

fn measure(context: &mut Context, params: &AllocationParams) -> Result<Measurement, Failure> {
    // A missing kind or a failed link must not count as a heap that is too small.
    loaded::runs_with_own_heap(&params.enclave)?;
    loaded::linked(&params.enclave, context)?;
    let top = MAX_PAGES as f64;
    let search =
        Search { low: STEP, high: top + STEP, precision: STEP, confirmations: CONFIRMATIONS };
    let mut trials = 0;
    let found = smallest(&search, |pages| {
        trials += 1;
        let enclave = EnclaveParams { heap: whole(pages) as u64, ..params.enclave.clone() };
        let tried = AllocationParams { enclave, ..params.clone() };
        trial(&tried, context, context.round * 64 + trials)
    })?;
    let Some(pages) = found.level.map(whole) else {
        let why = format!("no heap up to {MAX_PAGES} pages is large enough");
        return Err(Failure::check(why));
    };
    let trials = found.trials.into_iter();
    let trials = trials.map(|trial| Trial { level: whole(trial.level), ..trial }).collect();
    let measurement = Measurement { trials, ..Measurement::default() }
        .value("pages", pages)
        .value("heap_per_thread", pages * PAGE as f64 / params.threads as f64);
    // Only one thread drains the heap.
    if params.threads == 1 { drained(params, context, measurement) } else { Ok(measurement) }
}

/// Returns the heap to try at a level. If a confirmation fails, the search bisects a range that is not a power of
/// two, so its levels may not be multiples of the step.
fn whole(level: f64) -> f64 {
    (level / STEP).ceil() * STEP
}

/// Checks that the sample's loop succeeds with this heap.
fn trial(
    params: &AllocationParams,
    context: &Context,
    round: u32,
) -> Result<(TrialVerdict, Values), Failure> {
    let not = |values: Values| Ok((TrialVerdict::Fails, values));
    let enclave = match LoadedEnclave::load_untimed(&params.enclave, params.threads, context) {
        Ok(enclave) => enclave,
        Err(failure) if failure.kind == FailureKind::Unavailable => return Err(failure),
        Err(_) => return not(Values::new()),
    };
    let worked = EnclaveThreads::of(params.threads, context)
        .work(&enclave, |thread| allocate(&enclave, params, seed(round, thread)));
    let answers = match worked {
        Ok((answers, _)) => answers,
        // A thread cannot enter with such a heap.
        Err(failure) if failure.kind == FailureKind::Check => return not(Values::new()),
        Err(failure) => return Err(failure),
    };
    let failed_ecalls = answers.iter().filter(|answer| answer.is_err()).count();
    let flaws: Vec<_> = answers.into_iter().flatten().map(AllocErrors::from_answer).collect();
    let outside: u64 = flaws.iter().map(|flaws| flaws.outside).sum();
    if outside > 0 {
        return Err(Failure::check(format!("{outside} pointers were outside the enclave's heap")));
    }
    let nulls: u64 = flaws.iter().map(|flaws| flaws.nulls).sum();
    let values = Values::from([
        ("nulls".to_owned(), nulls as f64),
        ("failed_ecalls".to_owned(), failed_ecalls as f64),
    ]);
    let shown =
        if nulls == 0 && failed_ecalls == 0 { TrialVerdict::Holds } else { TrialVerdict::Fails };
    Ok((shown, values))
}

/// Measures, in two passes, which share of the point's heap small blocks can use.
fn drained(
    params: &AllocationParams,
    context: &Context,
    measurement: Measurement,
) -> Result<Measurement, Failure> {
    let enclave = LoadedEnclave::load_untimed(&params.enclave, params.threads, context)?;
    let inside = enclave.enclave();
    let block = checked(inside.malloc(BLOCK))?;
    if block == 0 {
        return Err(Failure::check(format!(
            "malloc of {BLOCK} B failed in a heap of {} pages",
            params.enclave.heap
        )));
    }
    let usable = checked(inside.usable_size(block))?;
    checked(inside.free(block))?;
    let first = checked(inside.drain(BLOCK))?;
    let second = checked(inside.drain(BLOCK))?;
    if usable < BLOCK || first == 0 {
        let why = format!("{first} blocks of {usable} B fit in {} pages", params.enclave.heap);
        return Err(Failure::check(why));
    }
    let used = (first * usable) as f64 / (params.enclave.heap as f64 * PAGE as f64);
    if used > 1.0 {
        return Err(Failure::check(format!(
            "blocks took {used:.3} of the heap that contains them"
        )));
    }
    Ok(measurement.value("usable", used).value("reusable", second as f64 / first as f64))
}
