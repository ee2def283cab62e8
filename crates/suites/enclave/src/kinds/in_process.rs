//! Enclaves in this process: an image that threads enter by a trampoline, or call directly.

use std::marker::PhantomData;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::Ordering;

use enclave_interface::Ecall;
use lab::sample::Failure;

use super::{CallCounts, Enclave};
use crate::conf::Conf;
use crate::elf::Elf;
use crate::error::EcallError;
use crate::faults::{self, Watched};
use crate::ocalls;
use crate::region::{Region, Sharing};
use crate::tcs::{Tcs, TcsSet};
use crate::thread::Thread;
use crate::trampoline::{
    EcallReturn, EnterFn, tollgate_enclave_call, tollgate_enclave_enter,
    tollgate_enclave_enter_prctl, tollgate_enclave_ocall, tollgate_enclave_ocall_plain,
    tollgate_enclave_ocall_prctl,
};

/// A loaded image with its region, its TCS and a watch for its faults. The drop order is the field order.
struct InProcessEnclave {
    tcs: TcsSet,
    _watched: Watched,
    region: Region,
}

impl InProcessEnclave {
    /// Loads an image whose OCALLs go to the trampoline `ocall`.
    fn load(
        elf: &Elf<'static>,
        conf: &Conf,
        ocall: unsafe extern "sysv64" fn(),
    ) -> Result<Self, Failure> {
        let region = Region::load(elf, conf, Sharing::Private)?;
        let tcs = TcsSet::new(&region, conf.tcs, ocall as usize, ocalls::answer_here);
        Ok(Self { tcs, _watched: faults::watch(region.range())?, region })
    }

    /// Makes an ECALL; `dispatch` blocks system calls inside.
    #[inline(always)]
    fn enter(
        &self,
        enter: EnterFn,
        dispatch: bool,
        call: Ecall,
        words: [u64; 5],
    ) -> Result<u64, EcallError> {
        let thread = Thread::current(dispatch)?;
        let tcs = self.tcs.bind(&thread.last)?;
        if dispatch {
            tcs.selector.store(thread.selector(), Ordering::Relaxed);
        }
        // SAFETY: this thread owns the TCS until `tcs` is dropped, and the image runs from its entry point on its
        // own stack. `faults` catches its faults.
        let returned = unsafe { enter(ptr::from_ref(&*tcs), call as u64, words.as_ptr()) };
        self.result(&tcs, returned)
    }

    /// Converts what a trampoline returned.
    #[inline(always)]
    fn result(&self, tcs: &Tcs, returned: EcallReturn) -> Result<u64, EcallError> {
        if returned.failed == 0 {
            Ok(returned.word)
        } else {
            Err(self.tcs.cut(tcs, self.region.stack(tcs.number)))
        }
    }
}

/// The trampolines of a kind. A type and not a value, so that the calls are direct.
pub(super) trait Trampoline: Send + Sync {
    /// The entry into the enclave.
    const ENTER: EnterFn;
    /// The target of OCALLs.
    const OCALL: unsafe extern "sysv64" fn();
    /// Whether system calls from inside are blocked. If so, every system call of the thread is slower.
    const DISPATCH: bool;
}

/// Trampolines that set FS by an instruction.
pub(super) enum Instructions {}

impl Trampoline for Instructions {
    const ENTER: EnterFn = tollgate_enclave_enter;
    const OCALL: unsafe extern "sysv64" fn() = tollgate_enclave_ocall;
    const DISPATCH: bool = true;
}

/// Trampolines that set FS and GS by system calls, as in Open Enclave's simulation, which blocks no system calls.
pub(super) enum ArchPrctl {}

impl Trampoline for ArchPrctl {
    const ENTER: EnterFn = tollgate_enclave_enter_prctl;
    const OCALL: unsafe extern "sysv64" fn() = tollgate_enclave_ocall_prctl;
    const DISPATCH: bool = false;
}

/// An enclave that threads enter by a trampoline.
pub(super) struct TrampolineEnclave<T: Trampoline>(InProcessEnclave, PhantomData<T>);

impl<T: Trampoline> TrampolineEnclave<T> {
    pub(super) fn load(elf: &Elf<'static>, conf: &Conf) -> Result<Self, Failure> {
        Ok(Self(InProcessEnclave::load(elf, conf, T::OCALL)?, PhantomData))
    }
}

/// Stops the dispatch of system calls, so that later measurements of this thread do not pay for it.
impl<T: Trampoline> Drop for TrampolineEnclave<T> {
    fn drop(&mut self) {
        if T::DISPATCH {
            Thread::end_dispatch();
        }
    }
}

impl<T: Trampoline> Enclave for TrampolineEnclave<T> {
    #[inline]
    fn ecall(&self, call: Ecall, words: [u64; 5]) -> Result<u64, EcallError> {
        self.0.enter(T::ENTER, T::DISPATCH, call, words)
    }

    fn counts(&self) -> CallCounts {
        self.0.tcs.counts()
    }

    fn heap(&self) -> Range<usize> {
        self.0.region.heap()
    }
}

/// An image that is called directly, on the host's stack. A fault still ends the call, but a stack overflow is the
/// host's.
pub(super) struct PlainImage(InProcessEnclave);

impl PlainImage {
    pub(super) fn load(elf: &Elf<'static>, conf: &Conf) -> Result<Self, Failure> {
        InProcessEnclave::load(elf, conf, tollgate_enclave_ocall_plain).map(Self)
    }
}

impl Enclave for PlainImage {
    fn ecall(&self, call: Ecall, words: [u64; 5]) -> Result<u64, EcallError> {
        self.repeat(call, words, 1)
    }

    #[inline]
    fn repeat(&self, call: Ecall, words: [u64; 5], times: u64) -> Result<u64, EcallError> {
        if times == 0 {
            return Ok(0);
        }
        let thread = Thread::current(false)?;
        let tcs = self.0.tcs.bind(&thread.last)?;
        // SAFETY: this thread owns the TCS, to whose block and variables FS points, until `tcs` is dropped.
        let returned = unsafe {
            tollgate_enclave_call(ptr::from_ref(&*tcs), call as u64, words.as_ptr(), times)
        };
        self.0.result(&tcs, returned)
    }

    fn counts(&self) -> CallCounts {
        self.0.tcs.counts()
    }

    fn heap(&self) -> Range<usize> {
        self.0.region.heap()
    }
}
