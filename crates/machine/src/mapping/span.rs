//! The addresses of a mapping, unmapped when dropped.

use std::ptr::NonNull;

use rustix::mm::munmap;

/// A range of whole pages that the kernel mapped for this process.
///
/// It can be moved and not copied, and has no other fields: what contains one cannot give its address to
/// another and unmap it, as `Mapping { device: true, ..mapping }` would if `Mapping` itself implemented
/// `Drop`.
#[derive(Debug)]
pub(super) struct Span {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a Span only hands out raw pointers; whoever uses them from many threads answers for it.
unsafe impl Send for Span {}
// SAFETY: as for Send.
unsafe impl Sync for Span {}

impl Span {
    /// Takes over a mapped range.
    ///
    /// # Safety
    /// The range is mapped, of whole pages, and of no other owner.
    pub(super) unsafe fn new(start: NonNull<u8>, bytes: usize) -> Self {
        Self { start, bytes }
    }

    /// The first byte.
    pub(super) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Bytes, a multiple of the page size.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Unmaps all but the first `bytes` that begin at a multiple of `alignment`. The range contains them.
    pub(super) fn keep_aligned(&mut self, alignment: usize, bytes: usize) {
        let address = self.start() as usize;
        let head = address.next_multiple_of(alignment) - address;
        let tail = self.bytes - head - bytes;
        let kept = self.start().wrapping_add(head);
        // SAFETY: both ends lie in this mapping, and nobody has pointers into them yet. Unmapping can
        // fail only where the kernel runs out of mappings; the ends are then left, untouched.
        unsafe {
            let _ = munmap(self.start().cast(), head);
            let _ = munmap(kept.wrapping_add(bytes).cast(), tail);
        }
        if let Some(kept) = NonNull::new(kept) {
            self.start = kept;
        }
        self.bytes = bytes;
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        // SAFETY: the range is this span's own. Its pointers must not outlive it.
        let _ = unsafe { munmap(self.start().cast(), self.bytes) };
    }
}
