//! What is on the wire: packets, their flows, and files of them.

pub mod frame;
pub mod packet;
pub mod pcap;
pub mod sample;
pub mod traffic;
pub mod vector;

pub use packet::Flow;
use traffic::Packet;
use vector::Vector;

/// The other end of the NIC's cable. The NIC's thread moves its packets, so a generator is one.
///
/// What comes and goes is handed over in bursts, whose state a processor can keep in its registers: a core
/// that writes to lines which another has can have few stores waiting.
pub trait Wire: Send + 'static {
    /// What a person may tell it.
    type Command: Send + 'static;

    /// Packets that come together.
    type RxBurst<'a>: RxBurst;

    /// Takes an order.
    fn command(&mut self, order: Self::Command);

    /// The packets that it has, and a number that changes when they do.
    fn packets(&self) -> (u64, &[Packet]);

    /// The packets that have come by now, at most `most`.
    fn next_burst(&mut self, now: u64, most: u32) -> Self::RxBurst<'_>;

    /// Takes packets that leave the NIC: they lie one behind the other, each at a flit.
    ///
    /// # Safety
    /// `start` points to so many bytes, whole flits at whole flits, that nobody writes meanwhile.
    unsafe fn on_transmit(&mut self, start: *const u8, bytes: usize) -> TxCount;

    /// Takes packets that leave the NIC, each from a place of its own; the first goes first.
    ///
    /// # Safety
    /// Each span has as many bytes as a frame may have, and nobody writes them meanwhile.
    unsafe fn on_transmit_scattered(&mut self, packets: &[PacketRef]);

    /// One turn of the NIC is over.
    fn end_iteration(&mut self, now: u64);
}

/// Packets that have come together. What is not [delivered](RxBurst::deliver) is as if it had not come.
pub trait RxBurst: Sized {
    /// How many they are.
    fn count(&self) -> u32;

    /// The index of the first among the wire's packets; the others follow it, and the first follows the last.
    fn first(&self) -> u32;

    /// All packets of the wire.
    fn packets(&self) -> &[Packet];

    /// Moves them into memory, stretch by stretch, each packet behind the one before it.
    ///
    /// All places are known before the first is written, so that the few stores which a processor lets wait
    /// are those to lines that another core has.
    ///
    /// # Safety
    /// The stretches take each packet once, and those of a flow in order; their lists lie in `order`, which
    /// holds indices of the wire's packets. Each has room for the flits of its packets, aligned to one, that
    /// nobody reads or writes meanwhile. The processor has what the way of copying needs.
    #[inline(always)]
    unsafe fn deliver<V: Vector>(self, order: &[u32], runs: &[PacketRun]) {
        // SAFETY: by the caller's word; each packet lies behind the one before it.
        unsafe { self.put::<V>(order, runs, |place, bytes| place.wrapping_add(bytes)) };
    }

    /// Moves them into memory as [`deliver`](Self::deliver) does, each to a place of its own: `places` has
    /// those of all packets that have one, stretch by stretch. A stretch's place is that of its first packet.
    ///
    /// # Safety
    /// As for [`deliver`](Self::deliver); each place has room for the flits of its packet alone.
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
        // SAFETY: by the caller's word; each packet that has a place has the next.
        unsafe { self.put::<V>(order, runs, next) };
    }

    /// What both ways of delivering have in common: writes the first packet of each stretch to the stretch's
    /// place, and each other to where `next` says. That is told the place and the bytes of the one before, and
    /// asked after each packet that was written; what it says after a stretch's last is not used.
    ///
    /// # Safety
    /// As for [`deliver`](Self::deliver), and of the places that `next` gives within a stretch.
    unsafe fn put<V: Vector>(
        self,
        order: &[u32],
        runs: &[PacketRun],
        next: impl FnMut(*mut u8, usize) -> *mut u8,
    );
}

/// Packets that go to one queue, one after the other.
#[derive(Debug, Clone, Copy)]
pub struct PacketRun {
    /// Where the first goes; null where there is no room for them.
    pub place: *mut u8,
    /// How many packets.
    pub count: u32,
    /// Which they are.
    pub list: List,
    /// The first one's place in the list. The others follow it, and the first in the list follows the last,
    /// in the next round of the wire's packets.
    pub at: u32,
}

/// Some of the wire's packets, in the order in which they come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct List {
    /// Where it begins in the order.
    pub start: u32,
    /// How many there are; one at least.
    pub len: u32,
}

impl List {
    /// The packets' indices.
    #[inline(always)]
    pub fn of(self, order: &[u32]) -> &[u32] {
        &order[self.start as usize..][..self.len as usize]
    }
}

/// Where a packet that leaves lies.
#[derive(Debug, Clone, Copy)]
pub struct PacketRef {
    /// Its first byte.
    pub start: *const u8,
    /// Its bytes, without the check sequence.
    pub bytes: u32,
}

/// What left the NIC.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TxCount {
    /// Packets.
    pub packets: u64,
    /// The bytes of their flits: less than there were where the last packet says that it is longer.
    pub bytes: usize,
}
