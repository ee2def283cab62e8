//! Our own copy, by size classes: what wins at each length, and nowhere what falls behind.

use super::thresholds::{LARGE, thresholds};
use super::{CopyFn, avx2, avx512, cached_quarter, non_temporal, rep_aligned};
use core::arch::naked_asm;

pub(super) fn resolve() -> Result<CopyFn, String> {
    thresholds();
    avx512::resolve()
        .map(|_| with_avx512 as CopyFn)
        .or_else(|_| avx2::resolve().map(|_| with_avx2 as CopyFn))
}

/// What a processor without AVX-512 resolves to, for tests on one that has it.
#[cfg(test)]
pub(super) const WITH_AVX2: CopyFn = with_avx2;

#[unsafe(naked)]
unsafe extern "C" fn with_avx512(_destination: *mut u8, _source: *const u8, _length: usize) {
    naked_asm!(
        avx512::short!(),
        "cmp rdx, [rip + {limit}]",
        "ja {large}",
        avx512::long!(),
        limit = sym LARGE,
        large = sym large_with_avx512,
    )
}

#[unsafe(naked)]
unsafe extern "C" fn with_avx2(_destination: *mut u8, _source: *const u8, _length: usize) {
    naked_asm!(
        ".p2align 6",
        "cmp rdx, [rip + {limit}]",
        "ja {large}",
        "jmp {vectors}",
        limit = sym LARGE,
        large = sym large_with_avx2,
        vectors = sym avx2::copy,
    )
}

unsafe extern "C" fn large_with_avx512(destination: *mut u8, source: *const u8, length: usize) {
    // SAFETY: the caller's contract, passed on; AVX-512 implies AVX2.
    unsafe { large(length, avx512::copy)(destination, source, length) }
}

unsafe extern "C" fn large_with_avx2(destination: *mut u8, source: *const u8, length: usize) {
    // SAFETY: the caller's contract, passed on.
    unsafe { large(length, avx2::copy)(destination, source, length) }
}

/// The way of a copy that does not fit in the first cache.
#[inline(always)]
fn large(length: usize, vectors: CopyFn) -> CopyFn {
    let thresholds = thresholds();
    if length <= thresholds.rep {
        rep_aligned::copy
    } else if length <= thresholds.cached {
        vectors
    } else if length <= thresholds.source_cached {
        cached_quarter::copy
    } else {
        non_temporal::copy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A processor with AVX-512 never resolves to it, so it is called here by itself.
    #[test]
    fn the_variant_without_avx512_copies_in_every_class() {
        if let Err(why) = avx2::resolve() {
            return machine::untested::note("tollgate without AVX-512", &why);
        }
        thresholds();
        for length in [0, 1, 40, 300, 16 << 10, 40 << 10, (5 << 20) + 1, (12 << 20) + 3, 64 << 20] {
            let source: Vec<u8> = (0..length).map(|index| (index % 251) as u8).collect();
            let mut destination = vec![0; length];
            // SAFETY: both are this long, do not overlap, and the CPU has AVX2.
            unsafe { with_avx2(destination.as_mut_ptr(), source.as_ptr(), length) };
            assert!(destination == source, "{length} bytes");
        }
    }
}
