//! An upper bound of every copy rather than a copy: its loads and its stores, independent of each
//! other.
//!
//! The function stores the first 256 bytes of the source repeatedly, and discards the bytes that it
//! loads. The suite's sources repeat every 256 bytes, so the same bytes arrive as from a copy and pass
//! the same check; with any other source it would deliver wrong bytes.

use std::arch::is_x86_feature_detected;

use super::CopyFn;
use core::arch::naked_asm;

/// Period of the suite's sources, in bytes.
const PERIOD: usize = 256;

pub(super) fn resolve() -> Result<CopyFn, String> {
    if is_x86_feature_detected!("avx512f") {
        Ok(of_64_bytes)
    } else if is_x86_feature_detected!("avx2") {
        Ok(of_32_bytes)
    } else {
        Err("this CPU lacks AVX2, or the system does not enable it: use another CPU".into())
    }
}

/// The variant for CPUs without AVX-512, for tests on others.
#[cfg(test)]
pub(super) const WITH_AVX2: CopyFn = of_32_bytes;

#[unsafe(naked)]
unsafe extern "C" fn of_64_bytes(_destination: *mut u8, _source: *const u8, _length: usize) {
    naked_asm!(
        "mov rax, rdx",
        "and rax, -{period}",
        "jz 3f",
        "vmovdqu64 zmm16, [rsi]",
        "vmovdqu64 zmm17, [rsi + 64]",
        "vmovdqu64 zmm18, [rsi + 128]",
        "vmovdqu64 zmm19, [rsi + 192]",
        "add rax, rdi",
        ".p2align 6",
        "2:",
        "vmovdqu64 zmm20, [rsi]",
        "vmovdqu64 zmm21, [rsi + 64]",
        "vmovdqu64 zmm22, [rsi + 128]",
        "vmovdqu64 zmm23, [rsi + 192]",
        "add rsi, {period}",
        "vmovdqu64 [rdi], zmm16",
        "vmovdqu64 [rdi + 64], zmm17",
        "vmovdqu64 [rdi + 128], zmm18",
        "vmovdqu64 [rdi + 192], zmm19",
        "add rdi, {period}",
        "cmp rdi, rax",
        "jb 2b",
        // The remainder of a period is copied; an empty rep would cost ten cycles.
        "3:",
        "mov ecx, edx",
        "and ecx, {period} - 1",
        "jz 4f",
        "rep movsb",
        "4:",
        "ret",
        period = const PERIOD,
    )
}

#[unsafe(naked)]
unsafe extern "C" fn of_32_bytes(_destination: *mut u8, _source: *const u8, _length: usize) {
    naked_asm!(
        "mov rax, rdx",
        "and rax, -{period}",
        "jz 3f",
        "vmovdqu ymm0, [rsi]",
        "vmovdqu ymm1, [rsi + 32]",
        "vmovdqu ymm2, [rsi + 64]",
        "vmovdqu ymm3, [rsi + 96]",
        "vmovdqu ymm4, [rsi + 128]",
        "vmovdqu ymm5, [rsi + 160]",
        "vmovdqu ymm6, [rsi + 192]",
        "vmovdqu ymm7, [rsi + 224]",
        "add rax, rdi",
        ".p2align 6",
        "2:",
        "vmovdqu ymm8, [rsi]",
        "vmovdqu ymm9, [rsi + 32]",
        "vmovdqu ymm10, [rsi + 64]",
        "vmovdqu ymm11, [rsi + 96]",
        "vmovdqu ymm12, [rsi + 128]",
        "vmovdqu ymm13, [rsi + 160]",
        "vmovdqu ymm14, [rsi + 192]",
        "vmovdqu ymm15, [rsi + 224]",
        "add rsi, {period}",
        "vmovdqu [rdi], ymm0",
        "vmovdqu [rdi + 32], ymm1",
        "vmovdqu [rdi + 64], ymm2",
        "vmovdqu [rdi + 96], ymm3",
        "vmovdqu [rdi + 128], ymm4",
        "vmovdqu [rdi + 160], ymm5",
        "vmovdqu [rdi + 192], ymm6",
        "vmovdqu [rdi + 224], ymm7",
        "add rdi, {period}",
        "cmp rdi, rax",
        "jb 2b",
        "vzeroupper",
        "3:",
        "mov ecx, edx",
        "and ecx, {period} - 1",
        "jz 4f",
        "rep movsb",
        "4:",
        "ret",
        period = const PERIOD,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_periodic_source_arrives_whole() {
        let source: Vec<u8> = (0..4096_usize).map(|index| (index + 7) as u8).collect();
        let avx512 = is_x86_feature_detected!("avx512f").then_some(of_64_bytes as CopyFn);
        let avx2 = is_x86_feature_detected!("avx2").then_some(of_32_bytes as CopyFn);
        for (name, copy) in [("64 B", avx512), ("32 B", avx2)] {
            let Some(copy) = copy else {
                machine::untested::note(
                    "the limit of loads and stores",
                    &format!("no {name} vectors"),
                );
                continue;
            };
            for length in 0..=source.len() {
                let mut destination = vec![0xee; length + 1];
                // SAFETY: both buffers have `length` bytes and do not overlap.
                unsafe { copy(destination.as_mut_ptr(), source.as_ptr(), length) };
                assert_eq!(destination[..length], source[..length], "{length}");
                assert_eq!(destination[length], 0xee, "{length}");
            }
        }
    }
}
