//! An enclave that has begun, and so must end.

use std::ops::Range;

use enclave_interface::Ecall;

use super::Enclave;
use crate::error::EcallError;

/// Makes the last ECALL, by which the allocator cleans up, when it goes. An enclave that is aborting refuses it,
/// like any other: whoever cleaned up there might wait for a lock that nobody gives back.
pub(super) struct Begun<E: Enclave>(pub(super) E);

impl<E: Enclave> Enclave for Begun<E> {
    #[inline]
    fn ecall(&self, call: Ecall, words: [u64; 5]) -> Result<u64, EcallError> {
        self.0.ecall(call, words)
    }

    #[inline]
    fn repeat(&self, call: Ecall, words: [u64; 5], times: u64) -> Result<u64, EcallError> {
        self.0.repeat(call, words, times)
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

    fn own_cpu_ns(&self) -> f64 {
        self.0.own_cpu_ns()
    }
}

impl<E: Enclave> Drop for Begun<E> {
    fn drop(&mut self) {
        // What it does wrong now harms nobody: it is unloaded.
        let _ = self.0.ecall(Ecall::finish, [0; 5]);
    }
}
