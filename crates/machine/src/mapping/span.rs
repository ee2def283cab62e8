//! An owned range of mapped addresses.

use std::ptr::NonNull;

use rustix::mm::munmap;

/// A range of whole pages that the kernel mapped for this process, unmapped when dropped.
///
/// It can be moved but not copied and has no other fields. `Mapping` contains one instead of implementing
/// `Drop`, because `Mapping { device: true, ..mapping }` would then unmap memory still in use.
#[derive(Debug)]
pub(super) struct Span {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a Span only hands out raw pointers; their users are responsible for concurrent access.
unsafe impl Send for Span {}
// SAFETY: see Send.
unsafe impl Sync for Span {}

impl Span {
    /// Takes ownership of a mapped range.
    ///
    /// # Safety
    /// The caller guarantees that the range is mapped, consists of whole pages and has no other owner.
    pub(super) unsafe fn new(start: NonNull<u8>, bytes: usize) -> Self {
        Self { start, bytes }
    }

    /// Returns the first byte.
    pub(super) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Returns the length in bytes, a multiple of the page size.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Unmaps all but the first `bytes` bytes that start at a multiple of `alignment`. The range contains
    /// them.
    pub(super) fn keep_aligned(&mut self, alignment: usize, bytes: usize) {
        let address = self.start() as usize;
        let head = address.next_multiple_of(alignment) - address;
        let tail = self.bytes - head - bytes;
        let kept = self.start().wrapping_add(head);
        // SAFETY: both ends are in this mapping, and no pointers into them exist yet. Unmapping can only fail
        // if the kernel runs out of mappings; the ends then stay mapped and unused.
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
        // SAFETY: the range belongs to this span. Pointers into it must not outlive it.
        let _ = unsafe { munmap(self.start().cast(), self.bytes) };
    }
}
