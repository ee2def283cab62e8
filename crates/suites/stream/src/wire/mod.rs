//! What is on the wire: packets, their flows, and files of them.

pub mod flow;
pub mod frame;
pub mod packet;
pub mod pcap;
pub mod sample;
pub mod traffic;
pub mod vector;

use traffic::Packet;
use vector::Vector;

/// The other end of the NIC's cable. The NIC's thread moves its packets, so a generator is one.
///
/// What comes and goes is handed over in bursts, whose state a processor can keep in its registers: a core
/// that writes to lines which another has can have few stores waiting.
pub trait Wire: Send + 'static {
    /// What a person may tell it.
    type Order: Send + 'static;

    /// Packets that come together.
    type Coming<'a>: Coming;

    /// Packets that leave together.
    type Leaving<'a>: Leaving;

    /// Takes an order.
    fn order(&mut self, order: Self::Order);

    /// The packets that it has, and a number that changes when they do.
    fn packets(&self) -> (u64, &[Packet]);

    /// The packets that have come by now, at most `most`.
    fn coming(&mut self, now: u64, most: u32) -> Self::Coming<'_>;

    /// Takes packets that leave the NIC.
    fn leaving(&mut self) -> Self::Leaving<'_>;

    /// One turn of the NIC is over.
    fn turned(&mut self, now: u64);
}

/// Packets that have come together. What is not [finished](Coming::finish) is as if it had not come.
pub trait Coming {
    /// How many are left.
    fn left(&self) -> u32;

    /// The next one.
    fn next(&self) -> Next;

    /// All packets of the wire, by their index.
    fn packets(&self) -> &[Packet];

    /// Moves the next packet into memory.
    ///
    /// # Safety
    /// `into` points to as many flits as it has, aligned to one, that nobody reads or writes meanwhile. The
    /// processor has what the way of copying needs.
    unsafe fn put<V: Vector>(&mut self, into: *mut u8);

    /// The NIC has no room for the next packet.
    fn drop_next(&mut self);

    /// The burst is over.
    fn finish(self);
}

/// Takes packets that leave together. What is not [finished](Leaving::finish) is as if it had not left.
pub trait Leaving {
    /// A packet leaves the NIC.
    ///
    /// # Safety
    /// `packet` points to `length` bytes in whole flits that nobody writes meanwhile.
    unsafe fn leave(&mut self, packet: *const u8, length: usize);

    /// The burst is over.
    fn finish(self);
}

/// The next packet of the wire.
#[derive(Debug, Clone, Copy)]
pub struct Next {
    /// Which of the wire's packets it is.
    pub index: u32,
    /// Flits that it takes in memory.
    pub flits: u32,
    /// Bytes without the check sequence.
    pub length: u32,
}
