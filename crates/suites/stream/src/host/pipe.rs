//! The three kinds of pipes: receive, transmit, and both.

use std::cell::Cell;
use std::rc::Rc;

use machine::SysError;

use super::ConfigError;
use super::batch::Batch;
use super::device::{CompletionTarget, Device, NicClosed, Shared};
use crate::nic::Memory;
use crate::nic::layout::{FLIT, Queue, Register};
use crate::wire::Flow;

impl Device {
    /// Creates a receive pipe.
    ///
    /// # Errors
    /// Returns an error if memory or the NIC's pipes are exhausted.
    pub fn rx_pipe(&self) -> Result<RxPipe, SysError> {
        let ring = self.shared.port.ring(self.shared.sizes.ring)?;
        RxPipe::new(Rc::clone(&self.shared), ring)
    }

    /// Creates a transmit pipe.
    ///
    /// # Errors
    /// Returns an error if memory is exhausted.
    pub fn tx_pipe(&self) -> Result<TxPipe, SysError> {
        TxPipe::new(Rc::clone(&self.shared))
    }

    /// Creates a pipe that sends packets back from its receive ring.
    ///
    /// # Errors
    /// See [`Device::rx_pipe`].
    pub fn rx_tx_pipe(&self) -> Result<RxTxPipe, SysError> {
        let ring = self.shared.port.ring(self.shared.sizes.ring)?;
        RxTxPipe::new(Rc::clone(&self.shared), ring)
    }

    /// Creates `count` such pipes. This is faster than one at a time; their memory is freed with the last of them.
    ///
    /// # Errors
    /// See [`Device::rx_pipe`].
    pub fn rx_tx_pipes(&self, count: usize) -> Result<Vec<RxTxPipe>, SysError> {
        let rings = self.shared.port.rings(count, self.shared.sizes.ring)?;
        self.shared.port.reserve_pipes(count);
        rings.into_iter().map(|ring| RxTxPipe::new(Rc::clone(&self.shared), ring)).collect()
    }
}

/// A receive ring for packets of the flows bound to it.
pub struct RxPipe {
    pub(super) shared: Rc<Shared>,
    pub(super) id: u32,
    pub(super) ring: Memory,
    /// Position up to which bytes are confirmed, in flits.
    pub(super) confirmed: u32,
    /// Confirmed flits that are not yet freed or sent.
    pub(super) held: u32,
    mask: u32,
}

impl RxPipe {
    pub(super) fn new(shared: Rc<Shared>, ring: Memory) -> Result<Self, SysError> {
        let id = shared.new_pipe_id()?;
        let write = |register: Register, value| {
            shared.doorbells.write(register.of(Queue::Pipe(id)), value);
        };
        // The low bits of the page-aligned address contain the pair of notification buffers.
        write(Register::RxMemoryLow, ring.bus() as u32 | shared.pair);
        write(Register::RxMemoryHigh, (ring.bus() >> 32) as u32);
        let mask = (shared.sizes.ring / FLIT - 1) as u32;
        Ok(Self { shared, id, ring, confirmed: 0, held: 0, mask })
    }

    /// Returns the NIC's ID of the pipe.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Directs packets of a flow to this pipe. Which fields the NIC matches depends on the protocol: see
    /// [`flow_table::looked_up`](crate::nic::flow_table::looked_up).
    ///
    /// # Errors
    /// Returns an error if the NIC has stopped or its flow table has no space for the rule.
    pub fn bind(&mut self, flow: Flow) -> Result<(), ConfigError> {
        self.shared.bind(self.id, flow)
    }

    /// Returns and confirms all unconfirmed bytes of which the NIC has notified.
    #[inline(always)]
    pub fn recv(&mut self) -> Batch<'_> {
        let flits = self.arrived();
        let start = self.confirmed;
        self.confirm_flits(flits);
        self.batch(start, flits)
    }

    /// Returns the same bytes as [`recv`](Self::recv) without [confirming](Self::confirm) them.
    #[inline(always)]
    pub fn peek(&mut self) -> Batch<'_> {
        self.peek_at_most(usize::MAX)
    }

    /// Returns at most `bytes` of them, in whole flits, so the last message may be cut.
    #[inline(always)]
    pub fn peek_at_most(&mut self, bytes: usize) -> Batch<'_> {
        let max = u32::try_from(bytes / FLIT).unwrap_or(u32::MAX).max(1);
        let flits = self.arrived().min(max);
        self.batch(self.confirmed, flits)
    }

    /// Confirms the first `bytes` bytes of a peek as received.
    ///
    /// # Panics
    /// Panics if fewer bytes have arrived.
    #[inline(always)]
    pub fn confirm(&mut self, bytes: usize) {
        let flits = flits(bytes);
        assert!(flits <= self.arrived(), "more bytes than have arrived");
        self.confirm_flits(flits);
    }

    /// Frees the oldest `bytes` confirmed bytes. With reactive notifications the NIC notifies of further packets only
    /// after this or a [request](Self::prefetch).
    ///
    /// # Panics
    /// Panics if fewer bytes are confirmed.
    #[inline(always)]
    pub fn free(&mut self, bytes: usize) {
        let flits = flits(bytes);
        self.release(flits);
        self.shared.free(self.id, flits);
    }

    /// Frees all confirmed bytes.
    pub fn clear(&mut self) {
        self.free(self.held as usize * FLIT);
    }

    /// Requests a notification of packets received since the last one.
    #[inline(always)]
    pub fn prefetch(&mut self) {
        self.shared.request_notification(self.id);
    }

    /// Takes the device's notifications, so that packets of any of its pipes can be received. [`Device::next`] does so
    /// too, and still returns these pipes.
    #[inline(always)]
    pub fn poll(&mut self) {
        self.shared.poll();
    }

    /// Returns the number of bytes that can be confirmed.
    #[inline(always)]
    pub fn unconfirmed(&self) -> usize {
        self.arrived() as usize * FLIT
    }

    /// Returns the number of confirmed bytes that are neither freed nor sent.
    #[inline(always)]
    pub fn confirmed(&self) -> usize {
        self.held as usize * FLIT
    }

    /// Returns whether the NIC has stopped.
    pub fn is_closed(&self) -> bool {
        self.shared.port.is_closed()
    }

    /// Returns the flits that have arrived and are not confirmed.
    #[inline(always)]
    pub(super) fn arrived(&self) -> u32 {
        self.shared.tail(self.id).wrapping_sub(self.confirmed) & self.mask
    }

    #[inline(always)]
    fn confirm_flits(&mut self, flits: u32) {
        self.confirmed = (self.confirmed + flits) & self.mask;
        self.held += flits;
    }

    /// Removes flits from the confirmed ones.
    #[inline(always)]
    pub(super) fn release(&mut self, flits: u32) {
        assert!(flits <= self.held, "more bytes than were confirmed");
        self.held -= flits;
    }

    /// Returns the position of the oldest confirmed flit that is not freed.
    #[inline(always)]
    pub(super) fn oldest(&self) -> u32 {
        self.confirmed.wrapping_sub(self.held) & self.mask
    }

    #[inline(always)]
    fn batch(&mut self, start: u32, flits: u32) -> Batch<'_> {
        let start = self.ring.pointer().wrapping_add(start as usize * FLIT);
        // SAFETY: the NIC does not write to flits that have arrived and are not freed; they are contiguous because the
        // ring is mapped twice; and the pipe is borrowed as long as the slice.
        Batch::new(unsafe { std::slice::from_raw_parts_mut(start, flits as usize * FLIT) })
    }
}

/// Returns the flits that `bytes` need, or `u32::MAX` if they exceed any ring.
#[inline(always)]
pub(super) fn flits(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(FLIT)).unwrap_or(u32::MAX)
}

impl Drop for RxPipe {
    fn drop(&mut self) {
        let clear = |register: Register| {
            self.shared.doorbells.write(register.of(Queue::Pipe(self.id)), 0);
        };
        // Packets being sent from the ring are sent first.
        let _ = self.shared.wait_until_sent();
        clear(Register::RxMemoryLow);
        clear(Register::RxMemoryHigh);
        // The next pipe with this ID writes to its registers only after these writes.
        self.shared.port.drain_doorbells();
        self.shared.discard(self.id);
        self.shared.port.free_pipe(self.id);
    }
}

/// A ring of the application from which packets are sent.
pub struct TxPipe {
    shared: Rc<Shared>,
    /// Index within the device's transmit pipes.
    index: u32,
    ring: Memory,
    /// Position of the next packet, in flits.
    next: u32,
    /// Total number of flits sent, and of those released after sending.
    sent: u32,
    returned: Rc<Cell<u32>>,
}

impl TxPipe {
    pub(super) fn new(shared: Rc<Shared>) -> Result<Self, SysError> {
        let ring = shared.port.ring(shared.sizes.ring)?;
        let (index, returned) = shared.add_tx_pipe();
        Ok(Self { shared, index, ring, next: 0, sent: 0, returned })
    }

    /// Returns all free memory, contiguous and at least `bytes` long. Waits until that much is free.
    ///
    /// # Errors
    /// Returns [`NicClosed`] if the NIC has stopped.
    ///
    /// # Panics
    /// Panics if `bytes` exceeds the size of the ring.
    pub fn allocate(&mut self, bytes: usize) -> Result<&mut [u8], NicClosed> {
        assert!(bytes <= self.shared.sizes.ring, "more bytes than the ring has");
        if self.free() < bytes {
            self.shared.wait(|| self.free() >= bytes)?;
        }
        Ok(self.buffer())
    }

    /// Returns all free memory, including what was released since, without waiting.
    pub fn extend(&mut self) -> &mut [u8] {
        self.shared.complete();
        self.buffer()
    }

    /// Sends the first `bytes` bytes of the free memory: packets, each aligned to a flit. They are free again once they
    /// have been sent. Does nothing for 0 bytes.
    ///
    /// # Errors
    /// Returns [`NicClosed`] if the NIC has stopped.
    ///
    /// # Panics
    /// Panics if fewer bytes are free.
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
        let target = CompletionTarget::Tx(self.index, flits);
        self.shared.send(&self.ring, start, flits, target).map(|_| ())
    }

    /// Returns the number of free bytes, without those released since completions were last processed.
    pub fn free(&self) -> usize {
        let in_flight = self.sent.wrapping_sub(self.returned.get());
        self.shared.sizes.ring - in_flight as usize * FLIT
    }

    fn buffer(&mut self) -> &mut [u8] {
        let start = self.ring.pointer().wrapping_add(self.next as usize * FLIT);
        // SAFETY: the NIC does not read free flits; they are contiguous because the ring is mapped twice; and the pipe
        // is borrowed as long as the slice.
        unsafe { std::slice::from_raw_parts_mut(start, self.free()) }
    }
}

impl Drop for TxPipe {
    fn drop(&mut self) {
        if self.shared.wait_until_sent().is_ok() {
            self.shared.remove_tx_pipe(self.index);
        }
        // The ring is dropped afterwards.
    }
}

/// A pipe that sends packets back from its receive ring, modified or not. Their space is freed once they have been
/// sent.
pub struct RxTxPipe {
    rx: RxPipe,
    /// Slot of the last request to send.
    last: u32,
}

impl RxTxPipe {
    pub(super) fn new(shared: Rc<Shared>, ring: Memory) -> Result<Self, SysError> {
        Ok(Self { rx: RxPipe::new(shared, ring)?, last: 0 })
    }

    /// As [`RxPipe::id`].
    pub fn id(&self) -> u32 {
        self.rx.id()
    }

    /// As [`RxPipe::bind`].
    ///
    /// # Errors
    /// Returns an error if the NIC has stopped or its flow table has no space for the rule.
    pub fn bind(&mut self, flow: Flow) -> Result<(), ConfigError> {
        self.rx.bind(flow)
    }

    /// As [`RxPipe::recv`].
    #[inline(always)]
    pub fn recv(&mut self) -> Batch<'_> {
        self.rx.recv()
    }

    /// As [`RxPipe::peek`].
    #[inline(always)]
    pub fn peek(&mut self) -> Batch<'_> {
        self.rx.peek()
    }

    /// As [`RxPipe::peek_at_most`].
    #[inline(always)]
    pub fn peek_at_most(&mut self, bytes: usize) -> Batch<'_> {
        self.rx.peek_at_most(bytes)
    }

    /// As [`RxPipe::confirm`].
    ///
    /// # Panics
    /// Panics if fewer bytes have arrived.
    #[inline(always)]
    pub fn confirm(&mut self, bytes: usize) {
        self.rx.confirm(bytes);
    }

    /// As [`RxPipe::prefetch`].
    #[inline(always)]
    pub fn prefetch(&mut self) {
        self.rx.prefetch();
    }

    /// As [`RxPipe::poll`].
    #[inline(always)]
    pub fn poll(&mut self) {
        self.rx.poll();
    }

    /// As [`RxPipe::unconfirmed`].
    #[inline(always)]
    pub fn unconfirmed(&self) -> usize {
        self.rx.unconfirmed()
    }

    /// As [`RxPipe::confirmed`].
    #[inline(always)]
    pub fn confirmed(&self) -> usize {
        self.rx.confirmed()
    }

    /// As [`RxPipe::is_closed`].
    pub fn is_closed(&self) -> bool {
        self.rx.is_closed()
    }

    /// Sends the oldest `bytes` confirmed bytes and frees them once they have been sent. Does nothing for 0 bytes, not
    /// even request a notification: see [`RxTxPipe::prefetch`].
    ///
    /// # Errors
    /// Returns [`NicClosed`] if the NIC has stopped.
    ///
    /// # Panics
    /// Panics if fewer bytes are confirmed.
    #[inline(always)]
    pub fn send_and_free(&mut self, bytes: usize) -> Result<(), NicClosed> {
        let flits = flits(bytes);
        if flits == 0 {
            return Ok(());
        }
        let start = self.rx.oldest();
        self.rx.release(flits);
        let RxPipe { shared, ring, id, .. } = &self.rx;
        self.last = shared.send(ring, start, flits, CompletionTarget::Pipe(*id, flits))?;
        Ok(())
    }

    /// Frees the oldest `bytes` confirmed bytes without sending them: once the bytes before them have been sent. Does nothing
    /// for 0 bytes.
    ///
    /// # Panics
    /// Panics if fewer bytes are confirmed.
    #[inline(always)]
    pub fn free(&mut self, bytes: usize) {
        let flits = flits(bytes);
        if flits > 0 {
            self.rx.release(flits);
            self.rx.shared.free_after(self.last, self.rx.id, flits);
        }
    }
}
