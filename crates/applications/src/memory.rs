//! Large arrays of zeros, in huge pages if the kernel permits.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Why there is no memory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot allocate {bytes} B: {source}; use fewer items")]
pub struct MemoryError {
    /// The size.
    pub bytes: usize,
    /// The kernel's reason.
    pub source: rustix::io::Errno,
}

/// A type for which bytes of 0 are a valid value, and that needs no drop.
///
/// # Safety
/// This must be true, and the alignment at most a page.
pub unsafe trait Zeros: Copy {}

/// An array whose size is known at run time.
pub struct Array<T> {
    start: NonNull<T>,
    length: usize,
    bytes: usize,
}

// SAFETY: an array owns its elements like a boxed slice.
unsafe impl<T: Send> Send for Array<T> {}

impl<T: Zeros> Array<T> {
    /// Allocates an array of zeros. The kernel provides its pages when they are first used.
    ///
    /// # Errors
    /// Returns an error if the kernel provides no memory.
    pub fn new(length: usize) -> Result<Self, MemoryError> {
        let bytes = length.saturating_mul(size_of::<T>()).max(1);
        let failed = |source| MemoryError { bytes, source };
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: the address is chosen by the kernel.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, protection, flags) }
            .map_err(failed)?;
        // A kernel without huge pages refuses; the array is slower then, not wrong.
        // SAFETY: the range has just been mapped.
        let _ = unsafe { madvise(start, bytes, Advice::LinuxHugepage) };
        let start = NonNull::new(start.cast()).ok_or(failed(rustix::io::Errno::NOMEM))?;
        Ok(Self { start, length, bytes })
    }
}

impl<T> Deref for Array<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: the mapping has `length` elements, which are valid as zeros.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl<T> DerefMut for Array<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`; the array is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

impl<T> Drop for Array<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new`, and no reference to it is left.
        // It can only fail for ranges that were not mapped.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// Starts to load the cache line of a value that is used soon.
#[inline(always)]
pub fn prefetch<T>(value: &T) {
    // SAFETY: a prefetch has no effect on values.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(value).cast());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy)]
    #[repr(align(64))]
    struct Line([u64; 8]);

    // SAFETY: numbers may be 0.
    unsafe impl Zeros for Line {}

    #[test]
    fn an_array_has_its_elements() {
        let mut array = Array::<Line>::new(1000).unwrap();
        assert!(array.len() == 1000 && array.iter().all(|line| line.0 == [0; 8]));
        assert!(array.as_ptr().addr().is_multiple_of(64));
        array[999].0[7] = 5;
        assert_eq!(array.iter().map(|line| line.0[7]).sum::<u64>(), 5);
        assert!(Array::<Line>::new(0).unwrap().is_empty());
    }

    #[test]
    fn too_much_memory_is_refused() {
        let error = Array::<Line>::new(usize::MAX / 64).err().unwrap();
        assert!(error.to_string().starts_with("cannot allocate"), "{error}");
        assert!(Array::<Line>::new(usize::MAX).is_err());
    }
}
