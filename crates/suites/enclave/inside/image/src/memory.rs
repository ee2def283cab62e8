//! The functions that compilers and C code require: memory functions, errno, abort.
//!
//! Short lengths use overlapping loads and stores, long ones string instructions. No loop here may be one that the
//! compiler replaces by a call of these functions.

use core::arch::asm;
use core::sync::atomic::AtomicI32;

/// Maximum length for which loads and stores are faster than starting a string instruction.
const SHORT: usize = 32;

/// Copies at most [`SHORT`] bytes. All are read before any is written, so the ranges may overlap.
///
/// # Safety
/// As `memmove`.
#[inline(always)]
unsafe fn copy_short(to: *mut u8, from: *const u8, length: usize) {
    macro_rules! ends {
        ($type:ty) => {{
            let last = length - size_of::<$type>();
            // SAFETY: both ends are inside the length.
            unsafe {
                let (head, tail) = (
                    from.cast::<$type>().read_unaligned(),
                    from.add(last).cast::<$type>().read_unaligned(),
                );
                to.cast::<$type>().write_unaligned(head);
                to.add(last).cast::<$type>().write_unaligned(tail);
            }
        }};
    }
    match length {
        0 => {}
        1 => ends!(u8),
        2..4 => ends!(u16),
        4..8 => ends!(u32),
        8..16 => ends!(u64),
        _ => ends!(u128),
    }
}

/// C's memcpy.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, length: usize) -> *mut u8 {
    if length <= SHORT {
        // SAFETY: the caller guarantees that the ranges are valid.
        unsafe { copy_short(to, from, length) };
    } else {
        // SAFETY: the caller guarantees that the ranges are valid; the ABI requires a clear direction flag.
        unsafe {
            asm!("rep movsb", inout("rdi") to => _, inout("rsi") from => _, inout("rcx") length => _, options(nostack, preserves_flags));
        }
    }
    to
}

/// C's memmove.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, length: usize) -> *mut u8 {
    if length <= SHORT || (to as usize).wrapping_sub(from as usize) >= length {
        // SAFETY: short ranges may overlap; longer ones either do not, or copying forwards is correct.
        return unsafe { memcpy(to, from, length) };
    }
    // SAFETY: the caller guarantees that the ranges are valid; the direction flag is cleared again.
    unsafe {
        asm!("std", "rep movsb", "cld",
            inout("rdi") to.add(length - 1) => _, inout("rsi") from.add(length - 1) => _, inout("rcx") length => _, options(nostack));
    }
    to
}

/// C's memset.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memset(to: *mut u8, byte: i32, length: usize) -> *mut u8 {
    // SAFETY: the caller guarantees that the range is valid; the ABI requires a clear direction flag.
    unsafe {
        asm!("rep stosb", inout("rdi") to => _, inout("rcx") length => _, in("al") byte as u8, options(nostack, preserves_flags));
    }
    to
}

/// C's memcmp.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcmp(left: *const u8, right: *const u8, length: usize) -> i32 {
    for at in 0..length {
        // SAFETY: the index is inside the length.
        let (left, right) = unsafe { (left.add(at).read(), right.add(at).read()) };
        if left != right {
            return i32::from(left) - i32::from(right);
        }
    }
    0
}

/// C's bcmp.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bcmp(left: *const u8, right: *const u8, length: usize) -> i32 {
    // SAFETY: the caller guarantees that the ranges are valid.
    unsafe { memcmp(left, right, length) }
}

/// C's errno. It is written if no space is left, but never read, so all threads share it.
static ERRNO: AtomicI32 = AtomicI32::new(0);

/// Returns the address of errno.
#[unsafe(no_mangle)]
pub extern "C" fn __errno_location() -> *mut i32 {
    ERRNO.as_ptr()
}

/// C's abort.
#[unsafe(no_mangle)]
pub extern "C" fn abort() -> ! {
    crate::arch::trap()
}

/// Required by the compiled core library; nothing unwinds here.
#[unsafe(no_mangle)]
pub extern "C" fn rust_eh_personality() {}
