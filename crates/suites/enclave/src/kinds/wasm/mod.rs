//! The code inside the enclave as a WebAssembly module, run by wasmtime: many threads on one linear memory.
//!
//! Each TCS has an instance of the module with its own store; all share the memory, which contains data, heap and
//! stacks and never grows. The boundary consists of wasmtime's checks and the guard pages: there is no system call to
//! block.

mod instance;
mod memory;

use std::ops::Range;
use std::sync::atomic::Ordering;

use enclave_interface::Ecall;
use lab::sample::Failure;
use wasmtime::{Error, Trap};

use super::{CallCounts, Enclave};
use crate::conf::Conf;
use crate::error::EcallError;
use crate::images::{self, Image};
use crate::tcs::Tcs;
use crate::wasm_engine;
use instance::Instances;
use memory::Memory;

/// Checks that modules can run here.
///
/// # Errors
/// Returns `unavailable` if wasmtime does not start.
pub(super) fn available() -> Result<(), Failure> {
    wasm_engine::engine().map(drop)
}

/// Checks that an allocator has a module.
///
/// # Errors
/// Returns `unavailable` if it has none.
pub(super) fn has(allocator: &str) -> Result<(), Failure> {
    let module = images::find(allocator).and_then(|image| image.wasm);
    module.map(drop).ok_or_else(|| no_module(allocator))
}

fn no_module(allocator: &str) -> Failure {
    let all = images::all().iter().filter(|image| image.wasm.is_some());
    let there: Vec<_> = all.map(|image| image.allocator).collect();
    Failure::unavailable(
        format!(
            "{allocator} has no module of WebAssembly: only built-in allocators in Rust have one"
        ),
        format!("use one of {}", there.join(", ")),
    )
}

/// Loads an image's module.
///
/// # Errors
/// Returns an error if the image has no module or memory is exhausted.
pub(super) fn load(image: &Image, conf: &Conf) -> Result<impl Enclave + use<>, Failure> {
    let module = wasm_engine::compiled(image.wasm.ok_or_else(|| no_module(image.allocator))?)?;
    let memory = Memory::new(&module, conf)?;
    let instances = Instances::new(&module, &memory, conf.tcs)?;
    Ok(Wasm { instances, memory })
}

/// A loaded module.
struct Wasm {
    instances: Instances,
    memory: Memory,
}

impl Wasm {
    /// Returns why a call was cut short, and aborts the enclave. Addresses are offsets, as seen from inside.
    #[cold]
    fn cut(&self, tcs: &Tcs, why: &Error) -> EcallError {
        let trap = why.downcast_ref::<Trap>();
        // A trap raised by wasmtime's own checks has no signal.
        if trap != Some(&Trap::MemoryOutOfBounds) || tcs.cut.signal.load(Ordering::Relaxed) == 0 {
            self.instances.tcs.abort();
            return EcallError::Trap { what: instance::name(trap) };
        }
        let (base, stack) = (self.memory.start(), self.memory.stack(tcs.number));
        match self.instances.tcs.cut(tcs, base + stack.start..base + stack.end) {
            EcallError::Fault { signal, address, at, place } => {
                let address = address.wrapping_sub(base as u64);
                EcallError::Fault { signal, address, at, place }
            }
            other => other,
        }
    }
}

impl Enclave for Wasm {
    #[inline]
    fn ecall(&self, call: Ecall, words: [u64; 5]) -> Result<u64, EcallError> {
        self.instances.ecall(call, words, |tcs, why| self.cut(tcs, why))
    }

    fn counts(&self) -> CallCounts {
        self.instances.tcs.counts()
    }

    /// Offsets in the linear memory, which are the pointers inside.
    fn heap(&self) -> Range<usize> {
        self.memory.heap()
    }
}
