//! The kinds of enclave: one image, isolated from its host in different ways.

mod in_process;
mod kvm;
mod outside;
mod process;
mod sgx;
#[cfg(test)]
mod tests;
#[cfg(feature = "wasm")]
mod wasm;

use std::ops::Range;

use enclave_interface::{Ecall, Enter};
use lab::capability::{self, Capability};
use lab::factor::LevelType;
use lab::sample::Failure;

use crate::conf::Conf;
use crate::elf::Elf;
use crate::error::EcallError;
use crate::images::Image;
use crate::{system_calls, trampoline};
use in_process::{ArchPrctl, Instructions, PlainImage, TrampolineEnclave};

pub use crate::tcs::CallCounts;

/// How an enclave is isolated from its host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, LevelType)]
pub enum EnclaveKind {
    /// No isolation: the same image on the same heap, called on the host's stack, with system calls allowed. The
    /// thread-local variables are the enclave's, so FS changes once around the call, or around all calls of
    /// [`Enclave::repeat`], whose body is therefore a plain call. A TCS is bound as in the other kinds.
    None,
    /// In this process, with a separate stack and FS, both set by instructions. System calls are blocked.
    Simulate,
    /// As `simulate`, but each ECALL reads and sets FS and GS by six `arch_prctl` system calls, and so does each
    /// OCALL, as in Open Enclave's simulation. System calls are not blocked there, so no call pays for that.
    #[level("simulate-arch-prctl")]
    ArchPrctl,
    /// Another process under seccomp, with one thread per TCS, called through shared memory.
    Process,
    /// A virtual machine that contains only the enclave, with one vCPU per TCS, entered on the caller's thread.
    Kvm,
    /// In this process: the same inside as a WebAssembly module, with one instance per TCS.
    Wasm,
    /// Intel SGX.
    Sgx,
}

/// A loaded enclave whose allocator is initialised. Dropping it finishes the allocator and unloads the enclave.
pub trait Enclave: Send + Sync {
    /// Makes an ECALL by a free TCS.
    ///
    /// # Errors
    /// Returns an error if no TCS is free, or if the enclave faulted or made a system call.
    fn ecall(&self, call: Ecall, words: [u64; 5]) -> Result<u64, EcallError>;

    /// Makes the same ECALL `times` times; returns the last result, or 0 if `times` is 0.
    ///
    /// # Errors
    /// Returns the error of the first call that failed.
    fn repeat(&self, call: Ecall, words: [u64; 5], times: u64) -> Result<u64, EcallError> {
        let mut result = 0;
        for _ in 0..times {
            result = self.ecall(call, words)?;
        }
        Ok(result)
    }

    /// Returns how many OCALLs were made and system calls blocked. Exact while no thread is inside.
    fn counts(&self) -> CallCounts;

    /// Returns how many OCALLs were made.
    fn ocalls(&self) -> u64 {
        self.counts().ocalls
    }

    /// Returns how many OCALLs waited.
    fn waits(&self) -> u64 {
        self.counts().waits
    }

    /// Returns how many system calls were blocked.
    fn blocked(&self) -> u64 {
        self.counts().blocked
    }

    /// Returns the heap's addresses, as seen from inside.
    fn heap(&self) -> Range<usize>;

    /// Returns the CPU time of the enclave's own threads so far, in ns.
    fn own_cpu_ns(&self) -> f64 {
        0.0
    }
}

impl Enter for dyn Enclave + '_ {
    type Error = EcallError;

    #[inline]
    fn call(&self, call: Ecall, words: [u64; 5]) -> Result<u64, EcallError> {
        self.ecall(call, words)
    }
}

/// Returns the code of a kind that enters and leaves an image from within its enclave; empty if it does both from outside.
pub(crate) fn inner_code(kind: EnclaveKind) -> &'static [u8] {
    match kind {
        EnclaveKind::Kvm => kvm::inner_code(),
        EnclaveKind::Sgx => sgx::inner_code(),
        EnclaveKind::None
        | EnclaveKind::Simulate
        | EnclaveKind::ArchPrctl
        | EnclaveKind::Process
        | EnclaveKind::Wasm => &[],
    }
}

/// Returns the capability to load a kind on this machine.
pub fn capability(kind: EnclaveKind) -> Capability {
    let available = available(kind).map(|()| "an image can be loaded and entered".into());
    capability::checked(format!("enclave-{kind}"), format!("enclaves of kind {kind}"), available)
}

/// Checks that a kind can be measured on this machine.
///
/// # Errors
/// Returns `unavailable`, with the cause and the fix, if the kind does not run here or its costs are not those of
/// the mechanism that it is named after.
pub fn available(kind: EnclaveKind) -> Result<(), Failure> {
    runs(kind)?;
    match kind {
        // Only counts are measured there, which do not depend on costs.
        EnclaveKind::Kvm if machine::cpu::lacks_time() => Ok(()),
        EnclaveKind::Kvm => kvm::measures(),
        EnclaveKind::None
        | EnclaveKind::Simulate
        | EnclaveKind::ArchPrctl
        | EnclaveKind::Process
        | EnclaveKind::Wasm
        | EnclaveKind::Sgx => Ok(()),
    }
}

/// Checks that a kind can be loaded and entered on this machine, regardless of its costs.
///
/// # Errors
/// Returns `unavailable`, with the cause and the fix.
pub fn runs(kind: EnclaveKind) -> Result<(), Failure> {
    match kind {
        EnclaveKind::None | EnclaveKind::ArchPrctl => fs_base(),
        EnclaveKind::Simulate => fs_base().and_then(|()| system_calls::available()),
        EnclaveKind::Process => fs_base().and_then(|()| process::available()),
        EnclaveKind::Kvm => kvm::runs(),
        EnclaveKind::Wasm => wasm::available(),
        EnclaveKind::Sgx => sgx::available(),
    }
}

/// Checks that programs can set FS, as the trampolines do.
fn fs_base() -> Result<(), Failure> {
    if trampoline::fs_base_is_writable() {
        return Ok(());
    }
    Err(Failure::unavailable(
        "this kernel does not let programs set FS (no FSGSBASE in AT_HWCAP2)",
        "run Linux 5.9 or later on a CPU with FSGSBASE, without the option nofsgsbase",
    ))
}

/// Checks that a kind supports an allocator, which is built in or user-supplied.
///
/// # Errors
/// Returns `unavailable`, with the cause and the fix.
pub fn has(kind: EnclaveKind, allocator: &str) -> Result<(), Failure> {
    match kind {
        EnclaveKind::Wasm => wasm::has(allocator),
        EnclaveKind::None
        | EnclaveKind::Simulate
        | EnclaveKind::ArchPrctl
        | EnclaveKind::Process
        | EnclaveKind::Kvm
        | EnclaveKind::Sgx => Ok(()),
    }
}

/// Loads a library for outside ([`crate::images::outside`]), which is called directly and whose heap is the system's.
/// The library stays in this process, and a fault in it is a fault of the process.
///
/// # Errors
/// Returns the message of the system's loader.
pub fn load_outside(library: &Image) -> Result<Box<dyn Enclave>, Failure> {
    let loaded = initialise(outside::Outside::load(library)?);
    loaded.map_err(|why| Failure::failed(format!("{} outside: {why}", library.allocator)))
}

/// Loads an image as an enclave and initialises its allocator.
///
/// # Errors
/// Returns an error if the kind is not available, if the image or the configuration cannot be loaded, or if the
/// allocator does not start in its heap.
pub fn load(kind: EnclaveKind, image: &Image, conf: &Conf) -> Result<Box<dyn Enclave>, Failure> {
    available(kind)?;
    load_untimed(kind, image, conf)
}

/// As [`load`], but also if the kind's times would not be valid: for functional tests.
///
/// # Errors
/// As [`load`], except for costs that are not the kind's.
pub fn load_untimed(
    kind: EnclaveKind,
    image: &Image,
    conf: &Conf,
) -> Result<Box<dyn Enclave>, Failure> {
    runs(kind)?;
    let elf = || Elf::parse(image.bytes);
    let loaded = match kind {
        EnclaveKind::None => initialise(PlainImage::load(&elf()?, conf)?),
        EnclaveKind::Simulate => {
            initialise(TrampolineEnclave::<Instructions>::load(&elf()?, conf)?)
        }
        EnclaveKind::ArchPrctl => initialise(TrampolineEnclave::<ArchPrctl>::load(&elf()?, conf)?),
        EnclaveKind::Process => initialise(process::Process::load(&elf()?, conf)?),
        EnclaveKind::Kvm => initialise(kvm::Kvm::load(&elf()?, conf)?),
        EnclaveKind::Wasm => initialise(wasm::load(image, conf)?),
        EnclaveKind::Sgx => initialise(sgx::load(&elf()?, conf)?),
    };
    loaded.map_err(|why| {
        let (allocator, pages) = (image.allocator, conf.heap_pages);
        Failure::failed(format!(
            "{allocator} does not start in {pages} pages: {why}: raise NumHeapPages"
        ))
    })
}

/// Initialises the allocator of a loaded enclave in its heap.
///
/// # Errors
/// Returns the allocator's error code or why the ECALL failed.
fn initialise<E: Enclave + 'static>(enclave: E) -> Result<Box<dyn Enclave>, String> {
    let heap = enclave.heap();
    match enclave.ecall(Ecall::initialise, [heap.start as u64, heap.end as u64, 0, 0, 0]) {
        Ok(0) => Ok(Box::new(FinishOnDrop(enclave))),
        Ok(code) => Err(format!("its code is {code}")),
        Err(why) => Err(why.to_string()),
    }
}

/// An initialised enclave, which makes its last ECALL when it is dropped, so that the allocator cleans up. An aborting
/// enclave refuses that call too, because the allocator might wait for a lock that no thread releases.
struct FinishOnDrop<E: Enclave>(E);

impl<E: Enclave> Enclave for FinishOnDrop<E> {
    #[inline]
    fn ecall(&self, call: Ecall, words: [u64; 5]) -> Result<u64, EcallError> {
        self.0.ecall(call, words)
    }

    #[inline]
    fn repeat(&self, call: Ecall, words: [u64; 5], times: u64) -> Result<u64, EcallError> {
        self.0.repeat(call, words, times)
    }

    fn counts(&self) -> CallCounts {
        self.0.counts()
    }

    fn heap(&self) -> Range<usize> {
        self.0.heap()
    }

    fn own_cpu_ns(&self) -> f64 {
        self.0.own_cpu_ns()
    }
}

impl<E: Enclave> Drop for FinishOnDrop<E> {
    fn drop(&mut self) {
        // Errors have no effect: the enclave is unloaded next.
        let _ = self.0.ecall(Ecall::finish, [0; 5]);
    }
}

/// The stand-in for kind `wasm` in a build without it.
#[cfg(not(feature = "wasm"))]
mod wasm {
    use lab::sample::Failure;

    use super::Enclave;
    use crate::conf::Conf;
    use crate::images::Image;

    pub(super) fn available() -> Result<(), Failure> {
        Err(absent())
    }

    pub(super) fn has(_: &str) -> Result<(), Failure> {
        Err(absent())
    }

    pub(super) fn load(_: &Image, _: &Conf) -> Result<impl Enclave + use<>, Failure> {
        // The type is arbitrary, because no value is returned.
        Err::<super::PlainImage, _>(absent())
    }

    fn absent() -> Failure {
        Failure::unavailable(
            "this build of tollgate has no WebAssembly",
            "build it with --features wasm; docs/enclave.md states what that requires",
        )
    }
}
