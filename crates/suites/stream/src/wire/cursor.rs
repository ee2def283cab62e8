//! Cursors: where the next packets of a queue are written.

use super::packet::FLIT;
use super::vector::{Vector, prefetch_to_write};
use super::{PacketRun, RxBurst};

/// Number of packets of a queue by which the first line of a later one is fetched before it is written. The hardware's
/// prefetchers do not follow many queues in turn.
const AHEAD: usize = 8;

/// The addresses of the packets of one queue, in order.
pub trait Cursor: Copy {
    /// Creates a cursor over `count` packets. The first is at `start`, each has `bytes` bytes of flits, and `places`
    /// starts with their addresses if these are separate.
    fn new(start: *mut u8, places: &[*mut u8], count: u32, bytes: usize) -> Self;

    /// Returns the address of the next packet, with `bytes` bytes of flits, or `None` if there is none.
    ///
    /// # Safety
    /// `bytes` is the size given to [`new`](Self::new), and its `places` still exist.
    unsafe fn next(&mut self, bytes: usize) -> Option<*mut u8>;

    /// Writes the packets of a burst run by run.
    ///
    /// # Safety
    /// The requirements of [`RxBurst::deliver_scattered`] apply, those of `places` only if addresses are separate.
    unsafe fn deliver_runs<V: Vector>(
        burst: impl RxBurst,
        order: &[u32],
        runs: &[PacketRun],
        places: &[*mut u8],
    );
}

/// Contiguous packets in a ring.
#[derive(Debug, Clone, Copy)]
pub struct RingCursor {
    next: *mut u8,
    end: *mut u8,
}

impl Cursor for RingCursor {
    #[inline(always)]
    fn new(start: *mut u8, _: &[*mut u8], count: u32, bytes: usize) -> Self {
        Self { next: start, end: start.wrapping_add(count as usize * bytes) }
    }

    #[inline(always)]
    unsafe fn next(&mut self, bytes: usize) -> Option<*mut u8> {
        let place = self.next;
        if place == self.end {
            return None;
        }
        self.next = place.wrapping_add(bytes);
        let later = place.wrapping_add(AHEAD * FLIT);
        if later < self.end {
            prefetch_to_write(later);
        }
        Some(place)
    }

    #[inline(always)]
    unsafe fn deliver_runs<V: Vector>(
        burst: impl RxBurst,
        order: &[u32],
        runs: &[PacketRun],
        _: &[*mut u8],
    ) {
        // SAFETY: the caller guarantees the same.
        unsafe { burst.deliver::<V>(order, runs) };
    }
}

/// Packets in separate buffers.
#[derive(Debug, Clone, Copy)]
pub struct BufferCursor {
    next: *const *mut u8,
    end: *const *mut u8,
}

impl Cursor for BufferCursor {
    #[inline(always)]
    fn new(_: *mut u8, places: &[*mut u8], count: u32, _: usize) -> Self {
        let places = &places[..count as usize];
        Self { next: places.as_ptr(), end: places.as_ptr_range().end }
    }

    #[inline(always)]
    unsafe fn next(&mut self, _: usize) -> Option<*mut u8> {
        if self.next == self.end {
            return None;
        }
        // SAFETY: the entry is before the end of the addresses, which exist, guaranteed by the caller.
        let place = unsafe { *self.next };
        let later = self.next.wrapping_add(AHEAD);
        if later < self.end {
            // SAFETY: see above.
            prefetch_to_write(unsafe { *later });
        }
        self.next = self.next.wrapping_add(1);
        Some(place)
    }

    #[inline(always)]
    unsafe fn deliver_runs<V: Vector>(
        burst: impl RxBurst,
        order: &[u32],
        runs: &[PacketRun],
        places: &[*mut u8],
    ) {
        // SAFETY: the caller guarantees the same.
        unsafe { burst.deliver_scattered::<V>(order, runs, places) };
    }
}
