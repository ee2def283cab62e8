//! Enclaves in this process that are entered by a trampoline, with system calls blocked.

use std::marker::PhantomData;
use std::ops::Range;

use enclave_interface::Ecall;
use lab::sample::Failure;

use super::Enclave;
use super::here::Here;
use crate::conf::Conf;
use crate::elf::Elf;
use crate::error::EcallError;
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
}

/// By instructions alone.
pub(super) enum Instructions {}

impl Trampoline for Instructions {
    const ENTER: EnterFn = tollgate_enclave_enter;
    const OCALL: unsafe extern "sysv64" fn() = tollgate_enclave_ocall;
}

/// By system calls, as in Open Enclave's simulation.
pub(super) enum ArchPrctl {}

impl Trampoline for ArchPrctl {
    const ENTER: EnterFn = tollgate_enclave_enter_prctl;
    const OCALL: unsafe extern "sysv64" fn() = tollgate_enclave_ocall_prctl;
}

/// A loaded enclave.
pub(super) struct Entering<T>(Here, PhantomData<T>);

impl<T: Trampoline> Entering<T> {
    pub(super) fn load(elf: &Elf<'static>, conf: &Conf) -> Result<Self, Failure> {
        Ok(Self(Here::load(elf, conf, T::OCALL)?, PhantomData))
    }
}

impl<T: Trampoline> Enclave for Entering<T> {
    #[inline]
    fn ecall(&self, call: Ecall, words: [u64; 5]) -> Result<u64, EcallError> {
        self.0.enter(T::ENTER, call, words)
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
