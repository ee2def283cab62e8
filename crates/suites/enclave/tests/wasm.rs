//! The boundary of WebAssembly: a violation is reported with its cause, the host survives, and no later ECALL enters
//! the enclave. tests/contract tests the allocators.

#![cfg(feature = "wasm")]
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

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

/// Checks that the enclave works.
fn works(enclave: &dyn Enclave) {
    assert_eq!(enclave.leave(2), Ok(2));
    assert_eq!(enclave.enclave_thread(100, 1000, 1, 1), Ok(0));
}

/// Returns the error of a misbehaving ECALL, and checks that no later ECALL enters, on this thread or another.
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
fn allocators_in_rust_have_modules_that_import_only_ocalls() {
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
fn an_allocator_not_in_rust_is_unavailable() {
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
    assert_eq!(enclave.equal(pointer, u64::MAX, 0), Ok(0), "beyond the heap");
}

#[test]
fn a_system_call_does_not_exist() {
    let enclave = load(1);
    assert_eq!((enclave.misbehave(0), enclave.blocked()), (Ok(u64::MAX), 0));
}

#[test]
fn a_stack_overflow_hits_the_guard_page() {
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
    // The address below a block contains dlmalloc's metadata.
    let enclave = load(1);
    let why = enclave.usable_size(0xffff_fff0).unwrap_err();
    let EcallError::Fault { address: 0xffff_ffec, place: FaultLocation::Outside, .. } = why else {
        panic!("{why}")
    };
    refuses(&*enclave);
}

/// The module itself copies memory, so a fault is not the host's.
#[test]
fn a_copy_beyond_the_heap_ends_the_call() {
    let conf = Conf { heap_pages: 64, tcs: 1, ..Conf::default() };
    let enclave = kinds::load(EnclaveKind::Wasm, images::find("rlsf").unwrap(), &conf).unwrap();
    let enclave = &*enclave;
    let (long, block) = (enclave.malloc(160_000).unwrap(), enclave.malloc(64).unwrap());
    assert!(0 < long && long < block);
    assert_eq!((enclave.free(long), enclave.fill(block, 16, 0xff)), (Ok(0), Ok(16)));
    // The word before this address is not a size; copying that many bytes reads beyond the heap.
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
fn threads_inside_during_a_fault_may_leave() {
    const TIMES: u64 = 2_000_000;
    let enclave = load(2);
    let enclave = &*enclave;
    std::thread::scope(|scope| {
        let inside = scope.spawn(|| enclave.leave(TIMES));
        while enclave.ocalls() == 0 {
            std::thread::yield_now();
        }
        misbehave(enclave, 3);
        assert!(enclave.ocalls() < TIMES, "the thread is still inside");
        assert_eq!(inside.join().unwrap(), Ok(TIMES));
    });
}

#[test]
fn a_heap_beyond_a_modules_address_range_is_refused() {
    let conf = Conf { heap_pages: 1 << 20, ..Conf::default() };
    let failure = kinds::load(EnclaveKind::Wasm, dlmalloc(), &conf).err().unwrap();
    assert!(failure.to_string().contains("use fewer pages"), "{failure}");
}

#[test]
fn a_heap_beyond_half_of_a_modules_address_range_works() {
    const HEAP: usize = 9 << 28;
    if machine::proc::available_memory() < 2 * HEAP as u64 {
        let why = "it needs twice as much free memory";
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
fn an_extra_thread_is_refused() {
    let enclave = load(1);
    let enclave = &*enclave;
    let (done, start) = (AtomicBool::new(false), Instant::now());
    let refused = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let _ = enclave.enclave_thread(20_000, 1000, 1, 0);
            }
        });
        let refused = loop {
            assert!(start.elapsed() < Duration::from_secs(60), "no thread is refused");
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
fn a_waiting_thread_sleeps_outside_and_is_woken() {
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
    // If the host did not find the word, the thread would not sleep but wait again and again.
    assert!(waited < 100, "{waited} times");
    assert!(enclave.waits() < enclave.ocalls());
}

/// Threads that copy under the lock contend for it until one has waited.
#[test]
fn a_sleeping_lock_makes_ocalls() {
    const LARGE: u64 = 1 << 20;
    let conf = Conf { tcs: 4, ..Conf::default() };
    let enclave =
        kinds::load(EnclaveKind::Wasm, images::find("dlmalloc-wait").unwrap(), &conf).unwrap();
    let (enclave, start) = (&*enclave, Instant::now());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while enclave.waits() == 0 && start.elapsed() < Duration::from_secs(30) {
                    let (block, behind) =
                        (enclave.malloc(LARGE).unwrap(), enclave.malloc(64).unwrap());
                    let moved = enclave.realloc(block, LARGE + 4096).unwrap();
                    assert!(block != 0 && behind != 0 && moved != 0, "no space is left");
                    assert_eq!((enclave.free(moved), enclave.free(behind)), (Ok(0), Ok(0)));
                }
            });
        }
    });
    assert!(enclave.waits() > 0, "no thread waits");
    assert!(enclave.waits() < enclave.ocalls(), "no thread is woken");
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

/// Both kinds convert signals to failed ECALLs; each handles its own, regardless of which was loaded first.
#[test]
fn faults_of_two_kinds_do_not_interfere() {
    for how in 1..4 {
        for wasm_first in [false, true] {
            let native = || kinds::load(EnclaveKind::Simulate, dlmalloc(), &Conf::default());
            let before = (!wasm_first).then(native);
            let wasm = load(8);
            // If this machine cannot simulate, other tests note it.
            let Ok(native) = before.unwrap_or_else(native) else { return };
            misbehave(&*native, how);
            works(&*wasm);
            misbehave(&*wasm, how);
        }
    }
}
