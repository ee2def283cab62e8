//! Copying of flits by the widest available stores: a store to a cache line of another core holds up all later stores,
//! and only few can be pending.

use std::arch::x86_64::{
    __m256i, _MM_HINT_T0, _mm_prefetch, _mm_set_epi64x, _mm256_add_epi32, _mm256_blend_epi32,
    _mm256_load_si256, _mm256_loadu_si256, _mm256_permute4x64_epi64, _mm256_set_m128i,
    _mm256_setzero_si256, _mm256_store_si256, _mm256_unpackhi_epi64, _mm256_unpacklo_epi64,
    _mm256_zextsi128_si256,
};
use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};

use super::mark::{ADDRESSES, PAYLOAD};
use super::packet::FLIT;

/// A way to copy flits with a given instruction set.
pub trait Vector {
    /// A flit in registers.
    type Flit: Copy;

    /// Loads a flit.
    ///
    /// # Safety
    /// `from` points to a whole aligned flit; the CPU supports the instruction set.
    unsafe fn load(from: *const u8) -> Self::Flit;

    /// Stores a flit.
    ///
    /// # Safety
    /// The requirements of [`Vector::load`] apply.
    unsafe fn store(flit: Self::Flit, to: *mut u8);

    /// The words of a mark in registers, where they are in a flit.
    type Words: Copy;

    /// Returns the words of a mark at `AT`: [`PAYLOAD`] or [`ADDRESSES`], where there is no space for the last one.
    ///
    /// # Safety
    /// The CPU supports the instruction set.
    unsafe fn words<const AT: usize>(words: [u32; 4]) -> Self::Words;

    /// Adds to each word, modulo 2^32.
    ///
    /// # Safety
    /// The CPU supports the instruction set.
    unsafe fn sum(words: Self::Words, step: Self::Words) -> Self::Words;

    /// Returns the first flit of a packet with a mark at `AT`.
    ///
    /// # Safety
    /// The CPU supports the instruction set.
    unsafe fn marked<const AT: usize>(flit: Self::Flit, words: Self::Words) -> Self::Flit;

    /// Copies a flit.
    ///
    /// # Safety
    /// The requirements of [`Vector::load`] apply to both, which do not overlap.
    #[inline(always)]
    unsafe fn copy(from: *const u8, to: *mut u8) {
        // SAFETY: the caller guarantees the same.
        unsafe { Self::store(Self::load(from), to) };
    }

    /// Writes a cache line of four pairs of zero and a word, after all earlier stores. Another thread may read it
    /// concurrently, word by word.
    ///
    /// # Safety
    /// `to` points to a whole cache line; the CPU supports the instruction set.
    unsafe fn write_words(words: &[u64; 4], to: *mut u8);

    /// Writes a cache line whose halves are zero except for their second words, after all earlier stores. Another thread
    /// may read it concurrently, word by word.
    ///
    /// # Safety
    /// The requirements of [`Vector::write_words`] apply.
    unsafe fn write_words_apart(first: u64, second: u64, to: *mut u8);
}

/// Returns two words, the first one in the lower half.
#[inline(always)]
fn pair(first: u32, second: u32) -> u64 {
    u64::from(first) | u64::from(second) << 32
}

/// Prefetches a cache line for reading. Has no effect on an invalid address.
#[inline(always)]
pub(crate) fn prefetch(place: *const u8) {
    // SAFETY: every x86-64 CPU supports it, and it affects only timing.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(place.cast()) };
}

/// Prefetches a cache line for writing, which takes it from other cores.
#[inline(always)]
pub(crate) fn prefetch_to_write(place: *const u8) {
    // SAFETY: CPUs without it treat it as a NOP, and it affects only timing. The compiler's intrinsic emits it only for
    // some target CPUs and reads for others.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) place, options(nostack, preserves_flags, readonly));
    }
}

/// Copying with instructions that every x86-64 CPU has.
pub enum Plain {}

impl Vector for Plain {
    type Flit = [u64; FLIT / 8];

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self::Flit {
        // SAFETY: the caller guarantees an aligned flit.
        unsafe { from.cast::<Self::Flit>().read() }
    }

    #[inline(always)]
    unsafe fn store(flit: Self::Flit, to: *mut u8) {
        // SAFETY: the caller guarantees an aligned flit.
        unsafe { to.cast::<Self::Flit>().write(flit) };
    }

    type Words = [u32; 4];

    #[inline(always)]
    unsafe fn words<const AT: usize>(words: [u32; 4]) -> Self::Words {
        words
    }

    #[inline(always)]
    unsafe fn sum(words: Self::Words, step: Self::Words) -> Self::Words {
        std::array::from_fn(|word| words[word].wrapping_add(step[word]))
    }

    #[inline(always)]
    unsafe fn marked<const AT: usize>(
        mut flit: Self::Flit,
        [index, number, stamp, balance]: Self::Words,
    ) -> Self::Flit {
        const { assert!(AT == PAYLOAD || AT == ADDRESSES) };
        if AT == PAYLOAD {
            flit[5] = pair(flit[5] as u32, index);
            flit[6] = pair(number, stamp);
            flit[7] = flit[7] >> 32 << 32 | u64::from(balance);
        } else {
            flit[0] = pair(index, number);
            flit[1] = flit[1] >> 32 << 32 | u64::from(stamp);
        }
        flit
    }

    #[inline(always)]
    unsafe fn write_words(words: &[u64; 4], to: *mut u8) {
        // SAFETY: the caller guarantees an aligned line; other threads read it by atomic loads.
        let line = unsafe { &*to.cast::<[AtomicU64; 8]>() };
        for (pair, word) in line.chunks_exact(2).zip(words) {
            pair[0].store(0, Ordering::Relaxed);
            pair[1].store(*word, Ordering::Release);
        }
    }

    #[inline(always)]
    unsafe fn write_words_apart(first: u64, second: u64, to: *mut u8) {
        // SAFETY: the caller guarantees an aligned line; other threads read it by atomic loads.
        let line = unsafe { &*to.cast::<[AtomicU64; 8]>() };
        for (half, word) in line.chunks_exact(4).zip([first, second]) {
            for other in [&half[0], &half[2], &half[3]] {
                other.store(0, Ordering::Relaxed);
            }
            half[1].store(word, Ordering::Release);
        }
    }
}

/// Copying with two stores of 32 bytes.
pub enum Avx2 {}

impl Vector for Avx2 {
    type Flit = (__m256i, __m256i);

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self::Flit {
        let from = from.cast::<__m256i>();
        // SAFETY: the caller guarantees an aligned flit and AVX2.
        unsafe { (_mm256_load_si256(from), _mm256_load_si256(from.add(1))) }
    }

    #[inline(always)]
    unsafe fn store((low, high): Self::Flit, to: *mut u8) {
        let to = to.cast::<__m256i>();
        // SAFETY: the caller guarantees an aligned flit and AVX2.
        unsafe {
            _mm256_store_si256(to, low);
            _mm256_store_si256(to.add(1), high);
        }
    }

    type Words = __m256i;

    #[inline(always)]
    unsafe fn words<const AT: usize>([index, number, stamp, balance]: [u32; 4]) -> Self::Words {
        const { assert!(AT == PAYLOAD || AT == ADDRESSES) };
        let pair = |first, second| pair(first, second) as i64;
        // SAFETY: the caller guarantees AVX2.
        unsafe {
            if AT == PAYLOAD {
                // Words 11 to 14 of the flit: the last one of a lane, and three of the next.
                let words = _mm_set_epi64x(pair(balance, index), pair(number, stamp));
                _mm256_set_m128i(words, words)
            } else {
                _mm256_zextsi128_si256(_mm_set_epi64x(i64::from(stamp), pair(index, number)))
            }
        }
    }

    #[inline(always)]
    unsafe fn sum(words: Self::Words, step: Self::Words) -> Self::Words {
        // SAFETY: the caller guarantees AVX2.
        unsafe { _mm256_add_epi32(words, step) }
    }

    #[inline(always)]
    unsafe fn marked<const AT: usize>((low, high): Self::Flit, words: Self::Words) -> Self::Flit {
        // SAFETY: the caller guarantees AVX2.
        unsafe {
            if AT == PAYLOAD {
                (low, _mm256_blend_epi32::<0b0111_1000>(high, words))
            } else {
                (_mm256_blend_epi32::<0b111>(low, words), high)
            }
        }
    }

    #[inline(always)]
    unsafe fn write_words(words: &[u64; 4], to: *mut u8) {
        // SAFETY: the caller guarantees an aligned line and AVX2. Volatile stores are neither split nor reordered; a CPU
        // with AVX stores each half of one atomically, and stores are not reordered with each other.
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

    #[inline(always)]
    unsafe fn write_words_apart(first: u64, second: u64, to: *mut u8) {
        // SAFETY: as for `write_words`.
        unsafe {
            // No closure: it would be compiled without AVX2.
            let first = _mm256_zextsi128_si256(_mm_set_epi64x(first as i64, 0));
            let second = _mm256_zextsi128_si256(_mm_set_epi64x(second as i64, 0));
            let to = to.cast::<__m256i>();
            compiler_fence(Ordering::Release);
            to.write_volatile(first);
            to.add(1).write_volatile(second);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::traffic::CacheLine;
    use super::*;

    #[test]
    fn both_instruction_sets_copy_all_bytes() {
        let from = CacheLine(std::array::from_fn(|byte| byte as u8 ^ 0x35));
        let mut to = [CacheLine([0; 64]); 2];
        // SAFETY: both are whole cache lines, and AVX2 is used only if the CPU has it.
        unsafe {
            Plain::copy(from.0.as_ptr(), to[0].0.as_mut_ptr());
            if is_x86_feature_detected!("avx2") {
                Avx2::copy(from.0.as_ptr(), to[1].0.as_mut_ptr());
            } else {
                machine::untested::note("stream: lines by AVX2", &"the CPU has none");
                to[1] = to[0];
            }
        }
        assert_eq!(to, [from; 2]);
    }

    #[test]
    fn both_instruction_sets_write_four_words() {
        let words = [0x0102, u64::MAX, 3, 1 << 63];
        let mut expected = [0u8; 64];
        for (index, word) in words.iter().enumerate() {
            expected[index * 16 + 8..][..8].copy_from_slice(&word.to_le_bytes());
        }
        for by_avx2 in [false, true] {
            if by_avx2 && !is_x86_feature_detected!("avx2") {
                return machine::untested::note("stream: words by AVX2", &"the CPU has none");
            }
            let mut to = CacheLine([0x55; 64]);
            // SAFETY: a whole cache line, and AVX2 is used only if the CPU has it.
            unsafe {
                if by_avx2 {
                    Avx2::write_words(&words, to.0.as_mut_ptr());
                } else {
                    Plain::write_words(&words, to.0.as_mut_ptr());
                }
            }
            assert_eq!(to, CacheLine(expected));
            let mut to = CacheLine([0x55; 64]);
            // SAFETY: as above.
            unsafe {
                if by_avx2 {
                    Avx2::write_words_apart(words[1], words[0], to.0.as_mut_ptr());
                } else {
                    Plain::write_words_apart(words[1], words[0], to.0.as_mut_ptr());
                }
            }
            let mut apart = [0u8; 64];
            apart[8..16].copy_from_slice(&words[1].to_le_bytes());
            apart[40..48].copy_from_slice(&words[0].to_le_bytes());
            assert_eq!(to, CacheLine(apart));
        }
    }
}
