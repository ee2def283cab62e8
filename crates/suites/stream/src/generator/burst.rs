//! Packets that are sent together.

use super::Generator;
use crate::nic::layout::FLIT;
use crate::nic::ticks;
use crate::wire::traffic::Packet;
use crate::wire::vector::Vector;
use crate::wire::{Coming, Next};

/// Packets for which the time is read once when they are sent.
const STAMPED_TOGETHER: u32 = 16;

/// Packets that are sent together.
pub struct Burst<'a> {
    pub(super) left: u32,
    /// Which of the templates is next.
    pub(super) next: u32,
    pub(super) stamp: u32,
    /// Packets that still get the same stamp.
    pub(super) stamped: u32,
    pub(super) sent: u64,
    pub(super) dropped: u64,
    pub(super) wire_bytes: u64,
    pub(super) generator: &'a mut Generator,
}

impl Burst<'_> {
    /// Goes on to the next packet, and gives the number that this one has in its flow.
    #[inline(always)]
    fn advance(&mut self) -> u32 {
        let template = &self.generator.templates[self.next as usize];
        let sequence = &mut self.generator.sequences[template.flow as usize];
        let number = *sequence;
        *sequence = number.wrapping_add(1);
        self.left -= 1;
        self.sent += 1;
        self.wire_bytes += u64::from(template.wire_bytes);
        self.next += 1;
        if self.next == self.generator.templates.len() as u32 {
            self.next = 0;
        }
        number
    }
}

impl Coming for Burst<'_> {
    #[inline(always)]
    fn left(&self) -> u32 {
        self.left
    }

    #[inline(always)]
    fn next(&self) -> Next {
        let template = &self.generator.templates[self.next as usize];
        Next { index: self.next, flits: template.flits, length: template.length }
    }

    fn packets(&self) -> &[Packet] {
        self.generator.traffic.packets()
    }

    #[inline(always)]
    unsafe fn put<V: Vector>(&mut self, into: *mut u8) {
        if self.stamped == 0 {
            self.stamp = ticks() as u32;
            self.stamped = STAMPED_TOGETHER;
        }
        self.stamped -= 1;
        let template = self.generator.templates[self.next as usize];
        let index = self.next;
        let mark = u64::from(self.advance()) | u64::from(index) << 32;
        // SAFETY: the template has so many flits, and the caller answers for the other side.
        unsafe {
            V::put(template.source, into, mark, self.stamp);
            for flit in 1..template.flits as usize {
                V::copy(template.source.add(flit * FLIT), into.add(flit * FLIT));
            }
        }
    }

    #[inline(always)]
    fn drop_next(&mut self) {
        self.advance();
        self.dropped += 1;
    }

    #[inline(always)]
    fn finish(self) {
        let Self { next, sent, dropped, wire_bytes, generator, .. } = self;
        generator.next = next;
        generator.sent += sent;
        generator.dropped += dropped;
        generator.paced.sent(wire_bytes);
    }
}
