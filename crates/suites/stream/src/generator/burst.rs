//! Packets that are sent together.

use super::{Generator, Template};
use crate::nic::layout::FLIT;
use crate::nic::ticks;
use crate::wire::traffic::Packet;
use crate::wire::vector::Vector;
use crate::wire::{Coming, Stretch};

/// Packets for which the time is read once when they are sent.
const STAMPED_TOGETHER: u32 = 16;

/// Packets that are sent together.
pub struct Burst<'a> {
    pub(super) count: u32,
    pub(super) generator: &'a mut Generator,
}

/// How far the generator is in its traffic, which it sends round after round.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Position {
    /// The next packet's index.
    pub(super) index: u32,
    /// Rounds before this one.
    pub(super) round: u32,
}

impl Coming for Burst<'_> {
    #[inline(always)]
    fn count(&self) -> u32 {
        self.count
    }

    #[inline(always)]
    fn first(&self) -> u32 {
        self.generator.position.index
    }

    fn packets(&self) -> &[Packet] {
        self.generator.traffic.packets()
    }

    #[inline(always)]
    unsafe fn deliver<V: Vector>(self, order: &[u32], stretches: &[Stretch]) {
        // SAFETY: by the caller's word; each packet lies behind the one before it.
        unsafe { self.put::<V>(order, stretches, |place, bytes| place.wrapping_add(bytes)) };
    }

    #[inline(always)]
    unsafe fn deliver_apart<V: Vector>(
        self,
        order: &[u32],
        stretches: &[Stretch],
        places: &[*mut u8],
    ) {
        let mut placed = 0;
        let next = |_, _| {
            placed += 1;
            places.get(placed).copied().unwrap_or(std::ptr::null_mut())
        };
        // SAFETY: by the caller's word; each packet that has a place has the next.
        unsafe { self.put::<V>(order, stretches, next) };
    }
}

impl Burst<'_> {
    /// Writes the packets, each where `next` says, which is told the place and the bytes of the one before.
    ///
    /// # Safety
    /// As for [`Coming::deliver`], and of the places that `next` gives within a stretch.
    #[inline(always)]
    unsafe fn put<V: Vector>(
        self,
        order: &[u32],
        stretches: &[Stretch],
        mut next: impl FnMut(*mut u8, usize) -> *mut u8,
    ) {
        let generator = self.generator;
        let templates = generator.templates.as_slice();
        let (mut stamp, mut stamped) = (0, 0);
        let mut wire_bytes = 0;
        for stretch in stretches {
            let list = stretch.list.of(order);
            let (mut at, mut round) = (stretch.at as usize, generator.position.round);
            let mut place = stretch.place;
            if place.is_null() {
                std::hint::cold_path();
                generator.dropped += u64::from(stretch.count);
            }
            for _ in 0..stretch.count {
                if stamped == 0 {
                    (stamp, stamped) = (ticks() as u32, STAMPED_TOGETHER);
                }
                stamped -= 1;
                while at >= list.len() {
                    (at, round) = (at - list.len(), round.wrapping_add(1));
                }
                let index = list[at];
                at += 1;
                // SAFETY: the order holds indices of the templates, by the caller's word.
                let template = unsafe { templates.get_unchecked(index as usize) };
                wire_bytes += u64::from(template.wire_bytes);
                if !place.is_null() {
                    let mark = template.mark(index, round);
                    // SAFETY: the template has so many flits, and the caller answers for the other side.
                    unsafe { template.put::<V>(place, mark, stamp) };
                    place = next(place, template.flits as usize * FLIT);
                }
            }
        }
        generator.position.advance(self.count, templates.len() as u32);
        generator.sent += u64::from(self.count);
        generator.paced.sent(wire_bytes);
    }
}

impl Position {
    #[inline(always)]
    fn advance(&mut self, packets: u32, all: u32) {
        let index = self.index + packets;
        self.round = self.round.wrapping_add(index / all);
        self.index = index % all;
    }
}

impl Template {
    /// What a packet says of itself: its number in its flow, and which it is.
    #[inline(always)]
    fn mark(&self, index: u32, round: u32) -> u64 {
        let number = self.first.wrapping_add(self.each.wrapping_mul(round));
        u64::from(number) | u64::from(index) << 32
    }

    /// Writes the packet.
    ///
    /// # Safety
    /// `place` has room for its flits, aligned to one; the processor has what the way of copying needs.
    #[inline(always)]
    unsafe fn put<V: Vector>(&self, place: *mut u8, mark: u64, stamp: u32) {
        // SAFETY: the source is in the traffic, which the generator holds; the rest is the caller's word.
        unsafe {
            V::put(self.source, place, mark, stamp);
            for flit in 1..self.flits as usize {
                V::copy(self.source.add(flit * FLIT), place.add(flit * FLIT));
            }
        }
    }
}
