//! `enclave/heap`: the smallest heap with which nothing fails, and what of a heap can be used.

use std::time::Duration;

use enclave_interface::Enter;
use lab::measure::{Context, Measurement};
use lab::method::Probe;
use lab::point::Point;
use lab::sample::{Failure, FailureKind, Trial};
use lab::search::{Search, Shown, Values, smallest};

use crate::allocation::LOADING;
use crate::conf::PAGE;
use crate::crew::Crew;
use crate::entered::{self, Entered, Flaws, failed};
use crate::setting::Setting;

/// The step in which heaps are tried, pages.
const STEP: f64 = 2.0;
/// The largest heap tried, pages: four times the seed's.
const LARGEST: u64 = 16384;
/// How many further trials must hold.
const CONFIRMATIONS: u32 = 2;
/// The size of the blocks that drain a heap, bytes.
const BLOCK: u64 = 64;

/// What measures the points of one order.
pub fn probe() -> Box<dyn Probe> {
    Box::new(Heap)
}

struct Heap;

impl Probe for Heap {
    fn measure(&mut self, context: &mut Context, point: &Point) -> Result<Measurement, Failure> {
        let setting = Setting::of(point)?;
        // What this machine lacks, or could not link, is no heap that is too small.
        entered::available_with_own_heap(&setting)?;
        entered::linked(&setting, context)?;
        let top = LARGEST as f64;
        let search =
            Search { low: STEP, high: top + STEP, precision: STEP, confirmations: CONFIRMATIONS };
        let mut trials = 0;
        let found = smallest(&search, |pages| {
            trials += 1;
            let tried = Setting { heap: whole(pages) as u64, ..setting.clone() };
            trial(&tried, context, context.round * 64 + trials)
        })?;
        let Some(pages) = found.level.map(whole) else {
            let why = format!("no heap up to {LARGEST} pages was enough");
            return Err(Failure::check(why));
        };
        let trials = found.trials.into_iter();
        let trials = trials.map(|trial| Trial { level: whole(trial.level), ..trial }).collect();
        let measurement = Measurement { trials, ..Measurement::default() }
            .value("pages", pages)
            .value("heap_a_thread", pages * PAGE as f64 / setting.threads as f64);
        // Draining is one thread's.
        if setting.threads == 1 { drained(&setting, context, measurement) } else { Ok(measurement) }
    }
}

/// The heap that is tried at a level: where a confirmation failed the search halves a range that is no
/// power of two, and its levels are no whole steps.
fn whole(level: f64) -> f64 {
    (level / STEP).ceil() * STEP
}

/// Whether the seed's loop fails nowhere with this heap.
fn trial(setting: &Setting, context: &Context, round: u32) -> Result<(Shown, Values), Failure> {
    let not = |values: Values| Ok((Shown::Fails, values));
    let enclave = match Entered::load(setting, context) {
        Ok(enclave) => enclave,
        Err(failure) if failure.kind == FailureKind::Unavailable => return Err(failure),
        Err(_) => return not(Values::new()),
    };
    let worked = Crew::of(setting.threads, context).work(&enclave, |thread| {
        let Setting { num_allocations, max_size, touch, .. } = *setting;
        let seed = Setting::seed(round, thread);
        enclave.enclave().enclave_thread(num_allocations, max_size, seed, u64::from(touch))
    });
    let answers = match worked {
        Ok((answers, _)) => answers,
        // A thread that cannot enter such a heap.
        Err(failure) if failure.kind == FailureKind::Check => return not(Values::new()),
        Err(failure) => return Err(failure),
    };
    let failed_ecalls = answers.iter().filter(|answer| answer.is_err()).count();
    let flaws: Vec<_> = answers.into_iter().flatten().map(Flaws::told).collect();
    let outside: u64 = flaws.iter().map(|flaws| flaws.outside).sum();
    if outside > 0 {
        return Err(Failure::check(format!("{outside} pointers lay outside the enclave's heap")));
    }
    let nulls: u64 = flaws.iter().map(|flaws| flaws.nulls).sum();
    let values = Values::from([
        ("nulls".to_owned(), nulls as f64),
        ("failed_ecalls".to_owned(), failed_ecalls as f64),
    ]);
    let shown = if nulls == 0 && failed_ecalls == 0 { Shown::Holds } else { Shown::Fails };
    Ok((shown, values))
}

/// How much of the point's heap small blocks can use, twice.
fn drained(
    setting: &Setting,
    context: &Context,
    measurement: Measurement,
) -> Result<Measurement, Failure> {
    let enclave = Entered::load(setting, context)?;
    let inside = enclave.enclave();
    let told = |answer: Result<u64, _>| answer.map_err(|why| failed(0, &why));
    let block = told(inside.malloc(BLOCK))?;
    if block == 0 {
        return Err(Failure::check(format!("a heap of {} pages has no room at all", setting.heap)));
    }
    let usable = told(inside.usable_size(block))?;
    told(inside.free(block))?;
    let first = told(inside.drain(BLOCK))?;
    let second = told(inside.drain(BLOCK))?;
    if usable < BLOCK || first == 0 {
        let why = format!("{first} blocks of {usable} B fit in {} pages", setting.heap);
        return Err(Failure::check(why));
    }
    let used = (first * usable) as f64 / (setting.heap as f64 * PAGE as f64);
    if used > 1.0 {
        return Err(Failure::check(format!("blocks took {used:.3} of the heap that holds them")));
    }
    Ok(measurement.value("usable", used).value("comes_back", second as f64 / first as f64))
}

/// How long a sample takes: every trial of the search.
pub fn expected(point: &Point) -> Duration {
    /// Halvings of the range, the first trial and the confirmations.
    const TRIALS: u32 = 16;
    crate::allocation::expected(point) * TRIALS + LOADING
}
