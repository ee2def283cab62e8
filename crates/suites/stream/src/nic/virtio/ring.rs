//! A virtqueue of either format.

use std::sync::Arc;

use super::buffer::Scratch;
use super::memory::GuestMemory;
use super::packed::PackedRing;
use super::split::SplitRing;
use crate::wire::PacketRef;
use crate::wire::vector::Vector;

/// Size of a descriptor, in bytes.
const DESCRIPTOR: u64 = 16;
/// Maximum number of descriptors of a ring.
pub(crate) const MAX_SIZE: u32 = 1 << 15;

/// Addresses of a ring's parts in the driver's process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RingAddresses {
    /// The descriptors.
    pub(crate) descriptors: u64,
    /// The driver's area: the available ring, or of a packed ring its event suppression.
    pub(crate) driver: u64,
    /// The device's area: the used ring, or of a packed ring its event suppression.
    pub(crate) device: u64,
}

/// Params of a ring.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RingParams {
    /// Number of descriptors.
    pub(crate) size: u32,
    /// Position at which to continue: the available index, of a packed ring with its wrap counter in bit 15.
    pub(crate) base: u16,
    /// Whether the ring is packed.
    pub(crate) packed: bool,
    /// Whether the driver expects buffers to be used in order (`VIRTIO_F_IN_ORDER`).
    pub(crate) in_order: bool,
    /// Where the ring is.
    pub(crate) addresses: RingAddresses,
}

/// Why a ring cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RingError {
    /// The number of descriptors is out of range, or of a split ring not a power of two.
    #[error("a ring of {0} descriptors; use at most 32768, of a split ring a power of two")]
    Size(u32),
    /// The position is beyond the ring.
    #[error("position {0} is beyond the ring; start at 0")]
    Base(u16),
    /// A part is not in shared memory, or not aligned.
    #[error("a part of the ring is not aligned, or not in shared memory; share it first")]
    Memory,
}

/// Results of taking buffers or packets from a ring.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Buffers or packets.
    pub(crate) count: u32,
    /// Refused buffers: those of packets that are no frames, and the one at which the ring has broken.
    pub(crate) refused: u32,
}

/// A virtqueue.
pub(crate) enum Ring {
    /// Descriptors, available and used buffers in separate arrays.
    Split(SplitRing),
    /// One array of descriptors, which driver and device write in turn.
    Packed(PackedRing),
}

impl Ring {
    /// Opens a ring in a driver's memory, and requests that the driver does not notify: the device polls.
    ///
    /// # Errors
    /// Returns why the ring cannot be used.
    pub(crate) fn open(memory: &Arc<GuestMemory>, params: &RingParams) -> Result<Self, RingError> {
        match params.packed {
            false => SplitRing::open(memory, params).map(Self::Split),
            true => PackedRing::open(memory, params).map(Self::Packed),
        }
    }

    /// Takes up to `max` buffers for received packets of at most `space` bytes with their header, and appends their
    /// addresses to `places`. `length` returns the length of each packet in order.
    #[inline(always)]
    pub(crate) fn take_buffers(
        &mut self,
        max: u32,
        space: u32,
        length: impl FnMut() -> u16,
        places: &mut [*mut u8],
    ) -> Taken {
        match self {
            Self::Split(ring) => ring.take_buffers(max, space, length, places),
            Self::Packed(ring) => ring.take_buffers(max, space, length, places),
        }
    }

    /// Returns the buffers taken so far, with their packets, to the driver. Returns their number.
    #[inline(always)]
    pub(crate) fn give_received<V: Vector>(&mut self) -> u32 {
        match self {
            Self::Split(ring) => ring.give(),
            Self::Packed(ring) => ring.give_received::<V>(),
        }
    }

    /// Takes packets to send, as many as `packets` has entries. They stay valid until [`give_sent`](Self::give_sent).
    #[inline(always)]
    pub(crate) fn take_packets(
        &mut self,
        packets: &mut [PacketRef],
        scratch: &mut Scratch,
    ) -> Taken {
        match self {
            Self::Split(ring) => ring.take_packets(packets, scratch),
            Self::Packed(ring) => ring.take_packets(packets, scratch),
        }
    }

    /// Returns the buffers of sent packets to the driver. Returns the number of buffers.
    #[inline(always)]
    pub(crate) fn give_sent(&mut self) -> u32 {
        match self {
            Self::Split(ring) => ring.give(),
            Self::Packed(ring) => ring.give_sent(),
        }
    }

    /// Returns the sizes of what a device reads to learn of `buffers` buffers: their descriptors, and the entries and the
    /// index of a split ring.
    #[inline(always)]
    pub(crate) fn read_bytes(&self, buffers: u32) -> [u64; 2] {
        let buffers = u64::from(buffers);
        match self {
            Self::Split(_) => {
                [DESCRIPTOR.wrapping_mul(buffers), buffers.wrapping_mul(2).wrapping_add(2)]
            }
            Self::Packed(_) => [DESCRIPTOR.wrapping_mul(buffers), 0],
        }
    }

    /// Returns the sizes of what a device writes to return `buffers` buffers, of sent packets or not.
    #[inline(always)]
    pub(crate) fn written_bytes(&self, buffers: u32, sent: bool) -> [u64; 2] {
        let buffers = u64::from(buffers);
        match self {
            Self::Split(_) => [buffers.wrapping_mul(8), 2],
            // One descriptor returns all.
            Self::Packed(ring) if sent && ring.in_order() => [DESCRIPTOR, 0],
            Self::Packed(_) => [DESCRIPTOR.wrapping_mul(buffers), 0],
        }
    }

    /// Returns the position of the next buffer, in the form of [`RingParams::base`].
    pub(crate) fn base(&self) -> u16 {
        match self {
            Self::Split(ring) => ring.base(),
            Self::Packed(ring) => ring.base(),
        }
    }

    /// Returns whether the driver has broken the ring's rules: it is no longer served.
    #[cfg(test)]
    pub(crate) fn is_broken(&self) -> bool {
        match self {
            Self::Split(ring) => ring.is_broken(),
            Self::Packed(ring) => ring.is_broken(),
        }
    }
}

/// Returns the address here of a part of a ring.
///
/// # Errors
/// Returns an error unless it is shared and aligned.
pub(super) fn part(
    memory: &GuestMemory,
    address: u64,
    bytes: u64,
    align: usize,
) -> Result<*mut u8, RingError> {
    let found = memory.at_user(address, bytes).filter(|found| found.addr().is_multiple_of(align));
    found.ok_or(RingError::Memory)
}
