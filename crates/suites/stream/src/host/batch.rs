//! Received bytes, and the messages in them.

use crate::nic::layout::FLIT;
use crate::wire::packet;

/// Bytes that a pipe received: whole messages, each aligned to a flit.
#[derive(Debug)]
pub struct Batch<'a> {
    bytes: &'a mut [u8],
}

impl<'a> Batch<'a> {
    /// Creates a batch from whole flits.
    pub(super) fn new(bytes: &'a mut [u8]) -> Self {
        debug_assert!(bytes.len().is_multiple_of(FLIT));
        Self { bytes }
    }

    /// Returns all bytes.
    pub fn bytes(&mut self) -> &mut [u8] {
        self.bytes
    }

    /// Returns the number of bytes, including the padding between messages.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns whether the batch has no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Iterates over the batch as packets.
    pub fn packets(self) -> Messages<'a, Packets> {
        self.messages(Packets)
    }

    /// Iterates over the batch as messages whose length `length` reads from their first flit.
    pub fn messages<F: Length>(self, length: F) -> Messages<'a, F> {
        Messages { left: self.bytes, processed: 0, length, like: FLIT, stride: FLIT }
    }
}

/// Determines the length of a message from its first flit.
pub trait Length {
    /// Returns the length of a message, in bytes.
    fn of(&mut self, flit: &[u8; FLIT]) -> usize;
}

impl<F: FnMut(&[u8; FLIT]) -> usize> Length for F {
    #[inline(always)]
    fn of(&mut self, flit: &[u8; FLIT]) -> usize {
        self(flit)
    }
}

/// [`Length`] of IPv4 packets in Ethernet frames.
#[derive(Debug, Clone, Copy)]
pub struct Packets;

impl Length for Packets {
    #[inline(always)]
    fn of(&mut self, flit: &[u8; FLIT]) -> usize {
        // SAFETY: a flit contains an Ethernet and an IPv4 header.
        unsafe { packet::length(flit.as_ptr()) }
    }
}

/// Iterator over the messages of a batch. It ends before a message that exceeds the batch.
#[derive(Debug)]
pub struct Messages<'a, F> {
    left: &'a mut [u8],
    processed: usize,
    length: F,
    /// Length of the last message, and the same rounded up to flits. Most messages have the length of the one before:
    /// speculating on that lets the CPU fetch many at once.
    like: usize,
    stride: usize,
}

impl<F> Messages<'_, F> {
    /// Returns the bytes of the messages returned so far, with their padding, which may be freed or sent.
    pub fn processed(&self) -> usize {
        self.processed
    }
}

impl<'a, F: Length> Iterator for Messages<'a, F> {
    type Item = &'a mut [u8];

    #[inline(always)]
    fn next(&mut self) -> Option<&'a mut [u8]> {
        let length = self.length.of(self.left.first_chunk()?);
        if length != self.like {
            // A branch, which is predicted; a conditional move would wait for the length.
            std::hint::cold_path();
            self.like = length;
            self.stride = packet::flits(length.max(1)) * FLIT;
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
        fn each_message_is_returned_once(lengths in proptest::collection::vec(1usize..700, 0..50), cut in 0usize..20) {
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
