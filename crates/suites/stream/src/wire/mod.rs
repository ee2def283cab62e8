//! The wire: its interface to the NIC, packets and flows, and packet files.

pub(crate) mod build;
mod cursor;
pub mod frame;
pub mod mark;
pub mod packet;
pub mod pcap;
pub mod sample;
pub mod traffic;
pub mod vector;

pub use cursor::{BufferCursor, Cursor, RingCursor};
pub use mark::{Mark, MarkPosition};
pub use packet::Flow;
use traffic::Packet;
use vector::Vector;

/// The other end of the NIC's wire. The NIC's thread moves its packets, so a generator runs on that thread.
///
/// Packets are passed in bursts, whose state can stay in registers: a core can have only few stores pending to cache
/// lines of another core.
pub trait Wire: Send + 'static {
    /// Commands to the wire.
    type Command: Send + 'static;

    /// A burst of packets to the NIC.
    type RxBurst<'a>: RxBurst;

    /// Executes a command.
    fn command(&mut self, order: Self::Command);

    /// Returns the traffic, and a number that changes with it.
    fn packets(&self) -> (u64, &[Packet]);

    /// Returns the flows with which packets may return, if an application changes them. The flows of the sent packets
    /// are others.
    fn returning_flows(&self) -> Vec<Flow> {
        Vec::new()
    }

    /// Returns the packets that have arrived by now, at most `max`.
    fn next_burst(&mut self, now: u64, max: u32) -> Self::RxBurst<'_>;

    /// Takes packets that the NIC sends: contiguous, each aligned to a flit. Reads every flit of each packet, as a card
    /// must.
    ///
    /// # Safety
    /// `start` points to `bytes` bytes of whole aligned flits that no thread of this process writes during the call.
    unsafe fn on_transmit(&mut self, start: *const u8, bytes: usize) -> TxCount;

    /// Takes packets that the NIC sends from separate addresses, in order. Reads every flit of each packet.
    ///
    /// # Safety
    /// Each packet has a valid frame length, and no thread of this process writes it during the call.
    unsafe fn on_transmit_scattered(&mut self, packets: &[PacketRef]);

    /// Takes the number of flits of packets in the rings of pipes that programs have not freed, before each end of an
    /// iteration. Not called by interfaces without pipes.
    fn on_unread(&mut self, _flits: u64) {}

    /// Ends an iteration of the NIC's loop.
    fn end_iteration(&mut self, now: u64);
}

/// A burst of packets to the NIC. Unless it is [delivered](RxBurst::deliver), its packets have not arrived.
pub trait RxBurst: Sized {
    /// Returns the number of packets.
    fn count(&self) -> u32;

    /// Returns the index of the first packet in the traffic. The others follow, and the first follows the last.
    fn first(&self) -> u32;

    /// Returns all packets of the traffic.
    fn packets(&self) -> &[Packet];

    /// Writes the packets to memory, run by run, each packet after the one before it.
    ///
    /// All addresses are known before the first write, so that the few pending stores that a CPU allows are those to
    /// cache lines of another core.
    ///
    /// # Safety
    /// The runs contain each packet once, and those of a flow in order. Their lists are parts of `order`, which contains
    /// indices of the traffic. Each run has aligned space for the flits of its packets, which no thread accesses during
    /// the call. The CPU supports `V`.
    #[inline(always)]
    unsafe fn deliver<V: Vector>(self, order: &[u32], runs: &[PacketRun]) {
        // SAFETY: the caller guarantees the same; each packet follows the one before it.
        unsafe { self.put::<V>(order, runs, |place, bytes| place.wrapping_add(bytes)) };
    }

    /// Writes the packets to memory like [`deliver`](Self::deliver), each to a separate address. `places` contains those
    /// of all packets that have space, run by run; a run's own address is that of its first packet.
    ///
    /// # Safety
    /// The requirements of [`deliver`](Self::deliver) apply, and each address must have space for its packet.
    #[inline(always)]
    unsafe fn deliver_scattered<V: Vector>(
        self,
        order: &[u32],
        runs: &[PacketRun],
        places: &[*mut u8],
    ) {
        let mut placed = 0;
        let next = |_, _| {
            placed += 1;
            places.get(placed).copied().unwrap_or(std::ptr::null_mut())
        };
        // SAFETY: the caller guarantees the same; each packet with space has the next address.
        unsafe { self.put::<V>(order, runs, next) };
    }

    /// Writes the packets: the first of each run to the run's address, each other to the address that `next` returns.
    /// `next` is called after each written packet with its address and size; its result after the last packet of a run
    /// is not used.
    ///
    /// # Safety
    /// The requirements of [`deliver`](Self::deliver) apply, also to the addresses that `next` returns within a run.
    unsafe fn put<V: Vector>(
        self,
        order: &[u32],
        runs: &[PacketRun],
        next: impl FnMut(*mut u8, usize) -> *mut u8,
    );

    /// Writes the packets in the order in which they arrive. `queues` contains the queue of each packet of the traffic, and
    /// `cursors` the addresses of each queue's packets. A packet whose queue has no address left is dropped.
    ///
    /// # Safety
    /// Each packet has a queue, and each queue a cursor. The addresses of the cursors are aligned, have space for the flits
    /// of the packets of their queue, and no thread accesses them during the call. The CPU supports `V`.
    unsafe fn put_in_order<V: Vector, C: Cursor>(self, queues: &[u32], cursors: &mut [C]);
}

/// Consecutive packets that go to one queue.
#[derive(Debug, Clone, Copy)]
pub struct PacketRun {
    /// Address of the first packet; null if there is no space.
    pub place: *mut u8,
    /// Number of packets.
    pub count: u32,
    /// The list of packets.
    pub list: List,
    /// Index of the first packet in the list. The others follow it, and the first in the list follows the last, in the
    /// next round of the traffic.
    pub at: u32,
}

/// A list of packets of the traffic, in order of arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct List {
    /// Start of the list within the order.
    pub start: u32,
    /// Number of packets, at least one.
    pub len: u32,
}

impl List {
    /// Returns the packets' indices.
    #[inline(always)]
    pub fn of(self, order: &[u32]) -> &[u32] {
        &order[self.start as usize..][..self.len as usize]
    }
}

/// A packet to send.
#[derive(Debug, Clone, Copy)]
pub struct PacketRef {
    /// Address of the first byte.
    pub start: *const u8,
    /// Length without the check sequence, in bytes.
    pub bytes: u32,
}

/// Packets taken by the wire.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TxCount {
    /// Number of packets.
    pub packets: u64,
    /// Size of their flits, in bytes. Less than offered if the last packet is incomplete.
    pub bytes: usize,
}
