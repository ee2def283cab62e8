//! The seed's loop, and draining the heap.

use crate::allocator;
use crate::heap::Tally;
use crate::random::Random;
use core::ptr;

/// How many objects a thread keeps: the seed's QUEUE_LENGTH.
const QUEUE: usize = 15;
/// A page.
const PAGE: u64 = 4096;

/// The seed's loop: the oldest of 15 leaves for each that comes. What is left in the queue at the end stays
/// allocated, as the seed leaves it: so a heap holds what all threads keep, also where they take turns.
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
        // SAFETY: it was allocated, or is NULL, and nobody else has it.
        unsafe { allocator::free(leaves) };
    }
    tally.word()
}

/// Writes a byte on each page of a block, so that its memory is there.
fn write_pages(pointer: *mut u8, size: u64) {
    for at in (0..size).step_by(PAGE as usize) {
        // SAFETY: within the block.
        unsafe { pointer.add(at as usize).write_volatile(1) };
    }
}

/// Allocates blocks of one size until there is no room, then frees them all. Each holds the way to the one
/// before it, so a block is at least a pointer long.
pub fn drain(size: u64) -> u64 {
    let mut tally = Tally::default();
    let mut last = ptr::null_mut::<u8>();
    let mut blocks = 0;
    loop {
        let block = tally.malloc(size.max(size_of::<*mut u8>() as u64));
        if block.is_null() {
            break;
        }
        // SAFETY: the block is long enough, and aligned.
        unsafe { block.cast::<*mut u8>().write(last) };
        last = block;
        blocks += 1;
    }
    while !last.is_null() {
        // SAFETY: what was written above.
        let before = unsafe { last.cast::<*mut u8>().read() };
        // SAFETY: allocated above, and not yet freed.
        unsafe { allocator::free(last) };
        last = before;
    }
    blocks
}
