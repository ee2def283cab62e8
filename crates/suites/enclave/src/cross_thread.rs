//! `enclave/cross-thread`: memory that another thread frees than allocated it.

use std::time::Duration;

use enclave_interface::{Enter, MAX_SLOTS};
use lab::measure::{Context, Measurement};
use lab::method::Probe;
use lab::point::Point;
use lab::sample::Failure;

use crate::allocation::timed;
use crate::crew::Crew;
use crate::entered::{self, Entered, failed, flawless};
use crate::setting::Setting;

/// Blocks that larson's threads share, for each thread: twice the seed's queue.
const SLOTS: u64 = 30;

/// What measures the points of one order.
pub fn probe() -> Box<dyn Probe> {
    Box::new(CrossThread)
}

/// Whether a point can be measured here.
///
/// # Errors
/// The reason why not, and the remedy.
pub fn available(point: &Point) -> Result<(), Failure> {
    let setting = Setting::of(point)?;
    if point.text("mode") == "producer-consumer" && !setting.threads.is_multiple_of(2) {
        let why = format!("{} threads are no pairs of producer and consumer", setting.threads);
        return Err(Failure::unavailable(why, "take an even number of threads"));
    }
    if point.text("mode") != "producer-consumer" && SLOTS * setting.threads > MAX_SLOTS {
        let most = MAX_SLOTS / SLOTS;
        let why =
            format!("{} threads need more than the {MAX_SLOTS} slots of larson", setting.threads);
        return Err(Failure::unavailable(why, format!("take at most {most} threads")));
    }
    entered::available(&setting)
}

struct CrossThread;

impl Probe for CrossThread {
    fn measure(&mut self, context: &mut Context, point: &Point) -> Result<Measurement, Failure> {
        available(point)?;
        let tsc = context.tsc()?;
        let setting = Setting::of(point)?;
        let enclave = Entered::load(&setting, context)?;
        let inside = enclave.enclave();
        let Setting { num_allocations: blocks, max_size, threads, .. } = setting;
        let round = context.round;
        let crew = Crew::of(threads, context);
        let pairs = point.text("mode") == "producer-consumer";
        let (answers, took) = crew.work(&enclave, |thread| {
            let seed = Setting::seed(round, thread);
            match (pairs, thread % 2) {
                (false, _) => inside.larson(blocks, SLOTS * threads, max_size, seed),
                (true, 0) => inside.produce(blocks, max_size, seed),
                (true, _) => inside.consume(blocks),
            }
        })?;
        let allocated = if pairs {
            let (producers, consumers): (Vec<_>, Vec<_>) =
                answers.into_iter().enumerate().partition(|(thread, _)| thread % 2 == 0);
            flawless(&producers.into_iter().map(|(_, answer)| answer).collect::<Vec<_>>())?;
            for (thread, answer) in consumers {
                let freed = answer.map_err(|why| failed(thread, &why))?;
                if freed != blocks {
                    let why = format!("thread {thread} freed {freed} of {blocks} blocks");
                    return Err(Failure::check(why));
                }
            }
            blocks * threads / 2
        } else {
            flawless(&answers)?;
            blocks * threads
        };
        enclave.behaved()?;
        let wall = took.wall(tsc);
        Ok(timed(&enclave, wall, &took).value("rate", allocated as f64 * 1e9 / wall))
    }
}

/// How long a sample takes.
pub fn expected(point: &Point) -> Duration {
    available(point).map_or(Duration::ZERO, |()| crate::allocation::expected(point) * 2)
}
