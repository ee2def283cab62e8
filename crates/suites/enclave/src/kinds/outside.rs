//! The code inside the enclave as a shared library of the host, for allocators that need an operating system.

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use enclave_interface::{Ecall, Ocall, ThreadBlock};
use lab::sample::Failure;
use libloading::Library;
use machine::memfd::Memfd;

use super::{CallCounts, Enclave};
use crate::error::EcallError;
use crate::images::Image;
use crate::ocalls;

/// The entry point's type.
type Entry = extern "sysv64" fn(u64, u64, u64, u64, u64, u64) -> u64;
/// The type of the function that sets a thread's block.
type Bind = extern "sysv64" fn(*const ThreadBlock);

thread_local! {
    /// The counters of the library that this thread is in.
    static COUNTS: Cell<*const Counts> = const { Cell::new(ptr::null()) };
}

/// Numbers of OCALLs, and of OCALLs that waited.
#[derive(Default)]
struct Counts {
    ocalls: AtomicU64,
    waits: AtomicU64,
}

/// A loaded library.
pub(super) struct Outside {
    entry: Entry,
    bind: Bind,
    counts: Counts,
    /// The library is never unloaded, because threads that used its allocator run its code when they end. Its file
    /// stays open, because the system's loader identifies libraries by file name.
    _stays: ManuallyDrop<(Library, Memfd)>,
}

impl Outside {
    /// Loads a new copy.
    pub(super) fn load(image: &Image) -> Result<Self, Failure> {
        let failed = |why: String| Failure::failed(format!("{} outside: {why}", image.allocator));
        let file = Memfd::create(image.allocator, 0).map_err(|why| failed(why.to_string()))?;
        let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
        std::fs::write(&path, image.bytes).map_err(|why| failed(format!("{path}: {why}")))?;
        // SAFETY: the library was built with this program; its only constructors are its allocator's.
        let library = unsafe { Library::new(&path) }.map_err(|why| failed(why.to_string()))?;
        // SAFETY: the code inside the enclave defines both with these types (inside/image/src/runtime.rs and arch).
        let found = unsafe {
            let entry = library.get::<Entry>("enclave_entry").map(|entry| *entry);
            entry.and_then(|entry| {
                Ok((entry, library.get::<Bind>("enclave_bind").map(|bind| *bind)?))
            })
        };
        let (entry, bind) = found.map_err(|why| failed(why.to_string()))?;
        let stays = ManuallyDrop::new((library, file));
        Ok(Self { entry, bind, counts: Counts::default(), _stays: stays })
    }
}

impl Enclave for Outside {
    fn ecall(&self, call: Ecall, words: [u64; 5]) -> Result<u64, EcallError> {
        self.repeat(call, words, 1)
    }

    fn repeat(&self, call: Ecall, words: [u64; 5], times: u64) -> Result<u64, EcallError> {
        let block = ThreadBlock {
            own: 0,
            host_stack: 0,
            ocall: answer as *const () as u64,
            number: 0,
            host_fs: 0,
            host_gs: 0,
            reserved: [0; 10],
        };
        COUNTS.set(&raw const self.counts);
        (self.bind)(&raw const block);
        let [w0, w1, w2, w3, w4] = words;
        let mut result = 0;
        for _ in 0..times {
            result = (self.entry)(call as u64, w0, w1, w2, w3, w4);
        }
        Ok(result)
    }

    fn counts(&self) -> CallCounts {
        CallCounts {
            ocalls: self.counts.ocalls.load(Ordering::Relaxed),
            waits: self.counts.waits.load(Ordering::Relaxed),
            blocked: 0,
        }
    }

    fn heap(&self) -> Range<usize> {
        0..usize::MAX
    }
}

/// Answers an OCALL of the calling thread.
extern "sysv64" fn answer(number: u64, w0: u64, w1: u64, w2: u64, w3: u64, w4: u64) -> u64 {
    // SAFETY: a thread makes OCALLs only during a call, and the library lives that long.
    if let Some(counts) = unsafe { COUNTS.get().as_ref() } {
        counts.ocalls.fetch_add(1, Ordering::Relaxed);
        if number == Ocall::wait as u64 {
            counts.waits.fetch_add(1, Ordering::Relaxed);
        }
    }
    ocalls::answer(0..usize::MAX, number, [w0, w1, w2, w3, w4])
}
