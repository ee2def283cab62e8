//! No system calls from inside: Syscall User Dispatch, for one thread at a time.
//!
//! The kernel looks at a byte of the thread's at each system call. While it is 1 the call is not made and
//! the thread gets SIGSYS ([`crate::faults`]). The trampolines write the byte, so that an ECALL pays two
//! stores. One system call is exempt: the C library's return from a handler, by which a signal that arrives inside
//! is handled and the thread goes on there ([`crate::signals`]).

use std::arch::asm;
use std::cell::Cell;
use std::ptr;

use lab::sample::Failure;

// Source: Linux, Documentation/admin-guide/syscall-user-dispatch.rst.
const PR_SET_SYSCALL_USER_DISPATCH: u64 = 59;
const OFF: u64 = 0;
const ON: u64 = 1;

thread_local! {
    /// The calling thread's selector; null until it enters an enclave.
    static SELECTOR: Cell<*mut u8> = const { Cell::new(ptr::null_mut()) };
}

/// Records the calling thread's selector; null if the thread ends.
pub(crate) fn set_selector_here(selector: *mut u8) {
    SELECTOR.set(selector);
}

/// Returns the calling thread's selector, or `None` if it has not entered an enclave. A signal handler may call it
/// while FS is the host thread's.
pub(crate) fn selector_here() -> Option<*mut u8> {
    Some(SELECTOR.get()).filter(|selector| !selector.is_null())
}

/// Makes a system call, touching no thread-local variable; gives its result or the negated error.
///
/// # Safety
/// What the call does must be sound.
#[inline]
pub(crate) unsafe fn raw(number: i64, words: [u64; 6]) -> i64 {
    let result;
    // SAFETY: the kernel changes RCX and R11 besides the result; what it does else is the caller's.
    unsafe {
        asm!("syscall", inlateout("rax") number => result,
            in("rdi") words[0], in("rsi") words[1], in("rdx") words[2],
            in("r10") words[3], in("r8") words[4], in("r9") words[5],
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

/// Begins to dispatch the calling thread's system calls by a byte, but for the one that ends at the address
/// `exempt`; 0 for none.
///
/// # Errors
/// The kernel's, as a number.
///
/// # Safety
/// The byte must live until [`end`], and be 0 while the thread runs the host's code.
pub(crate) unsafe fn begin(selector: *const u8, exempt: usize) -> Result<(), i32> {
    // The kernel compares the address after a system call; a range of one byte is that address alone.
    dispatch([ON, exempt as u64, u64::from(exempt != 0), selector as u64])
}

/// Ends it.
pub(crate) fn end() {
    // It cannot fail where it could begin.
    let _ = dispatch([OFF, 0, 0, 0]);
}

fn dispatch([mode, start, length, selector]: [u64; 4]) -> Result<(), i32> {
    let words = [PR_SET_SYSCALL_USER_DISPATCH, mode, start, length, selector, 0];
    // SAFETY: it changes how this thread's system calls go; `begin` states what the byte must be.
    match unsafe { raw(libc::SYS_prctl, words) } {
        0 => Ok(()),
        error => Err(-error as i32),
    }
}

/// Whether this kernel dispatches system calls.
///
/// # Errors
/// It does not; and the remedy.
pub(crate) fn available() -> Result<(), Failure> {
    let tried = std::thread::spawn(|| {
        let selector = 0u8;
        // SAFETY: the byte is 0 and outlives the dispatch.
        let begun = unsafe { begin(&raw const selector, 0) };
        end();
        begun
    });
    match tried.join() {
        Ok(Ok(())) => Ok(()),
        Ok(Err(errno)) => Err(Failure::unavailable(
            format!("this kernel has no Syscall User Dispatch (prctl gives error {errno})"),
            "run Linux 5.11 or later, where no seccomp filter refuses prctl",
        )),
        Err(_) => Err(Failure::failed("the thread that tries Syscall User Dispatch panicked")),
    }
}
