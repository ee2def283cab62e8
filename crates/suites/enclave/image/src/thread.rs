//! The thread inside: its block, and how it leaves by OCALLs.

use core::arch::asm;
use core::convert::Infallible;
use interface::{Leave, Ocall, ThreadBlock, WORDS};

/// The block of the thread that runs.
#[inline]
pub fn block() -> &'static ThreadBlock {
    let own: *const ThreadBlock;
    // SAFETY: the loader writes the block's own address at its beginning, which is FS:0.
    unsafe { asm!("mov {}, fs:0", out(reg) own, options(nostack, preserves_flags, readonly)) };
    // SAFETY: the block lives as long as the enclave.
    unsafe { &*own }
}

/// The host, as seen from inside.
pub struct Host;

impl Leave for Host {
    type Error = Infallible;

    fn call(&self, call: Ocall, [w0, w1, w2, w3, w4]: [u64; WORDS]) -> Result<u64, Infallible> {
        type Way = extern "sysv64" fn(u64, u64, u64, u64, u64, u64) -> u64;
        // SAFETY: the loader writes a function of this type there.
        let way: Way = unsafe { core::mem::transmute(block().ocall as usize) };
        Ok(way(call as u64, w0, w1, w2, w3, w4))
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
