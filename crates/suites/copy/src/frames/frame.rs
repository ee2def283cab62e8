//! Contents of a frame, and how its reader verifies that it is complete.
//!
//! A frame begins with its sequence number and ends with a word derived from it; between them is one
//! of three payloads, chosen by the sequence number. Three has no factor in common with a ring's power
//! of two, so a slot's previous contents never equal its expected ones, and a torn frame is detected.

use std::arch::x86_64::{
    __m256i, __m512i, _mm256_blend_epi32, _mm256_load_si256, _mm256_set1_epi64x,
    _mm256_store_si256, _mm512_load_si512, _mm512_mask_set1_epi64, _mm512_store_si512,
};

use lab::factor::LevelType;
use machine::SysError;
use machine::mapping::Mapping;

use super::digest::{LINE, digest, weight};

/// Number of different payloads.
const PAYLOADS: usize = 3;
/// Bytes of the header and the last word, which the check `header` reads.
pub(super) const MARKED: usize = size_of::<Header>() + size_of::<u64>();
/// Minimum length of a frame, in bytes.
pub const MIN_LENGTH: usize = LINE;
/// Maximum length of a frame, in bytes.
pub const MAX_LENGTH: usize = 64 << 20;

/// The header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Header {
    /// Index of the frame, from 0.
    pub sequence: u64,
    /// Bytes of the whole frame.
    pub length: u64,
    /// The time-stamp counter before the frame was copied into its slot; 0 if unused.
    pub stamp: u64,
    /// Derived from the sequence number and the stamp.
    pub first: u64,
}

impl Header {
    fn new(sequence: u64, length: usize, stamp: u64) -> Self {
        Self {
            sequence,
            length: length as u64,
            stamp,
            first: mark(sequence ^ stamp.rotate_left(32)),
        }
    }

    fn words(&self) -> [u64; 4] {
        [self.sequence, self.length, self.stamp, self.first]
    }

    fn is_of(&self, sequence: u64, length: usize) -> bool {
        *self == Self::new(sequence, length, self.stamp)
    }
}

/// Returns the word that marks both ends of a frame; at the end it is inverted.
fn mark(sequence: u64) -> u64 {
    (sequence ^ 0x7f4a_7c15).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// How much of each frame the reader checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, LevelType)]
pub enum Check {
    /// No bytes: the reader only counts frames.
    None,
    /// Sequence number, length, first and last word.
    Header,
    /// As `header`, and a digest over every byte.
    All,
}

impl Check {
    /// Returns the bytes that it reads of a frame.
    pub fn reads(self, length: usize) -> usize {
        match self {
            Self::None => 0,
            Self::Header => MARKED,
            Self::All => length,
        }
    }
}

/// The frames in the writer's memory from which it copies.
#[derive(Debug)]
pub struct Source {
    memory: Mapping,
    length: usize,
    stride: usize,
}

impl Source {
    /// Creates the payloads of frames of `length` bytes, a multiple of 64.
    ///
    /// # Errors
    /// Returns an error if there is not enough memory.
    pub fn new(length: usize) -> Result<Self, SysError> {
        assert!(length.is_multiple_of(LINE) && length >= MIN_LENGTH, "frames are whole lines");
        let stride = length.next_multiple_of(machine::mapping::PAGE);
        let memory = Mapping::anonymous(stride * PAYLOADS)?;
        memory.prefault()?;
        let source = Self { memory, length, stride };
        for payload in 0..PAYLOADS {
            for word in 0..length / 8 {
                let value = mark((payload << 40 | word) as u64 + 1);
                // SAFETY: the word is in the frame, which is in the memory, which only this value uses.
                unsafe { source.payload(payload).cast::<u64>().add(word).write(value) };
            }
        }
        source.prepare(0);
        Ok(source)
    }

    fn payload(&self, payload: usize) -> *mut u8 {
        self.memory.as_mut_ptr().wrapping_add(payload * self.stride)
    }

    /// Marks the frame of a sequence number, without a timestamp. Frames are separate memory unless
    /// their numbers differ by a multiple of three.
    ///
    /// A copy loads the header as part of a vector, and a CPU cannot forward words that it has
    /// just stored to a vector load: it waits until they are in its cache. So prepare a frame before
    /// the preceding frame is copied.
    #[inline(always)]
    pub fn prepare(&self, sequence: u64) -> Prepared {
        let frame = self.payload((sequence % PAYLOADS as u64) as usize);
        let header = Header::new(sequence, self.length, 0);
        // SAFETY: both ends are in the frame, which is page-aligned and has no other writer.
        unsafe {
            frame.cast::<Header>().write(header);
            frame.add(self.length - 8).cast::<u64>().write(!mark(sequence));
        }
        Prepared { frame, sequence }
    }

    /// Returns what the reader needs to check the payloads.
    pub fn expected(&self) -> Expected {
        let mut digests = [0; PAYLOADS];
        for (payload, value) in digests.iter_mut().enumerate() {
            let frame = self.payload(payload);
            // SAFETY: the frame is complete, aligned and has no other writer. With both ends zeroed, the
            // digest is that of the payload.
            *value = unsafe {
                frame.cast::<[u64; 4]>().write([0; 4]);
                frame.add(self.length - 8).cast::<u64>().write(0);
                digest(frame, self.length)
            };
        }
        Expected { digests, length: self.length }
    }
}

/// A frame that is ready to be copied.
#[derive(Debug, Clone, Copy)]
pub struct Prepared {
    frame: *mut u8,
    sequence: u64,
}

impl Prepared {
    /// Returns the address of the frame's first byte, which is page-aligned.
    #[inline(always)]
    pub fn start(&self) -> *const u8 {
        self.frame
    }

    /// Adds the timestamp; no copy of the frame may be in flight. Loads and stores the whole line by
    /// the widest vectors with which a copy may load it, so that the store is forwarded to the copy.
    #[inline(always)]
    pub fn stamp(&self, stamp: u64) {
        let header = Header::new(self.sequence, 0, stamp);
        // SAFETY: the frame has whole aligned lines; the variants run only if the CPU supports
        // them.
        unsafe {
            if is_x86_feature_detected!("avx512f") {
                stamp_512(self.frame, &header);
            } else if is_x86_feature_detected!("avx2") {
                stamp_256(self.frame, &header);
            } else {
                let words = self.frame.cast::<[u64; 2]>().add(1);
                words.write([header.stamp, header.first]);
            }
        }
    }
}

/// Sets the third and fourth word of a line.
#[target_feature(enable = "avx512f")]
unsafe fn stamp_512(line: *mut u8, header: &Header) {
    // SAFETY: the caller guarantees an aligned line.
    unsafe {
        let words = _mm512_load_si512(line.cast::<__m512i>());
        let words = _mm512_mask_set1_epi64(words, 0b0100, header.stamp.cast_signed());
        let words = _mm512_mask_set1_epi64(words, 0b1000, header.first.cast_signed());
        _mm512_store_si512(line.cast::<__m512i>(), words);
    }
}

/// Does the same on half a line, which is what AVX2 loads.
#[target_feature(enable = "avx2")]
unsafe fn stamp_256(line: *mut u8, header: &Header) {
    let stamp = _mm256_set1_epi64x(header.stamp.cast_signed());
    let first = _mm256_set1_epi64x(header.first.cast_signed());
    // SAFETY: the caller guarantees an aligned line.
    unsafe {
        let words = _mm256_load_si256(line.cast::<__m256i>());
        let words = _mm256_blend_epi32::<0b0011_0000>(words, stamp);
        let words = _mm256_blend_epi32::<0b1100_0000>(words, first);
        _mm256_store_si256(line.cast::<__m256i>(), words);
    }
}

/// The reader's reference for checking frames.
#[derive(Debug, Clone, Copy)]
pub struct Expected {
    digests: [u64; PAYLOADS],
    length: usize,
}

impl Expected {
    /// Reads a frame as far as the check requires. Returns its header and whether it is complete.
    ///
    /// # Safety
    /// `frame` must point to `length` readable bytes, aligned to 64, without concurrent writes.
    #[inline(always)]
    pub unsafe fn read(&self, frame: *const u8, check: Check) -> (Header, bool) {
        // SAFETY: the caller guarantees the frame, which contains both ends.
        let (header, last) = unsafe {
            (frame.cast::<Header>().read(), frame.add(self.length - 8).cast::<u64>().read())
        };
        let mut whole =
            header.is_of(header.sequence, self.length) && last == !mark(header.sequence);
        match check {
            Check::None | Check::Header => {}
            Check::All => {
                // SAFETY: the caller guarantees that the frame has `length` readable bytes, aligned to 64.
                let found = unsafe { digest(frame, self.length) };
                whole &= found == self.digest_of(&header);
            }
        }
        (header, whole)
    }

    /// Returns the digest of the payload plus the weighted marked words.
    #[inline(always)]
    fn digest_of(&self, header: &Header) -> u64 {
        let lines = self.length / LINE;
        let payload = self.digests[(header.sequence % PAYLOADS as u64) as usize];
        let with_last = payload.wrapping_add((!mark(header.sequence)).wrapping_mul(weight(
            lines,
            lines - 1,
            7,
        )));
        header.words().iter().enumerate().fold(with_last, |sum, (lane, word)| {
            sum.wrapping_add(word.wrapping_mul(weight(lines, 0, lane)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copied(source: &Source, sequence: u64) -> Mapping {
        let slot = Mapping::anonymous(source.length).unwrap();
        let frame = source.prepare(sequence);
        frame.stamp(7);
        // SAFETY: both buffers have this length and do not overlap.
        unsafe { frame.start().copy_to_nonoverlapping(slot.as_mut_ptr(), source.length) };
        slot
    }

    #[test]
    fn all_variants_of_stamping_agree() {
        for length in [64, 128, 4096] {
            let source = Source::new(length).unwrap();
            let whole = |stamp: unsafe fn(*mut u8, &Header)| {
                let frame = source.prepare(5);
                // SAFETY: the frame has whole lines; the variant runs only if the CPU supports it.
                unsafe {
                    stamp(frame.frame, &Header::new(5, 0, 9));
                    std::slice::from_raw_parts(frame.start(), length).to_vec()
                }
            };
            let words = whole(|frame, header| {
                let words = [header.stamp, header.first];
                // SAFETY: the words are in the first line.
                unsafe { frame.cast::<[u64; 2]>().add(1).write(words) }
            });
            let header: Vec<u8> =
                Header::new(5, length, 9).words().iter().flat_map(|w| w.to_le_bytes()).collect();
            assert_eq!(words[..32], header[..]);
            if is_x86_feature_detected!("avx2") {
                // SAFETY: the CPU has AVX2.
                assert_eq!(whole(|frame, header| unsafe { stamp_256(frame, header) }), words);
            } else {
                machine::untested::note("the stamp with 32 B vectors", &"this CPU lacks AVX2");
            }
            if is_x86_feature_detected!("avx512f") {
                // SAFETY: the CPU has AVX-512.
                assert_eq!(whole(|frame, header| unsafe { stamp_512(frame, header) }), words);
            } else {
                machine::untested::note("the stamp with 64 B vectors", &"this CPU lacks AVX-512");
            }
        }
    }

    /// Detects which words an instruction stores, including those whose value it does not change: after
    /// every instruction a trap gives each word except the stamp's a new value, and a store of the
    /// previous value is detected.
    mod stores {
        use std::ffi::{c_int, c_void};
        use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering::Relaxed};

        use machine::signal::ScopedHandler;

        /// The words of a line that the stamp does not change.
        const OTHERS: [usize; 6] = [0, 1, 4, 5, 6, 7];
        static LINE: AtomicPtr<AtomicU64> = AtomicPtr::new(std::ptr::null_mut());
        static STEPS: AtomicU64 = AtomicU64::new(0);
        static STORED: AtomicU64 = AtomicU64::new(0);

        extern "C" fn trapped(_: c_int, _: *mut libc::siginfo_t, _: *mut c_void) {
            let (line, steps) = (LINE.load(Relaxed), STEPS.load(Relaxed));
            for lane in OTHERS {
                // SAFETY: `of` set a line of 8 words, which outlives the traps.
                let word = unsafe { &*line.add(lane) };
                if word.swap(steps + 1, Relaxed) != steps {
                    STORED.fetch_or(1 << lane, Relaxed);
                }
            }
            STEPS.store(steps + 1, Relaxed);
        }

        /// Returns which other words of the line `store` stores, as bits; `None` if instructions do not
        /// trap here. Only one test may call it: the trap handler is process-wide.
        pub(super) fn of(line: *mut u8, store: impl FnOnce()) -> Option<u64> {
            LINE.store(line.cast(), Relaxed);
            for lane in OTHERS {
                // SAFETY: the caller's line has 8 words.
                unsafe { (*line.cast::<AtomicU64>().add(lane)).store(0, Relaxed) };
            }
            // SAFETY: the handler accesses atomics and the line only. The trap flag is set for this thread while
            // `store` runs, and the flags are saved on the stack.
            unsafe {
                let _handler = ScopedHandler::install(libc::SIGTRAP, trapped, 0).unwrap();
                std::arch::asm!("pushfq", "or qword ptr [rsp], 0x100", "popfq");
                store();
                std::arch::asm!("pushfq", "and qword ptr [rsp], -0x101", "popfq");
            }
            (STEPS.load(Relaxed) > 0).then(|| STORED.load(Relaxed))
        }
    }

    /// Two word stores would write the same bytes, but a copy that loads them as a vector would wait until
    /// they are in the cache, and the latency would differ.
    #[test]
    fn the_stamped_line_is_stored_by_the_widest_vector() {
        let source = Source::new(64).unwrap();
        let frame = source.prepare(5);
        // The first call detects the CPU features.
        frame.stamp(8);
        let Some(stored) = stores::of(frame.frame, || frame.stamp(9)) else {
            return machine::untested::note(
                "the width of a stamp",
                &"instructions do not trap here",
            );
        };
        let expected = if is_x86_feature_detected!("avx512f") {
            0b1111_0011
        } else if is_x86_feature_detected!("avx2") {
            0b0000_0011
        } else {
            0
        };
        assert_eq!(stored, expected, "{stored:#010b}, not {expected:#010b}");
        // SAFETY: the line has 8 words.
        let words = unsafe { frame.start().cast::<[u64; 4]>().read() };
        assert_eq!(words[2..], Header::new(5, 64, 9).words()[2..]);
    }

    #[test]
    fn consecutive_frames_are_separate_memory() {
        let source = Source::new(64).unwrap();
        for sequence in 0..10 {
            let (this, next) = (source.prepare(sequence), source.prepare(sequence + 1));
            assert_ne!(this.start(), next.start());
            // SAFETY: the frame begins with its header.
            let header = unsafe { this.start().cast::<Header>().read() };
            assert_eq!(header, Header::new(sequence, 64, 0));
        }
    }

    #[test]
    fn a_complete_frame_passes_and_every_flipped_byte_is_detected() {
        for length in [64, 128, 4096, 65536] {
            let source = Source::new(length).unwrap();
            let expected = source.expected();
            for sequence in [0, 1, 2, 3, u64::MAX - 5] {
                let slot = copied(&source, sequence);
                // SAFETY: the slot has this length and only this test uses it.
                let read = |check| unsafe { expected.read(slot.as_ptr(), check) };
                assert_eq!(read(Check::Header).0.sequence, sequence);
                assert!(read(Check::Header).1 && read(Check::All).1, "{length} {sequence}");
                for at in (0..length).step_by(length / 64 + 1) {
                    let byte = slot.as_mut_ptr().wrapping_add(at);
                    // SAFETY: the byte is in the slot.
                    unsafe { *byte ^= 1 };
                    assert!(!read(Check::All).1, "byte {at} of {length}");
                    // SAFETY: the byte is in the slot.
                    unsafe { *byte ^= 1 };
                }
            }
        }
    }

    #[test]
    fn the_header_check_reads_both_ends_only() {
        let source = Source::new(4096).unwrap();
        let expected = source.expected();
        for (at, whole) in [(0, false), (8, false), (24, false), (2000, true), (4095, false)] {
            let slot = copied(&source, 5);
            // SAFETY: the byte is in the slot, which only this test uses.
            let found = unsafe {
                *slot.as_mut_ptr().add(at) ^= 0x80;
                expected.read(slot.as_ptr(), Check::Header)
            };
            assert_eq!(found.1, whole, "byte {at}");
        }
    }

    #[test]
    fn two_halves_of_different_frames_are_torn() {
        let source = Source::new(8192).unwrap();
        let expected = source.expected();
        let (old, new) = (copied(&source, 4), copied(&source, 20));
        // SAFETY: both buffers have this length; the middle of the old frame overwrites the new one's.
        let found = unsafe {
            old.as_ptr().add(4096).copy_to_nonoverlapping(new.as_mut_ptr().add(4096), 64);
            expected.read(new.as_ptr(), Check::All)
        };
        assert!(!found.1);
    }
}
