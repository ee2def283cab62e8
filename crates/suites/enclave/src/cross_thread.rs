//! `enclave/cross-thread`: blocks that one thread allocates and another frees. On an emulated CPU they are counted and not
//! timed.

use enclave_interface::{Enter, MAX_SLOTS};
use lab::measure::{Context, Measurement};
use lab::sample::Failure;

use crate::allocation::{CHECKED, call_counts, common_metrics, expected_duration};
use crate::loaded::{self, LoadedEnclave, check_answers, clock, failed};
use crate::method::{EnclaveMethod, TIMES};
use crate::params::{CrossThreadParams, Mode};
use crate::threads::{EnclaveThreads, seed};

/// Slots per thread that the threads of larson share: twice the queue of the Open Enclave sample.
const SLOTS: u64 = 30;

/// The method that frees blocks on a different thread than allocated them.
pub static CROSS_THREAD: EnclaveMethod<CrossThreadParams> = EnclaveMethod {
    name: "cross-thread",
    how: "Threads allocate blocks that other threads free, or exchange them in shared slots; the time is from \
          the first thread's start to the last one's end. Each block contains its own address, which is \
          compared before it is freed.",
    metrics: TIMES,
    available,
    expected: |params, _| expected_duration(params.threads, params.num_allocations) * 2,
    measure,
};

fn available(params: &CrossThreadParams) -> Result<(), Failure> {
    let threads = params.threads;
    match params.mode {
        Mode::ProducerConsumer if !threads.is_multiple_of(2) => {
            let why = format!("{threads} threads do not form pairs of producer and consumer");
            return Err(Failure::unavailable(why, "use an even number of threads"));
        }
        Mode::Larson if SLOTS * threads > MAX_SLOTS => {
            let max = MAX_SLOTS / SLOTS;
            let why = format!("{threads} threads need more than the {MAX_SLOTS} slots of larson");
            return Err(Failure::unavailable(why, format!("use at most {max} threads")));
        }
        Mode::ProducerConsumer | Mode::Larson => {}
    }
    loaded::available(&params.enclave)
}

fn measure(context: &mut Context, params: &CrossThreadParams) -> Result<Measurement, Failure> {
    available(params)?;
    let tsc = clock(context)?;
    let CrossThreadParams { num_allocations: blocks, max_size, threads, mode, .. } = *params;
    let enclave = LoadedEnclave::load(&params.enclave, threads, context)?;
    let inside = enclave.enclave();
    let round = context.round;
    let enclave_threads = EnclaveThreads::of(threads, context);
    let (answers, time) = enclave_threads.work(&enclave, |thread| {
        let seed = seed(round, thread);
        match mode {
            Mode::Larson => inside.larson(blocks, SLOTS * threads, max_size, seed),
            Mode::ProducerConsumer if thread % 2 == 0 => inside.produce(blocks, max_size, seed),
            Mode::ProducerConsumer => inside.consume(blocks),
        }
    })?;
    let allocated = match mode {
        Mode::Larson => {
            check_answers(&answers)?;
            blocks * threads
        }
        Mode::ProducerConsumer => {
            let (producers, consumers): (Vec<_>, Vec<_>) =
                answers.into_iter().enumerate().partition(|(thread, _)| thread % 2 == 0);
            check_answers(&producers.into_iter().map(|(_, answer)| answer).collect::<Vec<_>>())?;
            for (thread, answer) in consumers {
                let freed = answer.map_err(|why| failed(thread, &why))?;
                if freed != blocks {
                    let why = format!("thread {thread} freed {freed} of {blocks} blocks");
                    return Err(Failure::check(why));
                }
            }
            blocks * threads / 2
        }
    };
    enclave.check_no_syscalls()?;
    let allocated = allocated as f64;
    let measurement = match tsc.map(|tsc| time.wall(tsc)) {
        Some(wall) => common_metrics(&enclave, wall, &time).value("rate", allocated * 1e9 / wall),
        None => call_counts(&enclave),
    };
    Ok(measurement.value(CHECKED, allocated))
}
