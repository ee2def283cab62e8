//! An image that is all there is: a thread's block is where the ABI has a thread's own address.

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

unsafe extern "C" {
    // The linker's: what runs before all else in an image that has such.
    static __init_array_start: [extern "C" fn(); 0];
    static __init_array_end: [extern "C" fn(); 0];
}

/// Runs the constructors of C and C++ code.
pub fn construct() {
    // SAFETY: the linker says where they stand; the loader has relocated them.
    unsafe {
        let mut at = (&raw const __init_array_start).cast::<extern "C" fn()>();
        while at < (&raw const __init_array_end).cast() {
            (*at)();
            at = at.add(1);
        }
    }
}
