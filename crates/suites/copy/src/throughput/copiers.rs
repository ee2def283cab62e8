//! The copies of a walk, by functions, system calls or inlined code, and the loops around them.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lab::sample::Failure;

use crate::memory::{Call, DriverCopies};

/// A way to copy bytes.
pub(super) trait Copier {
    /// Copies `length` bytes from `source + at` to `destination + at`.
    ///
    /// # Safety
    /// Both buffers must be valid and must not overlap.
    unsafe fn copy(&self, destination: *mut u8, source: *const u8, at: usize, length: usize);

    /// Copies the same bytes `count` times.
    ///
    /// # Safety
    /// Both buffers must be valid for `length` bytes and must not overlap.
    unsafe fn fixed(&self, destination: *mut u8, source: *const u8, length: usize, count: usize) {
        // SAFETY: the caller guarantees the same contract.
        unsafe { fixed(self, destination, source, length, count) }
    }

    /// Makes the copies of a walk.
    ///
    /// # Safety
    /// Both buffers must be valid for every call of the walk and must not overlap.
    unsafe fn walked(&self, destination: *mut u8, source: *const u8, range: CallRange) {
        // SAFETY: the caller guarantees the same contract.
        unsafe { walked(self, destination, source, range) }
    }

    /// Makes the copies of a walk; each source address depends on the bytes of the previous copy.
    ///
    /// # Safety
    /// As [`Copier::walked`]; every call must have at least one byte.
    unsafe fn chained(&self, destination: *mut u8, source: *const u8, range: CallRange) {
        // SAFETY: the caller guarantees the same contract.
        unsafe { chained(self, destination, source, range) }
    }
}

/// Part of a walk: `count` calls from index `first` on, in a ring whose length is a power of two.
#[derive(Clone, Copy)]
pub(super) struct CallRange<'a> {
    pub(super) calls: &'a [Call],
    pub(super) first: usize,
    pub(super) count: usize,
}

/// System calls on a file whose bytes begin at offset `start`.
pub(super) struct FileCalls<'a> {
    pub(super) file: BorrowedFd<'a>,
    pub(super) start: usize,
    pub(super) write: bool,
    /// Set if a call moved fewer bytes than requested.
    pub(super) short: AtomicBool,
}

impl Copier for FileCalls<'_> {
    #[inline(always)]
    unsafe fn copy(&self, destination: *mut u8, source: *const u8, at: usize, length: usize) {
        let offset = (self.start + at) as u64;
        let moved = if self.write {
            // SAFETY: the caller guarantees that the source is valid.
            let bytes = unsafe { std::slice::from_raw_parts(source.add(at), length) };
            rustix::io::pwrite(self.file, bytes, offset)
        } else {
            // SAFETY: the caller guarantees that the destination is valid and exclusive.
            let bytes = unsafe { std::slice::from_raw_parts_mut(destination.add(at), length) };
            rustix::io::pread(self.file, bytes, offset)
        };
        if moved != Ok(length) {
            self.short.store(true, Ordering::Relaxed);
        }
    }
}

impl FileCalls<'_> {
    /// Checks that every call moved all requested bytes.
    pub(super) fn check_complete(&self) -> Result<(), Failure> {
        if self.short.load(Ordering::Relaxed) {
            return Err(Failure::failed(
                "a read or write of the file moved fewer bytes than requested",
            ));
        }
        Ok(())
    }
}

/// Calls of a GPU's driver. Only the host's side of a copy is an address of the CPU. Each call returns when its bytes have
/// arrived, because the host's memory is pinned.
impl Copier for DriverCopies<'_> {
    #[inline(always)]
    unsafe fn copy(&self, destination: *mut u8, source: *const u8, at: usize, length: usize) {
        let host = if self.is_write() { source.cast_mut() } else { destination };
        // SAFETY: the caller guarantees both ranges.
        unsafe { DriverCopies::copy(self, host.add(at), at, length) }
    }
}

/// Copies four bytes at a time with a pause before each, to watch data arrive (`-z` of `memcpy_test`).
#[derive(Clone, Copy)]
pub(super) struct PausedCopy(pub(super) Duration);

impl Copier for PausedCopy {
    unsafe fn copy(&self, destination: *mut u8, source: *const u8, at: usize, length: usize) {
        // SAFETY: the caller guarantees both buffers.
        unsafe { copy_with_pauses(self.0, destination.add(at), source.add(at), length) }
    }
}

/// Copies `length` bytes and sleeps before every four.
///
/// # Safety
/// Both buffers must have `length` bytes and not overlap.
pub(crate) unsafe fn copy_with_pauses(
    pause: Duration,
    destination: *mut u8,
    source: *const u8,
    length: usize,
) {
    for byte in 0..length {
        if byte % 4 == 0 {
            std::thread::sleep(pause);
        }
        // SAFETY: the caller guarantees both buffers; volatile, because another host watches.
        unsafe { destination.add(byte).write_volatile(source.add(byte).read_volatile()) }
    }
}

#[inline(never)]
pub(super) unsafe fn fixed<M: Copier + ?Sized>(
    copier: &M,
    destination: *mut u8,
    source: *const u8,
    length: usize,
    count: usize,
) {
    for _ in 0..count {
        // SAFETY: the caller guarantees the same contract.
        unsafe { copier.copy(destination, source, 0, length) }
    }
}

#[inline(never)]
pub(super) unsafe fn walked<M: Copier + ?Sized>(
    copier: &M,
    destination: *mut u8,
    source: *const u8,
    range: CallRange,
) {
    let (calls, mask) = (range.calls.as_ptr(), range.calls.len() - 1);
    for number in range.first..range.first + range.count {
        // SAFETY: the mask keeps the index within the ring; the caller guarantees the remaining
        // conditions.
        unsafe {
            let call = *calls.add(number & mask);
            copier.copy(destination, source, call.at as usize, call.length as usize);
        }
    }
}

/// Makes the copies of a walk; each source address depends on the last byte of the previous copy.
#[inline(never)]
pub(super) unsafe fn chained<M: Copier + ?Sized>(
    copier: &M,
    destination: *mut u8,
    source: *const u8,
    range: CallRange,
) {
    let (calls, mask) = (range.calls.as_ptr(), range.calls.len() - 1);
    // Zero, unknown to the compiler and the CPU.
    let zero = std::hint::black_box(0_usize);
    let mut from = source;
    for number in range.first..range.first + range.count {
        // SAFETY: the mask keeps the index within the ring; `from` always equals the source.
        unsafe {
            let call = *calls.add(number & mask);
            let (at, length) = (call.at as usize, call.length as usize);
            copier.copy(destination, from, at, length);
            let last = destination.add(at + length - 1).read_volatile();
            from = source.add(usize::from(last) & zero);
        }
    }
}

/// ESCAPE's naive loop as an optimising compiler transforms it: `function = naive-compiled`.
///
/// The loop is plain code, inlined into the timed loop, so that the compiler may vectorise it, call
/// memcpy, or merge successive copies. It shows what such a result is worth; the function `naive`
/// measures the loop itself.
pub(super) struct NaiveCompiled;

impl Copier for NaiveCompiled {
    #[inline(always)]
    unsafe fn copy(&self, destination: *mut u8, source: *const u8, at: usize, length: usize) {
        // SAFETY: the caller guarantees both buffers; whole words come first, then the remaining bytes.
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
