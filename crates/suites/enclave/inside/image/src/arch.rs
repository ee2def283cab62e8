//! The code that differs between CPUs: constructors, OCALLs, faults, and the operations that are forbidden
//! inside.

use core::convert::Infallible;
use interface::{Leave, Ocall, WORDS};
#[cfg(target_arch = "wasm32")]
use wasm32::ocall;
#[cfg(target_arch = "x86_64")]
use x86_64::ocall;

#[cfg(target_arch = "wasm32")]
pub use wasm32::{construct, overflow_stack, system_call, trap};
#[cfg(target_arch = "x86_64")]
pub use x86_64::{construct, overflow_stack, system_call, trap};

/// The host, as seen from inside.
pub struct Host;

impl Leave for Host {
    type Error = Infallible;

    fn call(&self, call: Ocall, words: [u64; WORDS]) -> Result<u64, Infallible> {
        Ok(ocall(call, words))
    }
}

/// x86-64: freestanding in an enclave, or in a shared library outside, with an operating system.
#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use core::arch::{asm, global_asm};
    use interface::{Ocall, ThreadBlock, WORDS};

    #[cfg(feature = "outside")]
    use hosted::block;
    #[cfg(feature = "outside")]
    pub use hosted::construct;

    /// Makes an OCALL.
    #[inline]
    pub fn ocall(call: Ocall, [w0, w1, w2, w3, w4]: [u64; WORDS]) -> u64 {
        type OcallFn = extern "sysv64" fn(u64, u64, u64, u64, u64, u64) -> u64;
        // SAFETY: the loader stores a function of this type there.
        let ocall: OcallFn = unsafe { core::mem::transmute(block().ocall as usize) };
        ocall(call as u64, w0, w1, w2, w3, w4)
    }

    /// Ends the call with a fault, which the host detects; code inside has no other way to report it.
    pub fn trap() -> ! {
        // SAFETY: the instruction only faults.
        unsafe { asm!("ud2", options(noreturn, nomem, nostack)) }
    }

    // The only system call in an image, in a separate section: a test checks that the other code contains none.
    global_asm!(
        ".pushsection forbidden, \"ax\", @progbits",
        "forbidden_system_call:",
        "mov eax, 39", // getpid, which is harmless
        "syscall",
        "ret",
        ".popsection",
    );

    unsafe extern "C" {
        fn forbidden_system_call() -> u64;
    }

    /// Makes a system call.
    pub fn system_call() -> u64 {
        // SAFETY: the call changes nothing; the host decides its result.
        unsafe { forbidden_system_call() }
    }

    /// Writes to descending addresses, from the stack pointer down.
    pub fn overflow_stack() -> u64 {
        // SAFETY: this is meant to fault at the guard page. The memory below the stack pointer, which it overwrites
        // before, is unused.
        unsafe {
            asm!("lea rax, [rsp - 4096]", "2:", "mov byte ptr [rax], 1", "sub rax, 4096", "jmp 2b",
                in("rax") 0, options(noreturn));
        }
    }

    /// Returns the block of the running thread, which is at FS:0.
    #[cfg(not(feature = "outside"))]
    #[inline]
    fn block() -> &'static ThreadBlock {
        let block: *const ThreadBlock;
        // SAFETY: the loader stores the block's address at its beginning, which is FS:0.
        unsafe {
            asm!("mov {}, fs:0", out(reg) block, options(nostack, preserves_flags, readonly))
        };
        // SAFETY: the block lives as long as the enclave.
        unsafe { &*block }
    }

    #[cfg(not(feature = "outside"))]
    unsafe extern "C" {
        // Defined by the linker.
        static __init_array_start: [extern "C" fn(); 0];
        static __init_array_end: [extern "C" fn(); 0];
    }

    /// Runs the constructors of C and C++ code.
    #[cfg(not(feature = "outside"))]
    pub fn construct() {
        // SAFETY: the linker defines the bounds of the array, and the loader has relocated it.
        unsafe {
            let mut at = (&raw const __init_array_start).cast::<extern "C" fn()>();
            while at < (&raw const __init_array_end).cast() {
                (*at)();
                at = at.add(1);
            }
        }
    }

    /// A shared library of the host: FS belongs to the system, so a thread-local variable points to the thread's block.
    #[cfg(feature = "outside")]
    mod hosted {
        use core::cell::Cell;
        use core::ptr;

        use super::ThreadBlock;

        std::thread_local! {
            static BLOCK: Cell<*const ThreadBlock> = const { Cell::new(ptr::null()) };
        }

        /// Returns the block of the running thread.
        pub fn block() -> &'static ThreadBlock {
            // SAFETY: the host sets it before a call and keeps it until the call ends.
            unsafe { &*BLOCK.get() }
        }

        /// Sets the calling thread's block, before its calls.
        #[unsafe(no_mangle)]
        extern "sysv64" fn enclave_bind(block: *const ThreadBlock) {
            BLOCK.set(block);
        }

        /// Does nothing: the system's loader has run the constructors.
        pub fn construct() {}
    }
}

/// A WebAssembly module: an OCALL is its only imported function.
#[cfg(target_arch = "wasm32")]
mod wasm32 {
    use interface::{Ocall, WORDS};

    #[link(wasm_import_module = "tollgate")]
    unsafe extern "C" {
        #[link_name = "ocall"]
        safe fn call_host(number: u64, w0: u64, w1: u64, w2: u64, w3: u64, w4: u64) -> u64;
    }

    /// Makes an OCALL.
    #[inline]
    pub fn ocall(call: Ocall, [w0, w1, w2, w3, w4]: [u64; WORDS]) -> u64 {
        call_host(call as u64, w0, w1, w2, w3, w4)
    }

    /// Does nothing: a module contains only Rust code, which has no constructors.
    pub fn construct() {}

    /// Ends the call with a fault, which the host detects; code inside has no other way to report it.
    pub fn trap() -> ! {
        core::arch::wasm32::unreachable()
    }

    /// Returns all ones, because WebAssembly has no system calls.
    pub fn system_call() -> u64 {
        u64::MAX
    }

    /// Writes to descending addresses, from the stack pointer down.
    pub fn overflow_stack() -> u64 {
        let mut here = 0u8;
        let mut at = &raw mut here;
        loop {
            at = at.wrapping_sub(4096);
            // SAFETY: this is meant to fault at the guard page. The memory below the stack pointer, which it overwrites
            // before, is unused.
            unsafe { at.write_volatile(1) };
        }
    }
}
