//! Registers and sizes shared by NIC and host. They are those of the hardware, so that the card could replace the
//! software NIC.

// Sizes may come from another process, and this crate is compiled without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::time::Duration;

/// Size of a flit, in which the NIC transfers data and to which packets in a pipe are aligned, in bytes.
pub use crate::wire::packet::FLIT;
/// Number of pipes.
pub const PIPES: u32 = 8192;
/// Number of pairs of notification buffers, one per core.
pub const BUFFERS: u32 = 1024;
/// Capacity of each notification buffer in the hardware.
pub const NOTIFICATIONS: u32 = 16384;
/// Size of a pipe's ring in the hardware, in bytes.
pub const RING: usize = 2 << 20;
/// Maximum size of one transmit request, in bytes.
pub const MAX_TRANSFER: usize = 128 << 10;
/// Flits that the hardware transfers per second: its clock, to which rate limits are relative.
pub const FLITS_PER_SECOND: f64 = 200e6;

/// Cycle time of that clock, the unit of timestamps.
pub const CYCLE: Duration = Duration::from_nanos(5);

/// Default offset of timestamps in a packet: the identification field of IPv4.
pub const TIMESTAMP: u8 = 18;

/// Size of the register space of a pipe or a pair of buffers, in bytes.
const QUEUE_SPACE: u32 = 4096;

/// A register of a pipe or of a pair of notification buffers, with its offset in the queue's register space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Register {
    /// Position of the NIC's next write; read-only.
    RxTail = 0,
    /// Position up to which the host has read.
    RxHead = 4,
    /// Address of the ring, low half. For a pipe the low bits contain the pair of buffers.
    RxMemoryLow = 8,
    /// Address of the ring, high half. Writing it enables the queue, or disables it if both halves are 0.
    RxMemoryHigh = 12,
    /// Position up to which the host has written transmit notifications.
    TxTail = 16,
    /// Position up to which the NIC has read them; read-only.
    TxHead = 20,
    /// Address of the ring of transmit notifications, low half.
    TxMemoryLow = 24,
    /// Address of the ring of transmit notifications, high half.
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

    /// Returns the address of the register for a queue: pipes come first, then pairs of buffers.
    pub fn of(self, queue: Queue) -> u32 {
        let index = match queue {
            Queue::Pipe(pipe) => pipe,
            Queue::Buffers(pair) => PIPES.wrapping_add(pair),
        };
        // Does not wrap: queue numbers are checked against `PIPES` and `BUFFERS` when they are received.
        index.wrapping_mul(QUEUE_SPACE).wrapping_add(self as u32)
    }

    /// Returns the register and queue at an address, or `None` if there is none.
    pub fn at(address: u32) -> Option<(Queue, Self)> {
        let index = address / QUEUE_SPACE;
        let pair = index.wrapping_sub(PIPES);
        let queue = if index < PIPES { Queue::Pipe(index) } else { Queue::Buffers(pair) };
        let offset = address % QUEUE_SPACE;
        let register = Self::ALL.into_iter().find(|one| *one as u32 == offset)?;
        (index < PIPES + BUFFERS).then_some((queue, register))
    }
}

/// The queue to which a register belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    /// A pipe.
    Pipe(u32),
    /// A pair of notification buffers.
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
