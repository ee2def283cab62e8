//! Locks that sleep: a thread leaves the enclave to sleep, and is woken.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use enclave::conf::Conf;
use enclave::images::{self, Image};
use enclave::kinds::{self, Enclave, EnclaveKind};
use enclave_interface::Enter;

use super::{LIMIT, example, simulates, within};

/// A block whose copy takes milliseconds; a realloc that moves it copies under the lock.
const LARGE: u64 = 8 << 20;
/// The block after it, which forces the move.
const BEHIND: u64 = 1 << 20;

fn load(kind: EnclaveKind, image: &Image) -> Box<dyn Enclave> {
    let conf = Conf { heap_pages: 16_384, stack_pages: 16, tcs: 4, debug: true };
    kinds::load_untimed(kind, image, &conf).expect("it loads")
}

/// Sets a flag when it is dropped, also by a panic, so that other threads stop.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Moves large blocks under the lock on one thread while two others contend for it, until a thread has waited or the
/// time limit is reached; returns the number of waits.
fn contend(enclave: &dyn Enclave, limit: Duration) -> u64 {
    let done = AtomicBool::new(false);
    let start = Instant::now();
    std::thread::scope(|scope| {
        let _done = Done(&done);
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let block = enclave.malloc(64).expect("malloc");
                    assert_ne!(block, 0, "no space is left");
                    assert_eq!(enclave.free(block), Ok(0));
                }
            });
        }
        while start.elapsed() < limit && enclave.waits() == 0 {
            let block = enclave.malloc(LARGE).expect("malloc");
            let behind = enclave.malloc(BEHIND).expect("malloc");
            let moved = enclave.realloc(block, LARGE + BEHIND).expect("realloc");
            assert_ne!(moved, 0, "no space is left");
            assert_eq!((enclave.free(moved), enclave.free(behind)), (Ok(0), Ok(0)));
        }
    });
    enclave.waits()
}

#[test]
fn a_sleeping_lock_leaves_to_wait_and_to_wake() {
    // A build without WebAssembly is not a property of the machine.
    let built = |kind: &EnclaveKind| cfg!(feature = "wasm") || *kind != EnclaveKind::Wasm;
    for kind in EnclaveKind::ALL.into_iter().filter(built) {
        if let Err(why) = kinds::runs(kind) {
            machine::untested::note(&format!("waiting in enclaves of kind {}", kind.name()), &why);
            continue;
        }
        within(LIMIT, kind.name(), move || {
            let enclave = load(kind, images::find("dlmalloc-wait").expect("an image"));
            let waits = contend(&*enclave, LIMIT / 2);
            assert!(waits > 0, "{kind:?}: no thread waits");
            assert!(waits < enclave.ocalls(), "{kind:?}: no thread is woken");
            assert_eq!(enclave.blocked(), 0, "{kind:?}");
        });
    }
}

/// Changes the example to use the mutex of C allocators, which it holds for some hundred microseconds.
fn under_a_mutex(example: String) -> String {
    let mut text = example;
    for (was, is) in [
        ("#include <stdatomic.h>", "#include <pthread.h>"),
        ("static atomic_flag taken = ATOMIC_FLAG_INIT;", "static pthread_mutex_t taken;"),
        (
            "    while (atomic_flag_test_and_set_explicit(&taken, memory_order_acquire))\n        __builtin_ia32_pause();",
            "    pthread_mutex_lock(&taken);",
        ),
        (
            "    atomic_flag_clear_explicit(&taken, memory_order_release);",
            "    for (volatile int held = 0; held < 100000; held++)\n        ;\n    pthread_mutex_unlock(&taken);",
        ),
    ] {
        assert!(text.contains(was), "{was}");
        text = text.replace(was, is);
    }
    text
}

#[test]
fn the_mutex_of_c_allocators_leaves_to_wait_and_to_wake() {
    if !simulates("the mutex of C allocators") {
        return;
    }
    let image = example::changed(under_a_mutex, "");
    within(LIMIT, "the mutex", move || {
        let enclave = load(EnclaveKind::Simulate, &image);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let block = enclave.malloc(64).expect("malloc");
                        assert_eq!(enclave.free(block), Ok(0));
                    }
                });
            }
        });
        assert!(enclave.waits() > 0, "no thread waits");
        assert!(enclave.waits() < enclave.ocalls(), "no thread is woken");
    });
}

#[test]
fn a_spinning_lock_makes_no_ocalls() {
    if !simulates("a lock that spins") {
        return;
    }
    for allocator in ["dlmalloc", "talc"] {
        within(LIMIT, allocator, move || {
            let enclave = load(EnclaveKind::Simulate, images::find(allocator).expect("an image"));
            contend(&*enclave, Duration::from_millis(200));
            assert_eq!(enclave.ocalls(), 0, "{allocator}");
        });
    }
}

#[test]
#[should_panic(expected = "does not end within")]
fn a_hanging_allocator_fails() {
    within(Duration::from_millis(50), "a sleeper", || std::thread::sleep(LIMIT));
}
