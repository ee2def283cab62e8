//! Memory that one thread allocates and another frees: larson's slots, and a queue.

use crate::allocator;
use crate::arch::Host;
use crate::workload::{Random, Tally};
use core::cell::UnsafeCell;
use core::hint::spin_loop;
use core::ptr;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};
use interface::{Leave, MAX_SLOTS};

/// The minimum length of a block, which stores a pointer.
const MIN_SIZE: u64 = 8;

/// Larson's blocks.
static SLOTS: [AtomicPtr<u8>; MAX_SLOTS as usize] =
    [const { AtomicPtr::new(ptr::null_mut()) }; MAX_SLOTS as usize];
/// Number of threads that use the slots.
static ACTIVE_THREADS: AtomicU64 = AtomicU64::new(0);

/// Allocates a block of a size below the maximum, and stores its own address in it.
fn block(random: &mut Random, max_size: u64, tally: &mut Tally) -> *mut u8 {
    let block = tally.malloc(random.below(max_size).max(MIN_SIZE));
    if !block.is_null() {
        // SAFETY: the block is long enough and aligned.
        unsafe { block.cast::<*mut u8>().write(block) };
    }
    block
}

/// Frees a block. If the block does not contain its own address, it was overwritten, and the call ends with a fault.
fn free(block: *mut u8) {
    if block.is_null() {
        return;
    }
    // SAFETY: the block is valid, and only this thread has it.
    if unsafe { block.cast::<*mut u8>().read() } != block {
        crate::arch::trap();
    }
    // SAFETY: the block is valid, and only this thread has it.
    unsafe { allocator::free(block) };
}

/// Runs one thread of larson. The last thread to leave frees the remaining blocks.
pub fn larson(rounds: u64, slots: u64, max_size: u64, seed: u64) -> u64 {
    let slots = &SLOTS[..slots.min(MAX_SLOTS) as usize];
    let mut random = Random::new(seed);
    let mut tally = Tally::default();
    ACTIVE_THREADS.fetch_add(1, AcqRel);
    for _ in 0..rounds {
        let new = block(&mut random, max_size, &mut tally);
        if let Some(slot) = slots.get(random.below(slots.len() as u64) as usize) {
            free(slot.swap(new, AcqRel));
        } else {
            free(new);
        }
    }
    if ACTIVE_THREADS.fetch_sub(1, AcqRel) == 1 {
        SLOTS.iter().for_each(|slot| free(slot.swap(ptr::null_mut(), AcqRel)));
    }
    tally.word()
}

/// Number of blocks that the queue can contain.
const QUEUE_LENGTH: usize = 1024;

/// How often a thread checks the sequence number before it leaves the enclave to sleep.
const MAX_SPINS: usize = 1 << 12;

/// An entry of the queue. Its sequence number is incremented when it is filled and when it is emptied.
#[repr(align(64))]
struct Entry {
    sequence: AtomicU32,
    /// Number of threads that sleep outside.
    waiting: AtomicU32,
    block: UnsafeCell<*mut u8>,
}

impl Entry {
    const fn empty() -> Self {
        let (sequence, waiting) = (AtomicU32::new(0), AtomicU32::new(0));
        Self { sequence, waiting, block: UnsafeCell::new(ptr::null_mut()) }
    }

    /// Waits for a sequence number: inside for a while, then outside, because the other thread may need this core.
    fn wait(&self, sequence: u32) {
        for _ in 0..MAX_SPINS {
            if self.sequence.load(Acquire) == sequence {
                return;
            }
            spin_loop();
        }
        self.waiting.fetch_add(1, SeqCst);
        loop {
            let now = self.sequence.load(SeqCst);
            if now == sequence {
                break;
            }
            let Ok(_) = Host.wait(self.sequence.as_ptr() as u64, u64::from(now));
        }
        self.waiting.fetch_sub(1, SeqCst);
    }

    /// Increments the sequence number, and wakes the threads that wait for it.
    fn advance(&self) {
        self.sequence.fetch_add(1, SeqCst);
        if self.waiting.load(SeqCst) > 0 {
            let Ok(_) = Host.wake(self.sequence.as_ptr() as u64, u64::from(u32::MAX));
        }
    }
}

/// The queue from `produce` to `consume`.
#[repr(align(64))]
struct Queue {
    entries: [Entry; QUEUE_LENGTH],
    head: Cursor,
    tail: Cursor,
}

/// A cursor on its own cache line.
#[repr(align(64))]
struct Cursor(AtomicUsize);

// SAFETY: only the thread that waited for the entry's sequence number accesses its block.
unsafe impl Sync for Queue {}

static QUEUE: Queue = Queue {
    entries: [const { Entry::empty() }; QUEUE_LENGTH],
    head: Cursor(AtomicUsize::new(0)),
    tail: Cursor(AtomicUsize::new(0)),
};

impl Queue {
    /// Advances a cursor and waits for the entry: the n-th lap fills it at 2n and empties it at 2n + 1.
    fn entry(&self, cursor: &Cursor, filled: usize) -> &Entry {
        let at = cursor.0.fetch_add(1, Relaxed);
        let entry = &self.entries[at % QUEUE_LENGTH];
        entry.wait((at / QUEUE_LENGTH * 2 + filled) as u32);
        entry
    }

    /// Adds a block; waits while the queue is full.
    fn put(&self, block: *mut u8) {
        let entry = self.entry(&self.tail, 0);
        // SAFETY: this thread has waited for the entry.
        unsafe { entry.block.get().write(block) };
        entry.advance();
    }

    /// Removes a block; waits while the queue is empty.
    fn take(&self) -> *mut u8 {
        let entry = self.entry(&self.head, 1);
        // SAFETY: this thread has waited for the entry.
        let block = unsafe { entry.block.get().read() };
        entry.advance();
        block
    }
}

/// Allocates blocks and puts them into the queue, also NULL, so that the numbers of both sides match.
pub fn produce(blocks: u64, max_size: u64, seed: u64) -> u64 {
    let mut random = Random::new(seed);
    let mut tally = Tally::default();
    for _ in 0..blocks {
        QUEUE.put(block(&mut random, max_size, &mut tally));
    }
    tally.word()
}

/// Takes blocks from the queue and frees them; returns how many were not NULL.
pub fn consume(blocks: u64) -> u64 {
    let mut freed = 0;
    for _ in 0..blocks {
        let block = QUEUE.take();
        freed += u64::from(!block.is_null());
        free(block);
    }
    freed
}
