//! The source's naive loop as an optimising compiler takes it: `function = naive-compiled`.
//!
//! The loop is plain code, inlined into the timed loop, so that the compiler may make vectors of it,
//! a call of memcpy, or one of what several copies share. It is here to show what such a figure is
//! worth; the function `naive` is the loop itself.

use super::timed::Mover;

/// The level's text.
pub(crate) const NAIVE_COMPILED: &str = "naive-compiled";

/// The loop, for the compiler to do with as it likes.
pub(super) struct NaiveCompiled;

impl Mover for NaiveCompiled {
    #[inline(always)]
    unsafe fn copy(&self, destination: *mut u8, source: *const u8, at: usize, length: usize) {
        // SAFETY: as the caller promises; whole words first, then the bytes that are left.
        unsafe {
            let (mut to, mut from) = (destination.add(at), source.add(at));
            for _ in 0..length / 8 {
                to.cast::<u64>().write_unaligned(from.cast::<u64>().read_unaligned());
                (to, from) = (to.add(8), from.add(8));
            }
            for _ in 0..length % 8 {
                *to = *from;
                (to, from) = (to.add(1), from.add(1));
            }
        }
    }
}
