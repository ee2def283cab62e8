//! Our copy function by size classes: the fastest strategy at each length.

// The system may report any numbers: this crate is built without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use core::arch::naked_asm;
use std::arch::x86_64::__cpuid_count;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use machine::cache::Caches;

use super::{CopyFn, avx2, avx512, large};

pub(super) fn resolve() -> Result<CopyFn, String> {
    thresholds();
    avx512::resolve()
        .map(|_| with_avx512 as CopyFn)
        .or_else(|_| avx2::resolve().map(|_| with_avx2 as CopyFn))
}

/// The variant for CPUs without AVX-512, for tests on others.
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
    // SAFETY: the caller guarantees the same contract; AVX-512 implies AVX2.
    unsafe { strategy(length, avx512::copy)(destination, source, length) }
}

unsafe extern "C" fn large_with_avx2(destination: *mut u8, source: *const u8, length: usize) {
    // SAFETY: the caller guarantees the same contract.
    unsafe { strategy(length, avx2::copy)(destination, source, length) }
}

/// Returns the strategy for a copy that does not fit in the first-level cache.
#[inline(always)]
fn strategy(length: usize, vectors: CopyFn) -> CopyFn {
    let thresholds = thresholds();
    if length <= thresholds.rep {
        large::copy_rep_aligned
    } else if length <= thresholds.cached {
        vectors
    } else if length <= thresholds.half_cached {
        large::copy_cached_quarter
    } else {
        large::copy_non_temporal
    }
}

/// Maximum length in bytes for which source and destination fit in the first-level cache, so that
/// ordinary stores are fastest. It is a separate static because assembly reads it on every call
/// above 512 bytes.
static LARGE: AtomicUsize = AtomicUsize::new(16 << 10);

/// Maximum length of each strategy of a large copy, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Thresholds {
    /// Both buffers fit in the first-level cache.
    pub large: usize,
    /// Both buffers fit in the last-level cache with space to spare, and `rep movsb` is faster than
    /// vectors: at 8 MiB on Zen 5 1.07 times with one thread, 1.4 times with two on far cores. 0 without
    /// ERMS.
    pub rep: usize,
    /// The same for vectors, without ERMS.
    pub cached: usize,
    /// Each buffer fits in half of the last-level cache. Above, non-temporal stores alone are faster than
    /// with one quarter of ordinary ones: on Zen 5 1.05 times at three quarters of the cache's size, 1.1
    /// times at its whole size.
    pub half_cached: usize,
}

impl Thresholds {
    fn new(first: usize, last: usize, fast_rep: bool) -> Self {
        Self {
            large: first / 2,
            rep: if fast_rep { last / 4 } else { 0 },
            cached: last / 4,
            half_cached: last / 2,
        }
    }
}

/// Returns this machine's thresholds; the first call reads the cache sizes and sets [`LARGE`].
fn thresholds() -> &'static Thresholds {
    static THRESHOLDS: OnceLock<Thresholds> = OnceLock::new();
    THRESHOLDS.get_or_init(|| {
        let caches = Caches::detect();
        let size = |level| caches.data(level).and_then(|bytes| usize::try_from(bytes).ok());
        let first = size(1).unwrap_or(32 << 10);
        // A VM may report the cache of a whole socket; one core can use no more than this.
        let last = size(3).unwrap_or(32 << 20).min(96 << 20);
        // Leaf 7, EBX bit 9: enhanced rep movsb (ERMS).
        let fast_rep = __cpuid_count(7, 0).ebx & 1 << 9 != 0;
        let thresholds = Thresholds::new(first, last, fast_rep);
        LARGE.store(thresholds.large, Ordering::Relaxed);
        thresholds
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A CPU with AVX-512 never resolves to this variant, so the test calls it directly.
    #[test]
    fn the_variant_without_avx512_copies_in_every_size_class() {
        if let Err(why) = avx2::resolve() {
            return machine::untested::note("tollgate without AVX-512", &why);
        }
        thresholds();
        for length in [0, 1, 40, 300, 16 << 10, 40 << 10, (5 << 20) + 1, (12 << 20) + 3, 64 << 20] {
            let source: Vec<u8> = (0..length).map(|index| (index % 251) as u8).collect();
            let mut destination = vec![0; length];
            // SAFETY: both buffers have this length and do not overlap, and the CPU has AVX2.
            unsafe { with_avx2(destination.as_mut_ptr(), source.as_ptr(), length) };
            assert!(destination == source, "{length} bytes");
        }
    }

    /// Marks the end of the code of `short` in [`short_alone`].
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

    #[test]
    fn thresholds_follow_from_the_cache_sizes() {
        let with_rep = Thresholds::new(32 << 10, 32 << 20, true);
        let ends = [with_rep.large, with_rep.rep, with_rep.cached, with_rep.half_cached];
        assert_eq!(ends, [16 << 10, 8 << 20, 8 << 20, 16 << 20]);
        assert_eq!(Thresholds::new(32 << 10, 32 << 20, false).rep, 0);
    }

    #[test]
    fn thresholds_set_the_limit_that_assembly_reads() {
        assert_eq!(thresholds().large, LARGE.load(Ordering::Relaxed));
        assert!(thresholds().large >= 4096, "{:?}", thresholds());
        assert!(thresholds().half_cached <= 48 << 20, "{:?}", thresholds());
    }
}
