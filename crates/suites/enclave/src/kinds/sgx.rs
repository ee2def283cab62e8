//! An enclave in Intel SGX, created by Linux's driver and entered by its vDSO.
//!
//! The image is the same as in all kinds, with the same layout. A page of code ([`code`]) is added through which the
//! CPU enters: it calls the image, converts the image's OCALLs to exits, and ends a call that a fault cut
//! short. #DB and #BP are exceptions to this: the kernel sends them to the host as signals.

mod available;
mod code;
mod driver;
#[cfg(test)]
mod emulation;
mod entry;
#[cfg(test)]
mod independent;
mod initialized;
mod key;
mod layout;
mod measurement;
mod pages;
mod processor;
mod signature;
mod structures;
#[cfg(test)]
mod tests;
mod waits;

use std::ops::Range;
use std::sync::atomic::Ordering;

use enclave_interface::{Ecall, Ocall};
use lab::sample::Failure;

use self::driver::{Driver, Kernel, Step, advice};
use self::entry::{Entry, ExitReason, Fault, Vdso};
use self::initialized::InitializedEnclave;
use self::layout::Layout;
use self::pages::Pages;
use self::waits::Waits;
use super::{CallCounts, Enclave};
use crate::conf::Conf;
use crate::elf::Elf;
use crate::error::EcallError;
use crate::ocalls;
use crate::tcs::{Bound, Tcs, TcsSet};
use crate::thread::Thread;

/// A loaded enclave.
struct Sgx<D> {
    tcs: TcsSet,
    waits: Waits,
    vdso: Vdso,
    layout: Layout,
    enclave: InitializedEnclave<D>,
}

/// Returns the code of the enclave next to the image.
pub(super) fn inner_code() -> &'static [u8] {
    code::code()
}

/// Checks that this machine has SGX.
pub(super) fn available() -> Result<(), Failure> {
    available::find().map(drop)
}

/// Loads an enclave by the kernel's driver.
pub(super) fn load(elf: &Elf<'static>, conf: &Conf) -> Result<impl Enclave + use<>, Failure> {
    let (processor, vdso) = available::find()?;
    let pages = Pages::of(elf, conf, &processor)?;
    let kernel = Kernel::open().map_err(|why| {
        Failure::failed(format!("{}: {why}: {}", Step::Open.name(), advice(Step::Open, &why)))
    })?;
    Sgx::start(&pages, kernel, vdso, conf)
}

impl<D: Driver> Sgx<D> {
    fn start(pages: &Pages, driver: D, vdso: Vdso, conf: &Conf) -> Result<Self, Failure> {
        let layout = pages.layout.clone();
        let enclave = InitializedEnclave::new(pages, driver)?;
        let tcs = TcsSet::without_trampoline(enclave.range(), conf.tcs);
        Ok(Self { tcs, waits: Waits::default(), vdso, layout, enclave })
    }

    fn base(&self) -> usize {
        self.enclave.range().start
    }

    /// Answers an OCALL; `seen` is the wake counter at the thread's last entry.
    fn answer(&self, tcs: &Tcs, number: u64, words: [u64; 5], seen: u32) -> u64 {
        match Ocall::of(number) {
            Some(Ocall::wait) => {
                tcs.waits.fetch_add(1, Ordering::Relaxed);
                self.waits.wait(seen)
            }
            Some(Ocall::wake) => self.waits.wake(),
            _ => ocalls::answer_for(tcs, number, words),
        }
    }

    #[cold]
    fn cut(&self, tcs: &Bound<'_>, fault: &Fault) -> EcallError {
        let (signal, what) = match fault.is_system_call() {
            true => (libc::SIGSYS, fault.rax),
            false => (fault.signal(), fault.address),
        };
        tcs.cut.signal.store(signal as u64, Ordering::Relaxed);
        tcs.cut.what.store(what, Ordering::Relaxed);
        tcs.cut.at.store(fault.at, Ordering::Relaxed);
        let (base, stack) = (self.base(), self.layout.stack(tcs.number));
        self.tcs.cut(tcs, base + stack.start..base + stack.end)
    }
}

impl<D: Driver> Enclave for Sgx<D> {
    fn ecall(&self, call: Ecall, words: [u64; 5]) -> Result<u64, EcallError> {
        let thread = Thread::current(false)?;
        let tcs = self.tcs.bind(&thread.last)?;
        let page = self.base() + self.layout.tcs_page(tcs.number);
        let mut entry = Entry::new(self.vdso, page);
        let mut seen = self.waits.seen();
        // SAFETY: the enclave is initialised with our code on its page, and this thread owns the TCS until `tcs` is
        // dropped.
        let mut left = unsafe { entry.call(call as u64, words) };
        loop {
            match left {
                ExitReason::Done(word) => return Ok(word),
                ExitReason::Ocall(number, words) => {
                    tcs.ocalls.fetch_add(1, Ordering::Relaxed);
                    let answer = self.answer(&tcs, number, words, seen);
                    seen = self.waits.seen();
                    // SAFETY: this thread owns the TCS, and the enclave was left by an OCALL.
                    left = unsafe { entry.answer(answer) };
                }
                ExitReason::Cut(fault) => return Err(self.cut(&tcs, &fault)),
                ExitReason::Refused(fault) => {
                    self.tcs.abort();
                    return Err(EcallError::NotEntered { vector: fault.vector() });
                }
            }
        }
    }

    fn counts(&self) -> CallCounts {
        self.tcs.counts()
    }

    fn heap(&self) -> Range<usize> {
        let (base, heap) = (self.base(), self.layout.heap());
        base + heap.start..base + heap.end
    }
}
