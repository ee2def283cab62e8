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

    /// What ends the code of `short` in [`short_alone`].
    const MARK: u64 = 0x6574_6167_6c6c_6f74;

    #[unsafe(naked)]
    unsafe extern "C" fn short_alone() {
        naked_asm!(avx512::short!(), ".quad {mark}", mark = const MARK)
    }

    #[test]
    fn up_to_512_bytes_the_code_is_that_of_avx512() {
        let bytes = |code: usize, count: usize| {
            // SAFETY: each of these functions is at least this long, and code is readable.
            unsafe { std::slice::from_raw_parts(code as *const u8, count) }
        };
        let short = short_alone as *const () as usize;
        let length = (8..).find(|end| bytes(short, *end).ends_with(&MARK.to_le_bytes()));
        let length = length.unwrap() - 8;
        assert!(length > 100, "{length} bytes of code");
        let code = bytes(short, length);
        assert_eq!(code, bytes(with_avx512 as *const () as usize, length));
        assert_eq!(code, bytes(avx512::copy as *const () as usize, length));
    }
}
