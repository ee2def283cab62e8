//! A packet of which one TX notification has the beginning and the next the rest: notifications end with
//! the ring, and are no longer than a transfer may be.

use super::super::layout::FLIT;
use crate::wire::packet;
use crate::wire::traffic::CacheLine;

/// Flits of the longest packet.
const MOST: usize = packet::MAX_LENGTH.div_ceil(FLIT);

/// The beginning of a packet, as the hardware has it in its pipeline.
pub(super) struct PartialPacket {
    flits: Box<[CacheLine; MOST]>,
    /// Bytes of it that are here; 0 where no packet is cut.
    here: usize,
}

impl Default for PartialPacket {
    fn default() -> Self {
        Self { flits: Box::new([CacheLine([0; FLIT]); MOST]), here: 0 }
    }
}

impl PartialPacket {
    #[inline(always)]
    pub(super) fn is_none(&self) -> bool {
        self.here == 0
    }

    /// Keeps the beginning of a packet; not one that says it is longer than packets are, or no longer than
    /// this. What it says is read from what is record: its program may write there meanwhile.
    ///
    /// # Safety
    /// `start` points to so many bytes, one flit or more.
    #[cold]
    pub(super) unsafe fn begin(&mut self, start: *const u8, bytes: usize) -> bool {
        if bytes >= self.flits.len() * FLIT {
            return false;
        }
        // SAFETY: by the caller's word, and there is room for them.
        unsafe { self.at(0).copy_from_nonoverlapping(start, bytes) };
        let length = self.length();
        let sound = length <= packet::MAX_LENGTH && bytes < packet::flits(length) * FLIT;
        self.here = if sound { bytes } else { 0 };
        sound
    }

    /// Goes on with the packet: how many bytes of the next notification are its, and where it lies once
    /// it is whole, and the bytes of its flits.
    ///
    /// # Safety
    /// A packet is cut; `start` points to so many bytes in whole flits.
    #[cold]
    pub(super) unsafe fn go_on(
        &mut self,
        start: *const u8,
        bytes: usize,
    ) -> (usize, Option<(*const u8, usize)>) {
        let whole = packet::flits(self.length()) * FLIT;
        let missing = whole - self.here;
        let taken = missing.min(bytes);
        // SAFETY: by the caller's word; `begin` saw that the whole packet has room.
        unsafe { self.at(self.here).copy_from_nonoverlapping(start, taken) };
        self.here += taken;
        if taken < missing {
            return (taken, None);
        }
        self.here = 0;
        (taken, Some((self.at(0), whole)))
    }

    /// Bytes of the packet whose first flit is here.
    fn length(&self) -> usize {
        // SAFETY: the first flit has the headers.
        unsafe { packet::length(self.flits.as_ptr().cast()) }
    }

    fn at(&mut self, byte: usize) -> *mut u8 {
        self.flits.as_mut_ptr().cast::<u8>().wrapping_add(byte)
    }
}
