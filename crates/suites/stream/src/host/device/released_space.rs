//! Room that comes back: to the NIC where packets were read, to TX pipes where they were sent.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::Shared;
use crate::nic::layout::{FLIT, PIPES, Queue, Register};

/// Whose room comes back when something was sent.
#[derive(Debug, Clone, Copy)]
pub(in crate::host) enum CompletionTarget {
    /// Nobody waits for it: another part of the same request follows, or it configured.
    Nobody,
    /// The head of this pipe moves on by so many flits.
    Pipe(u32, u32),
    /// This TX pipe gets so many flits back.
    Tx(u32, u32),
}

/// What has come back.
pub(super) struct ReleasedSpace {
    /// Up to where the NIC may write again, by pipe of the NIC, flits.
    heads: Box<[Cell<u32>]>,
    /// Flits that came back, by TX pipe of this device.
    returned: RefCell<Vec<Rc<Cell<u32>>>>,
    /// Places among them of TX pipes that have gone.
    free_places: RefCell<Vec<u32>>,
}

impl ReleasedSpace {
    pub(super) fn new() -> Self {
        Self {
            heads: (0..PIPES).map(|_| Cell::new(0)).collect(),
            returned: RefCell::new(Vec::new()),
            free_places: RefCell::new(Vec::new()),
        }
    }

    /// All of a new pipe's ring is the NIC's.
    pub(super) fn begin(&self, pipe: u32) {
        self.heads[pipe as usize].set(0);
    }
}

impl Shared {
    /// A place for a new TX pipe, and where its flits come back.
    pub(in crate::host) fn place_tx_pipe(&self) -> (u32, Rc<Cell<u32>>) {
        let returned = Rc::new(Cell::new(0));
        let mut all = self.released.returned.borrow_mut();
        let place = self.released.free_places.borrow_mut().pop().unwrap_or_else(|| {
            all.push(Rc::clone(&returned));
            all.len() as u32 - 1
        });
        all[place as usize] = Rc::clone(&returned);
        (place, returned)
    }

    /// Nothing more comes back for the TX pipe that has this place.
    pub(in crate::host) fn free_tx_place(&self, place: u32) {
        self.released.free_places.borrow_mut().push(place);
    }

    /// Gives room back for something that was sent.
    #[inline(always)]
    pub(super) fn give_back(&self, owner: CompletionTarget) {
        match owner {
            CompletionTarget::Nobody => {}
            CompletionTarget::Pipe(pipe, flits) => self.free(pipe, flits),
            CompletionTarget::Tx(place, flits) => {
                let returned = &self.released.returned.borrow()[place as usize];
                returned.set(returned.get().wrapping_add(flits));
            }
        }
    }

    /// Moves the head of a pipe on.
    #[inline(always)]
    pub(in crate::host) fn free(&self, pipe: u32, flits: u32) {
        let mask = (self.sizes.ring / FLIT - 1) as u32;
        let head = &self.released.heads[pipe as usize];
        let next = (head.get() + flits) & mask;
        head.set(next);
        self.write_head(pipe, next);
    }

    /// Tells the NIC once more where the head of a pipe is, which asks for what has come since.
    #[inline(always)]
    pub(in crate::host) fn ask_for_more(&self, pipe: u32) {
        self.write_head(pipe, self.released.heads[pipe as usize].get());
    }

    #[inline(always)]
    fn write_head(&self, pipe: u32, head: u32) {
        self.doorbells.write(Register::RxHead.of(Queue::Pipe(pipe)), head);
    }
}
