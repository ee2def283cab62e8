//! The implementation of the calls.

use crate::allocator::Mallinfo;
use crate::arch::Host;
use crate::workload::{self, bytes, contains};
use crate::{allocation, allocator, arch, bank, shared};
use interface::{Leave, Trusted};

/// The enclave, as its callers see it.
pub struct Inside;

impl Trusted for Inside {
    fn initialise(&self, heap_start: u64, heap_end: u64) -> u64 {
        workload::set_heap(heap_start, heap_end);
        // SAFETY: the loader created the heap for this purpose.
        unsafe { allocator::init(heap_start as *mut u8, heap_end as *mut u8) };
        0
    }

    fn nothing(&self) -> u64 {
        0
    }

    fn leave(&self, times: u64) -> u64 {
        let mut right = 0;
        for _ in 0..times {
            let Ok(result) = Host.nothing();
            right += u64::from(result == 0);
        }
        right
    }

    fn enclave_thread(
        &self,
        num_allocations: u64,
        max_allocation_size: u64,
        seed: u64,
        touch: u64,
    ) -> u64 {
        allocation::enclave_thread(num_allocations, max_allocation_size, seed, touch == 1)
    }

    fn malloc(&self, size: u64) -> u64 {
        // SAFETY: malloc has no precondition.
        unsafe { allocator::malloc(bytes(size)) as u64 }
    }

    fn free(&self, pointer: u64) -> u64 {
        // SAFETY: the caller guarantees that the pointer is valid.
        unsafe { allocator::free(pointer as *mut u8) };
        0
    }

    fn calloc(&self, count: u64, size: u64) -> u64 {
        // SAFETY: calloc has no precondition.
        unsafe { allocator::calloc(bytes(count), bytes(size)) as u64 }
    }

    fn realloc(&self, pointer: u64, size: u64) -> u64 {
        // SAFETY: the caller guarantees that the pointer is valid.
        unsafe { allocator::realloc(pointer as *mut u8, bytes(size)) as u64 }
    }

    fn aligned_alloc(&self, alignment: u64, size: u64) -> u64 {
        if alignment.is_power_of_two() && alignment >= allocator::ALIGNMENT as u64 {
            // SAFETY: the alignment is valid.
            return unsafe { allocator::aligned_alloc(bytes(alignment), bytes(size)) as u64 };
        }
        // The function that refuses an invalid alignment.
        let mut pointer = core::ptr::null_mut();
        // SAFETY: the pointer is valid for writes.
        let failed =
            unsafe { allocator::posix_memalign(&mut pointer, bytes(alignment), bytes(size)) };
        if failed == 0 { pointer as u64 } else { 0 }
    }

    fn usable_size(&self, pointer: u64) -> u64 {
        // SAFETY: the caller guarantees that the pointer is valid.
        unsafe { allocator::usable_size(pointer as *mut u8) as u64 }
    }

    fn mallinfo(&self, which: u64) -> u64 {
        let mut mallinfo = Mallinfo::default();
        // SAFETY: the statistics are valid for writes.
        match (unsafe { allocator::mallinfo(&mut mallinfo) }, which) {
            (0, 0) => mallinfo.current as u64,
            (0, 1) => mallinfo.peak as u64,
            (0, 2) => mallinfo.max_heap_size as u64,
            _ => u64::MAX,
        }
    }

    fn fill(&self, pointer: u64, length: u64, byte: u64) -> u64 {
        if !contains(pointer, length) {
            return 0;
        }
        // SAFETY: the range is in the heap; the caller guarantees that it is the caller's block.
        unsafe { core::ptr::write_bytes(pointer as *mut u8, byte as u8, length as usize) };
        length
    }

    fn equal(&self, pointer: u64, length: u64, byte: u64) -> u64 {
        if !contains(pointer, length) {
            return 0;
        }
        // SAFETY: the range is in the heap.
        let block = unsafe { core::slice::from_raw_parts(pointer as *const u8, length as usize) };
        block.iter().take_while(|at| **at == byte as u8).count() as u64
    }

    fn drain(&self, size: u64) -> u64 {
        allocation::drain(size)
    }

    fn larson(&self, rounds: u64, slots: u64, max_size: u64, seed: u64) -> u64 {
        shared::larson(rounds, slots, max_size, seed)
    }

    fn produce(&self, blocks: u64, max_size: u64, seed: u64) -> u64 {
        shared::produce(blocks, max_size, seed)
    }

    fn consume(&self, blocks: u64) -> u64 {
        shared::consume(blocks)
    }

    fn bank_open(&self, customers: u64) -> u64 {
        bank::open(customers)
    }

    fn bank_run(&self, transactions: u64, seed: u64) -> u64 {
        bank::run(transactions, seed)
    }

    fn bank_money(&self) -> u64 {
        bank::money()
    }

    fn bank_close(&self) -> u64 {
        bank::close()
    }

    fn misbehave(&self, how: u64) -> u64 {
        match how {
            0 => arch::system_call(),
            1 => arch::overflow_stack(),
            2 => {
                // SAFETY: this is meant to fault.
                unsafe { core::ptr::without_provenance_mut::<u8>(0x10).write_volatile(1) };
                0
            }
            3 => arch::trap(),
            4 => loop {
                core::hint::spin_loop();
            },
            _ => u64::MAX,
        }
    }

    fn finish(&self) -> u64 {
        // SAFETY: it is the last call.
        unsafe { allocator::cleanup() };
        0
    }
}
