//! A pipe to send from.

use std::cell::Cell;
use std::rc::Rc;

use machine::SysError;

use super::device::{Gone, Owner, Shared};
use crate::nic::layout::FLIT;
use crate::nic::memory::Memory;

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
    pub fn allocate(&mut self, bytes: usize) -> Result<&mut [u8], Gone> {
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
    pub fn send_and_free(&mut self, bytes: usize) -> Result<(), Gone> {
        assert!(bytes <= self.free(), "more bytes than are free");
        let flits = bytes.div_ceil(FLIT) as u32;
        if flits == 0 {
            return Ok(());
        }
        let mask = (self.shared.sizes.ring / FLIT - 1) as u32;
        let start = self.next;
        self.sent = self.sent.wrapping_add(flits);
        self.next = (self.next + flits) & mask;
        self.shared.send(&self.ring, start, flits, Owner::Tx(self.place, flits))
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
