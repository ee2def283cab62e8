//! The thread inside: its block, and how it leaves by OCALLs.

use core::convert::Infallible;
use interface::{Leave, Ocall, WORDS};

pub use place::block;

/// A thread's block is where the ABI has a thread's own address.
#[cfg(not(feature = "outside"))]
mod place {
    use core::arch::asm;
    use interface::ThreadBlock;

    /// The block of the thread that runs.
    #[inline]
    pub fn block() -> &'static ThreadBlock {
        let own: *const ThreadBlock;
        // SAFETY: the loader writes the block's own address at its beginning, which is FS:0.
        unsafe { asm!("mov {}, fs:0", out(reg) own, options(nostack, preserves_flags, readonly)) };
        // SAFETY: the block lives as long as the enclave.
        unsafe { &*own }
    }
}

/// Outside, FS is the system's, and the block is a variable of the thread.
#[cfg(feature = "outside")]
mod place {
    use core::cell::Cell;
    use core::ptr;
    use interface::ThreadBlock;

    std::thread_local! {
        static BLOCK: Cell<*const ThreadBlock> = const { Cell::new(ptr::null()) };
    }

    /// The block of the thread that runs.
    pub fn block() -> &'static ThreadBlock {
        // SAFETY: the host gave it before it called, and keeps it until the call ends.
        unsafe { &*BLOCK.get() }
    }

    /// Takes the calling thread's block, before its calls.
    #[unsafe(no_mangle)]
    extern "sysv64" fn enclave_bind(block: *const ThreadBlock) {
        BLOCK.set(block);
    }
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
