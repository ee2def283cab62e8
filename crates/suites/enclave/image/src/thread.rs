//! How a thread inside leaves by OCALLs.

use crate::arch;
use core::convert::Infallible;
use interface::{Leave, Ocall, WORDS};

/// The host, as seen from inside.
pub struct Host;

impl Leave for Host {
    type Error = Infallible;

    fn call(&self, call: Ocall, words: [u64; WORDS]) -> Result<u64, Infallible> {
        Ok(arch::leave(call, words))
    }
}

/// Leaves until the word differs from the value, or was woken: for C's locks.
#[unsafe(no_mangle)]
pub extern "C" fn tollgate_enclave_wait(address: *const u32, value: u32) {
    let Ok(_) = Host.wait(address as u64, u64::from(value));
}

/// Leaves to wake those that wait: for C's locks.
#[unsafe(no_mangle)]
pub extern "C" fn tollgate_enclave_wake(address: *const u32, count: u32) {
    let Ok(_) = Host.wake(address as u64, u64::from(count));
}
