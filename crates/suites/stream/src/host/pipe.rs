//! The three kinds of pipes: receive, transmit, and echo.

use std::cell::Cell;
use std::rc::Rc;

use machine::SysError;

use super::ConfigError;
use super::batch::Batch;
use super::device::{CompletionTarget, NicClosed, Shared};
use crate::nic::layout::{FLIT, Queue, Register};
use crate::nic::memory::Memory;
use crate::wire::Flow;

/// A ring of the NIC into which packets of the flows bound to it come.
pub struct RxPipe {
    pub(super) shared: Rc<Shared>,
    pub(super) id: u32,
    pub(super) ring: Memory,
    /// Up to where the program has confirmed, flits.
    pub(super) confirmed: u32,
    /// Flits confirmed and not yet freed or sent.
    pub(super) held: u32,
    mask: u32,
}

impl RxPipe {
    pub(super) fn new(shared: Rc<Shared>, ring: Memory) -> Result<Self, SysError> {
        let id = shared.number_pipe()?;
        let place = |register: Register, value| {
            shared.doorbells.write(register.of(Queue::Pipe(id)), value);
        };
        // The low bits say whose it is: the ring lies at a page.
        place(Register::RxMemoryLow, ring.bus() as u32 | shared.pair);
        place(Register::RxMemoryHigh, (ring.bus() >> 32) as u32);
        let mask = (shared.sizes.ring / FLIT - 1) as u32;
        Ok(Self { shared, id, ring, confirmed: 0, held: 0, mask })
    }

    /// The number that the NIC has for it.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Has packets of a flow come here. What the NIC looks up of a flow depends on its protocol: see
    /// [`flow_table::looked_up`](crate::nic::flow_table::looked_up).
    ///
    /// # Errors
    /// Where the NIC has gone, or its flow table has no place for the rule.
    pub fn bind(&mut self, flow: Flow) -> Result<(), ConfigError> {
        self.shared.bind(self.id, flow)
    }

    /// All that has come and was not confirmed, as far as the program was notified, and confirms it.
    #[inline(always)]
    pub fn recv(&mut self) -> Batch<'_> {
        let flits = self.arrived();
        let start = self.confirmed;
        self.confirm_flits(flits);
        self.batch(start, flits)
    }

    /// The same, and confirms nothing: what is not [confirmed](Self::confirm) is given again.
    #[inline(always)]
    pub fn peek(&mut self) -> Batch<'_> {
        self.peek_at_most(usize::MAX)
    }

    /// The same, of so many bytes at most; in whole flits, so that the last message may be cut.
    #[inline(always)]
    pub fn peek_at_most(&mut self, bytes: usize) -> Batch<'_> {
        let most = u32::try_from(bytes / FLIT).unwrap_or(u32::MAX).max(1);
        let flits = self.arrived().min(most);
        self.batch(self.confirmed, flits)
    }

    /// Takes the first so many bytes of what was peeked as received.
    ///
    /// # Panics
    /// Where they are more than have arrived.
    #[inline(always)]
    pub fn confirm(&mut self, bytes: usize) {
        let flits = flits(bytes);
        assert!(flits <= self.arrived(), "more bytes than have arrived");
        self.confirm_flits(flits);
    }

    /// Gives the oldest so many confirmed bytes back to the NIC. Only then, or when it is
    /// [asked](Self::prefetch), does the NIC tell of more, where it tells reactively.
    ///
    /// # Panics
    /// Where they are more than were confirmed.
    #[inline(always)]
    pub fn free(&mut self, bytes: usize) {
        let flits = flits(bytes);
        self.release(flits);
        self.shared.free(self.id, flits);
    }

    /// Gives all confirmed bytes back.
    pub fn clear(&mut self) {
        self.free(self.held as usize * FLIT);
    }

    /// Asks the NIC to tell of what has come since it told last.
    #[inline(always)]
    pub fn prefetch(&mut self) {
        self.shared.ask_for_more(self.id);
    }

    /// Flits that have arrived and are not confirmed.
    #[inline(always)]
    pub(super) fn arrived(&self) -> u32 {
        self.shared.tail(self.id).wrapping_sub(self.confirmed) & self.mask
    }

    #[inline(always)]
    fn confirm_flits(&mut self, flits: u32) {
        self.confirmed = (self.confirmed + flits) & self.mask;
        self.held += flits;
    }

    /// Takes flits from those that are held.
    #[inline(always)]
    pub(super) fn release(&mut self, flits: u32) {
        assert!(flits <= self.held, "more bytes than were confirmed");
        self.held -= flits;
    }

    /// Where the oldest flit that is held lies.
    #[inline(always)]
    pub(super) fn oldest(&self) -> u32 {
        self.confirmed.wrapping_sub(self.held) & self.mask
    }

    #[inline(always)]
    fn batch(&mut self, start: u32, flits: u32) -> Batch<'_> {
        let start = self.ring.pointer().wrapping_add(start as usize * FLIT);
        // SAFETY: the flits have arrived and were not given back, so the NIC leaves them alone; the ring
        // is mapped twice, so they lie in one piece; and the pipe is borrowed for as long as they are.
        Batch::new(unsafe { std::slice::from_raw_parts_mut(start, flits as usize * FLIT) })
    }
}

/// The flits that so many bytes take; more than any ring has where there is no such number.
#[inline(always)]
pub(super) fn flits(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(FLIT)).unwrap_or(u32::MAX)
}

impl Drop for RxPipe {
    fn drop(&mut self) {
        let place = |register: Register| {
            self.shared.doorbells.write(register.of(Queue::Pipe(self.id)), 0);
        };
        // What is being sent from the ring is sent first.
        let _ = self.shared.wait_until_sent();
        place(Register::RxMemoryLow);
        place(Register::RxMemoryHigh);
        // Whoever gets the number next writes to its registers later than this.
        self.shared.port.drain_doorbells();
        self.shared.forget(self.id);
        self.shared.port.give_pipe(self.id);
    }
}

/// Memory of the program's own from which packets are sent, as a ring.
pub struct TxPipe {
    shared: Rc<Shared>,
    /// Its place among the device's TX pipes.
    place: u32,
    ring: Memory,
    /// Where the next packet goes, flits.
    next: u32,
    /// Flits sent in all, and of them those that came back.
    sent: u32,
    returned: Rc<Cell<u32>>,
}

impl TxPipe {
    pub(super) fn new(shared: Rc<Shared>) -> Result<Self, SysError> {
        let ring = shared.port.ring(shared.sizes.ring)?;
        let (place, returned) = shared.place_tx_pipe();
        Ok(Self { shared, place, ring, next: 0, sent: 0, returned })
    }

    /// Memory for so many bytes at least, in one piece: all that is free. Waits until there is as much.
    ///
    /// # Errors
    /// Where the NIC has gone.
    ///
    /// # Panics
    /// Where the ring has fewer bytes.
    pub fn allocate(&mut self, bytes: usize) -> Result<&mut [u8], NicClosed> {
        assert!(bytes <= self.shared.sizes.ring, "more bytes than the ring has");
        if self.free() < bytes {
            self.shared.wait(|| self.free() >= bytes)?;
        }
        Ok(self.buffer())
    }

    /// The same memory, with all that has become free meanwhile; does not wait.
    pub fn extend(&mut self) -> &mut [u8] {
        self.shared.complete();
        self.buffer()
    }

    /// Sends the first so many bytes of the memory: packets, each at a flit. They are free again once they
    /// have left. Nothing is done for none.
    ///
    /// # Errors
    /// Where the NIC has gone.
    ///
    /// # Panics
    /// Where fewer bytes are free.
    pub fn send_and_free(&mut self, bytes: usize) -> Result<(), NicClosed> {
        assert!(bytes <= self.free(), "more bytes than are free");
        let flits = bytes.div_ceil(FLIT) as u32;
        if flits == 0 {
            return Ok(());
        }
        let mask = (self.shared.sizes.ring / FLIT - 1) as u32;
        let start = self.next;
        self.sent = self.sent.wrapping_add(flits);
        self.next = (self.next + flits) & mask;
        self.shared.send(&self.ring, start, flits, CompletionTarget::Tx(self.place, flits))
    }

    /// Bytes that are free.
    fn free(&self) -> usize {
        let under_way = self.sent.wrapping_sub(self.returned.get());
        self.shared.sizes.ring - under_way as usize * FLIT
    }

    fn buffer(&mut self) -> &mut [u8] {
        let start = self.ring.pointer().wrapping_add(self.next as usize * FLIT);
        // SAFETY: free flits are the program's; the ring is mapped twice, so they lie in one piece; and the
        // pipe is borrowed for as long as they are.
        unsafe { std::slice::from_raw_parts_mut(start, self.free()) }
    }
}

impl Drop for TxPipe {
    fn drop(&mut self) {
        if self.shared.wait_until_sent().is_ok() {
            self.shared.free_tx_place(self.place);
        }
        // Then the ring goes.
    }
}

/// A pipe that sends back from where it receives: what was received, changed or not, leaves again, and only
/// then may the NIC write there.
pub struct RxTxPipe(RxPipe);

impl RxTxPipe {
    pub(super) fn new(shared: Rc<Shared>, ring: Memory) -> Result<Self, SysError> {
        RxPipe::new(shared, ring).map(Self)
    }

    /// As [`RxPipe::id`].
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// As [`RxPipe::bind`].
    ///
    /// # Errors
    /// Where the NIC has gone, or its flow table has no place for the rule.
    pub fn bind(&mut self, flow: Flow) -> Result<(), ConfigError> {
        self.0.bind(flow)
    }

    /// As [`RxPipe::recv`].
    #[inline(always)]
    pub fn recv(&mut self) -> Batch<'_> {
        self.0.recv()
    }

    /// As [`RxPipe::peek`].
    #[inline(always)]
    pub fn peek(&mut self) -> Batch<'_> {
        self.0.peek()
    }

    /// As [`RxPipe::peek_at_most`].
    #[inline(always)]
    pub fn peek_at_most(&mut self, bytes: usize) -> Batch<'_> {
        self.0.peek_at_most(bytes)
    }

    /// As [`RxPipe::confirm`].
    ///
    /// # Panics
    /// Where the bytes are more than have arrived.
    #[inline(always)]
    pub fn confirm(&mut self, bytes: usize) {
        self.0.confirm(bytes);
    }

    /// As [`RxPipe::prefetch`].
    #[inline(always)]
    pub fn prefetch(&mut self) {
        self.0.prefetch();
    }

    /// Sends the oldest so many confirmed bytes; they go back to the NIC once they have left. Nothing is done
    /// for none: see [`RxTxPipe::prefetch`].
    ///
    /// # Errors
    /// Where the NIC has gone.
    ///
    /// # Panics
    /// Where they are more than were confirmed.
    #[inline(always)]
    pub fn send_and_free(&mut self, bytes: usize) -> Result<(), NicClosed> {
        let flits = flits(bytes);
        if flits == 0 {
            return Ok(());
        }
        let start = self.0.oldest();
        self.0.release(flits);
        self.0.shared.send(&self.0.ring, start, flits, CompletionTarget::Pipe(self.0.id, flits))
    }
}
