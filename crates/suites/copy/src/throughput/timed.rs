//! The timed loops: a call of what copies, and nothing else that could be left out.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lab::sample::Failure;

/// One copy of a walk: where it begins in both buffers, and its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Call {
    /// Bytes from the buffers' starts.
    pub at: u32,
    /// Bytes to copy.
    pub length: u32,
}

/// What copies bytes.
pub(super) trait Mover {
    /// Copies `length` bytes from `source + at` to `destination + at`.
    ///
    /// # Safety
    /// Both spans must be valid and must not overlap.
    unsafe fn copy(&self, destination: *mut u8, source: *const u8, at: usize, length: usize);

    /// Copies the same bytes again and again.
    ///
    /// # Safety
    /// Both buffers must hold `length` bytes and must not overlap.
    unsafe fn fixed(&self, destination: *mut u8, source: *const u8, length: usize, count: usize) {
        // SAFETY: as the caller promises.
        unsafe { fixed(self, destination, source, length, count) }
    }

    /// Makes the copies of a walk.
    ///
    /// # Safety
    /// Both buffers must hold what the calls reach, and must not overlap.
    unsafe fn walked(&self, destination: *mut u8, source: *const u8, walk: Ring) {
        // SAFETY: as the caller promises.
        unsafe { walked(self, destination, source, walk) }
    }

    /// Makes the copies of a walk, each waiting for what the last delivered.
    ///
    /// # Safety
    /// As [`Mover::walked`]; every call must have a byte or more.
    unsafe fn chained(&self, destination: *mut u8, source: *const u8, walk: Ring) {
        // SAFETY: as the caller promises.
        unsafe { chained(self, destination, source, walk) }
    }
}

/// A part of a walk: so many calls from number `first` on, in a ring of a power of two.
#[derive(Clone, Copy)]
pub(super) struct Ring<'a> {
    pub(super) calls: &'a [Call],
    pub(super) first: usize,
    pub(super) count: usize,
}

/// System calls on a file; its bytes lie from `start` on.
pub(super) struct FileCalls<'a> {
    pub(super) file: BorrowedFd<'a>,
    pub(super) start: usize,
    pub(super) write: bool,
    /// Set where a call moved less than was asked for.
    pub(super) short: AtomicBool,
}

impl Mover for FileCalls<'_> {
    #[inline(always)]
    unsafe fn copy(&self, destination: *mut u8, source: *const u8, at: usize, length: usize) {
        let place = (self.start + at) as u64;
        let moved = if self.write {
            // SAFETY: the source is valid, as the caller promises.
            let bytes = unsafe { std::slice::from_raw_parts(source.add(at), length) };
            rustix::io::pwrite(self.file, bytes, place)
        } else {
            // SAFETY: the destination is valid and nobody else's, as the caller promises.
            let bytes = unsafe { std::slice::from_raw_parts_mut(destination.add(at), length) };
            rustix::io::pread(self.file, bytes, place)
        };
        if moved != Ok(length) {
            self.short.store(true, Ordering::Relaxed);
        }
    }
}

impl FileCalls<'_> {
    /// Whether every call moved all that was asked for.
    pub(super) fn whole(&self) -> Result<(), Failure> {
        if self.short.load(Ordering::Relaxed) {
            return Err(Failure::failed("a read or write of the file moved less than it should"));
        }
        Ok(())
    }
}

/// The seed's `-z`: four bytes at a time with a pause before each, to watch data arrive.
#[derive(Clone, Copy)]
pub(super) struct Slowly(pub(super) Duration);

impl Mover for Slowly {
    unsafe fn copy(&self, destination: *mut u8, source: *const u8, at: usize, length: usize) {
        for byte in 0..length {
            if byte % 4 == 0 {
                std::thread::sleep(self.0);
            }
            // SAFETY: as the caller promises; volatile, for somebody watches.
            unsafe {
                destination.add(at + byte).write_volatile(source.add(at + byte).read_volatile())
            }
        }
    }
}

#[inline(never)]
pub(super) unsafe fn fixed<M: Mover + ?Sized>(
    mover: &M,
    destination: *mut u8,
    source: *const u8,
    length: usize,
    count: usize,
) {
    for _ in 0..count {
        // SAFETY: as the caller promises.
        unsafe { mover.copy(destination, source, 0, length) }
    }
}

#[inline(never)]
pub(super) unsafe fn walked<M: Mover + ?Sized>(
    mover: &M,
    destination: *mut u8,
    source: *const u8,
    walk: Ring,
) {
    let (calls, mask) = (walk.calls.as_ptr(), walk.calls.len() - 1);
    for number in walk.first..walk.first + walk.count {
        // SAFETY: the mask keeps the place within the ring; the rest is as the caller promises.
        unsafe {
            let call = *calls.add(number & mask);
            mover.copy(destination, source, call.at as usize, call.length as usize);
        }
    }
}

/// Where a copy reads depends on the last byte that the copy before delivered.
#[inline(never)]
pub(super) unsafe fn chained<M: Mover + ?Sized>(
    mover: &M,
    destination: *mut u8,
    source: *const u8,
    walk: Ring,
) {
    let (calls, mask) = (walk.calls.as_ptr(), walk.calls.len() - 1);
    // Zero, but neither the compiler nor the processor knows.
    let zero = std::hint::black_box(0_usize);
    let mut from = source;
    for number in walk.first..walk.first + walk.count {
        // SAFETY: the mask keeps the place within the ring; `from` is always the source.
        unsafe {
            let call = *calls.add(number & mask);
            let (at, length) = (call.at as usize, call.length as usize);
            mover.copy(destination, from, at, length);
            let last = destination.add(at + length - 1).read_volatile();
            from = source.add(usize::from(last) & zero);
        }
    }
}
