//! Bytes that came, and the messages in them.

use crate::nic::layout::FLIT;
use crate::wire::packet;

/// Bytes that a pipe received: whole messages, each at a flit.
#[derive(Debug)]
pub struct Batch<'a> {
    bytes: &'a mut [u8],
}

impl<'a> Batch<'a> {
    /// Bytes in whole flits.
    pub(super) fn new(bytes: &'a mut [u8]) -> Self {
        debug_assert!(bytes.len().is_multiple_of(FLIT));
        Self { bytes }
    }

    /// All of them.
    pub fn bytes(&mut self) -> &mut [u8] {
        self.bytes
    }

    /// How many there are, with the padding between messages.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing came.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Its packets, one after the other.
    pub fn packets(self) -> Messages<'a, Packets> {
        self.messages(Packets)
    }

    /// Its messages, of the length that their first flit tells.
    pub fn messages<F: Length>(self, length: F) -> Messages<'a, F> {
        Messages { left: self.bytes, processed: 0, length, like: FLIT, stride: FLIT }
    }
}

/// How long a message is, by its first flit.
pub trait Length {
    /// Its bytes.
    fn of(&mut self, flit: &[u8; FLIT]) -> usize;
}

impl<F: FnMut(&[u8; FLIT]) -> usize> Length for F {
    #[inline(always)]
    fn of(&mut self, flit: &[u8; FLIT]) -> usize {
        self(flit)
    }
}

/// Messages are packets: IPv4 in Ethernet.
#[derive(Debug, Clone, Copy)]
pub struct Packets;

impl Length for Packets {
    #[inline(always)]
    fn of(&mut self, flit: &[u8; FLIT]) -> usize {
        // SAFETY: a flit holds an Ethernet and an IPv4 header.
        unsafe { packet::length(flit.as_ptr()) }
    }
}

/// The messages of a batch. A message that would reach beyond the batch ends it.
#[derive(Debug)]
pub struct Messages<'a, F> {
    left: &'a mut [u8],
    processed: usize,
    length: F,
    /// How long the last message was, and the bytes of its flits. Most are like the one before: going on
    /// as if they were lets the processor fetch many at once.
    like: usize,
    stride: usize,
}

impl<F> Messages<'_, F> {
    /// Bytes of the messages given so far, with their padding: what may be freed or sent.
    pub fn processed(&self) -> usize {
        self.processed
    }

    #[cold]
    #[inline(never)]
    fn learn(&mut self, length: usize) {
        self.like = length;
        self.stride = packet::flits(length.max(1)) * FLIT;
    }
}

impl<'a, F: Length> Iterator for Messages<'a, F> {
    type Item = &'a mut [u8];

    #[inline(always)]
    fn next(&mut self) -> Option<&'a mut [u8]> {
        let length = self.length.of(self.left.first_chunk()?);
        if length != self.like {
            self.learn(length);
        }
        let left = std::mem::take(&mut self.left);
        if self.stride > left.len() {
            return None;
        }
        let (message, rest) = left.split_at_mut(self.stride);
        self.left = rest;
        self.processed += self.stride;
        Some(&mut message[..self.like])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_message_once_and_nothing_beyond(lengths in proptest::collection::vec(1usize..700, 0..50), cut in 0usize..20) {
            let mut bytes = Vec::new();
            for (length, number) in lengths.iter().zip(1u8..) {
                let at = bytes.len();
                bytes.resize(at + packet::flits(*length) * FLIT, 0);
                bytes[at..at + 2].copy_from_slice(&(*length as u16).to_le_bytes());
                bytes[at + 2] = number;
            }
            bytes.truncate(bytes.len().saturating_sub(cut * FLIT));
            let all = bytes.len();
            let mut messages = Batch::new(&mut bytes)
                .messages(|flit: &[u8; FLIT]| usize::from(u16::from_le_bytes([flit[0], flit[1]])));
            let mut given = 0;
            for (message, length) in (&mut messages).zip(&lengths) {
                prop_assert_eq!(message.len(), *length);
                given += packet::flits(*length) * FLIT;
            }
            prop_assert_eq!(messages.processed(), given);
            prop_assert!(given <= all);
            let next = lengths.iter().scan(0, |at, length| {
                *at += packet::flits(*length) * FLIT;
                Some(*at)
            }).find(|end| *end > given);
            prop_assert!(next.is_none_or(|end| end > all), "the next message was whole");
        }
    }
}
