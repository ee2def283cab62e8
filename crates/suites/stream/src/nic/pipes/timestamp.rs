//! Timestamps: a packet that leaves carries when it left, and one that comes how long ago it left, so that a
//! program learns the round-trip time of what it sent without what it takes itself.
//!
//! As in the hardware these are 32 bits in network order, in cycles of the NIC's clock. It is off unless a
//! program asks for it, and stands apart from the loops over packets, so that they know nothing of it.

use super::super::layout::{CYCLE, FLIT, MAX_TRANSFER};
use super::super::ticks;
use crate::wire::packet::{self, Walk};
use crate::wire::traffic::{CacheLine, Packet};
use crate::wire::{PacketRun, TxCount, Wire};

/// Fractions of a cycle in one.
const FRACTION: f64 = 4_294_967_296.0;

/// Where timestamps lie, and what they count.
pub(super) struct Timestamp {
    offset: usize,
    /// Cycles of a tick, in fractions of one.
    cycles: u64,
    /// Packets as they leave: what lies in the program's memory stays as it is.
    stamped: Box<[CacheLine]>,
    /// Where packets that are coming lie.
    next_burst: Vec<*mut u8>,
}

impl Timestamp {
    pub(super) fn new(offset: u8, ticks_per_second: f64) -> Self {
        let cycles = 1.0 / (CYCLE.as_secs_f64() * ticks_per_second);
        Self {
            offset: usize::from(offset),
            cycles: (cycles * FRACTION) as u64,
            stamped: vec![CacheLine([0; FLIT]); MAX_TRANSFER / FLIT].into(),
            next_burst: Vec::new(),
        }
    }

    /// The time, which begins anew every 21 seconds.
    fn now(&self) -> u32 {
        ((u128::from(ticks()) * u128::from(self.cycles)) >> 32) as u32
    }

    /// Packets leave with the time.
    ///
    /// # Safety
    /// As for [`Wire::leave`]; at most [`MAX_TRANSFER`] bytes.
    #[cold]
    #[inline(never)]
    pub(super) unsafe fn leave<W: Wire>(
        &mut self,
        start: *const u8,
        bytes: usize,
        wire: &mut W,
    ) -> TxCount {
        let now = self.now();
        let stamped = self.stamped.as_mut_ptr().cast::<u8>();
        debug_assert!(bytes <= MAX_TRANSFER, "there is no room for more");
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
            wire.on_transmit(stamped, bytes)
        }
    }

    /// Notes where packets are about to be written, if the place is the program's. What their own headers say there is not asked: their
    /// program may write there too.
    #[cold]
    #[inline(never)]
    pub(super) fn expect(
        &mut self,
        runs: &[PacketRun],
        order: &[u32],
        packets: &[Packet],
        is_own: impl Fn(*mut u8) -> bool,
    ) {
        self.next_burst.clear();
        let have_place = |run: &&PacketRun| !run.place.is_null() && is_own(run.place);
        for run in runs.iter().filter(have_place) {
            let list = run.list.of(order).iter().cycle();
            let from = run.at as usize % run.list.len as usize;
            let mut place = run.place;
            for index in list.skip(from).take(run.count as usize) {
                self.next_burst.push(place);
                let flits = packet::flits(usize::from(packets[*index as usize].length));
                place = place.wrapping_add(flits * FLIT);
            }
        }
    }

    /// The packets have come: each learns how long it was under way.
    ///
    /// # Safety
    /// They were just written where they were [expected](Self::expect), and no program was told yet.
    #[cold]
    #[inline(never)]
    pub(super) unsafe fn arrive(&self) {
        let now = self.now();
        for packet in &self.next_burst {
            // SAFETY: by the caller's word; the timestamp lies in a packet's first flit.
            unsafe {
                let field = packet.add(self.offset).cast::<u32>();
                let left = u32::from_be(field.read_unaligned());
                field.write_unaligned(now.wrapping_sub(left).to_be());
            }
        }
    }
}
