//! An enclave in this process, entered by system calls as Open Enclave's simulation is.

use std::ops::Range;

use enclave_interface::Ecall;
use lab::sample::Failure;

use super::Enclave;
use super::here::Here;
use crate::conf::Conf;
use crate::elf::Elf;
use crate::error::EcallError;
use crate::trampoline::{tollgate_enclave_enter_prctl, tollgate_enclave_ocall_prctl};

/// A loaded enclave of kind `simulate-arch-prctl`.
pub(super) struct ArchPrctl(Here);

impl ArchPrctl {
    pub(super) fn load(elf: &Elf<'static>, conf: &Conf) -> Result<Self, Failure> {
        Here::load(elf, conf, tollgate_enclave_ocall_prctl).map(Self)
    }
}

impl Enclave for ArchPrctl {
    fn ecall(&self, call: Ecall, words: [u64; 5]) -> Result<u64, EcallError> {
        self.0.enter(tollgate_enclave_enter_prctl, call, words)
    }

    fn ocalls(&self) -> u64 {
        self.0.ocalls()
    }

    fn blocked(&self) -> u64 {
        self.0.blocked()
    }

    fn heap(&self) -> Range<usize> {
        self.0.heap()
    }
}
