//! Buffers of a network device: a header of 12 B, followed by a frame.

use super::memory::{GuestMemory, Window};
use crate::wire::PacketRef;
use crate::wire::packet::{FLIT, MAX_LENGTH, MIN_LENGTH};

/// Size of the header before each frame, in bytes, that of every device with `VIRTIO_F_VERSION_1`.
pub(crate) const HEADER: u32 = 12;
/// Longest buffer chain of a packet to send, in bytes.
pub(super) const MAX_CHAIN: u64 = HEADER as u64 + MAX_LENGTH as u64;

/// Descriptor flag: the buffer continues in another descriptor.
pub(super) const NEXT: u16 = 1;
/// Descriptor flag: the device writes the buffer; without, it reads it.
pub(super) const WRITE: u16 = 2;
/// Descriptor flag: the buffer contains descriptors, which this device does not offer.
pub(super) const INDIRECT: u16 = 4;

/// Last eight bytes of the header of a received packet: no offload, and one buffer (`num_buffers`).
const RECEIVED: u64 = 1 << 48;

/// Why a descriptor cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unusable {
    /// The buffer is too short for the packet, which is dropped.
    Short,
    /// The driver has broken the rules.
    Broken,
}

/// The driver's memory with the window of the last buffer, which usually contains the next one too.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Translation {
    window: Window,
}

impl Translation {
    /// Returns the address here of a buffer, or `None` if the driver has not shared all of it.
    #[inline(always)]
    pub(super) fn find(
        &mut self,
        memory: &GuestMemory,
        address: u64,
        bytes: u64,
    ) -> Option<*mut u8> {
        match self.window.find(address, bytes) {
            Some(found) => Some(found),
            None => {
                self.window = memory.window(address, bytes)?;
                self.window.find(address, bytes)
            }
        }
    }

    /// Prepares a buffer for a received packet that needs `space` bytes with its header. Returns the address of the frame.
    ///
    /// # Errors
    /// Returns why the buffer cannot be used. The frame must start at a flit, as in DPDK, whose headers are the last 12 B of
    /// an aligned headroom.
    #[inline(always)]
    pub(super) fn receive(
        &mut self,
        memory: &GuestMemory,
        address: u64,
        bytes: u32,
        flags: u16,
        space: u32,
    ) -> Result<*mut u8, Unusable> {
        if flags & (NEXT | WRITE | INDIRECT) != WRITE {
            return Err(Unusable::Broken);
        }
        if bytes < space {
            return Err(Unusable::Short);
        }
        let header = self.find(memory, address, bytes.into()).ok_or(Unusable::Broken)?;
        let frame = header.wrapping_add(HEADER as usize);
        if !frame.addr().is_multiple_of(FLIT) {
            return Err(Unusable::Broken);
        }
        // SAFETY: the header is in shared memory, and its parts are aligned because the frame is.
        unsafe { put_header(header) };
        Ok(frame)
    }
}

/// Writes the header of a received packet, unless it is there already. A driver clears the same bytes for sending unless
/// they are clear, so that the line usually stays in the caches of both cores.
///
/// # Safety
/// `header` points to 12 writable bytes, the last 8 of which are aligned.
#[inline(always)]
unsafe fn put_header(header: *mut u8) {
    // SAFETY: the caller guarantees the space and the alignment; another process may access the bytes concurrently.
    unsafe {
        let (first, last) = (header.cast::<u32>(), header.wrapping_add(4).cast::<u64>());
        if first.read_volatile() != 0 || last.read_volatile() != RECEIVED {
            std::hint::cold_path();
            first.write_volatile(0);
            last.write_volatile(RECEIVED);
        }
    }
}

/// Returns a packet to send that is contiguous, or `None` if its length is not that of a frame.
#[inline(always)]
pub(super) fn frame(start: *mut u8, with_header: u64) -> Option<PacketRef> {
    let bytes = with_header.wrapping_sub(HEADER.into());
    let is_frame = (MIN_LENGTH as u64..=MAX_LENGTH as u64).contains(&bytes);
    let start = start.wrapping_add(HEADER as usize);
    is_frame.then_some(PacketRef { start, bytes: bytes as u32 })
}

/// Space for packets whose buffers are not contiguous, which are gathered here.
#[derive(Debug)]
pub(crate) struct Scratch {
    bytes: Box<[u8]>,
    used: usize,
}

impl Scratch {
    /// Allocates space for `packets` packets.
    pub(crate) fn new(packets: usize) -> Self {
        let bytes = packets.saturating_mul(MAX_CHAIN as usize);
        Self { bytes: vec![0; bytes].into(), used: 0 }
    }

    /// Frees all packets.
    pub(crate) fn clear(&mut self) {
        self.used = 0;
    }

    /// Returns whether a range of memory is in the space.
    #[cfg(test)]
    pub(super) fn has(&self, start: *const u8, bytes: usize) -> bool {
        let offset = start.addr().wrapping_sub(self.bytes.as_ptr().addr());
        offset < self.bytes.len() && bytes <= self.bytes.len() - offset
    }

    /// Returns space for the longest packet, or `None` if none is left.
    pub(super) fn gather(&mut self) -> Option<Gathered<'_>> {
        let end = self.used.checked_add(MAX_CHAIN as usize)?;
        let into = self.bytes.get_mut(self.used..end)?;
        self.used = end;
        Some(Gathered { into, length: 0 })
    }
}

/// A packet that is gathered from several buffers.
pub(super) struct Gathered<'a> {
    into: &'a mut [u8],
    length: usize,
}

impl Gathered<'_> {
    /// Appends a buffer. Returns `None` if the packet would be too long.
    ///
    /// # Safety
    /// `from` points to `bytes` readable bytes, which another process may change concurrently.
    pub(super) unsafe fn append(&mut self, from: *const u8, bytes: usize) -> Option<()> {
        let end = self.length.checked_add(bytes)?;
        let into = self.into.get_mut(self.length..end)?;
        // SAFETY: the caller guarantees the source, and the slice has the same length.
        unsafe { from.copy_to_nonoverlapping(into.as_mut_ptr(), bytes) };
        self.length = end;
        Some(())
    }

    /// Returns the packet, or `None` if its length is not that of a frame.
    pub(super) fn packet(self) -> Option<PacketRef> {
        frame(self.into.as_mut_ptr(), self.length as u64)
    }
}
