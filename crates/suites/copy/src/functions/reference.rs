//! Reference functions: glibc's memcpy, ESCAPE's naive loop, and `rep movsb`.

use super::CopyFn;
use core::arch::naked_asm;
use libloading::os::unix::{Library, RTLD_NOW};

/// Returns memcpy of the C library of this process, by its address: the loader has chosen the
/// variant for this CPU, and no compiler can inline or replace the call.
pub(super) fn glibc() -> Result<CopyFn, String> {
    // SAFETY: the library is already loaded (RTLD_NOLOAD), so no initialiser runs.
    let library = unsafe { Library::open(Some("libc.so.6"), RTLD_NOW | libc::RTLD_NOLOAD) }
        .map_err(|_| {
            "this process does not run on glibc: use a build for x86_64-unknown-linux-gnu"
                .to_string()
        })?;
    // SAFETY: the C standard defines memcpy's signature; its result is ignored. libc is never
    // unloaded, so the address outlives the handle.
    unsafe { library.get::<CopyFn>(b"memcpy\0") }
        .map(|symbol| *symbol)
        .map_err(|error| format!("libc.so.6 has no memcpy ({error})"))
}

/// ESCAPE's `*d++ = *s++` over unsigned longs, then the last bytes one by one: six scalar
/// instructions per word, as `gcc -O1` compiles it. It is in assembly because `-O3` turns the C loop
/// into vectors or memcpy, and because the compiler cannot merge successive calls of it.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn naive(_destination: *mut u8, _source: *const u8, _length: usize) {
    naked_asm!(
        "mov rcx, rdx",
        "shr rcx, 3",
        "jz 3f",
        ".p2align 5",
        "2:",
        "mov rax, [rsi]",
        "add rsi, 8",
        "mov [rdi], rax",
        "add rdi, 8",
        "dec rcx",
        "jnz 2b",
        "3:",
        "and edx, 7",
        "jz 5f",
        "4:",
        "movzx eax, byte ptr [rsi]",
        "inc rsi",
        "mov [rdi], al",
        "inc rdi",
        "dec edx",
        "jnz 4b",
        "5:",
        "ret",
    )
}

/// The CPU's string copy.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn rep_movsb(
    _destination: *mut u8,
    _source: *const u8,
    _length: usize,
) {
    naked_asm!("mov rcx, rdx", "rep movsb", "ret",)
}
