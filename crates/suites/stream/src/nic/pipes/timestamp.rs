//! Timestamps: a sent packet carries its sending time, which the NIC replaces by the elapsed time when the packet comes
//! back. A program thus learns round-trip times without its processing time.
//!
//! As in the hardware these are 32 bits in network byte order, in cycles of the NIC's clock. They are off by default and
//! separate from the loops over packets, which are not affected.

use super::super::layout::{CYCLE, FLIT, MAX_TRANSFER};
use super::super::ticks;
use crate::wire::packet::{self, Walk};
use crate::wire::traffic::{CacheLine, Packet};
use crate::wire::{PacketRun, TxCount, Wire};

/// Fixed-point fractions per cycle.
const FRACTION: f64 = 4_294_967_296.0;

/// State of the timestamp mode.
pub(super) struct Timestamp {
    offset: usize,
    /// Cycles per tick, as a fixed-point number.
    cycles: u64,
    /// Copies of packets to send, because the client's memory is not modified.
    stamped: Box<[CacheLine]>,
    /// Addresses of the packets of the current burst.
    addresses: Vec<*mut u8>,
}

impl Timestamp {
    pub(super) fn new(offset: u8, ticks_per_second: f64) -> Self {
        let cycles = 1.0 / (CYCLE.as_secs_f64() * ticks_per_second);
        Self {
            offset: usize::from(offset),
            cycles: (cycles * FRACTION) as u64,
            stamped: vec![CacheLine([0; FLIT]); MAX_TRANSFER / FLIT].into(),
            addresses: Vec::new(),
        }
    }

    /// Returns the time in cycles, which wraps every 21 seconds.
    fn now(&self) -> u32 {
        ((u128::from(ticks()) * u128::from(self.cycles)) >> 32) as u32
    }

    /// Sends packets with the current time.
    ///
    /// # Safety
    /// The requirements of [`Wire::on_transmit`] apply, with at most [`MAX_TRANSFER`] bytes.
    #[cold]
    #[inline(never)]
    pub(super) unsafe fn transmit<W: Wire>(
        &mut self,
        start: *const u8,
        bytes: usize,
        wire: &mut W,
    ) -> TxCount {
        let now = self.now();
        let stamped = self.stamped.as_mut_ptr().cast::<u8>();
        debug_assert!(bytes <= MAX_TRANSFER, "the buffer has no space for more");
        let (mut walk, mut at) = (Walk::default(), 0);
        // SAFETY: the caller guarantees `bytes` bytes of whole flits, for which the buffer has space; the timestamp is in
        // a packet's first flit.
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

    /// Records the addresses of the burst's packets in the client's memory. Lengths are taken from the traffic, because
    /// clients may change the headers concurrently.
    #[cold]
    #[inline(never)]
    pub(super) fn expect(
        &mut self,
        runs: &[PacketRun],
        order: &[u32],
        packets: &[Packet],
        is_clients: impl Fn(*mut u8) -> bool,
    ) {
        self.addresses.clear();
        let is_placed = |run: &&PacketRun| !run.place.is_null() && is_clients(run.place);
        for run in runs.iter().filter(is_placed) {
            let list = run.list.of(order).iter().cycle();
            let from = run.at as usize % run.list.len as usize;
            let mut place = run.place;
            for index in list.skip(from).take(run.count as usize) {
                self.addresses.push(place);
                let flits = packet::flits(usize::from(packets[*index as usize].length));
                place = place.wrapping_add(flits * FLIT);
            }
        }
    }

    /// Replaces the sending time in the recorded packets by the elapsed time.
    ///
    /// # Safety
    /// The packets were just written to the [recorded](Self::expect) addresses, and no host was notified yet.
    #[cold]
    #[inline(never)]
    pub(super) unsafe fn replace(&self) {
        let now = self.now();
        for packet in &self.addresses {
            // SAFETY: the caller guarantees the packet; the timestamp is in its first flit.
            unsafe {
                let field = packet.add(self.offset).cast::<u32>();
                let sent = u32::from_be(field.read_unaligned());
                field.write_unaligned(now.wrapping_sub(sent).to_be());
            }
        }
    }
}
