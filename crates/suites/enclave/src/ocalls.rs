//! Answers to OCALLs.

use std::ops::Range;
use std::ptr;
use std::sync::atomic::Ordering;

use enclave_interface::{Ocall, Untrusted};

use crate::system_calls;
use crate::tcs::Tcs;

/// Answers an OCALL in this process. It does not use the host thread's state, so it may run with the enclave's FS, as
/// in kind `none`.
///
/// # Safety
/// The TCS must be bound to the calling thread.
pub(crate) unsafe extern "sysv64" fn answer_here(
    number: u64,
    w0: u64,
    w1: u64,
    w2: u64,
    w3: u64,
    w4: u64,
    tcs: *const Tcs,
) -> u64 {
    // SAFETY: the caller guarantees that the TCS is valid.
    answer_for(unsafe { &*tcs }, number, [w0, w1, w2, w3, w4])
}

/// Answers an OCALL of a TCS, and counts waits.
pub(crate) fn answer_for(tcs: &Tcs, number: u64, words: [u64; 5]) -> u64 {
    if number == Ocall::wait as u64 {
        tcs.waits.fetch_add(1, Ordering::Relaxed);
    }
    answer(tcs.start..tcs.end, number, words)
}

/// Answers an OCALL of an enclave with this region. Returns all ones for an unknown OCALL.
pub(crate) fn answer(region: Range<usize>, number: u64, words: [u64; 5]) -> u64 {
    match Ocall::of(number) {
        Some(call) => Host { region }.answer(call, words),
        None => u64::MAX,
    }
}

/// The host, as seen by one enclave.
struct Host {
    region: Range<usize>,
}

impl Host {
    /// Waits on or wakes a word of the region. Other addresses are refused, because the kernel would access them.
    fn futex(&self, address: u64, operation: i32, value: u64) -> u64 {
        let inside = self.region.contains(&(address as usize)) && address.is_multiple_of(4);
        if !inside {
            return libc::EFAULT as u64;
        }
        // SAFETY: the word is in the region, and there is no timeout.
        unsafe { system_calls::futex(address as *const u32, operation, value as u32, ptr::null()) }
    }
}

impl Untrusted for Host {
    fn nothing(&self) -> u64 {
        0
    }

    // Not private to the process, because the region may be shared with another.
    fn wait(&self, address: u64, value: u64) -> u64 {
        self.futex(address, libc::FUTEX_WAIT, value)
    }

    fn wake(&self, address: u64, count: u64) -> u64 {
        self.futex(address, libc::FUTEX_WAKE, count.min(i32::MAX as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_words_of_the_region_can_be_waited_for() {
        let word = 7u32;
        let at = &raw const word as usize;
        let region = at..at + 4;
        assert_eq!(answer(region.clone(), Ocall::nothing as u64, [0; 5]), 0);
        assert_eq!(answer(region.clone(), Ocall::wake as u64, [at as u64, 1, 0, 0, 0]), 0);
        // The word differs already, so no thread sleeps.
        let differs = answer(region.clone(), Ocall::wait as u64, [at as u64, 8, 0, 0, 0]);
        assert_eq!(differs, libc::EAGAIN as u64);
        for wrong in [0, at as u64 + 1, at as u64 + 4, u64::MAX] {
            assert_eq!(
                answer(region.clone(), Ocall::wait as u64, [wrong, 7, 0, 0, 0]),
                libc::EFAULT as u64
            );
        }
        assert_eq!(answer(region, 1 << 40, [0; 5]), u64::MAX);
    }
}
