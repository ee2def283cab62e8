//! A digest over every byte of a frame, as fast as the bytes can be loaded.
//!
//! It is the sum of the frame's 64-bit words, each multiplied by a weight of its position. All weights
//! are odd, so that a change of one word always changes the digest, and they differ, so that swapped
//! lines do too. In the loop the weights cost one more addition: the sum of the running sums (after
//! Fletcher).

use std::arch::x86_64::{
    __m256i, __m512i, _mm256_add_epi64, _mm256_load_si256, _mm256_setzero_si256,
    _mm256_storeu_si256, _mm512_add_epi64, _mm512_load_si512, _mm512_setzero_si512,
    _mm512_storeu_si512,
};

/// Bytes of a cache line; frames are whole lines.
pub(super) const LINE: usize = 64;
/// 64-bit words of a line.
const LANES: usize = LINE / 8;
/// Factor of a lane's sum; odd.
const SUMS: [u64; LANES] = constants(1);
/// Factor of a lane's sum of running sums; even, so that every weight is odd.
const RUNNING: [u64; LANES] = constants(0);

const fn constants(parity: u64) -> [u64; LANES] {
    let mut all = [0; LANES];
    let mut lane = 0;
    let mut state = 0x9e37_79b9_7f4a_7c15u64 + parity;
    while lane < LANES {
        state = (state ^ (state >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        all[lane] = (state & !1) | parity;
        lane += 1;
    }
    all
}

/// Returns the weight of the word in a lane of a line, in a frame of `lines` lines.
#[inline(always)]
pub(super) fn weight(lines: usize, line: usize, lane: usize) -> u64 {
    SUMS[lane].wrapping_add(RUNNING[lane].wrapping_mul((lines - line) as u64))
}

/// Returns the digest of `length` bytes, a multiple of 64.
///
/// # Safety
/// `frame` must point to `length` readable bytes, aligned to 64.
#[inline(always)]
pub(super) unsafe fn digest(frame: *const u8, length: usize) -> u64 {
    // SAFETY: the caller guarantees the frame; the variants run only if the CPU supports them.
    let (sums, running) = unsafe {
        if is_x86_feature_detected!("avx512f") {
            by_512(frame, length)
        } else if is_x86_feature_detected!("avx2") {
            by_256(frame, length)
        } else {
            by_words(frame, length)
        }
    };
    let mut total = 0u64;
    for lane in 0..LANES {
        total = total.wrapping_add(sums[lane].wrapping_mul(SUMS[lane]));
        total = total.wrapping_add(running[lane].wrapping_mul(RUNNING[lane]));
    }
    total
}

type Sums = ([u64; LANES], [u64; LANES]);

#[target_feature(enable = "avx512f")]
unsafe fn by_512(frame: *const u8, length: usize) -> Sums {
    let (mut sums, mut running) = (_mm512_setzero_si512(), _mm512_setzero_si512());
    for line in (0..length).step_by(LINE) {
        // SAFETY: the caller guarantees the frame, which contains the line, and its alignment.
        let words = unsafe { _mm512_load_si512(frame.add(line).cast::<__m512i>()) };
        sums = _mm512_add_epi64(sums, words);
        running = _mm512_add_epi64(running, sums);
    }
    let mut stored = ([0; LANES], [0; LANES]);
    // SAFETY: each array has 64 bytes.
    unsafe {
        _mm512_storeu_si512(stored.0.as_mut_ptr().cast(), sums);
        _mm512_storeu_si512(stored.1.as_mut_ptr().cast(), running);
    }
    stored
}

#[target_feature(enable = "avx2")]
unsafe fn by_256(frame: *const u8, length: usize) -> Sums {
    let (mut sums, mut running) = ([_mm256_setzero_si256(); 2], [_mm256_setzero_si256(); 2]);
    for line in (0..length).step_by(LINE) {
        for half in 0..2 {
            // SAFETY: the caller guarantees the frame, which contains the half line, and its alignment.
            let words = unsafe { _mm256_load_si256(frame.add(line + half * 32).cast::<__m256i>()) };
            sums[half] = _mm256_add_epi64(sums[half], words);
            running[half] = _mm256_add_epi64(running[half], sums[half]);
        }
    }
    let mut stored = ([0u64; LANES], [0u64; LANES]);
    for half in 0..2 {
        // SAFETY: each array has 64 bytes, and half of it 32.
        unsafe {
            _mm256_storeu_si256(stored.0.as_mut_ptr().add(half * 4).cast(), sums[half]);
            _mm256_storeu_si256(stored.1.as_mut_ptr().add(half * 4).cast(), running[half]);
        }
    }
    stored
}

unsafe fn by_words(frame: *const u8, length: usize) -> Sums {
    let (mut sums, mut running) = ([0u64; LANES], [0u64; LANES]);
    for line in (0..length).step_by(LINE) {
        // SAFETY: the caller guarantees the frame, which contains the line, and its alignment.
        let words = unsafe { frame.add(line).cast::<[u64; LANES]>().read() };
        for lane in 0..LANES {
            sums[lane] = sums[lane].wrapping_add(words[lane]);
            running[lane] = running[lane].wrapping_add(sums[lane]);
        }
    }
    (sums, running)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(align(64))]
    struct Frame([u64; 512]);

    fn frame() -> Frame {
        Frame(std::array::from_fn(|i| (i as u64 + 1).wrapping_mul(0x1234_5678_9abc_def1)))
    }

    #[test]
    fn the_digest_is_the_weighted_sum_of_the_words() {
        let frame = frame();
        for lines in [1, 2, 7, 64] {
            let expected = (0..lines * LANES).fold(0u64, |sum, word| {
                let weight = weight(lines, word / LANES, word % LANES);
                assert_eq!(weight % 2, 1);
                sum.wrapping_add(frame.0[word].wrapping_mul(weight))
            });
            // SAFETY: the frame has 64 aligned lines.
            assert_eq!(unsafe { digest(frame.0.as_ptr().cast(), lines * LINE) }, expected);
        }
    }

    #[test]
    fn all_variants_agree() {
        let frame = frame();
        let start = frame.0.as_ptr().cast();
        for lines in [1, 3, 64] {
            // SAFETY: the frame has 64 aligned lines; each variant runs only if the CPU supports it.
            unsafe {
                let plain = by_words(start, lines * LINE);
                if is_x86_feature_detected!("avx2") {
                    assert_eq!(by_256(start, lines * LINE), plain);
                } else {
                    machine::untested::note("the digest with 32 B vectors", &"this CPU lacks AVX2");
                }
                if is_x86_feature_detected!("avx512f") {
                    assert_eq!(by_512(start, lines * LINE), plain);
                } else {
                    machine::untested::note(
                        "the digest with 64 B vectors",
                        &"this CPU lacks AVX-512",
                    );
                }
            }
        }
    }

    #[test]
    fn swapped_lines_change_the_digest() {
        let mut frame = frame();
        // SAFETY: the frame has 64 aligned lines.
        let before = unsafe { digest(frame.0.as_ptr().cast(), 4096) };
        for word in 0..LANES {
            frame.0.swap(8 + word, 16 + word);
        }
        // SAFETY: the frame has 64 aligned lines.
        assert_ne!(unsafe { digest(frame.0.as_ptr().cast(), 4096) }, before);
    }
}
