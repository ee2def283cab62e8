//! Non-temporal stores: the destination passes the caches by, and no line of it is read first.

use super::{CopyFn, avx2};
use core::arch::naked_asm;

pub(super) fn resolve() -> Result<CopyFn, String> {
    avx2::resolve().map(|_| copy as CopyFn)
}

/// Up to 128 bytes as AVX2. Above: the first 64 bytes by ordinary stores, whole aligned lines by
/// `vmovntdq` with the source prefetched as non-temporal 2 KiB ahead, `sfence`, the last 64 bytes.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn copy(_destination: *mut u8, _source: *const u8, _length: usize) {
    naked_asm!(
        ".p2align 6",
        "cmp rdx, 128",
        "jbe {vectors}",
        "vmovdqu ymm0, [rsi]",
        "vmovdqu ymm1, [rsi + 32]",
        "vmovdqu ymm2, [rsi + rdx - 64]",
        "vmovdqu ymm3, [rsi + rdx - 32]",
        "lea rcx, [rdi + rdx - 64]",
        "vmovdqu [rdi], ymm0",
        "vmovdqu [rdi + 32], ymm1",
        "sub rsi, rdi",
        "or rdi, 63",
        "inc rdi",
        "add rsi, rdi",
        // r8: the last place from which four whole lines lie before the last 64 bytes
        "lea r8, [rcx - 256]",
        "cmp rdi, r8",
        "ja 3f",
        ".p2align 6",
        "2:",
        "prefetchnta [rsi + 2048]",
        "prefetchnta [rsi + 2112]",
        "prefetchnta [rsi + 2176]",
        "prefetchnta [rsi + 2240]",
        "vmovdqu ymm4, [rsi]",
        "vmovdqu ymm5, [rsi + 32]",
        "vmovdqu ymm6, [rsi + 64]",
        "vmovdqu ymm7, [rsi + 96]",
        "vmovdqu ymm8, [rsi + 128]",
        "vmovdqu ymm9, [rsi + 160]",
        "vmovdqu ymm10, [rsi + 192]",
        "vmovdqu ymm11, [rsi + 224]",
        "add rsi, 256",
        "vmovntdq [rdi], ymm4",
        "vmovntdq [rdi + 32], ymm5",
        "vmovntdq [rdi + 64], ymm6",
        "vmovntdq [rdi + 96], ymm7",
        "vmovntdq [rdi + 128], ymm8",
        "vmovntdq [rdi + 160], ymm9",
        "vmovntdq [rdi + 192], ymm10",
        "vmovntdq [rdi + 224], ymm11",
        "add rdi, 256",
        "cmp rdi, r8",
        "jbe 2b",
        "3:",
        "cmp rdi, rcx",
        "jae 4f",
        "vmovdqu ymm4, [rsi]",
        "vmovdqu ymm5, [rsi + 32]",
        "add rsi, 64",
        "vmovntdq [rdi], ymm4",
        "vmovntdq [rdi + 32], ymm5",
        "add rdi, 64",
        "jmp 3b",
        "4:",
        "sfence",
        "vmovdqu [rcx], ymm2",
        "vmovdqu [rcx + 32], ymm3",
        "vzeroupper",
        "ret",
        vectors = sym avx2::copy,
    )
}
