//! The contract of every allocator, inside the enclave: alignment, contents, zeroing, usable size, disjoint blocks
//! inside the heap, and the behaviour when no space is left.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a panic fails the test")]

use std::ops::Range;
use std::panic;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use enclave::conf::Conf;
use enclave::images::Image;
use enclave::kinds::{self, Enclave, EnclaveKind};
use enclave_interface::{Ecall, Enter};
use lab::sample::Failure;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};

mod example;
mod waiting;

/// 64 MiB, because rpmalloc keeps several MiB for each thread that ever ran.
const PAGES: usize = 16_384;

/// Returns all images, and one with a user-supplied allocator.
fn images() -> impl Iterator<Item = &'static Image> {
    enclave::images::all().iter().chain([example::image()])
}

/// Time limit of an allocator for one test: many times the duration of the slowest on a busy machine. It fails an
/// allocator that hangs.
const LIMIT: Duration = Duration::from_secs(300);

/// Returns whether enclaves can be simulated here; notes the test as untested otherwise.
fn simulates(test: &str) -> bool {
    let runs = kinds::runs(EnclaveKind::Simulate);
    if let Err(why) = &runs {
        machine::untested::note(test, why);
    }
    runs.is_ok()
}

/// Runs a check on every image's allocator, and also on those that have a WebAssembly module.
fn every_image(check: fn(&str, Box<dyn Enclave>)) {
    if simulates("allocators in enclaves of kind simulate") {
        for image in images() {
            within(LIMIT, image.allocator, move || check(image.allocator, load(image, PAGES)));
        }
    }
    for module in images().filter(|image| image.wasm.is_some()) {
        let name = format!("{} as a module", module.allocator);
        within(LIMIT, &name.clone(), move || {
            check(&name, load_as(EnclaveKind::Wasm, module, PAGES).expect("it loads"));
        });
    }
}

/// As [`every_image`], and also on every library for outside.
fn every(check: fn(&str, Box<dyn Enclave>)) {
    every_image(check);
    for library in enclave::images::outside() {
        within(LIMIT, library.allocator, move || {
            check(library.allocator, kinds::load_outside(library).expect("it loads"));
        });
    }
}

/// Runs `work` in a separate thread, and fails if it does not end in time. Code that hangs inside an enclave cannot
/// be stopped, so the thread is leaked.
fn within(limit: Duration, name: &str, work: impl FnOnce() + Send + 'static) {
    let (ends, ended) = mpsc::channel::<()>();
    let thread = thread::spawn(move || {
        let _ends = ends;
        work();
    });
    match ended.recv_timeout(limit) {
        Err(RecvTimeoutError::Timeout) => panic!("{name} does not end within {limit:?}"),
        _ => thread.join().unwrap_or_else(|why| panic::resume_unwind(why)),
    }
}

/// Loads an allocator's enclave.
fn load(image: &Image, pages: usize) -> Box<dyn Enclave> {
    load_as(EnclaveKind::Simulate, image, pages).expect("it loads")
}

fn load_as(kind: EnclaveKind, image: &Image, pages: usize) -> Result<Box<dyn Enclave>, Failure> {
    let conf = Conf { heap_pages: pages, stack_pages: 16, tcs: 4, debug: true };
    kinds::load_untimed(kind, image, &conf)
}

/// An operation on the allocator. Blocks are selected among the live ones.
#[derive(Debug, Clone)]
enum Step {
    Malloc(u64),
    Calloc(u64, u64),
    Aligned(u32, u64),
    Realloc(prop::sample::Index, u64),
    Free(prop::sample::Index),
}

/// Sizes from 0 to beyond the largest class of small blocks.
fn size() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0..256u64, 3 => 0..16_384u64, 1 => 0..200_000u64]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => size().prop_map(Step::Malloc),
        1 => (0..64u64, 0..512u64).prop_map(|(count, size)| Step::Calloc(count, size)),
        2 => (3..=14u32, size()).prop_map(|(power, size)| Step::Aligned(power, size)),
        2 => (any::<prop::sample::Index>(), size()).prop_map(|(at, size)| Step::Realloc(at, size)),
        3 => any::<prop::sample::Index>().prop_map(Step::Free),
    ]
}

/// A live block, and the byte that fills it.
#[derive(Clone)]
struct Block {
    pointer: u64,
    size: u64,
    byte: u64,
}

impl Block {
    fn range(&self) -> Range<u64> {
        self.pointer..self.pointer + self.size.max(1)
    }
}

/// The allocator and its live blocks.
struct Model<'a> {
    enclave: &'a dyn Enclave,
    blocks: Vec<Block>,
    byte: u64,
    alignment: u64,
}

impl Model<'_> {
    /// Checks a new block, and fills all its usable bytes: if it overlapped another block, that block's bytes would
    /// change.
    fn add(&mut self, pointer: u64, size: u64, alignment: u64) -> Result<(), TestCaseError> {
        prop_assert_ne!(pointer, 0, "no space is left");
        prop_assert_eq!(pointer % alignment, 0, "not aligned");
        let heap = self.enclave.heap();
        let usable = self.enclave.usable_size(pointer).expect("usable_size");
        prop_assert!(usable >= size, "only {usable} of {size} bytes are usable");
        prop_assert!(
            heap.start as u64 <= pointer && pointer + usable <= heap.end as u64,
            "outside the heap"
        );
        self.byte = self.byte % 255 + 1;
        let block = Block { pointer, size: usable, byte: self.byte };
        for other in &self.blocks {
            let (one, other) = (block.range(), other.range());
            prop_assert!(one.end <= other.start || other.end <= one.start, "overlap");
        }
        prop_assert_eq!(self.enclave.fill(pointer, usable, block.byte), Ok(usable));
        self.blocks.push(block);
        Ok(())
    }

    /// Checks that the first `length` bytes of a block are unchanged.
    fn keeps(&self, block: &Block, pointer: u64, length: u64) -> Result<(), TestCaseError> {
        prop_assert_eq!(
            self.enclave.equal(pointer, length, block.byte),
            Ok(length),
            "bytes changed"
        );
        Ok(())
    }

    fn take(&mut self, at: prop::sample::Index) -> Option<Block> {
        (!self.blocks.is_empty()).then(|| self.blocks.swap_remove(at.index(self.blocks.len())))
    }

    fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        let enclave = self.enclave;
        match step {
            Step::Malloc(size) => {
                self.add(enclave.malloc(size).expect("malloc"), size, self.alignment)
            }
            Step::Calloc(count, size) => {
                let (pointer, bytes) = (enclave.calloc(count, size).expect("calloc"), count * size);
                prop_assert_eq!(enclave.equal(pointer, bytes, 0), Ok(bytes), "not zeroed");
                self.add(pointer, bytes, self.alignment)
            }
            Step::Aligned(power, size) => {
                let pointer = enclave.aligned_alloc(1 << power, size).expect("aligned_alloc");
                self.add(pointer, size, 1 << power)
            }
            Step::Realloc(at, size) => {
                let Some(block) = self.take(at) else { return Ok(()) };
                self.keeps(&block, block.pointer, block.size)?;
                let pointer = enclave.realloc(block.pointer, size.max(1)).expect("realloc");
                self.keeps(&block, pointer, block.size.min(size))?;
                self.add(pointer, size, self.alignment)
            }
            Step::Free(at) => {
                let Some(block) = self.take(at) else { return Ok(()) };
                self.keeps(&block, block.pointer, block.size)?;
                prop_assert_eq!(enclave.free(block.pointer), Ok(0));
                Ok(())
            }
        }
    }
}

/// Runs random operations in an enclave. Blocks are aligned to two words, whose length depends on the kind's
/// pointers.
fn keeps_the_contract(enclave: &dyn Enclave, cases: u32) -> Result<(), TestError<Vec<Step>>> {
    let alignment = if enclave.heap().end <= 1 << 32 { 8 } else { 16 };
    let mut runner =
        TestRunner::new(Config { failure_persistence: None, ..Config::with_cases(cases) });
    runner.run(&prop::collection::vec(step(), 1..60), |steps| {
        let mut model = Model { enclave, blocks: Vec::new(), byte: 0, alignment };
        let result = steps.into_iter().try_for_each(|step| model.step(step));
        for block in std::mem::take(&mut model.blocks) {
            enclave.free(block.pointer).expect("free");
        }
        result
    })
}

#[test]
fn blocks_are_intact_disjoint_and_inside() {
    every(|name, enclave| {
        let ran = keeps_the_contract(&*enclave, 64);
        assert!(ran.is_ok(), "{name}: {ran:?}");
    });
}

#[test]
fn each_copy_outside_is_separate_and_counts_its_ocalls() {
    for library in enclave::images::outside() {
        let [one, other] = [(); 2].map(|()| kinds::load_outside(library).expect("it loads"));
        assert_eq!((one.bank_open(10), other.bank_open(20)), (Ok(10), Ok(20)));
        assert_eq!((one.leave(3), other.repeat(Ecall::leave, [5, 0, 0, 0, 0], 2)), (Ok(3), Ok(5)));
        assert_eq!((one.ocalls(), other.ocalls()), (3, 10), "{}", library.allocator);
        assert_eq!((one.bank_close(), other.bank_close()), (Ok(10), Ok(20)));
    }
}

/// The image is the same, and so is its behaviour, with vectors, threads and locks that make OCALLs.
#[test]
fn a_virtual_machine_keeps_the_contract() {
    if let Err(why) = kinds::runs(EnclaveKind::Kvm) {
        return machine::untested::note("allocators in enclaves of kind kvm", &why);
    }
    let check = |image: &Image| {
        let (name, enclave) =
            (image.allocator, load_as(EnclaveKind::Kvm, image, PAGES).expect(image.allocator));
        let ran = keeps_the_contract(&*enclave, 16);
        assert!(ran.is_ok(), "{name}: {ran:?}");
        assert_eq!(enclave.enclave_thread(10_000, 16_384, 1, 1), Ok(0), "{name}");
        let produce = |enclave: &dyn Enclave| enclave.produce(5000, 1000, 1).expect("produce");
        let consume = |enclave: &dyn Enclave| enclave.consume(5000).expect("consume");
        let results = at_once(&*enclave, [&produce, &consume, &produce, &consume]);
        assert_eq!(results, [0, 5000, 0, 5000], "{name}");
        assert_eq!(enclave.malloc(1 << 40), Ok(0), "{name}");
        assert!(enclave.misbehave(0).is_err() && enclave.blocked() == 1, "{name}");
    };
    for image in images() {
        within(LIMIT, image.allocator, move || check(image));
    }
}

#[test]
fn an_exhausted_heap_returns_null_and_recovers() {
    every_image(|name, enclave| {
        for size in [16, 100, 5000, 100_000] {
            let first = enclave.drain(size).expect("drain");
            assert!(first > 0, "{name}: blocks of {size} B");
            assert!(first * size <= (PAGES * 4096) as u64, "{name}: more than the heap");
            assert_eq!(
                enclave.drain(size),
                Ok(first),
                "{name}: the same number of {size} B blocks again"
            );
        }
        let samples_loop = enclave.enclave_thread(1000, 16_384, 1, 1);
        assert_eq!(samples_loop, Ok(0), "{name}: no allocation fails after draining");
    });
}

#[test]
fn an_impossible_allocation_returns_null() {
    every(|name, enclave| {
        // More than any heap, or than the heap in use.
        let beyond = (enclave.heap().len() as u64).min(1 << 47) + 1;
        for size in [beyond, 1 << 62, u64::MAX / 2, u64::MAX - 4096, u64::MAX] {
            assert_eq!(enclave.malloc(size), Ok(0), "{name}: malloc of {size}");
            assert_eq!(enclave.aligned_alloc(4096, size), Ok(0), "{name}: aligned_alloc of {size}");
        }
        assert_eq!(enclave.calloc(1 << 33, 1 << 33), Ok(0), "{name}: a product beyond 64 bits");
        assert_eq!(enclave.aligned_alloc(48, 10), Ok(0), "{name}: not a power of two");
        let kept = enclave.malloc(100).expect("malloc");
        assert_eq!(enclave.fill(kept, 100, 7), Ok(100), "{name}");
        assert_eq!(enclave.realloc(kept, beyond), Ok(0), "{name}: realloc beyond the heap");
        assert_eq!(enclave.equal(kept, 100, 7), Ok(100), "{name}: the block is unchanged");
        assert_eq!(enclave.free(kept), Ok(0), "{name}");
        assert_eq!((enclave.free(0), enclave.usable_size(0)), (Ok(0), Ok(0)), "{name}: NULL");
    });
}

/// The work of a thread inside, which returns a word.
type Inside<'a> = &'a (dyn Fn(&dyn Enclave) -> u64 + Sync);

/// Runs calls concurrently on separate threads; returns their results.
fn at_once(enclave: &dyn Enclave, calls: [Inside; 4]) -> [u64; 4] {
    std::thread::scope(|scope| {
        calls
            .map(|call| scope.spawn(move || call(enclave)))
            .map(|thread| thread.join().expect("the call returns"))
    })
}

#[test]
fn blocks_pass_between_threads() {
    every(|name, enclave| {
        let produce = |enclave: &dyn Enclave| enclave.produce(5000, 1000, 1).expect("produce");
        let consume = |enclave: &dyn Enclave| enclave.consume(5000).expect("consume");
        let results = at_once(&*enclave, [&produce, &consume, &produce, &consume]);
        assert_eq!(results, [0, 5000, 0, 5000], "{name}");
        let larson = |enclave: &dyn Enclave| enclave.larson(5000, 500, 1000, 1).expect("larson");
        assert_eq!(at_once(&*enclave, [&larson; 4]), [0; 4], "{name}");
    });
}

#[test]
fn the_bank_keeps_its_money() {
    every(|name, enclave| {
        for customers in [1, 10, 2000] {
            assert_eq!(enclave.bank_open(customers), Ok(customers), "{name}");
            let run = |enclave: &dyn Enclave| enclave.bank_run(5000, 1).expect("bank_run");
            assert_eq!(at_once(&*enclave, [&run; 4]), [5000; 4], "{name}");
            assert_eq!(enclave.bank_money(), Ok(customers * 2000), "{name}: {customers} customers");
            assert_eq!(enclave.bank_close(), Ok(customers), "{name}");
        }
        if enclave.heap().len() == PAGES * 4096 {
            assert_eq!(enclave.bank_open(10_000_000), Ok(0), "{name}: a bank that is too large");
        }
        assert_eq!(enclave.bank_open(10), Ok(10), "{name}: a bank that fits");
    });
}

#[test]
fn an_allocator_with_statistics_reports_memory_in_use() {
    const BLOCKS: u64 = 16;
    const SIZE: u64 = 100_000;
    every_image(|name, enclave| {
        let statistic = |which| enclave.mallinfo(which).expect("mallinfo");
        assert_eq!(statistic(3), u64::MAX, "{name}: there is no fourth statistic");
        if !["buddy", "example", "rpmalloc", "snmalloc"].iter().any(|who| name.starts_with(who)) {
            assert_eq!([0, 1, 2].map(statistic), [u64::MAX; 3], "{name} reports no statistics");
            return;
        }
        let blocks = [(); BLOCKS as usize].map(|()| enclave.malloc(SIZE).expect("malloc"));
        let (used, peak, max) = (statistic(0), statistic(1), statistic(2));
        assert!(BLOCKS * SIZE <= used && used <= max, "{name}: {used} of {max}");
        assert!(max <= (PAGES * 4096) as u64, "{name}: {max}");
        assert!(peak == 0 || peak >= used, "{name}: peak {peak}, now {used}");
        assert!(blocks.into_iter().all(|block| enclave.free(block) == Ok(0)), "{name}");
        assert!(statistic(0) < used, "{name}: {} still in use", statistic(0));
    });
}

#[test]
fn every_allocator_cleans_up() {
    every(|name, enclave| {
        assert_eq!(
            at_once(
                &*enclave,
                [&|enclave| enclave.enclave_thread(500, 5000, 1, 1).expect("the loop"); 4]
            ),
            [0; 4]
        );
        // Some blocks stay allocated, as in many programs.
        for size in [1, 1000, 1_000_000] {
            assert!(enclave.malloc(size).is_ok_and(|block| block != 0), "{name}");
        }
        assert_eq!(enclave.finish(), Ok(0), "{name}");
        // Dropping it would finish it again.
        std::mem::forget(enclave);
    });
}
