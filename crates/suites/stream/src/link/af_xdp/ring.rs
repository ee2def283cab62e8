//! Rings that an AF_XDP socket shares with the kernel.

use std::marker::PhantomData;
use std::os::fd::AsFd;

use machine::SysError;
use machine::mapping::Sharing;
use rustix::net::xdp::XdpRingOffset;

use super::inconsistent;
use super::sync::{AtomicU32, Mapping, Ordering};

/// Flag of a ring whose kernel side sleeps until it is woken by a system call.
const NEED_WAKEUP: u32 = 1;

/// An entry of a ring, for which any bits are valid.
pub(super) trait Entry: Copy {}

/// Address of a frame within the memory of the socket.
impl Entry for u64 {}

/// `struct xdp_desc`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Descriptor {
    /// Address within the memory of the socket.
    pub(super) address: u64,
    /// Length in bytes.
    pub(super) length: u32,
    pub(super) options: u32,
}

impl Entry for Descriptor {}

/// One side of a ring. The other side is the kernel's.
pub(super) struct Ring<T> {
    mapping: Mapping,
    producer: usize,
    consumer: usize,
    flags: Option<usize>,
    entries: usize,
    size: u32,
    /// This side's index.
    own: u32,
    entry: PhantomData<T>,
}

impl<T: Entry> Ring<T> {
    /// Maps a ring of `size` entries, a power of two.
    ///
    /// # Errors
    /// Returns the error of `mmap(2)`, or that the offsets are inconsistent.
    pub(super) fn map(
        socket: impl AsFd,
        page_offset: u64,
        offset: &XdpRingOffset,
        size: u32,
    ) -> Result<Self, SysError> {
        let bytes = (size as usize).saturating_mul(size_of::<T>());
        let [producer, consumer, entries] =
            [offset.producer, offset.consumer, offset.desc].map(|at| at as usize);
        let flags = offset.flags.map(|at| at as usize);
        let length = entries.saturating_add(bytes);
        let words = [Some(producer), Some(consumer), flags].into_iter().flatten();
        let is_valid = size.is_power_of_two()
            && entries.is_multiple_of(align_of::<T>())
            && words.clone().all(|at| at.is_multiple_of(4) && at < length.saturating_sub(4));
        if !is_valid {
            return Err(inconsistent("map a ring of AF_XDP"));
        }
        let mapping = Mapping::open_file_at(socket, page_offset, length, Sharing::SharedWritable)?;
        let mut ring =
            Self { mapping, producer, consumer, flags, entries, size, own: 0, entry: PhantomData };
        // Both are 0 in a new ring.
        ring.own = ring.word(producer).load(Ordering::Relaxed);
        Ok(ring)
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: `map` checked that the word is aligned and within the mapping, which lives as long as `self`; the kernel
        // accesses it only as a whole.
        unsafe { &*self.mapping.as_ptr().add(offset).cast() }
    }

    /// Returns the address of the entry with an index.
    fn entry(&self, index: u32) -> *mut T {
        let slot = (index & self.size.wrapping_sub(1)) as usize;
        // SAFETY: the slot is less than the size, and `map` mapped that many aligned entries.
        unsafe { self.mapping.as_mut_ptr().add(self.entries).cast::<T>().add(slot) }
    }

    /// Returns whether the kernel must be woken to process the ring.
    pub(super) fn needs_wakeup(&self) -> bool {
        self.flags.is_none_or(|flags| self.word(flags).load(Ordering::Relaxed) & NEED_WAKEUP != 0)
    }

    /// Returns how many entries the kernel has not yet consumed. For a ring that this side fills.
    ///
    /// # Errors
    /// Returns that the kernel's index is out of range.
    pub(super) fn pending(&self) -> Result<u32, SysError> {
        let consumer = self.word(self.consumer).load(Ordering::Acquire);
        self.checked(self.own.wrapping_sub(consumer), "fill a ring of AF_XDP")
    }

    /// Adds an entry, which the kernel sees after [`publish`](Self::publish). The caller guarantees that there is space.
    pub(super) fn push(&mut self, value: T) {
        // SAFETY: the entry is within the mapping. It is not the kernel's: if the ring is full the caller breaks a promise,
        // and the kernel reads a mixture of two valid entries.
        unsafe { self.entry(self.own).write(value) };
        self.own = self.own.wrapping_add(1);
    }

    /// Gives added entries to the kernel.
    pub(super) fn publish(&self) {
        self.word(self.producer).store(self.own, Ordering::Release);
    }

    /// Passes up to `max` entries of a ring that the kernel fills, and returns their space.
    ///
    /// # Errors
    /// Returns that the kernel's index is out of range, or the error of `each`.
    pub(super) fn consume(
        &mut self,
        max: u32,
        mut each: impl FnMut(T) -> Result<(), SysError>,
    ) -> Result<(), SysError> {
        let producer = self.word(self.producer).load(Ordering::Acquire);
        let available = self.checked(producer.wrapping_sub(self.own), "read a ring of AF_XDP")?;
        if available == 0 {
            return Ok(());
        }
        for _ in 0..available.min(max) {
            // SAFETY: the entry is within the mapping, the kernel has written it, and any bits are valid.
            let value = unsafe { self.entry(self.own).read() };
            self.own = self.own.wrapping_add(1);
            each(value)?;
        }
        self.word(self.consumer).store(self.own, Ordering::Release);
        Ok(())
    }

    /// Checks a number of entries.
    fn checked(&self, entries: u32, what: &str) -> Result<u32, SysError> {
        if entries > self.size { Err(inconsistent(what)) } else { Ok(entries) }
    }
}
