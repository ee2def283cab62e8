//! Memory that one thread allocates and another frees: larson's slots, and a queue.

use crate::allocator;
use crate::heap::Tally;
use crate::random::Random;
use crate::runtime::Host;
use core::cell::UnsafeCell;
use core::hint::spin_loop;
use core::ptr;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};
use interface::{Leave, MAX_SLOTS};

/// A block is at least as long as what is written into it.
const MIN_SIZE: u64 = 8;

/// Larson's blocks.
static SLOTS: [AtomicPtr<u8>; MAX_SLOTS as usize] =
    [const { AtomicPtr::new(ptr::null_mut()) }; MAX_SLOTS as usize];
/// How many threads are at them.
static ACTIVE_THREADS: AtomicU64 = AtomicU64::new(0);

/// Allocates a block of a size below the largest, which says its own address.
fn block(random: &mut Random, max_size: u64, tally: &mut Tally) -> *mut u8 {
    let block = tally.malloc(random.below(max_size).max(MIN_SIZE));
    if !block.is_null() {
        // SAFETY: it is long enough, and aligned.
        unsafe { block.cast::<*mut u8>().write(block) };
    }
    block
}

/// Frees a block. One that does not say its own address was overwritten, and ends the call with a fault.
fn free(block: *mut u8) {
    if block.is_null() {
        return;
    }
    // SAFETY: the block is whole, and this thread alone has it.
    if unsafe { block.cast::<*mut u8>().read() } != block {
        crate::arch::trap();
    }
    // SAFETY: as above.
    unsafe { allocator::free(block) };
}

/// One thread's part of larson. The last to leave frees what is left.
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

/// How many blocks the queue holds.
const QUEUE_LENGTH: usize = 1024;

/// How often a thread looks for its turn before it leaves the enclave to wait.
const MAX_SPINS: usize = 1 << 12;

/// A place of the queue. Its turn counts up by one when it is filled and by one when it is emptied.
#[repr(align(64))]
struct Entry {
    turn: AtomicU32,
    /// How many wait outside.
    waiting: AtomicU32,
    block: UnsafeCell<*mut u8>,
}

impl Entry {
    const fn empty() -> Self {
        let (turn, waiting) = (AtomicU32::new(0), AtomicU32::new(0));
        Self { turn, waiting, block: UnsafeCell::new(ptr::null_mut()) }
    }

    /// Waits for a turn: inside for a while, then outside, since the other thread may need this core.
    fn wait(&self, turn: u32) {
        for _ in 0..MAX_SPINS {
            if self.turn.load(Acquire) == turn {
                return;
            }
            spin_loop();
        }
        self.waiting.fetch_add(1, SeqCst);
        loop {
            let now = self.turn.load(SeqCst);
            if now == turn {
                break;
            }
            let Ok(_) = Host.wait(self.turn.as_ptr() as u64, u64::from(now));
        }
        self.waiting.fetch_sub(1, SeqCst);
    }

    /// Gives the turn to the next, and wakes who waits for it.
    fn pass(&self) {
        self.turn.fetch_add(1, SeqCst);
        if self.waiting.load(SeqCst) > 0 {
            let Ok(_) = Host.wake(self.turn.as_ptr() as u64, u64::from(u32::MAX));
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

/// A cursor on a line of its own.
#[repr(align(64))]
struct Cursor(AtomicUsize);

// SAFETY: a block is reached by whoever has the place's turn.
unsafe impl Sync for Queue {}

static QUEUE: Queue = Queue {
    entries: [const { Entry::empty() }; QUEUE_LENGTH],
    head: Cursor(AtomicUsize::new(0)),
    tail: Cursor(AtomicUsize::new(0)),
};

impl Queue {
    /// Takes the next place by a cursor, and waits for its turn: the n-th lap fills at 2n and empties at
    /// 2n + 1.
    fn entry(&self, cursor: &Cursor, filled: usize) -> &Entry {
        let at = cursor.0.fetch_add(1, Relaxed);
        let entry = &self.entries[at % QUEUE_LENGTH];
        entry.wait((at / QUEUE_LENGTH * 2 + filled) as u32);
        entry
    }

    /// Puts a block; waits while the queue is full.
    fn put(&self, block: *mut u8) {
        let entry = self.entry(&self.tail, 0);
        // SAFETY: it is this thread's turn.
        unsafe { entry.block.get().write(block) };
        entry.pass();
    }

    /// Takes a block; waits while the queue is empty.
    fn take(&self) -> *mut u8 {
        let entry = self.entry(&self.head, 1);
        // SAFETY: it is this thread's turn.
        let block = unsafe { entry.block.get().read() };
        entry.pass();
        block
    }
}

/// Allocates blocks and puts them into the queue, NULL as well: what is taken must be as many.
pub fn produce(blocks: u64, max_size: u64, seed: u64) -> u64 {
    let mut random = Random::new(seed);
    let mut tally = Tally::default();
    for _ in 0..blocks {
        QUEUE.put(block(&mut random, max_size, &mut tally));
    }
    tally.word()
}

/// Takes so many from the queue and frees them; gives how many were blocks.
pub fn consume(blocks: u64) -> u64 {
    let mut freed = 0;
    for _ in 0..blocks {
        let block = QUEUE.take();
        freed += u64::from(!block.is_null());
        free(block);
    }
    freed
}
