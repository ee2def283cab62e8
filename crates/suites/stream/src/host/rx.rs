//! A pipe to receive from.

use std::rc::Rc;

use machine::SysError;

use super::NotConfigured;
use super::batch::Batch;
use super::device::Shared;
use crate::nic::layout::{FLIT, Queue, Register};
use crate::nic::memory::Memory;
use crate::wire::flow::Flow;

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
    pub fn bind(&mut self, flow: Flow) -> Result<(), NotConfigured> {
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
        self.shared.port.settle();
        self.shared.forget(self.id);
        self.shared.port.give_pipe(self.id);
    }
}
