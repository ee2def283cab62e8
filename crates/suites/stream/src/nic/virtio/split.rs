//! Split rings.

use std::sync::Arc;

use super::buffer::{INDIRECT, NEXT, Scratch, Translation, Unusable, WRITE, frame};
use super::memory::GuestMemory;
use super::ring::{MAX_SIZE, RingError, RingParams, Taken, part};
use super::sync::{AtomicU16, AtomicU32, AtomicU64, Ordering};
use crate::wire::PacketRef;

/// Flag of the used ring: no notifications (`VIRTQ_USED_F_NO_NOTIFY`).
const NO_NOTIFY: u16 = 1;
/// Length of the longest chain of a packet to send.
const MAX_DESCRIPTORS: u32 = 32;
/// Size of flags and index before the entries of the available and the used ring, in bytes.
const HEAD: usize = 4;

/// A descriptor. Its word is its length (32 bits), flags (16 bits) and the next descriptor's index (16 bits).
#[repr(C, align(16))]
struct Descriptor {
    address: AtomicU64,
    word: AtomicU64,
}

/// An entry of the used ring.
#[repr(C)]
struct UsedEntry {
    id: AtomicU32,
    length: AtomicU32,
}

/// A split ring. All buffers are returned in the order in which they were made available.
pub(crate) struct SplitRing {
    descriptors: *const Descriptor,
    available: *const u8,
    used: *const u8,
    /// Number of descriptors minus 1: a power of two minus 1.
    mask: u16,
    /// Next entry of the available ring to take.
    head: u16,
    /// Available index when it was last read.
    tail: u16,
    /// Next entry of the used ring to write.
    returned: u16,
    /// Index of the first descriptor and length of each taken buffer.
    taken: Box<[(u16, u32)]>,
    broken: bool,
    translation: Translation,
    memory: Arc<GuestMemory>,
}

// SAFETY: the pointers refer to the memory that the ring keeps, which is accessed atomically.
unsafe impl Send for SplitRing {}

impl SplitRing {
    pub(super) fn open(memory: &Arc<GuestMemory>, params: &RingParams) -> Result<Self, RingError> {
        let &RingParams { size, base, addresses, .. } = params;
        if !(1..=MAX_SIZE).contains(&size) || !size.is_power_of_two() {
            return Err(RingError::Size(size));
        }
        let bytes = |each: usize, head: usize| {
            u64::from(size).saturating_mul(each as u64).saturating_add(head as u64)
        };
        let size_of_descriptors = bytes(size_of::<Descriptor>(), 0);
        let align = align_of::<Descriptor>();
        let descriptors = part(memory, addresses.descriptors, size_of_descriptors, align)?;
        let available = part(memory, addresses.driver, bytes(size_of::<u16>(), HEAD), 2)?;
        let used = part(memory, addresses.device, bytes(size_of::<UsedEntry>(), HEAD), 4)?;
        let ring = Self {
            descriptors: descriptors.cast(),
            available,
            used,
            mask: size.wrapping_sub(1) as u16,
            head: base,
            tail: base,
            returned: base,
            taken: vec![(0, 0); size as usize].into(),
            broken: false,
            translation: Translation::default(),
            memory: Arc::clone(memory),
        };
        ring.used_word(0).store(NO_NOTIFY, Ordering::Relaxed);
        Ok(ring)
    }

    pub(super) fn base(&self) -> u16 {
        self.returned
    }

    #[cfg(test)]
    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }

    /// Returns the flags (0) or the index (1) of the used ring.
    #[inline(always)]
    fn used_word(&self, index: usize) -> &AtomicU16 {
        // SAFETY: the used ring starts with two aligned words, in memory that the ring keeps.
        unsafe { &*self.used.cast::<AtomicU16>().wrapping_add(index) }
    }

    /// Returns the index (1) or an entry (2 and up, up to the ring's size) of the available ring.
    #[inline(always)]
    fn available_word(&self, index: usize) -> u16 {
        // SAFETY: the available ring has two words and an entry per descriptor, aligned, in memory that the ring keeps.
        let word = unsafe { &*self.available.cast::<AtomicU16>().wrapping_add(index) };
        word.load(Ordering::Acquire)
    }

    /// Returns the number of available buffers that are not taken, at most `max`. Reads the index only if fewer are known.
    #[inline(always)]
    fn count(&mut self, max: u32) -> u32 {
        let known = u32::from(self.tail.wrapping_sub(self.head));
        if known >= max {
            return max;
        }
        self.tail = self.available_word(1);
        let count = u32::from(self.tail.wrapping_sub(self.head));
        let in_use = u32::from(self.tail.wrapping_sub(self.returned));
        if in_use > u32::from(self.mask).wrapping_add(1) {
            std::hint::cold_path();
            self.broken = true;
            return 0;
        }
        count.min(max)
    }

    /// Returns the index of the first descriptor of the next available buffer, or `None` if it is out of range.
    #[inline(always)]
    fn next_index(&self) -> Option<u16> {
        let index = self.available_word(usize::from(self.head & self.mask).wrapping_add(2));
        (index <= self.mask).then_some(index)
    }

    /// Returns a descriptor's address, length, flags and next index.
    #[inline(always)]
    fn descriptor(&self, index: u16) -> (u64, u32, u16, u16) {
        // SAFETY: the mask keeps the index within the ring's descriptors, in memory that the ring keeps.
        let descriptor = unsafe { &*self.descriptors.wrapping_add(usize::from(index & self.mask)) };
        let address = descriptor.address.load(Ordering::Relaxed);
        let word = descriptor.word.load(Ordering::Relaxed);
        (address, word as u32, (word >> 32) as u16, (word >> 48) as u16)
    }

    /// Records a taken buffer with the length to report.
    #[inline(always)]
    fn take(&mut self, index: u16, length: u32) {
        if let Some(entry) = self.taken.get_mut(usize::from(self.head & self.mask)) {
            *entry = (index, length);
        }
        self.head = self.head.wrapping_add(1);
    }

    #[inline(always)]
    pub(super) fn take_buffers(
        &mut self,
        max: u32,
        space: u32,
        mut length: impl FnMut() -> u16,
        places: &mut [*mut u8],
    ) -> Taken {
        if self.broken {
            return Taken::default();
        }
        let available = self.count(max.min(places.len() as u32));
        let mut count = 0_u32;
        for place in places.iter_mut().take(available as usize) {
            let found = self.next_index().ok_or(Unusable::Broken).and_then(|index| {
                let (address, bytes, flags, _) = self.descriptor(index);
                let found = self.translation.receive(&self.memory, address, bytes, flags, space)?;
                Ok((index, found))
            });
            match found {
                Ok((index, frame)) => {
                    *place = frame;
                    self.take(index, u32::from(length()).wrapping_add(super::HEADER));
                }
                Err(Unusable::Short) => break,
                Err(Unusable::Broken) => {
                    self.broken = true;
                    break;
                }
            }
            count = count.wrapping_add(1);
        }
        Taken { count, refused: self.broken.into() }
    }

    #[inline(always)]
    pub(super) fn take_packets(
        &mut self,
        packets: &mut [PacketRef],
        scratch: &mut Scratch,
    ) -> Taken {
        if self.broken {
            return Taken::default();
        }
        let available = self.count(packets.len() as u32);
        let (mut count, mut refused) = (0_u32, 0_u32);
        for _ in 0..available {
            let packet = self.next_index().and_then(|index| {
                let (address, bytes, flags, _) = self.descriptor(index);
                let packet = if flags & (NEXT | WRITE | INDIRECT) == 0 {
                    let start = self.translation.find(&self.memory, address, bytes.into())?;
                    frame(start, bytes.into())
                } else {
                    self.gather(index, scratch)?
                };
                self.take(index, 0);
                Some(packet)
            });
            match (packet, packets.get_mut(count as usize)) {
                (Some(Some(packet)), Some(entry)) => {
                    *entry = packet;
                    count = count.wrapping_add(1);
                }
                (Some(_), _) => refused = refused.wrapping_add(1),
                (None, _) => {
                    self.broken = true;
                    break;
                }
            }
        }
        Taken { count, refused: refused.wrapping_add(self.broken.into()) }
    }

    /// Gathers a packet whose buffer consists of several descriptors. Returns `None` if they break the rules, and
    /// `Some(None)` if the packet is no frame.
    #[cold]
    fn gather(&mut self, first: u16, scratch: &mut Scratch) -> Option<Option<PacketRef>> {
        let mut gathered = scratch.gather()?;
        let mut index = first;
        for _ in 0..MAX_DESCRIPTORS {
            let (address, bytes, flags, next) = self.descriptor(index);
            if flags & (WRITE | INDIRECT) != 0 {
                return None;
            }
            let from = self.translation.find(&self.memory, address, bytes.into())?;
            // SAFETY: shared memory of this length.
            if unsafe { gathered.append(from, bytes as usize) }.is_none() {
                // The whole chain is one buffer, so its remaining descriptors need not be read.
                return Some(None);
            }
            if flags & NEXT == 0 {
                return Some(gathered.packet());
            }
            index = Some(next).filter(|next| *next <= self.mask)?;
        }
        None
    }

    /// Returns all taken buffers: first the entries, then the index, once. Returns their number.
    #[inline(always)]
    pub(super) fn give(&mut self) -> u32 {
        let count = self.head.wrapping_sub(self.returned);
        if count == 0 {
            return 0;
        }
        let entries = self.used.cast::<AtomicU16>().wrapping_add(2).cast::<UsedEntry>();
        while self.returned != self.head {
            let slot = usize::from(self.returned & self.mask);
            let (id, length) = self.taken.get(slot).copied().unwrap_or_default();
            // SAFETY: the used ring has an entry per descriptor, aligned, in memory that the ring keeps.
            let entry = unsafe { &*entries.wrapping_add(slot) };
            entry.id.store(id.into(), Ordering::Relaxed);
            entry.length.store(length, Ordering::Relaxed);
            self.returned = self.returned.wrapping_add(1);
        }
        self.used_word(1).store(self.returned, Ordering::Release);
        count.into()
    }
}
