//! Functions for copies beyond the caches, or near the size of one.

use core::arch::naked_asm;

use super::{CopyFn, avx2};

/// Resolves the function that uses `rep movsb` in its fast cases only: an aligned destination, whole
/// lines, and never if the CPU would copy byte by byte.
pub(super) fn rep_aligned() -> Result<CopyFn, String> {
    avx2::resolve().map(|_| copy_rep_aligned as CopyFn)
}

/// Up to 256 bytes, and if the destination is 1 to 63 bytes above the source modulo the page size,
/// by AVX2: there `rep movsb` drops to a thirtieth of its speed on Zen 4. Otherwise the first and
/// last 64 bytes by vectors, the lines between by `rep movsb`.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn copy_rep_aligned(
    _destination: *mut u8,
    _source: *const u8,
    _length: usize,
) {
    naked_asm!(
        ".p2align 6",
        "cmp rdx, 256",
        "jbe {vectors}",
        "mov eax, edi",
        "sub eax, esi",
        "and eax, 0xfff",
        "dec eax",
        "cmp eax, 63",
        "jb {vectors}",
        "vmovdqu ymm0, [rsi]",
        "vmovdqu ymm1, [rsi + 32]",
        "vmovdqu ymm2, [rsi + rdx - 64]",
        "vmovdqu ymm3, [rsi + rdx - 32]",
        "lea r8, [rdi + rdx - 64]",
        "vmovdqu [rdi], ymm0",
        "vmovdqu [rdi + 32], ymm1",
        "sub rsi, rdi",
        "or rdi, 63",
        "inc rdi",
        "add rsi, rdi",
        // Lines that begin before the last 64 bytes; the last of them may overlap those.
        "lea rcx, [r8 + 63]",
        "sub rcx, rdi",
        "and rcx, -64",
        "rep movsb",
        "vmovdqu [r8], ymm2",
        "vmovdqu [r8 + 32], ymm3",
        "vzeroupper",
        "ret",
        vectors = sym avx2::copy,
    )
}

/// Resolves the function with non-temporal stores: the destination bypasses the caches, and its lines
/// are not read first.
pub(super) fn non_temporal() -> Result<CopyFn, String> {
    avx2::resolve().map(|_| copy_non_temporal as CopyFn)
}

/// Up to 128 bytes as AVX2. Above: the first 64 bytes by ordinary stores, whole aligned lines by
/// `vmovntdq` with the source prefetched as non-temporal 2 KiB ahead, `sfence`, the last 64 bytes.
/// From 1 MiB on by [`four_streams`].
#[unsafe(naked)]
pub(super) unsafe extern "C" fn copy_non_temporal(
    _destination: *mut u8,
    _source: *const u8,
    _length: usize,
) {
    naked_asm!(
        ".p2align 6",
        "cmp rdx, 128",
        "jbe {vectors}",
        "cmp rdx, 0x100000",
        "jae {four_streams}",
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
        // r8: the last destination from which four whole lines precede the last 64 bytes
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
        four_streams = sym four_streams,
    )
}

/// Resolves the function for lengths near the size of the last-level cache. Ordinary stores use cache
/// space and evict the source; non-temporal stores are limited by the memory's write rate. One quarter
/// by ordinary stores concurrently with three quarters by non-temporal ones uses both: 1.2 to 1.7 times the faster of the
/// two at half the cache's size on Zen 4. Alternating line by line is three times slower than either,
/// so each stream has its own part of the buffer.
pub(super) fn cached_quarter() -> Result<CopyFn, String> {
    avx2::resolve().map(|_| copy_cached_quarter as CopyFn)
}

/// Copies 256 bytes of one quarter: source, destination, store instruction.
macro_rules! lines {
    ($from:literal, $to:literal, $store:literal) => {
        concat!(
            "vmovdqu ymm4, [",
            $from,
            "]\n",
            "vmovdqu ymm5, [",
            $from,
            " + 32]\n",
            "vmovdqu ymm6, [",
            $from,
            " + 64]\n",
            "vmovdqu ymm7, [",
            $from,
            " + 96]\n",
            "vmovdqu ymm8, [",
            $from,
            " + 128]\n",
            "vmovdqu ymm9, [",
            $from,
            " + 160]\n",
            "vmovdqu ymm10, [",
            $from,
            " + 192]\n",
            "vmovdqu ymm11, [",
            $from,
            " + 224]\n",
            $store,
            " [",
            $to,
            "], ymm4\n",
            $store,
            " [",
            $to,
            " + 32], ymm5\n",
            $store,
            " [",
            $to,
            " + 64], ymm6\n",
            $store,
            " [",
            $to,
            " + 96], ymm7\n",
            $store,
            " [",
            $to,
            " + 128], ymm8\n",
            $store,
            " [",
            $to,
            " + 160], ymm9\n",
            $store,
            " [",
            $to,
            " + 192], ymm10\n",
            $store,
            " [",
            $to,
            " + 224], ymm11\n",
        )
    };
}

/// Prefetches 256 bytes of one quarter, 2 KiB ahead.
macro_rules! ahead {
    ($from:literal) => {
        concat!(
            "prefetchnta [",
            $from,
            " + 2048]\n",
            "prefetchnta [",
            $from,
            " + 2112]\n",
            "prefetchnta [",
            $from,
            " + 2176]\n",
            "prefetchnta [",
            $from,
            " + 2240]\n",
        )
    };
}

/// 64 bytes to align the destination, then four quarters of whole pages concurrently. The arguments copy
/// 256 bytes of each quarter: source and destination of the quarters are at `rsi` and `rdi`, each `rdx`
/// bytes further, and at `r9` and `r10`.
macro_rules! quarters {
    ($($lines:expr),+ $(,)?) => {
        concat!(
            "vmovdqu ymm0, [rsi]\n",
            "vmovdqu ymm1, [rsi + 32]\n",
            "lea r8, [rdi + rdx]\n",
            "vmovdqu [rdi], ymm0\n",
            "vmovdqu [rdi + 32], ymm1\n",
            "sub rsi, rdi\n",
            "or rdi, 63\n",
            "inc rdi\n",
            "add rsi, rdi\n",
            // rdx: bytes of a quarter; rax: blocks of 256 bytes in each; r9, r10: the last quarter
            "mov rdx, r8\n",
            "sub rdx, rdi\n",
            "shr rdx, 2\n",
            "and rdx, -4096\n",
            "lea rax, [rdx + 2*rdx]\n",
            "lea r9, [rsi + rax]\n",
            "lea r10, [rdi + rax]\n",
            "mov rax, rdx\n",
            "shr rax, 8\n",
            ".p2align 6\n",
            "2:\n",
            $($lines,)+
            "add rsi, 256\n",
            "add rdi, 256\n",
            "add r9, 256\n",
            "add r10, 256\n",
            "dec rax\n",
            "jnz 2b\n",
            // r9 and r10 are at the end of the last quarter: fewer than 16 KiB and 64 bytes remain.
            "mov rsi, r9\n",
            "mov rdi, r10\n",
            "mov rdx, r8\n",
            "sub rdx, rdi\n",
            "sfence\n",
            // The remainder may be short enough to be copied without wide registers.
            "vzeroupper\n",
        )
    };
}

/// Four quarters concurrently by non-temporal stores: from 1 MiB on. Four pages are open in the memory
/// and in the TLB at once, and the prefetches cross the page boundaries at which the hardware
/// prefetchers stop: on Zen 5 at 64 MiB 1.05 to 1.15 times as fast as one stream.
#[unsafe(naked)]
unsafe extern "C" fn four_streams(_destination: *mut u8, _source: *const u8, _length: usize) {
    naked_asm!(
        ".p2align 6",
        quarters!(
            ahead!("rsi"),
            lines!("rsi", "rdi", "vmovntdq"),
            ahead!("rsi + rdx"),
            lines!("rsi + rdx", "rdi + rdx", "vmovntdq"),
            ahead!("rsi + 2*rdx"),
            lines!("rsi + 2*rdx", "rdi + 2*rdx", "vmovntdq"),
            ahead!("r9"),
            lines!("r9", "r10", "vmovntdq"),
        ),
        "jmp {rest}",
        rest = sym copy_non_temporal,
    )
}

/// Up to 64 KiB as the plain non-temporal copy. Above: 64 bytes to align the destination, four
/// quarters of whole pages concurrently, and the remainder by the non-temporal copy, which fences.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn copy_cached_quarter(
    _destination: *mut u8,
    _source: *const u8,
    _length: usize,
) {
    naked_asm!(
        ".p2align 6",
        "cmp rdx, 0x10000",
        "jb {rest}",
        quarters!(
            lines!("rsi", "rdi", "vmovdqa"),
            lines!("rsi + rdx", "rdi + rdx", "vmovntdq"),
            lines!("rsi + 2*rdx", "rdi + 2*rdx", "vmovntdq"),
            lines!("r9", "r10", "vmovntdq"),
        ),
        "jmp {rest}",
        rest = sym copy_non_temporal,
    )
}
