//! Timestamps: a packet that leaves carries when it left, and one that comes how long ago it left, so that a
//! program learns the round-trip time of what it sent without what it takes itself.
//!
//! As in the hardware these are 32 bits in network order, in cycles of the NIC's clock. It is off unless a
//! program asks for it, and stands apart from the loops over packets, so that they know nothing of it.

use super::super::layout::{CYCLE, FLIT, LONGEST_TRANSFER};
use super::super::ticks;
use crate::wire::packet::Walk;
use crate::wire::traffic::Line;
use crate::wire::{Left, Stretch, Wire};

/// Fractions of a cycle in one.
const FRACTION: f64 = 4_294_967_296.0;

/// Where timestamps lie, and what they count.
pub(super) struct Timestamp {
    offset: usize,
    /// Cycles of a tick, in fractions of one.
    cycles: u64,
    /// Packets as they leave: what lies in the program's memory stays as it is.
    stamped: Box<[Line]>,
}

impl Timestamp {
    pub(super) fn new(offset: u8, ticks_a_second: f64) -> Self {
        let cycles = 1.0 / (CYCLE.as_secs_f64() * ticks_a_second);
        Self {
            offset: usize::from(offset),
            cycles: (cycles * FRACTION) as u64,
            stamped: vec![Line([0; FLIT]); LONGEST_TRANSFER / FLIT].into(),
        }
    }

    /// The time, which begins anew every 21 seconds.
    fn now(&self) -> u32 {
        ((u128::from(ticks()) * u128::from(self.cycles)) >> 32) as u32
    }

    /// Packets leave with the time.
    ///
    /// # Safety
    /// As for [`Wire::leave`]; at most [`LONGEST_TRANSFER`] bytes.
    #[cold]
    #[inline(never)]
    pub(super) unsafe fn leave<W: Wire>(
        &mut self,
        start: *const u8,
        bytes: usize,
        wire: &mut W,
    ) -> Left {
        let now = self.now();
        let stamped = self.stamped.as_mut_ptr().cast::<u8>();
        debug_assert!(bytes <= LONGEST_TRANSFER, "there is no room for more");
        let (mut walk, mut at) = (Walk::default(), 0);
        // SAFETY: by the caller's word there are so many bytes, in whole flits, and there is room for them;
        // the timestamp lies in a packet's first flit.
        unsafe {
            stamped.copy_from_nonoverlapping(start, bytes);
            while at < bytes {
                let packet = stamped.wrapping_add(at);
                at += walk.step(packet).1;
                packet.add(self.offset).cast::<u32>().write_unaligned(now.to_be());
            }
            wire.leave(stamped, bytes)
        }
    }

    /// Packets have come: each learns how long it was under way.
    ///
    /// # Safety
    /// At each place lie so many packets as were just written there, which nobody else reads or writes yet.
    #[cold]
    #[inline(never)]
    pub(super) unsafe fn arrive(&self, stretches: &[Stretch]) {
        let now = self.now();
        let mut walk = Walk::default();
        for stretch in stretches.iter().filter(|stretch| !stretch.place.is_null()) {
            let mut packet = stretch.place;
            for _ in 0..stretch.count {
                // SAFETY: by the caller's word; the timestamp lies in a packet's first flit.
                unsafe {
                    let field = packet.add(self.offset).cast::<u32>();
                    let left = u32::from_be(field.read_unaligned());
                    field.write_unaligned(now.wrapping_sub(left).to_be());
                    packet = packet.wrapping_add(walk.step(packet).1);
                }
            }
        }
    }
}
