//! AVX-512: one masked load and store up to 64 bytes, overlapping vectors up to 512, a loop above.
//!
//! A masked store is not forwarded to a load that follows immediately, so a copy that is read at once
//! is slower than with AVX2. Only zmm16 to zmm31 are used: they leave the upper halves of the lower
//! registers clean, so no `vzeroupper` is needed.

use super::CopyFn;
use core::arch::naked_asm;
use std::arch::is_x86_feature_detected;

pub(super) fn resolve() -> Result<CopyFn, String> {
    let vectors = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw");
    if vectors && is_x86_feature_detected!("bmi2") {
        Ok(copy)
    } else {
        Err("this CPU lacks AVX-512 (F, BW), or the system does not enable it: use another CPU"
            .into())
    }
}

/// Copies up to 512 bytes and returns. For longer copies it falls through with the first 128 bytes in
/// zmm16 and zmm17 and the last 256 in zmm20, zmm21, zmm18 and zmm19.
macro_rules! short {
    () => {
        concat!(
            ".p2align 6\n",
            "cmp rdx, 64\n",
            "ja 2f\n",
            "mov rax, -1\n",
            "bzhi rax, rax, rdx\n",
            "kmovq k1, rax\n",
            "vmovdqu8 zmm16{{k1}}{{z}}, [rsi]\n",
            "vmovdqu8 [rdi]{{k1}}, zmm16\n",
            "ret\n",
            // 65 to 128
            "2:\n",
            "cmp rdx, 128\n",
            "ja 3f\n",
            "vmovdqu64 zmm16, [rsi]\n",
            "vmovdqu64 zmm17, [rsi + rdx - 64]\n",
            "vmovdqu64 [rdi], zmm16\n",
            "vmovdqu64 [rdi + rdx - 64], zmm17\n",
            "ret\n",
            // 129 to 256
            "3:\n",
            "vmovdqu64 zmm16, [rsi]\n",
            "vmovdqu64 zmm17, [rsi + 64]\n",
            "vmovdqu64 zmm18, [rsi + rdx - 128]\n",
            "vmovdqu64 zmm19, [rsi + rdx - 64]\n",
            "cmp rdx, 256\n",
            "ja 4f\n",
            "vmovdqu64 [rdi], zmm16\n",
            "vmovdqu64 [rdi + 64], zmm17\n",
            "vmovdqu64 [rdi + rdx - 128], zmm18\n",
            "vmovdqu64 [rdi + rdx - 64], zmm19\n",
            "ret\n",
            // 257 to 384
            "4:\n",
            "vmovdqu64 zmm22, [rsi + 128]\n",
            "vmovdqu64 zmm23, [rsi + 192]\n",
            "cmp rdx, 384\n",
            "ja 5f\n",
            "vmovdqu64 [rdi], zmm16\n",
            "vmovdqu64 [rdi + 64], zmm17\n",
            "vmovdqu64 [rdi + 128], zmm22\n",
            "vmovdqu64 [rdi + 192], zmm23\n",
            "vmovdqu64 [rdi + rdx - 128], zmm18\n",
            "vmovdqu64 [rdi + rdx - 64], zmm19\n",
            "ret\n",
            // 385 to 512
            "5:\n",
            "vmovdqu64 zmm20, [rsi + rdx - 256]\n",
            "vmovdqu64 zmm21, [rsi + rdx - 192]\n",
            "cmp rdx, 512\n",
            "ja 6f\n",
            "vmovdqu64 [rdi], zmm16\n",
            "vmovdqu64 [rdi + 64], zmm17\n",
            "vmovdqu64 [rdi + 128], zmm22\n",
            "vmovdqu64 [rdi + 192], zmm23\n",
            "vmovdqu64 [rdi + rdx - 256], zmm20\n",
            "vmovdqu64 [rdi + rdx - 192], zmm21\n",
            "vmovdqu64 [rdi + rdx - 128], zmm18\n",
            "vmovdqu64 [rdi + rdx - 64], zmm19\n",
            "ret\n",
            "6:\n",
        )
    };
}

/// Continues after `short`: between the ends in registers, the destination is aligned.
macro_rules! long {
    () => {
        concat!(
            "lea rcx, [rdi + rdx - 256]\n",
            "vmovdqu64 [rdi], zmm16\n",
            "sub rsi, rdi\n",
            "or rdi, 63\n",
            "inc rdi\n",
            "add rsi, rdi\n",
            ".p2align 6\n",
            "7:\n",
            "vmovdqu64 zmm22, [rsi]\n",
            "vmovdqu64 zmm23, [rsi + 64]\n",
            "vmovdqu64 zmm24, [rsi + 128]\n",
            "vmovdqu64 zmm25, [rsi + 192]\n",
            "add rsi, 256\n",
            "vmovdqa64 [rdi], zmm22\n",
            "vmovdqa64 [rdi + 64], zmm23\n",
            "vmovdqa64 [rdi + 128], zmm24\n",
            "vmovdqa64 [rdi + 192], zmm25\n",
            "add rdi, 256\n",
            "cmp rdi, rcx\n",
            "jb 7b\n",
            "vmovdqu64 [rcx], zmm20\n",
            "vmovdqu64 [rcx + 64], zmm21\n",
            "vmovdqu64 [rcx + 128], zmm18\n",
            "vmovdqu64 [rcx + 192], zmm19\n",
            "ret\n",
        )
    };
}
pub(super) use {long, short};

#[unsafe(naked)]
pub(super) unsafe extern "C" fn copy(_destination: *mut u8, _source: *const u8, _length: usize) {
    naked_asm!(short!(), long!(),)
}
