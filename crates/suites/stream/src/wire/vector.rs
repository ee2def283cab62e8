//! How a flit is copied: by the widest stores that the processor has, for a store to a line that another
//! core has holds up all that follow, and few can wait.

use std::arch::x86_64::{
    __m256i, _MM_HINT_T0, _mm_prefetch, _mm_set_epi64x, _mm256_blend_epi32, _mm256_load_si256,
    _mm256_loadu_si256, _mm256_permute4x64_epi64, _mm256_setzero_si256, _mm256_store_si256,
    _mm256_unpackhi_epi64, _mm256_unpacklo_epi64, _mm256_zextsi128_si256,
};
use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};

use super::packet::FLIT;

/// A way to copy flits.
pub trait Vector {
    /// A flit in registers.
    type Flit: Copy;

    /// Reads a flit.
    ///
    /// # Safety
    /// It is a whole flit at a whole flit; the processor has what the way needs.
    unsafe fn load(from: *const u8) -> Self::Flit;

    /// Writes a flit.
    ///
    /// # Safety
    /// As for [`Vector::load`].
    unsafe fn store(flit: Self::Flit, to: *mut u8);

    /// The flit with other first 12 bytes.
    ///
    /// # Safety
    /// The processor has what the way needs.
    unsafe fn marked(flit: Self::Flit, mark: u64, stamp: u32) -> Self::Flit;

    /// Copies a flit.
    ///
    /// # Safety
    /// As for [`Vector::load`], of both, which lie apart from each other.
    #[inline(always)]
    unsafe fn copy(from: *const u8, to: *mut u8) {
        // SAFETY: by the caller's word.
        unsafe { Self::store(Self::load(from), to) };
    }

    /// Writes a line of four times zero and a word, after all that was written before. Another thread, which
    /// reads word by word, may look at it meanwhile.
    ///
    /// # Safety
    /// `to` is a whole line; the processor has what the way needs.
    unsafe fn tell(words: &[u64; 4], to: *mut u8);
}

/// Has a line fetched that will be needed soon; nothing happens where there is none.
#[inline(always)]
pub(crate) fn prefetch(place: *const u8) {
    // SAFETY: every x86-64 has it, and it has no effect but on time.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(place.cast()) };
}

/// The same for a line that will be written: no other core has it then.
#[inline(always)]
pub(crate) fn prefetch_to_write(place: *const u8) {
    // SAFETY: a processor that lacks it takes it for nothing, and it has no effect but on time. The compiler
    // has it for some processors alone, and for others reads.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) place, options(nostack, preserves_flags, readonly));
    }
}

/// By what every processor has.
pub enum Plain {}

impl Vector for Plain {
    type Flit = [u64; FLIT / 8];

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self::Flit {
        // SAFETY: by the caller's word.
        unsafe { from.cast::<Self::Flit>().read() }
    }

    #[inline(always)]
    unsafe fn store(flit: Self::Flit, to: *mut u8) {
        // SAFETY: by the caller's word.
        unsafe { to.cast::<Self::Flit>().write(flit) };
    }

    #[inline(always)]
    unsafe fn marked(mut flit: Self::Flit, mark: u64, stamp: u32) -> Self::Flit {
        flit[0] = mark;
        flit[1] = flit[1] >> 32 << 32 | u64::from(stamp);
        flit
    }

    #[inline(always)]
    unsafe fn tell(words: &[u64; 4], to: *mut u8) {
        // SAFETY: by the caller's word; whoever else looks does so by atomic loads.
        let line = unsafe { &*to.cast::<[AtomicU64; 8]>() };
        for (pair, word) in line.chunks_exact(2).zip(words) {
            pair[0].store(0, Ordering::Relaxed);
            pair[1].store(*word, Ordering::Release);
        }
    }
}

/// By two stores of 32 bytes.
pub enum Avx2 {}

impl Vector for Avx2 {
    type Flit = (__m256i, __m256i);

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self::Flit {
        let from = from.cast::<__m256i>();
        // SAFETY: by the caller's word.
        unsafe { (_mm256_load_si256(from), _mm256_load_si256(from.add(1))) }
    }

    #[inline(always)]
    unsafe fn store((low, high): Self::Flit, to: *mut u8) {
        let to = to.cast::<__m256i>();
        // SAFETY: by the caller's word.
        unsafe {
            _mm256_store_si256(to, low);
            _mm256_store_si256(to.add(1), high);
        }
    }

    #[inline(always)]
    unsafe fn marked((low, high): Self::Flit, mark: u64, stamp: u32) -> Self::Flit {
        // SAFETY: by the caller's word.
        unsafe {
            let first = _mm_set_epi64x(i64::from(stamp), mark as i64);
            (_mm256_blend_epi32::<0b111>(low, _mm256_zextsi128_si256(first)), high)
        }
    }

    #[inline(always)]
    unsafe fn tell(words: &[u64; 4], to: *mut u8) {
        // SAFETY: by the caller's word. The stores are volatile: neither split nor moved; a processor with
        // AVX makes each half of one whole, and no store overtakes another.
        unsafe {
            let words = _mm256_loadu_si256(words.as_ptr().cast());
            let words = _mm256_permute4x64_epi64::<0b11_01_10_00>(words);
            let zero = _mm256_setzero_si256();
            let to = to.cast::<__m256i>();
            compiler_fence(Ordering::Release);
            to.write_volatile(_mm256_unpacklo_epi64(zero, words));
            to.add(1).write_volatile(_mm256_unpackhi_epi64(zero, words));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::traffic::CacheLine;
    use super::*;

    #[test]
    fn both_ways_agree() {
        let from = CacheLine(std::array::from_fn(|byte| byte as u8 ^ 0x35));
        let (mark, stamp) = (0x0102_0304_0506_0708, 0x1122_3344);
        let mut expected = from;
        expected.0[..8].copy_from_slice(&u64::to_le_bytes(mark));
        expected.0[8..12].copy_from_slice(&u32::to_le_bytes(stamp));
        let mut to = CacheLine([0; 64]);
        // SAFETY: both are whole lines, and AVX2 is used only where the processor has it.
        unsafe {
            Plain::store(
                Plain::marked(Plain::load(from.0.as_ptr()), mark, stamp),
                to.0.as_mut_ptr(),
            );
            assert_eq!(to, expected);
            Plain::copy(from.0.as_ptr(), to.0.as_mut_ptr());
            assert_eq!(to, from);
            if is_x86_feature_detected!("avx2") {
                Avx2::store(
                    Avx2::marked(Avx2::load(from.0.as_ptr()), mark, stamp),
                    to.0.as_mut_ptr(),
                );
                assert_eq!(to, expected);
                Avx2::copy(from.0.as_ptr(), to.0.as_mut_ptr());
                assert_eq!(to, from);
            } else {
                machine::untested::note("stream: lines by AVX2", &"the CPU has none");
            }
        }
    }

    #[test]
    fn both_ways_tell_four_words() {
        let words = [0x0102, u64::MAX, 3, 1 << 63];
        let mut expected = [0u8; 64];
        for (place, word) in words.iter().enumerate() {
            expected[place * 16 + 8..][..8].copy_from_slice(&word.to_le_bytes());
        }
        for by_avx2 in [false, true] {
            if by_avx2 && !is_x86_feature_detected!("avx2") {
                return machine::untested::note("stream: words by AVX2", &"the CPU has none");
            }
            let mut to = CacheLine([0x55; 64]);
            // SAFETY: a whole line, and AVX2 is used only where the processor has it.
            unsafe {
                if by_avx2 {
                    Avx2::tell(&words, to.0.as_mut_ptr());
                } else {
                    Plain::tell(&words, to.0.as_mut_ptr());
                }
            }
            assert_eq!(to, CacheLine(expected));
        }
    }
}
