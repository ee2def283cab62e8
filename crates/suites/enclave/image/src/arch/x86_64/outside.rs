//! A shared library of the host: FS is the system's, and a thread's block is a variable of the thread.

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

/// Nothing: the system's loader has run the constructors.
pub fn construct() {}
