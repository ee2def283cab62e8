//! Every allocator's contract, inside the enclave: alignment, bytes kept, zeroes, usable size, no two blocks
//! in one place, none outside the heap, and what happens when there is no room.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by it")]

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

/// 64 MiB: rpmalloc keeps several MiB for each thread that ever ran.
const PAGES: usize = 16_384;

/// All images, and one with an allocator of somebody else's.
fn images() -> impl Iterator<Item = &'static Image> {
    enclave::images::all().iter().chain([example::image()])
}

/// How long an allocator may take for one test: many times what the slowest does on a busy machine. One that hangs
/// fails by it.
const LIMIT: Duration = Duration::from_secs(300);

/// Whether enclaves can be simulated here; a test that needs it is named as untested otherwise.
fn simulates(test: &str) -> bool {
    let runs = kinds::runs(EnclaveKind::Simulate);
    if let Err(why) = &runs {
        machine::untested::note(test, why);
    }
    runs.is_ok()
}

/// Checks something of every image's allocator, and again of those that are modules of WebAssembly too.
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

/// The same, and of every library that stands for one outside.
fn every(check: fn(&str, Box<dyn Enclave>)) {
    every_image(check);
    for library in enclave::images::outside() {
        within(LIMIT, library.allocator, move || {
            check(library.allocator, kinds::load_outside(library).expect("it loads"));
        });
    }
}

/// Does something in a thread of its own, and fails where it does not end in time: what hangs inside an enclave
/// cannot be stopped, and is left behind.
fn within(limit: Duration, name: &str, work: impl FnOnce() + Send + 'static) {
    let (ends, ended) = mpsc::channel::<()>();
    let thread = thread::spawn(move || {
        let _ends = ends;
        work();
    });
    match ended.recv_timeout(limit) {
        Err(RecvTimeoutError::Timeout) => panic!("{name} does not end in {limit:?}"),
        _ => thread.join().unwrap_or_else(|why| panic::resume_unwind(why)),
    }
}

/// An allocator's enclave.
fn load(image: &Image, pages: usize) -> Box<dyn Enclave> {
    load_as(EnclaveKind::Simulate, image, pages).expect("it loads")
}

fn load_as(kind: EnclaveKind, image: &Image, pages: usize) -> Result<Box<dyn Enclave>, Failure> {
    let conf = Conf { heap_pages: pages, stack_pages: 16, tcs: 4, debug: true };
    kinds::load_untimed(kind, image, &conf)
}

/// What a test does with the allocator. Blocks are picked among those that live.
#[derive(Debug, Clone)]
enum Step {
    Malloc(u64),
    Calloc(u64, u64),
    Aligned(u32, u64),
    Realloc(prop::sample::Index, u64),
    Free(prop::sample::Index),
}

/// Sizes from none to beyond the largest class of small blocks.
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

/// A block that lives, and the byte that all of it was filled with.
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

/// The allocator and the blocks that live.
struct Model<'a> {
    enclave: &'a dyn Enclave,
    blocks: Vec<Block>,
    byte: u64,
    alignment: u64,
}

impl Model<'_> {
    /// Checks a new block, and fills all that may be used of it: if that overlapped another, the other's
    /// bytes would no longer be there.
    fn comes(&mut self, pointer: u64, size: u64, alignment: u64) -> Result<(), TestCaseError> {
        prop_assert_ne!(pointer, 0, "there is room");
        prop_assert_eq!(pointer % alignment, 0, "aligned");
        let heap = self.enclave.heap();
        let usable = self.enclave.usable_size(pointer).expect("usable_size");
        prop_assert!(usable >= size, "{usable} of {size} can be used");
        prop_assert!(
            heap.start as u64 <= pointer && pointer + usable <= heap.end as u64,
            "in the heap"
        );
        self.byte = self.byte % 255 + 1;
        let block = Block { pointer, size: usable, byte: self.byte };
        for other in &self.blocks {
            let (one, other) = (block.range(), other.range());
            prop_assert!(one.end <= other.start || other.end <= one.start, "apart");
        }
        prop_assert_eq!(self.enclave.fill(pointer, usable, block.byte), Ok(usable));
        self.blocks.push(block);
        Ok(())
    }

    /// Checks that a block holds its bytes still, up to a length.
    fn holds(&self, block: &Block, pointer: u64, length: u64) -> Result<(), TestCaseError> {
        prop_assert_eq!(self.enclave.equal(pointer, length, block.byte), Ok(length), "bytes kept");
        Ok(())
    }

    fn take(&mut self, at: prop::sample::Index) -> Option<Block> {
        (!self.blocks.is_empty()).then(|| self.blocks.swap_remove(at.index(self.blocks.len())))
    }

    fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        let enclave = self.enclave;
        match step {
            Step::Malloc(size) => {
                self.comes(enclave.malloc(size).expect("malloc"), size, self.alignment)
            }
            Step::Calloc(count, size) => {
                let (pointer, bytes) = (enclave.calloc(count, size).expect("calloc"), count * size);
                prop_assert_eq!(enclave.equal(pointer, bytes, 0), Ok(bytes), "zeroed");
                self.comes(pointer, bytes, self.alignment)
            }
            Step::Aligned(power, size) => {
                let pointer = enclave.aligned_alloc(1 << power, size).expect("aligned_alloc");
                self.comes(pointer, size, 1 << power)
            }
            Step::Realloc(at, size) => {
                let Some(block) = self.take(at) else { return Ok(()) };
                self.holds(&block, block.pointer, block.size)?;
                let pointer = enclave.realloc(block.pointer, size.max(1)).expect("realloc");
                self.holds(&block, pointer, block.size.min(size))?;
                self.comes(pointer, size, self.alignment)
            }
            Step::Free(at) => {
                let Some(block) = self.take(at) else { return Ok(()) };
                self.holds(&block, block.pointer, block.size)?;
                prop_assert_eq!(enclave.free(block.pointer), Ok(0));
                Ok(())
            }
        }
    }
}

/// Random steps in an enclave, as often as asked. Blocks are aligned to two words, which are shorter where addresses
/// are.
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
fn blocks_are_whole_apart_and_inside() {
    every(|name, enclave| {
        let ran = keeps_the_contract(&*enclave, 64);
        assert!(ran.is_ok(), "{name}: {ran:?}");
    });
}

#[test]
fn outside_each_copy_is_its_own_and_counts_its_ocalls() {
    for library in enclave::images::outside() {
        let [one, other] = [(); 2].map(|()| kinds::load_outside(library).expect("it loads"));
        assert_eq!((one.bank_open(10), other.bank_open(20)), (Ok(10), Ok(20)));
        assert_eq!((one.leave(3), other.repeat(Ecall::leave, [5, 0, 0, 0, 0], 2)), (Ok(3), Ok(5)));
        assert_eq!((one.ocalls(), other.ocalls()), (3, 10), "{}", library.allocator);
        assert_eq!((one.bank_close(), other.bank_close()), (Ok(10), Ok(20)));
    }
}

/// The image is the same, and so is what it does: with vectors, threads and locks that leave by OCALLs.
#[test]
fn a_virtual_machine_keeps_the_contract_too() {
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
        let gave = at_once(&*enclave, [&produce, &consume, &produce, &consume]);
        assert_eq!(gave, [0, 5000, 0, 5000], "{name}");
        assert_eq!(enclave.malloc(1 << 40), Ok(0), "{name}");
        assert!(enclave.misbehave(0).is_err() && enclave.blocked() == 1, "{name}");
    };
    for image in images() {
        within(LIMIT, image.allocator, move || check(image));
    }
}

#[test]
fn no_room_gives_null_and_then_there_is_room_again() {
    every_image(|name, enclave| {
        for size in [16, 100, 5000, 100_000] {
            let first = enclave.drain(size).expect("drain");
            assert!(first > 0, "{name}: blocks of {size} B");
            assert!(first * size <= (PAGES * 4096) as u64, "{name}: no more than the heap holds");
            assert_eq!(enclave.drain(size), Ok(first), "{name}: as many blocks of {size} B again");
        }
        let seeds_loop = enclave.enclave_thread(1000, 16_384, 1, 1);
        assert_eq!(seeds_loop, Ok(0), "{name}: after draining, nothing fails");
    });
}

#[test]
fn what_cannot_be_is_null() {
    every(|name, enclave| {
        // More than any heap, or than the one there is.
        let beyond = (enclave.heap().len() as u64).min(1 << 47) + 1;
        for size in [beyond, 1 << 62, u64::MAX / 2, u64::MAX - 4096, u64::MAX] {
            assert_eq!(enclave.malloc(size), Ok(0), "{name}: malloc of {size}");
            assert_eq!(enclave.aligned_alloc(4096, size), Ok(0), "{name}: aligned_alloc of {size}");
        }
        assert_eq!(enclave.calloc(1 << 33, 1 << 33), Ok(0), "{name}: a product beyond 64 bits");
        assert_eq!(enclave.aligned_alloc(48, 10), Ok(0), "{name}: no power of two");
        let kept = enclave.malloc(100).expect("malloc");
        assert_eq!(enclave.fill(kept, 100, 7), Ok(100), "{name}");
        assert_eq!(enclave.realloc(kept, beyond), Ok(0), "{name}: realloc beyond the heap");
        assert_eq!(enclave.equal(kept, 100, 7), Ok(100), "{name}: and the block is as it was");
        assert_eq!(enclave.free(kept), Ok(0), "{name}");
        assert_eq!((enclave.free(0), enclave.usable_size(0)), (Ok(0), Ok(0)), "{name}: NULL");
    });
}

/// What a thread does inside, and what it gives.
type Inside<'a> = &'a (dyn Fn(&dyn Enclave) -> u64 + Sync);

/// Lets threads make calls at once; gives what each gave.
fn at_once(enclave: &dyn Enclave, calls: [Inside; 4]) -> [u64; 4] {
    std::thread::scope(|scope| {
        calls
            .map(|call| scope.spawn(move || call(enclave)))
            .map(|thread| thread.join().expect("the call comes back"))
    })
}

#[test]
fn blocks_pass_between_threads() {
    every(|name, enclave| {
        let produce = |enclave: &dyn Enclave| enclave.produce(5000, 1000, 1).expect("produce");
        let consume = |enclave: &dyn Enclave| enclave.consume(5000).expect("consume");
        let gave = at_once(&*enclave, [&produce, &consume, &produce, &consume]);
        assert_eq!(gave, [0, 5000, 0, 5000], "{name}");
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
            assert_eq!(enclave.bank_open(10_000_000), Ok(0), "{name}: a bank that does not fit");
        }
        assert_eq!(enclave.bank_open(10), Ok(10), "{name}: and one that does");
    });
}

#[test]
fn who_counts_tells_what_is_in_use() {
    const BLOCKS: u64 = 16;
    const SIZE: u64 = 100_000;
    every_image(|name, enclave| {
        let told = |which| enclave.mallinfo(which).expect("mallinfo");
        assert_eq!(told(3), u64::MAX, "{name}: there is no fourth");
        if !["buddy", "example", "rpmalloc", "snmalloc"].iter().any(|who| name.starts_with(who)) {
            assert_eq!([0, 1, 2].map(told), [u64::MAX; 3], "{name} counts nothing");
            return;
        }
        let blocks = [(); BLOCKS as usize].map(|()| enclave.malloc(SIZE).expect("malloc"));
        let (used, peak, most) = (told(0), told(1), told(2));
        assert!(BLOCKS * SIZE <= used && used <= most, "{name}: {used} of {most}");
        assert!(most <= (PAGES * 4096) as u64, "{name}: {most}");
        assert!(peak == 0 || peak >= used, "{name}: {peak} at most, now {used}");
        assert!(blocks.into_iter().all(|block| enclave.free(block) == Ok(0)), "{name}");
        assert!(told(0) < used, "{name}: {} still in use", told(0));
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
        // Some blocks are left, as a program may leave them.
        for size in [1, 1000, 1_000_000] {
            assert!(enclave.malloc(size).is_ok_and(|block| block != 0), "{name}");
        }
        assert_eq!(enclave.finish(), Ok(0), "{name}");
        // Dropped it would end again.
        std::mem::forget(enclave);
    });
}
