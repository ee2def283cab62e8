//! The kinds of enclave: one image, kept apart from its host in different ways.

mod begun;
mod entering;
mod here;
mod kvm;
mod none;
mod outside;
mod process;
mod sgx;
#[cfg(test)]
mod tests;
#[cfg(feature = "wasm")]
pub(crate) mod wasm;
#[cfg(not(feature = "wasm"))]
#[path = "wasm/absent.rs"]
mod wasm;

use std::ops::Range;

use enclave_interface::{Ecall, Enter};
use lab::capability::{Capability, state_of};
use lab::factor::LevelType;
use lab::sample::Failure;

use crate::conf::Conf;
use crate::elf::Elf;
use crate::error::EcallError;
use crate::images::Image;
use crate::{system_calls, trampoline};
use entering::{ArchPrctl, Entering, Instructions};

/// How an enclave is kept apart from its host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, LevelType)]
pub enum Kind {
    /// Not at all: the same image on the same heap, called on the host's own stack, its system calls not
    /// blocked. Its thread's variables are the enclave's, so FS is changed once around the call, or around
    /// all calls of [`Enclave::repeat`], whose body is therefore a plain call. A TCS is bound as elsewhere.
    None,
    /// In this process: a stack and an FS of its own, set by instructions; system calls blocked.
    Simulate,
    /// The same with FS and GS read and set by six `arch_prctl` system calls an ECALL, as Open Enclave's
    /// simulation does, and as many an OCALL. As there, no system call is blocked, so that none pays for that.
    #[level("simulate-arch-prctl")]
    ArchPrctl,
    /// Another process under seccomp, with a thread a TCS, asked through shared memory.
    Process,
    /// A virtual machine that holds nothing else, with a vCPU a TCS, entered on the caller's thread.
    Kvm,
    /// In this process: the same inside as a module of WebAssembly, with an instance a TCS.
    Wasm,
    /// An enclave of the processor's own.
    Sgx,
}

/// An enclave that is loaded and has begun; it ends when it is dropped.
pub trait Enclave: Send + Sync {
    /// Enters by a free TCS.
    ///
    /// # Errors
    /// No TCS is free, or the enclave did what it must not.
    fn ecall(&self, call: Ecall, words: [u64; 5]) -> Result<u64, EcallError>;

    /// Makes the same call so many times in a row and gives what the last one gave; 0 for none.
    ///
    /// # Errors
    /// The first call's that failed.
    fn repeat(&self, call: Ecall, words: [u64; 5], times: u64) -> Result<u64, EcallError> {
        let mut gave = 0;
        for _ in 0..times {
            gave = self.ecall(call, words)?;
        }
        Ok(gave)
    }

    /// How many OCALLs were made. Exact while nobody is inside.
    fn ocalls(&self) -> u64;

    /// How many of them waited. Exact while nobody is inside.
    fn waits(&self) -> u64;

    /// How many system calls were blocked. Exact while nobody is inside.
    fn blocked(&self) -> u64;

    /// The heap's addresses, as they are inside.
    fn heap(&self) -> Range<usize>;

    /// CPU time so far of threads that the enclave has of its own, ns.
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

/// Whether a kind can be loaded here.
pub fn capability(kind: Kind) -> Capability {
    let state = state_of(available(kind).map(|()| "an image can be loaded and entered".into()));
    Capability {
        name: format!("enclave-{}", kind.name()),
        about: format!("enclaves of kind {}", kind.name()),
        state,
    }
}

/// Whether this machine has a kind of enclave, and its costs are what the kind is named after.
///
/// # Errors
/// It does not, or they are not: why, and the remedy.
pub fn available(kind: Kind) -> Result<(), Failure> {
    runs(kind)?;
    if kind == Kind::Kvm { kvm::measures() } else { Ok(()) }
}

/// Whether a kind can be loaded and entered here, whatever that costs.
///
/// # Errors
/// It cannot: why, and the remedy.
pub fn runs(kind: Kind) -> Result<(), Failure> {
    match kind {
        Kind::None | Kind::ArchPrctl => fs_base(),
        Kind::Simulate => fs_base().and_then(|()| system_calls::available()),
        Kind::Process => fs_base().and_then(|()| process::available()),
        Kind::Kvm => kvm::runs(),
        Kind::Wasm => wasm::available(),
        Kind::Sgx => sgx::available(),
    }
}

/// Whether threads can be given an FS of their own, as the inside of a trampoline has it.
fn fs_base() -> Result<(), Failure> {
    if trampoline::fs_base_is_writable() {
        return Ok(());
    }
    Err(Failure::unavailable(
        "this kernel does not let programs set FS (no FSGSBASE in AT_HWCAP2)",
        "run Linux 5.9 or later on a processor with FSGSBASE, without the option nofsgsbase",
    ))
}

/// Whether a kind can have an allocator that has an image, or is a person's own.
///
/// # Errors
/// It cannot: why, and the remedy.
pub fn has(kind: Kind, allocator: &str) -> Result<(), Failure> {
    match kind {
        Kind::Wasm => wasm::has(allocator),
        _ => Ok(()),
    }
}

/// Loads a library for outside ([`crate::images::outside`]), where it is called plainly and its heap, being the
/// system's, is all of memory. It stays in this process, and a fault in it is the process's own.
///
/// # Errors
/// The system's loader says why it cannot be loaded.
pub fn load_outside(library: &Image) -> Result<Box<dyn Enclave>, Failure> {
    let begun = begin(outside::Outside::load(library)?);
    begun.map_err(|why| Failure::failed(format!("{} outside: {why}", library.allocator)))
}

/// Loads an image as an enclave and lets it begin.
///
/// # Errors
/// A kind that is not available, an image or a configuration that cannot be loaded, or an allocator that
/// does not begin in its heap.
pub fn load(kind: Kind, image: &Image, conf: &Conf) -> Result<Box<dyn Enclave>, Failure> {
    available(kind)?;
    load_untimed(kind, image, conf)
}

/// The same where the kind only runs, so that its times would mean nothing: for tests of what it does.
///
/// # Errors
/// As [`load`], but for costs that are not the kind's.
pub fn load_untimed(kind: Kind, image: &Image, conf: &Conf) -> Result<Box<dyn Enclave>, Failure> {
    runs(kind)?;
    let elf = || Elf::parse(image.bytes);
    let begun = match kind {
        Kind::None => begin(none::None::load(&elf()?, conf)?),
        Kind::Simulate => begin(Entering::<Instructions>::load(&elf()?, conf)?),
        Kind::ArchPrctl => begin(Entering::<ArchPrctl>::load(&elf()?, conf)?),
        Kind::Process => begin(process::Process::load(&elf()?, conf)?),
        Kind::Kvm => begin(kvm::Kvm::load(&elf()?, conf)?),
        Kind::Wasm => begin(wasm::load(image, conf)?),
        Kind::Sgx => begin(sgx::load(&elf()?, conf)?),
    };
    begun.map_err(|why| {
        let (allocator, pages) = (image.allocator, conf.heap_pages);
        Failure::failed(format!(
            "{allocator} does not begin in {pages} pages: {why}: raise NumHeapPages"
        ))
    })
}

/// Lets a loaded enclave begin in its heap.
///
/// # Errors
/// Why it does not.
fn begin<E: Enclave + 'static>(enclave: E) -> Result<Box<dyn Enclave>, String> {
    let heap = enclave.heap();
    match enclave.ecall(Ecall::initialise, [heap.start as u64, heap.end as u64, 0, 0, 0]) {
        Ok(0) => Ok(Box::new(begun::Begun(enclave))),
        Ok(code) => Err(format!("its code is {code}")),
        Err(why) => Err(why.to_string()),
    }
}
