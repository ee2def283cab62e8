//! A packet in two transmit requests: requests end at the end of the ring, and at the maximum transfer size.

use super::super::layout::FLIT;
use crate::wire::packet;
use crate::wire::traffic::CacheLine;

/// Flits of the longest packet.
const MAX_FLITS: usize = packet::MAX_LENGTH.div_ceil(FLIT);

/// The first part of a packet, as in the hardware's pipeline.
pub(super) struct PartialPacket {
    flits: Box<[CacheLine; MAX_FLITS]>,
    /// Bytes of the first part; 0 if there is none.
    stored: usize,
}

impl Default for PartialPacket {
    fn default() -> Self {
        Self { flits: Box::new([CacheLine([0; FLIT]); MAX_FLITS]), stored: 0 }
    }
}

impl PartialPacket {
    #[inline(always)]
    pub(super) fn is_none(&self) -> bool {
        self.stored == 0
    }

    /// Stores the first part of a packet. Returns false if its length is invalid, or does not exceed this part. The
    /// length is read from the stored copy, because the client may change the original concurrently.
    ///
    /// # Safety
    /// `start` points to `bytes` bytes, at least one flit.
    #[cold]
    pub(super) unsafe fn begin(&mut self, start: *const u8, bytes: usize) -> bool {
        if bytes >= self.flits.len() * FLIT {
            return false;
        }
        // SAFETY: the caller guarantees the size, and the buffer has space.
        unsafe { self.at(0).copy_from_nonoverlapping(start, bytes) };
        let length = self.length();
        let is_valid = length <= packet::MAX_LENGTH && bytes < packet::flits(length) * FLIT;
        self.stored = if is_valid { bytes } else { 0 };
        is_valid
    }

    /// Appends from the next request. Returns the number of bytes taken and, if the packet is complete, its address and
    /// the size of its flits.
    ///
    /// # Safety
    /// There is a first part; `start` points to `bytes` bytes of whole flits.
    #[cold]
    pub(super) unsafe fn append(
        &mut self,
        start: *const u8,
        bytes: usize,
    ) -> (usize, Option<(*const u8, usize)>) {
        let whole = packet::flits(self.length()) * FLIT;
        let missing = whole - self.stored;
        let taken = missing.min(bytes);
        // SAFETY: the caller guarantees the size; `begin` checked that the buffer has space for the whole packet.
        unsafe { self.at(self.stored).copy_from_nonoverlapping(start, taken) };
        self.stored += taken;
        if taken < missing {
            return (taken, None);
        }
        self.stored = 0;
        (taken, Some((self.at(0), whole)))
    }

    /// Returns the length of the packet, in bytes.
    fn length(&self) -> usize {
        // SAFETY: the first flit contains the headers.
        unsafe { packet::length(self.flits.as_ptr().cast()) }
    }

    fn at(&mut self, byte: usize) -> *mut u8 {
        self.flits.as_mut_ptr().cast::<u8>().wrapping_add(byte)
    }
}
