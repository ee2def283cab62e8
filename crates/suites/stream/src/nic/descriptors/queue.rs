//! The state of a queue: a receive and a transmit ring of descriptors.

use super::super::descriptor::{BUFFER, Descriptor, RxDescriptor};
use super::super::engine::EngineContext;
use super::super::register_writes::DelayedTail;
use crate::wire::vector::Vector;

/// A ring of descriptors.
pub(super) struct DescriptorRing<D> {
    /// Null if there is no ring.
    pub(super) descriptors: *const D,
    /// Position up to which the NIC has used descriptors.
    pub(super) head: u32,
    /// Position up to which the host has filled them.
    pub(super) tail: DelayedTail,
    /// Lower half of the address, until the upper half is written.
    pub(super) low: u32,
}

impl<D> Default for DescriptorRing<D> {
    fn default() -> Self {
        Self::new(std::ptr::null())
    }
}

impl<D> DescriptorRing<D> {
    /// Creates an empty ring at an address; null if there is none.
    pub(super) fn new(descriptors: *const D) -> Self {
        Self { descriptors, head: 0, tail: DelayedTail::default(), low: 0 }
    }

    #[inline(always)]
    pub(super) fn is_none(&self) -> bool {
        self.descriptors.is_null()
    }

    /// Returns the descriptors from the head up to the end of the ring, at most `max`. The ring has `mask + 1`.
    ///
    /// # Safety
    /// The ring exists and has that size, and the head is within it.
    #[inline(always)]
    pub(super) unsafe fn run<'a>(&self, max: u32, mask: u32) -> &'a [D] {
        let count = max.min(mask + 1 - self.head) as usize;
        // SAFETY: the caller guarantees the size; the ring is registered, and all fields are atomic.
        unsafe {
            std::slice::from_raw_parts(self.descriptors.wrapping_add(self.head as usize), count)
        }
    }

    /// Returns a descriptor.
    ///
    /// # Safety
    /// The ring exists, and `index` is within it.
    #[inline(always)]
    pub(super) unsafe fn at(&self, index: u32) -> &D {
        // SAFETY: the caller guarantees the size; the ring is registered, and all fields are atomic.
        unsafe { &*self.descriptors.wrapping_add(index as usize) }
    }
}

/// The state of one queue.
pub(super) struct Queue<D> {
    /// The pair to which the queue belongs.
    pub(super) pair: Option<u32>,
    pub(super) rx: DescriptorRing<D>,
    pub(super) tx: DescriptorRing<Descriptor>,
    /// Packet length of each receive descriptor, to be written when the packet is reported.
    pub(super) lengths: Box<[u16]>,
    /// Position up to which packets are reported.
    pub(super) written: u32,
    /// Position up to which reports are written or on their way.
    pub(super) announced: u32,
    /// Whether packets are to be reported at the end of this iteration.
    pub(super) due: bool,
    /// Whether the queue is in the list of those with descriptors to send.
    pub(super) sends: bool,
    pub(super) window: Window,
}

impl<D> Default for Queue<D> {
    fn default() -> Self {
        Self {
            pair: None,
            rx: DescriptorRing::default(),
            tx: DescriptorRing::default(),
            lengths: Box::default(),
            written: 0,
            announced: 0,
            due: false,
            sends: false,
            window: Window::default(),
        }
    }
}

impl<D: RxDescriptor> Queue<D> {
    /// Counts the writes of all reports that are due: of each cache line of descriptors that they touch, one.
    #[inline(always)]
    pub(super) fn count_reports(&mut self, nic: &mut EngineContext) {
        let (from, per_line) = (self.announced as usize, D::PER_LINE);
        let count = self.rx.head.wrapping_sub(self.announced) as usize & (self.lengths.len() - 1);
        let lines = (from % per_line + count).div_ceil(per_line);
        nic.write_packets(lines as u64, (count * size_of::<D>()) as u64);
        self.announced = self.rx.head;
    }

    /// Reports packets up to a position in their descriptors. Descriptors of a whole cache line are written together.
    /// Returns their number.
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
            if lengths.len() >= D::PER_LINE
                && left >= D::PER_LINE as u32
                && (at as usize).is_multiple_of(D::PER_LINE)
            {
                done = D::PER_LINE as u32;
                let to = std::ptr::from_ref(descriptor).cast_mut().cast();
                // SAFETY: a whole line of descriptors that belong to the NIC until they are written; the caller has
                // checked that the CPU supports `V`.
                unsafe { D::report_line::<V>(lengths, to) };
            } else {
                descriptor.report(lengths[0]);
            }
            at = (at + done) & mask;
            left -= done;
        }
        self.written = until;
        count
    }
}

/// The region of the last buffer, which usually contains the next one too.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    bus: u64,
    /// Number of offsets at which a whole buffer can start.
    starts: usize,
    pointer: *mut u8,
}

impl Default for Window {
    fn default() -> Self {
        Self { bus: 0, starts: 0, pointer: std::ptr::null_mut() }
    }
}

impl Window {
    /// Returns the address of a buffer, or `None` if it is not inside the window.
    #[inline(always)]
    pub(super) fn buffer(self, bus: u64) -> Option<*mut u8> {
        let offset = bus.wrapping_sub(self.bus) as usize;
        (offset < self.starts).then(|| self.pointer.wrapping_add(offset))
    }

    /// Resolves `length` bytes in the memory of the pair's client, and moves the window there. Returns `None` if the
    /// client may not use them.
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
