//! Packed rings.

use std::sync::Arc;

use super::buffer::{INDIRECT, NEXT, Scratch, Translation, Unusable, WRITE, frame};
use super::memory::GuestMemory;
use super::ring::{MAX_SIZE, RingError, RingParams, Taken, part};
use super::sync::{AtomicU16, AtomicU64, Ordering, fence};
use crate::wire::PacketRef;
use crate::wire::vector::Vector;

/// Descriptors per cache line.
const PER_LINE: u32 = 4;
/// Flag of a descriptor's word: available in the driver's current pass.
const AVAILABLE: u64 = 1 << (48 + 7);
/// Flag of a descriptor's word: used in the device's current pass.
const USED: u64 = 1 << (48 + 15);
/// Event suppression: no notifications (`RING_EVENT_FLAGS_DISABLE`).
const NO_EVENTS: u16 = 1;
/// Wrap counter in the position of a ring.
const WRAP: u16 = 1 << 15;
/// Word of a slot in the middle of a chain, to which nothing is written.
const INSIDE: u64 = u64::MAX;
/// Length of the longest chain of a packet to send.
const MAX_DESCRIPTORS: u32 = 32;

/// A descriptor. Its word is its length (32 bits), buffer ID (16 bits) and flags (16 bits).
#[repr(C, align(16))]
struct Descriptor {
    address: AtomicU64,
    word: AtomicU64,
}

/// A position in the ring, with the wrap counter of the pass.
#[derive(Debug, Clone, Copy)]
struct Position {
    slot: u32,
    wrap: bool,
}

impl Position {
    /// Advances by at most the size of the ring.
    #[inline(always)]
    fn advance(&mut self, by: u32, size: u32) {
        let slot = self.slot.wrapping_add(by);
        let wraps = slot >= size;
        self.slot = if wraps { slot.wrapping_sub(size) } else { slot };
        self.wrap ^= wraps;
    }

    /// Returns the flags of an available descriptor in this pass.
    #[inline(always)]
    fn available(self) -> u64 {
        if self.wrap { AVAILABLE } else { USED }
    }

    /// Returns the flags of a used descriptor in this pass.
    #[inline(always)]
    fn used(self) -> u64 {
        if self.wrap { AVAILABLE | USED } else { 0 }
    }
}

/// A packed ring.
pub(crate) struct PackedRing {
    descriptors: *const Descriptor,
    size: u32,
    in_order: bool,
    /// Next descriptor to take.
    head: Position,
    /// Next descriptor to return.
    used: Position,
    /// Number of descriptors taken and not returned.
    taken: u32,
    /// Word of each taken descriptor, to be written when it is returned.
    words: Box<[u64]>,
    /// Word of the last taken buffer.
    last: u64,
    broken: bool,
    translation: Translation,
    memory: Arc<GuestMemory>,
}

// SAFETY: the pointer refers to the memory that the ring keeps, which is accessed atomically.
unsafe impl Send for PackedRing {}

impl PackedRing {
    pub(super) fn open(memory: &Arc<GuestMemory>, params: &RingParams) -> Result<Self, RingError> {
        let &RingParams { size, base, in_order, addresses, .. } = params;
        if !(1..=MAX_SIZE).contains(&size) {
            return Err(RingError::Size(size));
        }
        let slot = u32::from(base & !WRAP);
        if slot >= size {
            return Err(RingError::Base(base));
        }
        let bytes = u64::from(size).saturating_mul(size_of::<Descriptor>() as u64);
        let descriptors = part(memory, addresses.descriptors, bytes, align_of::<Descriptor>())?;
        part(memory, addresses.driver, 4, 4)?;
        let events = part(memory, addresses.device, 4, 4)?.cast::<AtomicU16>().wrapping_add(1);
        // SAFETY: shared memory, aligned; all accesses are atomic.
        unsafe { &*events }.store(NO_EVENTS, Ordering::Relaxed);
        let position = Position { slot, wrap: base & WRAP != 0 };
        Ok(Self {
            descriptors: descriptors.cast(),
            size,
            in_order,
            head: position,
            used: position,
            taken: 0,
            words: vec![0; size as usize].into(),
            last: 0,
            broken: false,
            translation: Translation::default(),
            memory: Arc::clone(memory),
        })
    }

    pub(super) fn base(&self) -> u16 {
        self.used.slot as u16 | if self.used.wrap { WRAP } else { 0 }
    }

    /// Returns whether buffers are used in order.
    pub(super) fn in_order(&self) -> bool {
        self.in_order
    }

    #[cfg(test)]
    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }

    /// Returns the descriptor at a slot within the ring.
    #[inline(always)]
    fn descriptor(&self, slot: u32) -> &Descriptor {
        debug_assert!(slot < self.size);
        // SAFETY: the ring has `size` descriptors in memory that it keeps; positions are less than that.
        unsafe { &*self.descriptors.wrapping_add(slot as usize) }
    }

    /// Returns the word of the descriptor at a position if it is available and not taken yet.
    #[inline(always)]
    fn available(&self, at: Position) -> Option<u64> {
        let word = self.descriptor(at.slot).word.load(Ordering::Acquire);
        (word & (AVAILABLE | USED) == at.available() && self.taken < self.size).then_some(word)
    }

    /// Records a taken descriptor, and the word by which it is returned.
    #[inline(always)]
    fn take(&mut self, word: u64) {
        if let Some(entry) = self.words.get_mut(self.head.slot as usize) {
            *entry = word;
        }
        self.taken = self.taken.wrapping_add(1);
        self.head.advance(1, self.size);
    }

    #[inline(always)]
    pub(super) fn take_buffers(
        &mut self,
        max: u32,
        space: u32,
        mut length: impl FnMut() -> u16,
        places: &mut [*mut u8],
    ) -> Taken {
        let mut count = 0_u32;
        for place in places.iter_mut().take(max as usize) {
            let Some(word) = self.available(self.head) else { break };
            if self.broken {
                break;
            }
            let address = self.descriptor(self.head.slot).address.load(Ordering::Relaxed);
            let (bytes, flags) = (word as u32, (word >> 48) as u16);
            let found = self.translation.receive(&self.memory, address, bytes, flags, space);
            match found {
                Ok(frame) => *place = frame,
                Err(Unusable::Short) => break,
                Err(Unusable::Broken) => {
                    self.broken = true;
                    return Taken { count, refused: 1 };
                }
            }
            let bytes = u64::from(length()).wrapping_add(super::HEADER.into());
            self.take(bytes | word & 0xffff << 32 | self.head.used() | u64::from(WRITE) << 48);
            count = count.wrapping_add(1);
        }
        Taken { count, refused: 0 }
    }

    /// Returns all taken buffers. Descriptors of a whole cache line are written together.
    #[inline(always)]
    pub(super) fn give_received<V: Vector>(&mut self) -> u32 {
        let count = self.taken;
        while self.taken > 0 {
            let slot = self.used.slot;
            let words = self.words.get(slot as usize..).unwrap_or_default();
            let descriptor = self.descriptor(slot);
            let mut done = 1;
            if let Some(line) = words.first_chunk::<{ PER_LINE as usize }>()
                && self.taken >= PER_LINE
                && std::ptr::from_ref(descriptor).addr().is_multiple_of(64)
            {
                done = PER_LINE;
                let to = std::ptr::from_ref(descriptor).cast_mut().cast();
                // SAFETY: a whole line of descriptors that belong to the device until they are written; the caller has
                // checked that the CPU supports `V`.
                unsafe { V::write_words(line, to) };
            } else {
                let word = words.first().copied().unwrap_or_default();
                descriptor.word.store(word, Ordering::Release);
            }
            self.used.advance(done, self.size);
            self.taken = self.taken.wrapping_sub(done);
        }
        count
    }

    #[inline(always)]
    pub(super) fn take_packets(
        &mut self,
        packets: &mut [PacketRef],
        scratch: &mut Scratch,
    ) -> Taken {
        let (mut count, mut refused) = (0_u32, 0_u32);
        while let Some(entry) = packets.get_mut(count as usize) {
            let Some(word) = self.available(self.head).filter(|_| !self.broken) else { break };
            let address = self.descriptor(self.head.slot).address.load(Ordering::Relaxed);
            let (bytes, flags) = (word as u32, (word >> 48) as u16);
            let packet = if flags & (NEXT | WRITE | INDIRECT) == 0 {
                let start = self.translation.find(&self.memory, address, bytes.into());
                self.last = word;
                self.take(word & 0xffff << 32 | self.head.used());
                start.map(|start| frame(start, bytes.into()))
            } else {
                self.take_chain(scratch)
            };
            match packet {
                Some(Some(packet)) => {
                    *entry = packet;
                    count = count.wrapping_add(1);
                }
                Some(None) => refused = refused.wrapping_add(1),
                None => {
                    self.broken = true;
                    return Taken { count, refused: refused.wrapping_add(1) };
                }
            }
        }
        Taken { count, refused }
    }

    /// Takes a packet whose buffer consists of several descriptors. Returns `None` if they break the rules, and
    /// `Some(None)` if the packet is no frame.
    #[cold]
    fn take_chain(&mut self, scratch: &mut Scratch) -> Option<Option<PacketRef>> {
        let (first, used) = (self.head.slot, self.head.used());
        let mut gathered = scratch.gather()?;
        for _ in 0..MAX_DESCRIPTORS {
            // The driver makes the first descriptor available last.
            let word = self.available(self.head)?;
            let address = self.descriptor(self.head.slot).address.load(Ordering::Relaxed);
            let (bytes, flags) = (word as u32, (word >> 48) as u16);
            if flags & (WRITE | INDIRECT) != 0 {
                return None;
            }
            let from = self.translation.find(&self.memory, address, bytes.into())?;
            // SAFETY: shared memory of this length.
            let fits = unsafe { gathered.append(from, bytes as usize) };
            self.take(INSIDE);
            if flags & NEXT == 0 {
                // Only the last descriptor has the buffer's ID, and the first is returned.
                self.last = word;
                *self.words.get_mut(first as usize)? = word & 0xffff << 32 | used;
                return Some(fits.and_then(|()| gathered.packet()));
            }
            fits?;
        }
        None
    }

    /// Returns the buffers of all packets taken. If they are used in order, one descriptor returns all of them.
    #[inline(always)]
    pub(super) fn give_sent(&mut self) -> u32 {
        let count = self.taken;
        if count == 0 {
            return 0;
        }
        if self.in_order {
            let word = self.last & 0xffff << 32 | self.used.used();
            self.descriptor(self.used.slot).word.store(word, Ordering::Release);
            self.used.advance(count, self.size);
        } else {
            // The packets have been read before any of their buffers is returned.
            fence(Ordering::Release);
            for _ in 0..count {
                let word = self.words.get(self.used.slot as usize).copied().unwrap_or(INSIDE);
                if word != INSIDE {
                    self.descriptor(self.used.slot).word.store(word, Ordering::Relaxed);
                }
                self.used.advance(1, self.size);
            }
        }
        self.taken = 0;
        count
    }
}
