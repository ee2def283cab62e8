//! What compilers and C code expect to find: memory functions, errno, abort.
//!
//! Short lengths by overlapping loads and stores, long ones by the processor's string instructions. No
//! loop here may be one that a compiler turns into a call of these very functions.

use core::arch::asm;
use core::sync::atomic::AtomicI32;

/// Up to here, loads and stores are shorter than starting a string instruction.
const SHORT: usize = 32;

/// Copies at most [`SHORT`] bytes; all are read before any is written, so they may overlap.
///
/// # Safety
/// As `memmove`.
#[inline(always)]
unsafe fn copy_short(to: *mut u8, from: *const u8, length: usize) {
    macro_rules! ends {
        ($type:ty) => {{
            let last = length - size_of::<$type>();
            // SAFETY: both ends lie within the length.
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
        // SAFETY: the caller's promise.
        unsafe { copy_short(to, from, length) };
    } else {
        // SAFETY: the caller's promise; the direction flag is clear by the ABI.
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
        // SAFETY: short ones may overlap, and here the others copy forwards from behind or apart.
        return unsafe { memcpy(to, from, length) };
    }
    // SAFETY: the caller's promise; the direction flag is cleared again.
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
    // SAFETY: the caller's promise; the direction flag is clear by the ABI.
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
        // SAFETY: within the length.
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
    // SAFETY: the caller's promise.
    unsafe { memcmp(left, right, length) }
}

/// C's errno: written where there is no room, read by nobody, so one for all threads.
static ERRNO: AtomicI32 = AtomicI32::new(0);

/// Where C's errno is.
#[unsafe(no_mangle)]
pub extern "C" fn __errno_location() -> *mut i32 {
    ERRNO.as_ptr()
}

/// C's abort.
#[unsafe(no_mangle)]
pub extern "C" fn abort() -> ! {
    crate::arch::trap()
}

/// Named by the compiled core library; nothing unwinds here.
#[unsafe(no_mangle)]
pub extern "C" fn rust_eh_personality() {}
