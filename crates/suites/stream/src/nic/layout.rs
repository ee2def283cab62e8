//! What a program and the NIC agree on: registers, notifications, sizes. They are those of the hardware, so
//! that the card could stand where the software NIC stands.

// Sizes may be another process's: this crate is compiled without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::time::Duration;

/// Bytes that the NIC moves at once, and to which packets in a pipe are aligned.
pub use crate::wire::packet::FLIT;
/// Pipes that the NIC has.
pub const PIPES: u32 = 8192;
/// Pairs of notification buffers that it has, one for each core that uses it.
pub const BUFFERS: u32 = 1024;
/// Notifications that each buffer of a pair holds in the hardware.
pub const NOTIFICATIONS: u32 = 16384;
/// Bytes of a pipe's ring in the hardware.
pub const RING: usize = 2 << 20;
/// Bytes that one TX notification asks for at most.
pub const MAX_TRANSFER: usize = 128 << 10;
/// Flits that the hardware moves a second: its clock, in whose shares rates are limited.
pub const FLITS_PER_SECOND: f64 = 200e6;

/// A cycle of that clock, in which timestamps count.
pub const CYCLE: Duration = Duration::from_nanos(5);

/// Where in a packet timestamps lie unless said otherwise: what IPv4 tells fragments by.
pub const TIMESTAMP: u8 = 18;

/// Bytes of register space that a pipe or a pair of buffers has.
const QUEUE_SPACE: u32 = 4096;

/// A register of a pipe, or of a pair of notification buffers, by its place in the queue's space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Register {
    /// Where the NIC writes next; only the NIC changes it.
    RxTail = 0,
    /// Up to where the program has read.
    RxHead = 4,
    /// Where the ring lies, low half. A pipe's has the number of its pair of buffers in the low bits.
    RxMemoryLow = 8,
    /// Where the ring lies, high half; the one that enables, or disables where both are 0.
    RxMemoryHigh = 12,
    /// Up to where the program has written TX notifications.
    TxTail = 16,
    /// Up to where the NIC has read them; only the NIC changes it.
    TxHead = 20,
    /// Where the ring of TX notifications lies, low half.
    TxMemoryLow = 24,
    /// Where it lies, high half.
    TxMemoryHigh = 28,
}

impl Register {
    const ALL: [Self; 8] = [
        Self::RxTail,
        Self::RxHead,
        Self::RxMemoryLow,
        Self::RxMemoryHigh,
        Self::TxTail,
        Self::TxHead,
        Self::TxMemoryLow,
        Self::TxMemoryHigh,
    ];

    /// Its address in the space of a queue: pipes come first, then pairs of buffers.
    pub fn of(self, queue: Queue) -> u32 {
        let index = match queue {
            Queue::Pipe(pipe) => pipe,
            Queue::Buffers(pair) => PIPES.wrapping_add(pair),
        };
        // Nothing wraps: numbers of queues are compared with `PIPES` and `BUFFERS` where they come in.
        index.wrapping_mul(QUEUE_SPACE).wrapping_add(self as u32)
    }

    /// The register and queue at an address; none where there is no register.
    pub fn at(address: u32) -> Option<(Queue, Self)> {
        let index = address / QUEUE_SPACE;
        let pair = index.wrapping_sub(PIPES);
        let queue = if index < PIPES { Queue::Pipe(index) } else { Queue::Buffers(pair) };
        let place = address % QUEUE_SPACE;
        let register = Self::ALL.into_iter().find(|one| *one as u32 == place)?;
        (index < PIPES + BUFFERS).then_some((queue, register))
    }
}

/// Whose registers they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    /// A pipe's.
    Pipe(u32),
    /// A pair of notification buffers'.
    Buffers(u32),
}

#[cfg(test)]
mod tests {
    use super::super::notification::{RxNotification, TxNotification};
    use super::*;
    use std::mem::{align_of, offset_of, size_of};

    #[test]
    fn the_layout_is_the_hardwares() {
        assert_eq!((size_of::<RxNotification>(), align_of::<RxNotification>()), (64, 64));
        assert_eq!((size_of::<TxNotification>(), align_of::<TxNotification>()), (64, 64));
        assert_eq!(offset_of!(RxNotification, signal), 0);
        assert_eq!(offset_of!(RxNotification, queue), 8);
        assert_eq!(offset_of!(RxNotification, tail), 16);
        assert_eq!(offset_of!(TxNotification, signal), 0);
        assert_eq!(offset_of!(TxNotification, address), 8);
        assert_eq!(offset_of!(TxNotification, length), 16);
        assert_eq!(Register::RxHead.of(Queue::Pipe(3)), 3 * 4096 + 4);
        assert_eq!(Register::TxTail.of(Queue::Buffers(0)), 8192 * 4096 + 16);
    }

    #[test]
    fn registers_are_found_by_their_address() {
        for queue in [Queue::Pipe(0), Queue::Pipe(8191), Queue::Buffers(0), Queue::Buffers(1023)] {
            for register in Register::ALL {
                assert_eq!(Register::at(register.of(queue)), Some((queue, register)));
            }
        }
        assert_eq!(Register::at(32), None);
        assert_eq!(Register::at((PIPES + BUFFERS) * 4096), None);
    }
}
