//! Bursts: packets that the generator sends together.

use super::times::{Numbering, Timing};
use super::{Generator, Template};
use crate::nic::layout::FLIT;
use crate::wire::mark::{ADDRESSES, Mark, MarkPosition, PAYLOAD};
use crate::wire::traffic::Packet;
use crate::wire::vector::Vector;
use crate::wire::{Cursor, PacketRun, RxBurst};

/// A burst of the generator's packets.
pub struct Burst<'a> {
    pub(super) count: u32,
    pub(super) generator: &'a mut Generator,
}

/// Position of the generator in its traffic, which it replays round after round.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Position {
    /// Index of the next packet.
    pub(super) index: u32,
    /// Number of complete rounds.
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
        next: impl FnMut(*mut u8, usize) -> *mut u8,
    ) {
        // SAFETY: the caller guarantees the same.
        unsafe {
            match self.generator.traffic.marks() {
                MarkPosition::Payload => self.put_marked::<V, PAYLOAD>(order, runs, next),
                MarkPosition::Addresses => self.put_marked::<V, ADDRESSES>(order, runs, next),
            }
        }
    }

    #[inline(always)]
    unsafe fn put_in_order<V: Vector, C: Cursor>(self, queues: &[u32], cursors: &mut [C]) {
        // SAFETY: the caller guarantees the same.
        unsafe {
            match self.generator.traffic.marks() {
                MarkPosition::Payload => self.put_marked_in_order::<V, C, PAYLOAD>(queues, cursors),
                MarkPosition::Addresses => {
                    self.put_marked_in_order::<V, C, ADDRESSES>(queues, cursors);
                }
            }
        }
    }
}

impl Burst<'_> {
    /// Writes the packets with their marks at `AT`.
    ///
    /// # Safety
    /// The requirements of [`RxBurst::put`] apply.
    #[inline(always)]
    unsafe fn put_marked<V: Vector, const AT: usize>(
        self,
        order: &[u32],
        runs: &[PacketRun],
        mut next: impl FnMut(*mut u8, usize) -> *mut u8,
    ) {
        let generator = self.generator;
        let templates = generator.templates.as_slice();
        let round = generator.position.round;
        let mut writer = BurstWriter::<AT> { round, timing: generator.timing.begin_burst() };
        for run in runs {
            let list = run.list.of(order);
            if run.place.is_null() {
                std::hint::cold_path();
                generator.dropped += u64::from(run.count);
                continue;
            }
            // SAFETY: the caller guarantees that the lists contain indices of the templates, and that each address has
            // space for its packet.
            unsafe {
                match list {
                    [index] => writer.write_one::<V>(templates, *index, run, &mut next),
                    _ => writer.write_list::<V>(templates, list, run, &mut next),
                }
            };
        }
        generator.end_burst(self.count, writer.timing);
    }

    /// Writes the packets in the order in which they arrive, with their marks at `AT`.
    ///
    /// # Safety
    /// The requirements of [`RxBurst::put_in_order`] apply.
    #[inline(always)]
    unsafe fn put_marked_in_order<V: Vector, C: Cursor, const AT: usize>(
        self,
        queues: &[u32],
        cursors: &mut [C],
    ) {
        let Self { count, generator } = self;
        let Position { index, round } = generator.position;
        let mut writer = BurstWriter::<AT> { round, timing: generator.timing.begin_burst() };
        // SAFETY: the caller guarantees the same, and there are as many queues as templates.
        let dropped = unsafe {
            writer.write_in_order::<V, C>(&generator.templates, index, count, queues, cursors)
        };
        generator.dropped += dropped;
        generator.end_burst(count, writer.timing);
    }
}

impl Generator {
    /// Accounts for the packets of a burst, which follow each other in the traffic.
    #[inline(always)]
    fn end_burst(&mut self, count: u32, timing: Timing) {
        self.timing = timing;
        let (first, all) = (self.position.index as usize, self.templates.len());
        let rounds = self.position.advance(count, all as u32);
        // The last entry is that of a whole round.
        let (before, next) = (&self.wire_before, self.position.index as usize);
        let wire_bytes = u64::from(rounds) * before[all] + before[next] - before[first];
        self.sent += u64::from(count);
        self.sent_bytes += wire_bytes;
        self.paced.sent(wire_bytes);
    }
}

/// Writes the packets of a burst to memory, with their marks at `AT`.
struct BurstWriter<const AT: usize> {
    /// Round in which the burst starts.
    round: u32,
    timing: Timing,
}

impl<const AT: usize> BurstWriter<AT> {
    /// Writes one packet repeatedly, which keeps it in registers.
    ///
    /// # Safety
    /// `index` is an index of `templates`, and there is space for the packets.
    #[inline(always)]
    unsafe fn write_one<V: Vector>(
        &mut self,
        templates: &[Template],
        index: u32,
        run: &PacketRun,
        mut next: impl FnMut(*mut u8, usize) -> *mut u8,
    ) {
        // SAFETY: the caller guarantees that the index is valid.
        let template = unsafe { *templates.get_unchecked(index as usize) };
        let bytes = template.flits as usize * FLIT;
        let Numbering { each, .. } = template.numbering;
        let mut number = template.numbering.in_round(self.round.wrapping_add(run.at));
        let mut place = run.place;
        // SAFETY: the source is in the traffic, which the generator keeps; the caller guarantees the CPU.
        let (first, step) = unsafe { (V::load(template.source), V::words::<AT>(Mark::step(each))) };
        let mut left = run.count;
        while left > 0 {
            let (stamp, mut count) = self.timing.next(left);
            left -= count;
            while count > 0 {
                let mark = Mark { index, number, stamp };
                let steps = mark.steps(each, count);
                // SAFETY: the caller guarantees the space; `source` has as many flits as the template states.
                unsafe {
                    let mut words = V::words::<AT>(mark.words());
                    for _ in 0..steps {
                        template.put::<V>(V::marked::<AT>(first, words), place);
                        words = V::sum(words, step);
                        place = next(place, bytes);
                    }
                }
                number = number.wrapping_add(each.wrapping_mul(steps));
                count -= steps;
            }
        }
    }

    /// Writes the packets of a list in turn.
    ///
    /// # Safety
    /// The list contains indices of `templates`, and there is space for the packets.
    #[inline(always)]
    unsafe fn write_list<V: Vector>(
        &mut self,
        templates: &[Template],
        list: &[u32],
        run: &PacketRun,
        mut next: impl FnMut(*mut u8, usize) -> *mut u8,
    ) {
        let (mut at, mut round) = (run.at as usize, self.round);
        let mut place = run.place;
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
                // SAFETY: the caller guarantees that the index is valid.
                let template = unsafe { templates.get_unchecked(index as usize) };
                let mark = Mark { index, number: template.numbering.in_round(round), stamp };
                // SAFETY: the caller guarantees space for the packet.
                unsafe { template.put_marked::<V, AT>(mark, place) };
                place = next(place, template.flits as usize * FLIT);
            }
        }
    }

    /// Writes the packets from index `first` on in the order in which they arrive, each to the next address of its queue.
    /// Returns the number of packets without an address.
    ///
    /// # Safety
    /// There is a queue for each template and a cursor for each queue, whose addresses have space for their packets.
    #[inline(always)]
    unsafe fn write_in_order<V: Vector, C: Cursor>(
        &mut self,
        templates: &[Template],
        first: u32,
        count: u32,
        queues: &[u32],
        cursors: &mut [C],
    ) -> u64 {
        debug_assert_eq!(queues.len(), templates.len());
        let (mut index, mut round) = (first as usize, self.round);
        let mut dropped = 0;
        let mut left = count;
        while left > 0 {
            let (stamp, count) = self.timing.next(left);
            left -= count;
            for _ in 0..count {
                // SAFETY: the caller guarantees the queue and its cursor; the index wraps at the end of the templates.
                let (template, cursor) = unsafe {
                    let queue = *queues.get_unchecked(index) as usize;
                    (templates.get_unchecked(index), cursors.get_unchecked_mut(queue))
                };
                let number = template.numbering.in_round(round);
                let mark = Mark { index: index as u32, number, stamp };
                // SAFETY: the caller guarantees space for the packet.
                unsafe {
                    if let Some(place) = cursor.next(template.flits as usize * FLIT) {
                        template.put_marked::<V, AT>(mark, place);
                    } else {
                        std::hint::cold_path();
                        dropped += 1;
                    }
                }
                index += 1;
                if index == templates.len() {
                    // A branch, which is predicted: conditional moves would take more instructions for each packet.
                    std::hint::cold_path();
                    (index, round) = (0, round.wrapping_add(1));
                }
            }
        }
        dropped
    }
}

impl Position {
    /// Advances by some packets. Returns the number of rounds that this completes.
    #[inline(always)]
    fn advance(&mut self, packets: u32, all: u32) -> u32 {
        let index = self.index + packets;
        let rounds = index / all;
        self.round = self.round.wrapping_add(rounds);
        self.index = index % all;
        rounds
    }
}

impl Template {
    /// Writes the packet with a mark at `AT`.
    ///
    /// # Safety
    /// The requirements of [`put`](Self::put) apply.
    #[inline(always)]
    unsafe fn put_marked<V: Vector, const AT: usize>(&self, mark: Mark, place: *mut u8) {
        // SAFETY: the source is in the traffic, which the generator keeps; the caller guarantees the remaining conditions.
        unsafe {
            let words = V::words::<AT>(mark.words());
            self.put::<V>(V::marked::<AT>(V::load(self.source), words), place);
        }
    }

    /// Writes the packet. `first` is its first flit, already marked.
    ///
    /// # Safety
    /// `place` is aligned to a flit and has space for the packet; the CPU supports `V`.
    #[inline(always)]
    unsafe fn put<V: Vector>(&self, first: V::Flit, place: *mut u8) {
        // SAFETY: the source is in the traffic, which the generator keeps; the caller guarantees the remaining
        // conditions.
        unsafe {
            V::store(first, place);
            for flit in 1..self.flits as usize {
                V::copy(self.source.add(flit * FLIT), place.add(flit * FLIT));
            }
        }
    }
}
