//! Runs batches of copies, in the caller or in a pool, and times them.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use lab::sample::Failure;
use machine::tsc;

use super::layout::Layout;
use super::params::{Mode, ThroughputParams};
use super::timed::{Call, Mover, Ring};
use crate::factors::Use;
use crate::pool::{Barrier, Panicked, Pool};

/// Bytes of jobs that a thread takes at once, where a job is shorter.
const GRAB: usize = 32 << 10;
/// Jobs that a thread takes at once, at most.
const MOST_JOBS: usize = 64;

/// Where a sample copies from and to: the first bytes of both buffers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spans {
    pub(super) destination: *mut u8,
    pub(super) source: *const u8,
}

// SAFETY: plain addresses. Threads copy within lanes of their own, or the same bytes to the same
// place as in the seed, through functions that know no Rust references.
unsafe impl Send for Spans {}
// SAFETY: as for Send.
unsafe impl Sync for Spans {}

impl Spans {
    fn lane(self, start: usize) -> Self {
        Self {
            destination: self.destination.wrapping_add(start),
            source: self.source.wrapping_add(start),
        }
    }
}

/// What copies, where, and in which order. Every call must lie within the lanes of valid spans.
pub(super) struct Walk<'a, M> {
    mover: M,
    pub(super) spans: Spans,
    layout: Layout,
    ring: &'a [Call],
    chain: bool,
}

impl<M: Mover> Walk<'_, M> {
    #[inline(always)]
    pub(super) fn copies(&self, spans: Spans, first: usize, count: usize) {
        let Spans { destination, source } = spans;
        // SAFETY: as `Runner::new` was promised.
        unsafe {
            match self.ring {
                calls if self.chain => {
                    self.mover.chained(destination, source, Ring { calls, first, count });
                }
                [call] => self.mover.fixed(destination, source, call.length as usize, count),
                calls => self.mover.walked(destination, source, Ring { calls, first, count }),
            }
        }
    }
}

/// What a sample runs again and again.
pub(super) struct Runner<'a, M> {
    walk: Walk<'a, M>,
    mode: Mode,
    pool: Option<&'a mut Pool>,
}

impl<'a, M: Mover + Sync> Runner<'a, M> {
    /// A runner over spans that hold what the layout asks for.
    ///
    /// # Safety
    /// Both spans must stay valid for the layout's bytes, must not overlap, and the ring must be of
    /// this layout.
    pub(super) unsafe fn new(
        mover: M,
        spans: Spans,
        layout: Layout,
        ring: &'a [Call],
        params: &ThroughputParams,
        pool: Option<&'a mut Pool>,
    ) -> Self {
        let chain = params.usage == Use::Latency;
        Self { walk: Walk { mover, spans, layout, ring, chain }, mode: params.mode, pool }
    }

    pub(super) fn mover(&self) -> &M {
        &self.walk.mover
    }

    /// Makes the copies from number `first` on; gives the ticks that they took.
    pub(super) fn batch(&mut self, first: usize, count: usize) -> Result<u64, Failure> {
        let Some(pool) = &mut self.pool else {
            let begin = tsc::start();
            self.walk.copies(self.walk.spans, first, count);
            return Ok(tsc::stop().saturating_sub(begin));
        };
        let stamps = Stamps::new(pool.threads());
        let batch = Batch { pool, stamps: &stamps, first, count };
        let outcome = match self.mode {
            Mode::Jobs => self.walk.jobs(batch),
            Mode::Split => self.walk.split(batch),
            Mode::Queue => self.walk.queue(batch),
        };
        outcome.map_err(|panicked| Failure::failed(panicked.to_string()))?;
        Ok(stamps.elapsed())
    }
}

/// The copies from number `first` on that the threads of a pool share out.
pub(super) struct Batch<'b> {
    pub(super) pool: &'b mut Pool,
    pub(super) stamps: &'b Stamps,
    pub(super) first: usize,
    pub(super) count: usize,
}

impl<M: Mover + Sync> Walk<'_, M> {
    /// Each thread takes whole copies, several at a time where they are short, by one counter.
    fn jobs(&self, batch: Batch<'_>) -> Result<(), Panicked> {
        let Batch { pool, stamps, first, count } = batch;
        let length = self.ring.iter().take(64).map(|call| call.length).max().unwrap_or(1) as usize;
        let fair = count.div_ceil(pool.threads().max(1));
        let grab = (GRAB / length.max(1)).clamp(1, MOST_JOBS).min(fair);
        let next = AtomicUsize::new(0);
        let body = |thread: usize, barrier: &Barrier| {
            let spans = self.spans.lane(thread % self.layout.lanes * self.layout.lane());
            barrier.wait();
            let begin = tsc::start();
            let mut worked = false;
            loop {
                let from = next.fetch_add(grab, Ordering::Relaxed);
                if from >= count {
                    break;
                }
                self.copies(spans, first + from, grab.min(count - from));
                worked = true;
            }
            if worked {
                stamps.set(thread, begin, tsc::stop());
            }
        };
        pool.run(&body)
    }

    /// All threads take part in each copy, and meet after it.
    fn split(&self, batch: Batch<'_>) -> Result<(), Panicked> {
        let Batch { pool, stamps, first, count } = batch;
        let (threads, mask) = (pool.threads(), self.ring.len() - 1);
        let body = |thread: usize, barrier: &Barrier| {
            let Spans { destination, source } = self.spans.lane(0);
            barrier.wait();
            let begin = tsc::start();
            for number in first..first + count {
                let call = self.ring[number & mask];
                let (from, length) = slice(call.length as usize, thread, threads);
                if length > 0 {
                    // SAFETY: a slice of a call, as `new` was promised; the slices do not overlap.
                    unsafe { self.mover.copy(destination, source, call.at as usize + from, length) }
                }
                barrier.wait();
            }
            stamps.set(thread, begin, tsc::stop());
        };
        pool.run(&body)
    }
}

/// A thread's part of a copy: where it begins, and its bytes. Parts begin at multiples of 64 bytes.
fn slice(length: usize, thread: usize, threads: usize) -> (usize, usize) {
    let part = length.div_ceil(threads).next_multiple_of(64);
    let from = (part * thread).min(length);
    (from, part.min(length - from))
}

/// When each thread began and ended, by the counter that all cores share.
pub(super) struct Stamps(Vec<(AtomicU64, AtomicU64)>);

impl Stamps {
    fn new(threads: usize) -> Self {
        Self((0..threads).map(|_| (AtomicU64::new(u64::MAX), AtomicU64::new(0))).collect())
    }

    pub(super) fn set(&self, thread: usize, begin: u64, end: u64) {
        self.0[thread].0.store(begin, Ordering::Relaxed);
        self.0[thread].1.store(end, Ordering::Relaxed);
    }

    /// From the first begin to the last end of the threads that copied.
    fn elapsed(&self) -> u64 {
        let begins = self.0.iter().map(|stamp| stamp.0.load(Ordering::Relaxed)).min();
        let ends = self.0.iter().map(|stamp| stamp.1.load(Ordering::Relaxed)).max();
        ends.unwrap_or(0).saturating_sub(begins.unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::throughput::placed::Places;
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
        // SAFETY: as the caller promises.
        unsafe { std::ptr::copy_nonoverlapping(source, destination, length) }
    }

    /// What a run of so many copies leaves in the destination, from a source of counted bytes.
    fn delivered(
        params: &ThroughputParams,
        layout: Layout,
        ring: &[Call],
        count: usize,
    ) -> (Vec<u8>, Vec<u8>) {
        let source: Vec<u8> = (0..layout.bytes()).map(|at| (at * 7 + at / 256 + 1) as u8).collect();
        let mut destination = vec![0; layout.bytes()];
        let spans = Spans { destination: destination.as_mut_ptr(), source: source.as_ptr() };
        let cpus = allowed_cpus();
        let mut pool = Pool::new(params.threads, &cpus).unwrap();
        let pooled = (params.threads > 0).then_some(&mut pool);
        let mut places = Places::default();
        let mover = places.function("plain", plain, 1).unwrap();
        // SAFETY: both buffers hold the layout's bytes and outlive the runner.
        let mut runner = unsafe { Runner::new(mover, spans, layout, ring, params, pooled) };
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
    fn a_dependent_chain_delivers_too() {
        let params = ThroughputParams { usage: Use::Latency, ..ThroughputParams::default() };
        let layout = Layout { stride: 64, slots: 4, lanes: 1 };
        let ring: Vec<Call> = (0..4).map(|slot| Call { at: slot * 64, length: 64 }).collect();
        let (source, destination) = delivered(&params, layout, &ring, 9);
        assert_eq!(source, destination);
    }
}
