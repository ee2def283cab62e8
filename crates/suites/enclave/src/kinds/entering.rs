//! Enclaves in this process that are entered by a trampoline.

use std::marker::PhantomData;
use std::ops::Range;

use enclave_interface::Ecall;
use lab::sample::Failure;

use super::Enclave;
use super::here::Here;
use crate::conf::Conf;
use crate::elf::Elf;
use crate::error::EcallError;
use crate::thread::Thread;
use crate::trampoline::{
    EnterFn, tollgate_enclave_enter, tollgate_enclave_enter_prctl, tollgate_enclave_ocall,
    tollgate_enclave_ocall_prctl,
};

/// By what a thread enters and leaves. A type and no value, so that the call is a direct one.
pub(super) trait Trampoline: Send + Sync {
    /// Into the enclave.
    const ENTER: EnterFn;
    /// Out of it.
    const OCALL: unsafe extern "sysv64" fn();
    /// Whether system calls from inside are blocked, for which every system call of the thread pays.
    const DISPATCH: bool;
}

/// By instructions alone.
pub(super) enum Instructions {}

impl Trampoline for Instructions {
    const ENTER: EnterFn = tollgate_enclave_enter;
    const OCALL: unsafe extern "sysv64" fn() = tollgate_enclave_ocall;
    const DISPATCH: bool = true;
}

/// By system calls, as in Open Enclave's simulation, which blocks none.
pub(super) enum ArchPrctl {}

impl Trampoline for ArchPrctl {
    const ENTER: EnterFn = tollgate_enclave_enter_prctl;
    const OCALL: unsafe extern "sysv64" fn() = tollgate_enclave_ocall_prctl;
    const DISPATCH: bool = false;
}

/// A loaded enclave.
pub(super) struct Entering<T: Trampoline>(Here, PhantomData<T>);

impl<T: Trampoline> Entering<T> {
    pub(super) fn load(elf: &Elf<'static>, conf: &Conf) -> Result<Self, Failure> {
        Ok(Self(Here::load(elf, conf, T::OCALL)?, PhantomData))
    }
}

/// What the thread measures next does not pay for what this blocked.
impl<T: Trampoline> Drop for Entering<T> {
    fn drop(&mut self) {
        if T::DISPATCH {
            Thread::end_dispatch();
        }
    }
}

impl<T: Trampoline> Enclave for Entering<T> {
    #[inline]
    fn ecall(&self, call: Ecall, words: [u64; 5]) -> Result<u64, EcallError> {
        self.0.enter(T::ENTER, T::DISPATCH, call, words)
    }

    fn ocalls(&self) -> u64 {
        self.0.ocalls()
    }

    fn waits(&self) -> u64 {
        self.0.waits()
    }

    fn blocked(&self) -> u64 {
        self.0.blocked()
    }

    fn heap(&self) -> Range<usize> {
        self.0.heap()
    }
}
