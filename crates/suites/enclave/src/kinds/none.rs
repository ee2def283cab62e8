//! The same image without an enclave around it.

use std::ops::Range;
use std::ptr;

use enclave_interface::Ecall;
use lab::sample::Failure;

use super::Enclave;
use super::here::Here;
use crate::conf::Conf;
use crate::elf::Elf;
use crate::error::EcallError;
use crate::thread::Thread;
use crate::trampoline::{tollgate_enclave_call, tollgate_enclave_ocall_plain};

/// A loaded image that is called plainly, on the host's stack. Faults end a call here too; an overrun is
/// the host's own.
pub(super) struct None(Here);

impl None {
    pub(super) fn load(elf: &Elf<'static>, conf: &Conf) -> Result<Self, Failure> {
        Here::load(elf, conf, tollgate_enclave_ocall_plain).map(Self)
    }
}

impl Enclave for None {
    fn ecall(&self, call: Ecall, words: [u64; 5]) -> Result<u64, EcallError> {
        self.repeat(call, words, 1)
    }

    #[inline]
    fn repeat(&self, call: Ecall, words: [u64; 5], times: u64) -> Result<u64, EcallError> {
        if times == 0 {
            return Ok(0);
        }
        let thread = Thread::current(false)?;
        let tcs = self.0.tcs.bind(thread)?;
        // SAFETY: the TCS, whose block and variables FS shows, is this thread's until `tcs` goes.
        let left = unsafe {
            tollgate_enclave_call(ptr::from_ref(&*tcs), call as u64, words.as_ptr(), times)
        };
        self.0.left(&tcs, left)
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
