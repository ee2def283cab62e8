//! Runs and times batches of copies, in the caller or in a thread pool.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use lab::sample::Failure;
use machine::tsc;

use super::copiers::{CallRange, Copier};
use super::layout::Layout;
use super::params::{Mode, ThroughputParams};
use crate::levels::TimingMode;
use crate::memory::Call;
use crate::pool::{Barrier, ThreadPool};

/// Bytes that a thread takes at once if jobs are shorter.
const GRAB: usize = 32 << 10;
/// Maximum jobs that a thread takes at once.
const MAX_JOBS: usize = 64;

/// Jobs queued at once: the runs of ESCAPE's example.
pub(super) const QUEUED: usize = 1000;
/// How long the threads of `memcpy_test` sleep between two attempts.
const POLL: Duration = Duration::from_micros(10);

/// The first bytes of both buffers of a sample.
#[derive(Debug, Clone, Copy)]
pub(super) struct BasePointers {
    pub(super) destination: *mut u8,
    pub(super) source: *const u8,
}

// SAFETY: the fields are plain addresses. Threads copy within separate lanes, or the same bytes to
// the same address as in `memcpy_test`, through functions without Rust references.
unsafe impl Send for BasePointers {}
// SAFETY: threads share only plain addresses, and copy without Rust references.
unsafe impl Sync for BasePointers {}

impl BasePointers {
    fn lane(self, start: usize) -> Self {
        Self {
            destination: self.destination.wrapping_add(start),
            source: self.source.wrapping_add(start),
        }
    }
}

/// The copies of a sample, in order. Every call must be within the lanes of valid buffers.
struct Walk<'a, M> {
    copier: M,
    bases: BasePointers,
    layout: Layout,
    ring: &'a [Call],
    chain: bool,
}

impl<M: Copier> Walk<'_, M> {
    /// Returns the part of both buffers in which a thread makes whole copies.
    fn lane_of(&self, thread: usize) -> BasePointers {
        self.bases.lane(thread % self.layout.lanes * self.layout.lane())
    }

    #[inline(always)]
    fn copies(&self, bases: BasePointers, first: usize, count: usize) {
        let BasePointers { destination, source } = bases;
        // SAFETY: the caller of `Runner::new` guarantees the buffers and the ring.
        unsafe {
            match self.ring {
                calls if self.chain => {
                    self.copier.chained(destination, source, CallRange { calls, first, count });
                }
                [call] => self.copier.fixed(destination, source, call.length as usize, count),
                calls => self.copier.walked(destination, source, CallRange { calls, first, count }),
            }
        }
    }
}

/// Runs the batches of a sample.
pub(super) struct Runner<'a, M> {
    walk: Walk<'a, M>,
    mode: Mode,
    pool: Option<&'a mut ThreadPool>,
}

impl<'a, M: Copier + Sync> Runner<'a, M> {
    /// Creates a runner over buffers of the layout's size.
    ///
    /// # Safety
    /// Both buffers must be valid for the layout's bytes and must not overlap, and the ring must belong
    /// to this layout.
    pub(super) unsafe fn new(
        copier: M,
        bases: BasePointers,
        layout: Layout,
        ring: &'a [Call],
        params: &ThroughputParams,
        pool: Option<&'a mut ThreadPool>,
    ) -> Self {
        let chain = params.usage == TimingMode::Latency;
        Self { walk: Walk { copier, bases, layout, ring, chain }, mode: params.mode, pool }
    }

    pub(super) fn copier(&self) -> &M {
        &self.walk.copier
    }

    /// Makes `count` copies from index `first` on. Returns their duration in ticks.
    pub(super) fn batch(&mut self, first: usize, count: usize) -> Result<u64, Failure> {
        let Some(pool) = &mut self.pool else {
            let start = tsc::start();
            self.walk.copies(self.walk.bases, first, count);
            return Ok(tsc::stop().saturating_sub(start));
        };
        let stamps = Stamps::new(pool.threads());
        let batch = Batch { pool, stamps: &stamps, first, count };
        let outcome = match self.mode {
            Mode::Jobs => self.walk.jobs(batch),
            Mode::Split => self.walk.split(batch),
            Mode::Queue => self.walk.queue(batch),
        };
        outcome?;
        Ok(stamps.elapsed())
    }

    /// Makes `count` copies from index `first` on, untimed. Threads that share the copies of a timed batch make all of
    /// them here, each in its lane, so that the scheduler cannot leave a thread without a copy.
    pub(super) fn untimed(&mut self, first: usize, count: usize) -> Result<(), Failure> {
        let Some(pool) = self.pool.as_mut().filter(|_| self.mode == Mode::Jobs) else {
            return self.batch(first, count).map(drop);
        };
        let walk = &self.walk;
        let body = |thread: usize, barrier: &Barrier| {
            barrier.wait();
            walk.copies(walk.lane_of(thread), first, count);
        };
        pool.run(&body)
    }
}

/// A batch that the threads of a pool share.
struct Batch<'b> {
    pool: &'b mut ThreadPool,
    stamps: &'b Stamps,
    first: usize,
    count: usize,
}

impl<M: Copier + Sync> Walk<'_, M> {
    /// Each thread takes whole copies from one counter, several at a time if they are short.
    fn jobs(&self, batch: Batch<'_>) -> Result<(), Failure> {
        let Batch { pool, stamps, first, count } = batch;
        let length = self.ring.iter().take(64).map(|call| call.length).max().unwrap_or(1) as usize;
        let fair = count.div_ceil(pool.threads().max(1));
        let grab = (GRAB / length.max(1)).clamp(1, MAX_JOBS).min(fair);
        let next = AtomicUsize::new(0);
        let body = |thread: usize, barrier: &Barrier| {
            let bases = self.lane_of(thread);
            barrier.wait();
            let begin = tsc::start();
            let mut worked = false;
            loop {
                let from = next.fetch_add(grab, Ordering::Relaxed);
                if from >= count {
                    break;
                }
                self.copies(bases, first + from, grab.min(count - from));
                worked = true;
            }
            if worked {
                stamps.set(thread, begin, tsc::stop());
            }
        };
        pool.run(&body)
    }

    /// All threads take part in each copy and meet after it.
    fn split(&self, batch: Batch<'_>) -> Result<(), Failure> {
        let Batch { pool, stamps, first, count } = batch;
        let (threads, mask) = (pool.threads(), self.ring.len() - 1);
        let body = |thread: usize, barrier: &Barrier| {
            let BasePointers { destination, source } = self.bases.lane(0);
            barrier.wait();
            let begin = tsc::start();
            for number in first..first + count {
                let call = self.ring[number & mask];
                let (from, length) = slice(call.length as usize, thread, threads);
                if length > 0 {
                    // SAFETY: the slice is part of a call that the caller of `new` guarantees; slices are disjoint.
                    unsafe {
                        self.copier.copy(destination, source, call.at as usize + from, length)
                    }
                }
                barrier.wait();
            }
            stamps.set(thread, begin, tsc::stop());
        };
        pool.run(&body)
    }

    /// Threads take jobs from a locked queue as in ESCAPE's `memcpy_test`, to measure its cost: each run
    /// is a job in an array behind a mutex. A pop shifts the array, and a thread that finds it empty
    /// sleeps before it tries again. All jobs copy the same bytes to the same address.
    fn queue(&self, batch: Batch<'_>) -> Result<(), Failure> {
        let Batch { pool, stamps, first, count } = batch;
        let jobs = Mutex::new(Vec::with_capacity(QUEUED));
        let left = || jobs.lock().unwrap_or_else(PoisonError::into_inner);
        let pop = || {
            let mut jobs = left();
            // As in `memcpy_test`, the remaining array moves up.
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
                    self.copies(self.bases, number, 1);
                }
                std::thread::sleep(POLL);
                barrier.wait();
            }
            stamps.set(thread, begin, tsc::stop());
        };
        pool.run(&body)
    }
}

/// Returns the start and length of a thread's slice of a copy. Slices start at multiples of 64 bytes.
fn slice(length: usize, thread: usize, threads: usize) -> (usize, usize) {
    let part = length.div_ceil(threads).next_multiple_of(64);
    let from = (part * thread).min(length);
    (from, part.min(length - from))
}

/// Start and end of each thread, by the time-stamp counter that all cores share.
struct Stamps(Vec<(AtomicU64, AtomicU64)>);

impl Stamps {
    fn new(threads: usize) -> Self {
        Self((0..threads).map(|_| (AtomicU64::new(u64::MAX), AtomicU64::new(0))).collect())
    }

    fn set(&self, thread: usize, begin: u64, end: u64) {
        self.0[thread].0.store(begin, Ordering::Relaxed);
        self.0[thread].1.store(end, Ordering::Relaxed);
    }

    /// Returns the ticks from the first start to the last end of the threads that copied.
    fn elapsed(&self) -> u64 {
        let begins = self.0.iter().map(|stamp| stamp.0.load(Ordering::Relaxed)).min();
        let ends = self.0.iter().map(|stamp| stamp.1.load(Ordering::Relaxed)).max();
        ends.unwrap_or(0).saturating_sub(begins.unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::throughput::placed::PlacedLoops;
    use machine::topology::allowed_cpus;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn slices_cover_a_copy_once(length in 1usize..1 << 28, threads in 1usize..=64) {
            let mut next = 0;
            for thread in 0..threads {
                let (from, bytes) = slice(length, thread, threads);
                if bytes > 0 {
                    prop_assert_eq!(from, next);
                    prop_assert_eq!(from % 64, 0);
                }
                next = from + bytes;
            }
            prop_assert_eq!(next, length);
        }
    }

    unsafe extern "C" fn plain(destination: *mut u8, source: *const u8, length: usize) {
        // SAFETY: the caller guarantees the same contract.
        unsafe { std::ptr::copy_nonoverlapping(source, destination, length) }
    }

    /// Returns the source and the destination after `count` copies.
    fn delivered(
        params: &ThroughputParams,
        layout: Layout,
        ring: &[Call],
        count: usize,
    ) -> (Vec<u8>, Vec<u8>) {
        let source: Vec<u8> = (0..layout.bytes()).map(|at| (at * 7 + at / 256 + 1) as u8).collect();
        let mut destination = vec![0; layout.bytes()];
        let bases = BasePointers { destination: destination.as_mut_ptr(), source: source.as_ptr() };
        let cpus = allowed_cpus();
        let mut pool = ThreadPool::new(params.threads, &cpus).unwrap();
        let pooled = (params.threads > 0).then_some(&mut pool);
        let mut loops = PlacedLoops::default();
        let copier = loops.function("plain", plain, 1).unwrap();
        // SAFETY: both buffers have the layout's bytes and outlive the runner.
        let mut runner = unsafe { Runner::new(copier, bases, layout, ring, params, pooled) };
        assert!(runner.batch(0, count).unwrap() > 0);
        (source, destination)
    }

    #[test]
    fn a_split_copy_delivers_every_byte_for_1_to_8_threads() {
        for threads in 0..=8 {
            for length in [1, 63, 64, 65, 1000, 4096, 100_003] {
                let params =
                    ThroughputParams { threads, mode: Mode::Split, ..ThroughputParams::default() };
                let layout = Layout { stride: length, slots: 1, lanes: 1 };
                let ring = [Call { at: 0, length: length as u32 }];
                let (source, destination) = delivered(&params, layout, &ring, 3);
                assert_eq!(source, destination, "{threads} threads, {length} B");
            }
        }
    }

    #[test]
    fn jobs_deliver_every_copy_for_0_to_8_threads() {
        for threads in 0..=8 {
            for length in [1_usize, 16, 4096, 100_003] {
                let layout = Layout { stride: length, slots: 8, lanes: 1 };
                let params = ThroughputParams { threads, ..ThroughputParams::default() };
                let ring: Vec<Call> = (0..8)
                    .map(|slot| Call { at: slot * length as u32, length: length as u32 })
                    .collect();
                let (source, destination) = delivered(&params, layout, &ring, 8);
                assert_eq!(source, destination, "{threads} threads, {length} B");
            }
        }
    }

    #[test]
    fn every_thread_makes_untimed_copies_in_its_lane() {
        const THREADS: usize = 16;
        let layout = Layout { stride: 4096, slots: 2, lanes: THREADS };
        let ring = [Call { at: 0, length: 4096 }, Call { at: 4096, length: 4096 }];
        let params = ThroughputParams { threads: THREADS, ..ThroughputParams::default() };
        let source: Vec<u8> = (0..layout.bytes()).map(|at| (at * 7 + at / 256 + 1) as u8).collect();
        let mut destination = vec![0; layout.bytes()];
        let bases = BasePointers { destination: destination.as_mut_ptr(), source: source.as_ptr() };
        let mut pool = ThreadPool::new(THREADS, &allowed_cpus()).unwrap();
        let mut loops = PlacedLoops::default();
        let copier = loops.function("plain", plain, 1).unwrap();
        // SAFETY: both buffers have the layout's bytes and outlive the runner.
        let mut runner =
            unsafe { Runner::new(copier, bases, layout, &ring, &params, Some(&mut pool)) };
        runner.untimed(0, 2).unwrap();
        let lanes = layout.lane();
        for lane in 0..THREADS {
            let part = lane * lanes..lane * lanes + 8192;
            assert!(source[part.clone()] == destination[part], "thread {lane}");
        }
    }

    #[test]
    fn a_queue_delivers_every_copy() {
        let layout = Layout { stride: 16, slots: 8, lanes: 1 };
        let ring: Vec<Call> = (0..8).map(|slot| Call { at: slot * 16, length: 16 }).collect();
        for threads in 1..=4 {
            let params =
                ThroughputParams { threads, mode: Mode::Queue, ..ThroughputParams::default() };
            let (source, destination) = delivered(&params, layout, &ring, 2005);
            assert_eq!(source, destination, "{threads} threads");
        }
    }

    #[test]
    fn a_dependent_chain_delivers_every_copy() {
        let params = ThroughputParams { usage: TimingMode::Latency, ..ThroughputParams::default() };
        let layout = Layout { stride: 64, slots: 4, lanes: 1 };
        let ring: Vec<Call> = (0..4).map(|slot| Call { at: slot * 64, length: 64 }).collect();
        let (source, destination) = delivered(&params, layout, &ring, 9);
        assert_eq!(source, destination);
    }
}
