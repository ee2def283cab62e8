//! What WebAssembly stops: each gives its clear error, the host lives, and the enclave is entered no more. What
//! allocators owe there too is in tests/contract.

#![cfg(feature = "wasm")]
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use enclave::conf::Conf;
use enclave::error::{EcallError, FaultLocation};
use enclave::images::{self, Image};
use enclave::kinds::{self, Enclave, EnclaveKind};
use enclave_interface::{Ecall, Enter};

fn dlmalloc() -> &'static Image {
    images::find("dlmalloc").unwrap()
}

fn load(tcs: usize) -> Box<dyn Enclave> {
    kinds::load(EnclaveKind::Wasm, dlmalloc(), &Conf { tcs, ..Conf::default() }).unwrap()
}

/// That the enclave does what it should.
fn works(enclave: &dyn Enclave) {
    assert_eq!(enclave.leave(2), Ok(2));
    assert_eq!(enclave.enclave_thread(100, 1000, 1, 1), Ok(0));
}

/// What misbehaving gives, after which no call comes any more, on this thread or another.
fn misbehave(enclave: &dyn Enclave, how: u64) -> EcallError {
    let why = enclave.misbehave(how).unwrap_err();
    assert!(!why.to_string().contains('\n'));
    refuses(enclave);
    why
}

fn refuses(enclave: &dyn Enclave) {
    let refused = || assert_eq!(enclave.leave(1), Err(EcallError::Aborting));
    refused();
    std::thread::scope(|scope| scope.spawn(refused).join().unwrap());
}

#[test]
fn allocators_of_rust_have_modules_that_ask_for_ocalls_alone() {
    let modules: Vec<_> =
        images::all().iter().filter_map(|image| Some((image.allocator, image.wasm?))).collect();
    let names: Vec<_> = modules.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["buddy", "dlmalloc", "dlmalloc-wait", "rlsf", "talc"]);
    for (name, bytes) in modules {
        let module = wasmtime::Module::new(&wasmtime::Engine::default(), bytes).unwrap();
        let imports: Vec<_> =
            module.imports().map(|one| format!("{}.{}", one.module(), one.name())).collect();
        assert_eq!(imports, ["env.memory", "tollgate.ocall"], "{name}");
    }
}

#[test]
fn an_allocator_that_is_not_rust_is_unavailable() {
    for name in ["jemalloc", "mimalloc", "rpmalloc", "snmalloc"] {
        let failure = kinds::has(EnclaveKind::Wasm, name).unwrap_err();
        assert!(failure.why.contains(&format!("{name} has no module")), "{failure}");
        assert!(failure.remedy.as_ref().unwrap().contains("dlmalloc, "));
        let loaded = kinds::load(EnclaveKind::Wasm, images::find(name).unwrap(), &Conf::default());
        assert_eq!(loaded.err(), Some(failure));
    }
}

#[test]
fn words_pass_and_ocalls_are_counted() {
    let enclave = load(2);
    let enclave = &*enclave;
    assert_eq!((enclave.leave(100), enclave.ocalls()), (Ok(100), 100));
    assert_eq!(enclave.repeat(Ecall::leave, [3, 0, 0, 0, 0], 5), Ok(3));
    assert_eq!((enclave.ocalls(), enclave.blocked()), (115, 0));
    let heap = enclave.heap();
    assert_eq!((heap.len(), heap.start % 4096), (4096 * 4096, 0));
    let pointer = enclave.malloc(100).unwrap();
    assert!(heap.contains(&(pointer as usize)), "{pointer:#x} in {heap:x?}");
    assert_eq!(enclave.equal(pointer, u64::MAX, 0), Ok(0), "no bytes beyond the heap");
}

#[test]
fn a_system_call_does_not_exist() {
    let enclave = load(1);
    assert_eq!((enclave.misbehave(0), enclave.blocked()), (Ok(u64::MAX), 0));
}

#[test]
fn an_overrun_meets_the_guard_page() {
    let enclave = load(3);
    let why = misbehave(&*enclave, 1);
    let EcallError::Fault { signal: libc::SIGSEGV, place: FaultLocation::Guard, .. } = why else {
        panic!("{why}")
    };
    assert!(why.to_string().contains("raise NumStackPages"), "{why}");
}

#[test]
fn wild_pointers_and_traps_end_the_call() {
    let why = misbehave(&*load(1), 2);
    let EcallError::Fault { address: 0x10, place: FaultLocation::Outside, .. } = why else {
        panic!("{why}")
    };
    let why = misbehave(&*load(1), 3);
    assert_eq!(why, EcallError::Trap { what: "an unreachable instruction" });
    // Below a block is what dlmalloc knows of it.
    let enclave = load(1);
    let why = enclave.usable_size(0xffff_fff0).unwrap_err();
    let EcallError::Fault { address: 0xffff_ffec, place: FaultLocation::Outside, .. } = why else {
        panic!("{why}")
    };
    refuses(&*enclave);
}

/// Copying is the module's own work, and what it meets is no fault of the host.
#[test]
fn a_copy_beyond_the_heap_ends_the_call() {
    let conf = Conf { heap_pages: 64, tcs: 1, ..Conf::default() };
    let enclave = kinds::load(EnclaveKind::Wasm, images::find("rlsf").unwrap(), &conf).unwrap();
    let enclave = &*enclave;
    let (long, block) = (enclave.malloc(160_000).unwrap(), enclave.malloc(64).unwrap());
    assert!(0 < long && long < block);
    assert_eq!((enclave.free(long), enclave.fill(block, 16, 0xff)), (Ok(0), Ok(16)));
    // What stands before this is no size, and copying so much of it reads past the heap.
    let why = enclave.realloc(block + 16, 150_000).unwrap_err();
    let EcallError::Fault { signal: libc::SIGSEGV, address, place: FaultLocation::Guard, .. } = why
    else {
        panic!("{why}")
    };
    let end = enclave.heap().end as u64;
    assert!((end..end + 4096).contains(&address), "{why}");
    refuses(enclave);
}

#[test]
fn whoever_is_inside_at_a_fault_may_leave() {
    const TIMES: u64 = 2_000_000;
    let enclave = load(2);
    let enclave = &*enclave;
    std::thread::scope(|scope| {
        let inside = scope.spawn(|| enclave.leave(TIMES));
        while enclave.ocalls() == 0 {
            std::thread::yield_now();
        }
        misbehave(enclave, 3);
        assert!(enclave.ocalls() < TIMES, "it is still inside");
        assert_eq!(inside.join().unwrap(), Ok(TIMES));
    });
}

#[test]
fn more_than_a_module_reaches_is_refused() {
    let conf = Conf { heap_pages: 1 << 20, ..Conf::default() };
    let failure = kinds::load(EnclaveKind::Wasm, dlmalloc(), &conf).err().unwrap();
    assert!(failure.to_string().contains("use fewer pages"), "{failure}");
}

#[test]
fn more_than_half_of_what_a_module_reaches_is_not() {
    const HEAP: usize = 9 << 28;
    if machine::memory::available() < 2 * HEAP as u64 {
        let why = "it takes twice as much free memory";
        return machine::untested::note("a module's heap beyond 2 GiB", &why);
    }
    let conf = Conf { heap_pages: HEAP / 4096, ..Conf::default() };
    let enclave = kinds::load(EnclaveKind::Wasm, dlmalloc(), &conf).unwrap();
    let blocks = [1 << 30, 1 << 30, 1 << 20].map(|size| enclave.malloc(size).unwrap());
    assert!(!blocks.contains(&0) && blocks[2] > 1 << 31, "{blocks:x?}");
    assert_eq!(enclave.fill(blocks[2], 1 << 20, 7), Ok(1 << 20));
    assert_eq!(enclave.equal(blocks[2], 1 << 20, 7), Ok(1 << 20));
    works(&*enclave);
}

#[test]
fn a_tcs_too_many_is_out_of_threads() {
    let enclave = load(1);
    let enclave = &*enclave;
    let (done, begun) = (AtomicBool::new(false), Instant::now());
    let refused = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let _ = enclave.enclave_thread(20_000, 1000, 1, 0);
            }
        });
        let refused = loop {
            assert!(begun.elapsed() < Duration::from_secs(60), "nobody is refused");
            if let Err(why) = enclave.nothing() {
                break why;
            }
        };
        done.store(true, Ordering::Relaxed);
        refused
    });
    assert_eq!(refused, EcallError::OutOfThreads { tcs: 1 });
}

#[test]
fn who_waits_outside_sleeps_and_is_woken() {
    let enclave = load(2);
    let enclave = &*enclave;
    let waited = std::thread::scope(|scope| {
        let waits = scope.spawn(|| enclave.consume(10));
        while enclave.waits() == 0 {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(200));
        let waited = enclave.waits();
        assert_eq!(enclave.produce(10, 100, 1), Ok(0));
        assert_eq!(waits.join().unwrap(), Ok(10));
        waited
    });
    // By a word that the host does not find nobody would sleep, but ask again and again.
    assert!(waited < 100, "{waited} times");
    assert!(enclave.waits() < enclave.ocalls());
}

/// Threads that copy under the lock want it until one has waited for it.
#[test]
fn a_lock_that_waits_leaves_by_ocalls() {
    const LARGE: u64 = 1 << 20;
    let conf = Conf { tcs: 4, ..Conf::default() };
    let enclave =
        kinds::load(EnclaveKind::Wasm, images::find("dlmalloc-wait").unwrap(), &conf).unwrap();
    let (enclave, begun) = (&*enclave, Instant::now());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while enclave.waits() == 0 && begun.elapsed() < Duration::from_secs(30) {
                    let (block, behind) =
                        (enclave.malloc(LARGE).unwrap(), enclave.malloc(64).unwrap());
                    let moved = enclave.realloc(block, LARGE + 4096).unwrap();
                    assert!(block != 0 && behind != 0 && moved != 0, "there is room");
                    assert_eq!((enclave.free(moved), enclave.free(behind)), (Ok(0), Ok(0)));
                }
            });
        }
    });
    assert!(enclave.waits() > 0, "nobody waits");
    assert!(enclave.waits() < enclave.ocalls(), "and is woken");
    works(enclave);
}

#[test]
fn eight_threads_are_inside_at_once() {
    let enclave = load(8);
    let enclave = &*enclave;
    std::thread::scope(|scope| {
        for thread in 0..8 {
            scope.spawn(move || {
                for _ in 0..50 {
                    assert_eq!(enclave.enclave_thread(100, 1000, thread, 1), Ok(0));
                    assert_eq!(enclave.leave(3), Ok(3));
                }
            });
        }
    });
    assert_eq!(enclave.ocalls(), 8 * 50 * 3);
}

/// Both kinds make failed ECALLs of signals; whichever was loaded first, each has its own.
#[test]
fn faults_of_two_kinds_do_not_meet() {
    for how in 1..4 {
        for wasm_first in [false, true] {
            let native = || kinds::load(EnclaveKind::Simulate, dlmalloc(), &Conf::default());
            let before = (!wasm_first).then(native);
            let wasm = load(8);
            // Where this machine cannot simulate, the others tell of it.
            let Ok(native) = before.unwrap_or_else(native) else { return };
            misbehave(&*native, how);
            works(&*wasm);
            misbehave(&*wasm, how);
        }
    }
}
