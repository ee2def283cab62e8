//! The source's own way of handing out copies, to measure what it costs: `mode = queue`.
//!
//! Each run of its tool is a job in an array behind a mutex; a pop shifts the array, and whoever
//! finds it empty looks again after a sleep of 10 us. All jobs copy the same bytes to the same place.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use machine::tsc;

use super::runner::{Batch, Walk};
use super::timed::Mover;
use crate::pool::{Barrier, Panicked};

/// Jobs that are queued at once: the runs of the source's example.
pub(super) const QUEUED: usize = 1000;
/// How long the source's threads sleep before they look again.
const POLL: Duration = Duration::from_micros(10);

impl<M: Mover + Sync> Walk<'_, M> {
    pub(super) fn queue(&self, batch: Batch<'_>) -> Result<(), Panicked> {
        let Batch { pool, stamps, first, count } = batch;
        let jobs = Mutex::new(Vec::with_capacity(QUEUED));
        let left = || jobs.lock().unwrap_or_else(PoisonError::into_inner);
        let pop = || {
            let mut jobs = left();
            // As there: the rest of the array moves up.
            if jobs.is_empty() { None } else { Some(jobs.remove(0)) }
        };
        let body = |thread: usize, barrier: &Barrier| {
            barrier.wait();
            let begin = tsc::start();
            for queued in (0..count).step_by(QUEUED) {
                if thread == 0 {
                    for number in queued..count.min(queued + QUEUED) {
                        left().push(first + number);
                    }
                } else {
                    std::thread::sleep(POLL);
                }
                while let Some(number) = pop() {
                    self.copies(self.spans, number, 1);
                }
                std::thread::sleep(POLL);
                barrier.wait();
            }
            stamps.set(thread, begin, tsc::stop());
        };
        pool.run(&body)
    }
}
