//! The state of one queue: a ring of descriptors each way.

use std::sync::atomic::Ordering;

use super::super::descriptor::{BUFFER, Descriptor, PER_LINE, received};
use super::super::engine::EngineContext;
use super::super::tail::DelayedTail;
use crate::wire::vector::Vector;

/// A ring of descriptors.
pub(super) struct DescriptorRing {
    /// Null where there is none.
    pub(super) descriptors: *const Descriptor,
    /// Up to where the NIC has used them.
    pub(super) head: u32,
    /// Up to where the program has filled them.
    pub(super) tail: DelayedTail,
    /// The lower half of its address, until the upper one comes.
    pub(super) low: u32,
}

impl Default for DescriptorRing {
    fn default() -> Self {
        Self { descriptors: std::ptr::null(), head: 0, tail: DelayedTail::default(), low: 0 }
    }
}

impl DescriptorRing {
    #[inline(always)]
    pub(super) fn is_none(&self) -> bool {
        self.descriptors.is_null()
    }

    /// Its descriptors from the head on, up to its end, at most so many; it has `mask` and one.
    ///
    /// # Safety
    /// The ring is there and has so many, and the head is within it.
    #[inline(always)]
    pub(super) unsafe fn run<'a>(&self, most: u32, mask: u32) -> &'a [Descriptor] {
        let count = most.min(mask + 1 - self.head) as usize;
        // SAFETY: by the caller's word; the ring is registered, and all fields are atomic.
        unsafe {
            std::slice::from_raw_parts(self.descriptors.wrapping_add(self.head as usize), count)
        }
    }

    /// One of its descriptors.
    ///
    /// # Safety
    /// The ring is there and has so many.
    #[inline(always)]
    pub(super) unsafe fn at(&self, index: u32) -> &Descriptor {
        // SAFETY: by the caller's word; the ring is registered, and all fields are atomic.
        unsafe { &*self.descriptors.wrapping_add(index as usize) }
    }
}

/// The state of one queue.
#[derive(Default)]
pub(super) struct Queue {
    /// The core that has it.
    pub(super) pair: Option<u32>,
    pub(super) rx: DescriptorRing,
    pub(super) tx: DescriptorRing,
    /// The bytes of the packet of each RX descriptor, which it will say once the packet is there.
    pub(super) lengths: Box<[u16]>,
    /// Up to where they say it.
    pub(super) written: u32,
    /// Whether there are more to be written at the end of this turn.
    pub(super) due: bool,
    /// Whether it is among those that have something to send.
    pub(super) sends: bool,
    pub(super) window: Window,
}

impl Queue {
    /// Tells the program of packets: descriptors up to there say that theirs have come. Those of a whole line
    /// are written together; how many.
    #[inline(always)]
    pub(super) fn write_back<V: Vector>(&mut self, until: u32) -> u32 {
        let mask = self.lengths.len() as u32 - 1;
        let count = until.wrapping_sub(self.written) & mask;
        let (mut at, mut left) = (self.written, count);
        while left > 0 {
            let lengths = &self.lengths[at as usize..];
            // SAFETY: the ring has as many descriptors as there are lengths.
            let descriptor = unsafe { self.rx.at(at) };
            let mut done = 1;
            if let Some(line) = lengths.first_chunk::<PER_LINE>()
                && left >= PER_LINE as u32
                && (at as usize).is_multiple_of(PER_LINE)
            {
                done = PER_LINE as u32;
                let to = std::ptr::from_ref(descriptor).cast_mut().cast();
                // SAFETY: a whole line of descriptors that are the NIC's until they say so; the thread runs
                // with the way of copying that the processor has.
                unsafe { V::write_words(&line.map(received), to) };
            } else {
                descriptor.address.store(0, Ordering::Relaxed);
                descriptor.word.store(received(lengths[0]), Ordering::Release);
            }
            at = (at + done) & mask;
            left -= done;
        }
        self.written = until;
        count
    }
}

/// The registered memory in which the last buffer lay: the next lies there too, mostly.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    bus: u64,
    /// How many of its bytes a whole buffer may begin at.
    starts: usize,
    pointer: *mut u8,
}

impl Default for Window {
    fn default() -> Self {
        Self { bus: 0, starts: 0, pointer: std::ptr::null_mut() }
    }
}

impl Window {
    /// Where a whole buffer lies, where it is in here.
    #[inline(always)]
    pub(super) fn buffer(self, bus: u64) -> Option<*mut u8> {
        let offset = bus.wrapping_sub(self.bus) as usize;
        (offset < self.starts).then(|| self.pointer.wrapping_add(offset))
    }

    /// Where so many bytes lie, where the program with this pair may have them touched; it is the window from
    /// then on.
    #[cold]
    pub(super) fn find(
        &mut self,
        pair: Option<u32>,
        bus: u64,
        length: usize,
        nic: &EngineContext,
    ) -> Option<*mut u8> {
        let region = nic.region(pair?, bus, length)?;
        let starts = (region.length() + 1).saturating_sub(BUFFER);
        *self = Self { bus: region.bus(), starts, pointer: region.pointer() };
        Some(self.pointer.wrapping_add((bus - self.bus) as usize))
    }
}
