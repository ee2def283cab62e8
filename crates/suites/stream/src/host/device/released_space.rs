//! Ring space that is released: to the NIC after reading, to transmit pipes after sending.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::Shared;
use crate::nic::layout::{FLIT, PIPES, Queue, Register};

/// Recipient of the ring space of a completed transmission.
#[derive(Debug, Clone, Copy)]
pub(in crate::host) enum CompletionTarget {
    /// None: another part of the same request follows, or it was a configuration.
    None,
    /// The head of this pipe of the NIC advances by this number of flits.
    Pipe(u32, u32),
    /// This transmit pipe of the device gets this number of flits.
    Tx(u32, u32),
}

/// Released ring space.
pub(super) struct ReleasedSpace {
    /// Head of each pipe of the NIC, up to which the NIC may write again, in flits.
    heads: Box<[Cell<u32>]>,
    /// Total number of flits released to each transmit pipe of this device.
    returned: RefCell<Vec<Rc<Cell<u32>>>>,
    /// Unused indices of `returned`.
    free_indices: RefCell<Vec<u32>>,
}

impl ReleasedSpace {
    pub(super) fn new() -> Self {
        Self {
            heads: (0..PIPES).map(|_| Cell::new(0)).collect(),
            returned: RefCell::new(Vec::new()),
            free_indices: RefCell::new(Vec::new()),
        }
    }

    /// Resets the head of a new pipe, whose whole ring belongs to the NIC.
    pub(super) fn reset(&self, pipe: u32) {
        self.heads[pipe as usize].set(0);
    }
}

impl Shared {
    /// Adds a transmit pipe. Returns its index and its count of released flits.
    pub(in crate::host) fn add_tx_pipe(&self) -> (u32, Rc<Cell<u32>>) {
        let returned = Rc::new(Cell::new(0));
        let mut all = self.released.returned.borrow_mut();
        let index = self.released.free_indices.borrow_mut().pop().unwrap_or_else(|| {
            all.push(Rc::clone(&returned));
            all.len() as u32 - 1
        });
        all[index as usize] = Rc::clone(&returned);
        (index, returned)
    }

    /// Removes a transmit pipe for which no completions are pending.
    pub(in crate::host) fn remove_tx_pipe(&self, index: u32) {
        self.released.free_indices.borrow_mut().push(index);
    }

    /// Releases the space of a completed transmission.
    #[inline(always)]
    pub(super) fn release(&self, target: CompletionTarget) {
        match target {
            CompletionTarget::None => {}
            CompletionTarget::Pipe(pipe, flits) => self.free(pipe, flits),
            CompletionTarget::Tx(index, flits) => {
                let returned = &self.released.returned.borrow()[index as usize];
                returned.set(returned.get().wrapping_add(flits));
            }
        }
    }

    /// Advances the head of a pipe.
    #[inline(always)]
    pub(in crate::host) fn free(&self, pipe: u32, flits: u32) {
        let mask = (self.sizes.ring / FLIT - 1) as u32;
        let head = &self.released.heads[pipe as usize];
        let next = (head.get() + flits) & mask;
        head.set(next);
        self.write_head(pipe, next);
    }

    /// Writes the unchanged head of a pipe, which makes the NIC notify of packets received since.
    #[inline(always)]
    pub(in crate::host) fn request_notification(&self, pipe: u32) {
        self.write_head(pipe, self.released.heads[pipe as usize].get());
    }

    #[inline(always)]
    fn write_head(&self, pipe: u32, head: u32) {
        self.doorbells.write(Register::RxHead.of(Queue::Pipe(pipe)), head);
    }
}
