//! Packets that are sent together.

use super::times::Timing;
use super::{Generator, Template};
use crate::nic::layout::FLIT;
use crate::wire::traffic::Packet;
use crate::wire::vector::Vector;
use crate::wire::{PacketRun, RxBurst};

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

impl RxBurst for Burst<'_> {
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
    unsafe fn put<V: Vector>(
        self,
        order: &[u32],
        runs: &[PacketRun],
        mut next: impl FnMut(*mut u8, usize) -> *mut u8,
    ) {
        let generator = self.generator;
        let templates = generator.templates.as_slice();
        let round = generator.position.round;
        let mut writing = Writing { round, timing: generator.timing.begin_burst() };
        let mut wire_bytes = 0;
        for run in runs {
            let list = run.list.of(order);
            if run.place.is_null() {
                std::hint::cold_path();
                generator.dropped += u64::from(run.count);
                wire_bytes += nowhere(templates, list, run);
                continue;
            }
            // SAFETY: the order holds indices of the templates, and each place has room, by the caller's
            // word.
            wire_bytes += unsafe {
                match list {
                    [index] => writing.one::<V>(templates, *index, run, &mut next),
                    _ => writing.several::<V>(templates, list, run, &mut next),
                }
            };
        }
        generator.timing = writing.timing;
        generator.position.advance(self.count, templates.len() as u32);
        generator.sent += u64::from(self.count);
        generator.paced.sent(wire_bytes);
    }
}

/// Bytes on the wire of packets that have no place.
#[cold]
fn nowhere(templates: &[Template], list: &[u32], run: &PacketRun) -> u64 {
    let indices = list.iter().cycle().skip(run.at as usize % list.len());
    let each = indices.map(|index| u64::from(templates[*index as usize].wire_bytes));
    each.take(run.count as usize).sum()
}

/// Writes packets to where they go.
struct Writing {
    /// The round of the traffic that the burst begins in.
    round: u32,
    timing: Timing,
}

impl Writing {
    /// Writes the same packet again and again, which so stays in registers; gives its bytes on the wire.
    ///
    /// # Safety
    /// There is such a template, and room for the packets.
    #[inline(always)]
    unsafe fn one<V: Vector>(
        &mut self,
        templates: &[Template],
        index: u32,
        run: &PacketRun,
        mut next: impl FnMut(*mut u8, usize) -> *mut u8,
    ) -> u64 {
        // SAFETY: by the caller's word.
        let template = unsafe { *templates.get_unchecked(index as usize) };
        let step = template.flits as usize * FLIT;
        let mut number = template.number(self.round.wrapping_add(run.at));
        let mut place = run.place;
        // SAFETY: the source is in the traffic, which the generator holds.
        let first = unsafe { V::load(template.source) };
        let mut left = run.count;
        while left > 0 {
            let (stamp, count) = self.timing.next(left);
            left -= count;
            for _ in 0..count {
                // SAFETY: there is room, by the caller's word; the template has so many flits.
                unsafe {
                    template.put::<V>(V::marked(first, mark(index, number), stamp), place);
                }
                number = number.wrapping_add(template.each);
                place = next(place, step);
            }
        }
        u64::from(template.wire_bytes) * u64::from(run.count)
    }

    /// Writes packets of a list in turn; gives their bytes on the wire.
    ///
    /// # Safety
    /// There are such templates, and room for the packets.
    #[inline(always)]
    unsafe fn several<V: Vector>(
        &mut self,
        templates: &[Template],
        list: &[u32],
        run: &PacketRun,
        mut next: impl FnMut(*mut u8, usize) -> *mut u8,
    ) -> u64 {
        let (mut at, mut round) = (run.at as usize, self.round);
        let (mut place, mut wire_bytes) = (run.place, 0);
        let mut left = run.count;
        while left > 0 {
            let (stamp, count) = self.timing.next(left);
            left -= count;
            for _ in 0..count {
                while at >= list.len() {
                    (at, round) = (at - list.len(), round.wrapping_add(1));
                }
                let index = list[at];
                at += 1;
                // SAFETY: by the caller's word.
                let template = unsafe { templates.get_unchecked(index as usize) };
                wire_bytes += u64::from(template.wire_bytes);
                let mark = mark(index, template.number(round));
                // SAFETY: as in `one`.
                unsafe {
                    template.put::<V>(V::marked(V::load(template.source), mark, stamp), place);
                }
                place = next(place, template.flits as usize * FLIT);
            }
        }
        wire_bytes
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

/// What a packet says of itself: its number in its flow, and which it is.
#[inline(always)]
pub(super) fn mark(index: u32, number: u32) -> u64 {
    u64::from(number) | u64::from(index) << 32
}

impl Template {
    /// The packet's number in its flow, in a round of the traffic.
    #[inline(always)]
    fn number(&self, round: u32) -> u32 {
        self.first.wrapping_add(self.each.wrapping_mul(round))
    }

    /// Writes the packet, whose first flit is at hand.
    ///
    /// # Safety
    /// `place` has room for its flits, aligned to one; the processor has what the way of copying needs.
    #[inline(always)]
    unsafe fn put<V: Vector>(&self, first: V::Flit, place: *mut u8) {
        // SAFETY: the source is in the traffic, which the generator holds; the rest is the caller's word.
        unsafe {
            V::store(first, place);
            for flit in 1..self.flits as usize {
                V::copy(self.source.add(flit * FLIT), place.add(flit * FLIT));
            }
        }
    }
}
