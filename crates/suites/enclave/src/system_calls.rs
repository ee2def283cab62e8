//! Blocking of system calls inside an enclave by Syscall User Dispatch, per thread.
//!
//! At each system call the kernel reads a byte of the thread, the selector. While it is 1, the call is not made and
//! the thread gets SIGSYS ([`crate::faults`]). The trampolines write the byte, so an ECALL pays for two stores. One
//! system call is exempt: the C library's return from a signal handler, so that a thread can handle a signal that
//! arrives inside and continue there ([`crate::signals`]).

use std::arch::asm;
use std::cell::Cell;
use std::ffi::c_int;
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

/// Makes a system call without touching thread-local variables; returns its result or the negated `errno`.
///
/// # Safety
/// The caller guarantees that the system call is sound.
#[inline]
pub(crate) unsafe fn raw(number: i64, words: [u64; 6]) -> i64 {
    let result;
    // SAFETY: the kernel changes only RCX, R11 and the result; the caller guarantees that the call itself is sound.
    unsafe {
        asm!("syscall", inlateout("rax") number => result,
            in("rdi") words[0], in("rsi") words[1], in("rdx") words[2],
            in("r10") words[3], in("r8") words[4], in("r9") words[5],
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

/// Waits on or wakes a futex without touching thread-local variables; returns 0 or the `errno`. The kernel wakes
/// `value` threads, or puts the thread to sleep, at most for `timeout`, if the word equals `value`.
///
/// # Safety
/// The caller guarantees that `word` is the address of a word, or that a fault of the kernel there is harmless, and
/// that the timeout is valid or null.
pub(crate) unsafe fn futex(
    word: *const u32,
    operation: c_int,
    value: u32,
    timeout: *const libc::timespec,
) -> u64 {
    let words = [word as u64, operation as u64, value.into(), timeout as u64, 0, 0];
    // SAFETY: the kernel only reads the word and the timeout, which the caller guarantees.
    let result = unsafe { raw(libc::SYS_futex, words) };
    if result < 0 { result.unsigned_abs() } else { 0 }
}

/// Starts to dispatch the calling thread's system calls by `selector`, except for the call that ends at address
/// `exempt` (0: no exception).
///
/// # Errors
/// Returns the `errno` of `prctl(2)`.
///
/// # Safety
/// The selector must live until [`end`], and be 0 while the thread runs code of the host.
pub(crate) unsafe fn begin(selector: *const u8, exempt: usize) -> Result<(), i32> {
    // The kernel compares the address after a system call, so a range of one byte is exactly that address.
    dispatch([ON, exempt as u64, u64::from(exempt != 0), selector as u64])
}

/// Stops the dispatch.
pub(crate) fn end() {
    // It cannot fail if dispatch could start.
    let _ = dispatch([OFF, 0, 0, 0]);
}

fn dispatch([mode, start, length, selector]: [u64; 4]) -> Result<(), i32> {
    let words = [PR_SET_SYSCALL_USER_DISPATCH, mode, start, length, selector, 0];
    // SAFETY: it changes how the kernel treats this thread's system calls; `begin` states the requirements on the
    // byte.
    match unsafe { raw(libc::SYS_prctl, words) } {
        0 => Ok(()),
        error => Err(-error as i32),
    }
}

/// Checks that this kernel dispatches system calls.
///
/// # Errors
/// Returns `unavailable`, with the cause and the fix.
pub(crate) fn available() -> Result<(), Failure> {
    let tried = std::thread::spawn(|| {
        let selector = 0u8;
        // SAFETY: the byte is 0 and outlives the dispatch.
        let result = unsafe { begin(&raw const selector, 0) };
        end();
        result
    });
    match tried.join() {
        Ok(Ok(())) => Ok(()),
        Ok(Err(errno)) => Err(Failure::unavailable(
            format!("this kernel has no Syscall User Dispatch (prctl: errno {errno})"),
            "run Linux 5.11 or later, and do not block prctl by a seccomp filter",
        )),
        Err(_) => Err(Failure::failed("the thread that tests Syscall User Dispatch panicked")),
    }
}
