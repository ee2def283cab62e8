//! AVX2: overlapping loads up to 256 bytes, a loop of four 32-byte vectors above.

use super::CopyFn;
use core::arch::naked_asm;
use std::arch::is_x86_feature_detected;

pub(super) fn resolve() -> Result<CopyFn, String> {
    if is_x86_feature_detected!("avx2") {
        Ok(copy)
    } else {
        Err("this CPU lacks AVX2 or the system does not enable it: needs another CPU".into())
    }
}

#[unsafe(naked)]
pub(super) unsafe extern "C" fn copy(_destination: *mut u8, _source: *const u8, _length: usize) {
    naked_asm!(
        ".p2align 6",
        "cmp rdx, 32",
        "ja 10f",
        "cmp edx, 16",
        "jae 5f",
        "cmp edx, 8",
        "jae 4f",
        "cmp edx, 4",
        "jae 3f",
        "cmp edx, 1",
        "jb 2f",
        // 1 to 3: first, last, and middle byte, which may be either of them
        "movzx eax, byte ptr [rsi]",
        "je 6f",
        "movzx ecx, word ptr [rsi + rdx - 2]",
        "mov [rdi + rdx - 2], cx",
        "6:",
        "mov [rdi], al",
        "2:",
        "ret",
        "3:",
        "mov eax, [rsi]",
        "mov ecx, [rsi + rdx - 4]",
        "mov [rdi], eax",
        "mov [rdi + rdx - 4], ecx",
        "ret",
        "4:",
        "mov rax, [rsi]",
        "mov rcx, [rsi + rdx - 8]",
        "mov [rdi], rax",
        "mov [rdi + rdx - 8], rcx",
        "ret",
        "5:",
        "vmovdqu xmm0, [rsi]",
        "vmovdqu xmm1, [rsi + rdx - 16]",
        "vmovdqu [rdi], xmm0",
        "vmovdqu [rdi + rdx - 16], xmm1",
        "ret",
        // 33 to 64
        "10:",
        "vmovdqu ymm0, [rsi]",
        "vmovdqu ymm1, [rsi + rdx - 32]",
        "cmp rdx, 64",
        "ja 12f",
        "vmovdqu [rdi], ymm0",
        "vmovdqu [rdi + rdx - 32], ymm1",
        "vzeroupper",
        "ret",
        // 65 to 128
        "12:",
        "vmovdqu ymm2, [rsi + 32]",
        "vmovdqu ymm3, [rsi + rdx - 64]",
        "cmp rdx, 128",
        "ja 13f",
        "vmovdqu [rdi], ymm0",
        "vmovdqu [rdi + 32], ymm2",
        "vmovdqu [rdi + rdx - 64], ymm3",
        "vmovdqu [rdi + rdx - 32], ymm1",
        "vzeroupper",
        "ret",
        // 129 to 256
        "13:",
        "vmovdqu ymm4, [rsi + rdx - 128]",
        "vmovdqu ymm5, [rsi + rdx - 96]",
        "cmp rdx, 256",
        "ja 14f",
        "vmovdqu ymm6, [rsi + 64]",
        "vmovdqu ymm7, [rsi + 96]",
        "vmovdqu [rdi], ymm0",
        "vmovdqu [rdi + 32], ymm2",
        "vmovdqu [rdi + 64], ymm6",
        "vmovdqu [rdi + 96], ymm7",
        "vmovdqu [rdi + rdx - 128], ymm4",
        "vmovdqu [rdi + rdx - 96], ymm5",
        "vmovdqu [rdi + rdx - 64], ymm3",
        "vmovdqu [rdi + rdx - 32], ymm1",
        "vzeroupper",
        "ret",
        // Above: the first 32 bytes and the last 128 are kept in registers; between them the
        // destination is aligned.
        "14:",
        "lea rcx, [rdi + rdx - 128]",
        "vmovdqu [rdi], ymm0",
        "sub rsi, rdi",
        "or rdi, 31",
        "inc rdi",
        "add rsi, rdi",
        ".p2align 6",
        "15:",
        "vmovdqu ymm6, [rsi]",
        "vmovdqu ymm7, [rsi + 32]",
        "vmovdqu ymm8, [rsi + 64]",
        "vmovdqu ymm9, [rsi + 96]",
        "add rsi, 128",
        "vmovdqa [rdi], ymm6",
        "vmovdqa [rdi + 32], ymm7",
        "vmovdqa [rdi + 64], ymm8",
        "vmovdqa [rdi + 96], ymm9",
        "add rdi, 128",
        "cmp rdi, rcx",
        "jb 15b",
        "vmovdqu [rcx], ymm4",
        "vmovdqu [rcx + 32], ymm5",
        "vmovdqu [rcx + 64], ymm3",
        "vmovdqu [rcx + 96], ymm1",
        "vzeroupper",
        "ret",
    )
}
