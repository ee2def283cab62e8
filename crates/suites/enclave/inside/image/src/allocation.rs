//! The loop of the Open Enclave sample, and draining the heap.

use crate::allocator;
use crate::workload::{Random, Tally};
use core::ptr;

/// Number of blocks that a thread keeps: the sample's QUEUE_LENGTH.
const QUEUE: usize = 15;
/// The length of a page, in bytes.
const PAGE: u64 = 4096;

/// Runs the sample's loop: each new block replaces the oldest of 15. The blocks in the queue at the end stay
/// allocated, as in the sample, so that a heap contains the blocks of all threads even if they take turns.
pub fn enclave_thread(allocations: u64, max_size: u64, seed: u64, touch: bool) -> u64 {
    let mut random = Random::new(seed);
    let mut tally = Tally::default();
    let mut queue = [ptr::null_mut::<u8>(); QUEUE];
    let mut oldest = 0;
    for _ in 0..allocations {
        let size = random.below(max_size);
        let pointer = tally.malloc(size);
        if touch && !pointer.is_null() {
            write_pages(pointer, size);
        }
        let leaves = core::mem::replace(&mut queue[oldest], pointer);
        oldest = if oldest + 1 == QUEUE { 0 } else { oldest + 1 };
        // SAFETY: it was allocated or is NULL, and no other thread has it.
        unsafe { allocator::free(leaves) };
    }
    tally.word()
}

/// Writes a byte on each page of a block, so that its memory is present.
fn write_pages(pointer: *mut u8, size: u64) {
    for at in (0..size).step_by(PAGE as usize) {
        // SAFETY: the address is inside the block.
        unsafe { pointer.add(at as usize).write_volatile(1) };
    }
}

/// Allocates blocks of one size until no space is left, then frees them all. Each stores a pointer to the previous
/// one, so a block is at least as long as a pointer.
pub fn drain(size: u64) -> u64 {
    let mut tally = Tally::default();
    let mut last = ptr::null_mut::<u8>();
    let mut blocks = 0;
    loop {
        let block = tally.malloc(size.max(size_of::<*mut u8>() as u64));
        if block.is_null() {
            break;
        }
        // SAFETY: the block is long enough and aligned.
        unsafe { block.cast::<*mut u8>().write(last) };
        last = block;
        blocks += 1;
    }
    while !last.is_null() {
        // SAFETY: the pointer was written above.
        let before = unsafe { last.cast::<*mut u8>().read() };
        // SAFETY: the block was allocated above and is not yet freed.
        unsafe { allocator::free(last) };
        last = before;
    }
    blocks
}
