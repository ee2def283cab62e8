//! What one core has of a NIC: notification buffers, and what all its pipes share.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;

use machine::Refusal;

use super::{RxPipe, RxTxPipe, TxPipe};
use crate::nic::configuration::Configuration;
use crate::nic::layout::{FLIT, LONGEST_TRANSFER, NOTIFICATIONS, PIPES, Queue, RING, Register};
use crate::nic::memory::Memory;
use crate::nic::notification::{RxNotification, TxNotification};
use crate::nic::posted::Doorbells;
use crate::nic::{Form, Port};
use crate::wire::flow::Flow;

/// Notifications taken, or completions looked at, before anything else is done.
const BATCH: u32 = 64;

/// How large everything is; as the hardware has it unless said otherwise. All are powers of two.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    /// Bytes of each pipe's ring.
    pub ring: usize,
    /// Notifications of each buffer.
    pub notifications: u32,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { ring: RING, notifications: NOTIFICATIONS }
    }
}

/// The NIC has ended while something was waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the NIC has gone; start it again")]
pub struct Gone;

/// Who a TX notification was for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Owner {
    /// Nobody waits for it: another part of the same request follows, or it configured.
    Nobody,
    /// The head of this pipe moves on by so many flits.
    Pipe(u32, u32),
    /// This TX pipe gets so many flits back.
    Tx(u32, u32),
}

/// What one core has of a NIC.
pub struct Device {
    pub(super) shared: Rc<Shared>,
}

/// What a device's pipes share.
pub(super) struct Shared {
    pub(super) port: Port,
    pub(super) doorbells: Doorbells,
    pub(super) pair: u32,
    pub(super) sizes: Sizes,
    buffers: Memory,
    mask: u32,
    rx_head: Cell<u32>,
    tx_head: Cell<u32>,
    tx_tail: Cell<u32>,
    /// For each TX notification under way.
    owners: Box<[Cell<Owner>]>,
    /// Up to where each pipe of the NIC is known to hold packets, flits.
    pub(super) tails: Box<[Cell<u32>]>,
    /// Up to where the NIC may write again, by pipe of the NIC, flits.
    pub(super) heads: Box<[Cell<u32>]>,
    /// The place that each pipe of the NIC has among this device's.
    places: Box<[Cell<u32>]>,
    pipes: Cell<u32>,
    /// Flits that came back, by TX pipe of this device.
    returned: RefCell<Vec<Rc<Cell<u32>>>>,
    /// Places among them of TX pipes that have gone.
    free_places: RefCell<Vec<u32>>,
    /// Pipes of which the NIC told and that [`Device::next`] has not given yet.
    ready: RefCell<VecDeque<u32>>,
    /// Whether each pipe of the NIC is among them: several notifications of one make it ready but once.
    is_ready: Box<[Cell<bool>]>,
}

impl Device {
    /// A pair of notification buffers of a NIC.
    ///
    /// # Errors
    /// Where there is not enough memory.
    pub fn new(port: &Port, sizes: Sizes) -> Result<Self, Refusal> {
        assert!(
            sizes.ring.is_power_of_two() && sizes.notifications.is_power_of_two(),
            "powers of two"
        );
        assert!(sizes.notifications > 1, "one notification always stays free");
        fits(port, sizes)?;
        let each = sizes.notifications as usize * FLIT;
        let buffers = port.plain(2 * each)?;
        let (pair, doorbells) = port.attach()?;
        let place = |register: Register, value| {
            doorbells.write(register.of(Queue::Buffers(pair)), value);
        };
        let (rx, tx) = (buffers.bus(), buffers.bus() + each as u64);
        place(Register::RxMemoryLow, rx as u32);
        place(Register::RxMemoryHigh, (rx >> 32) as u32);
        place(Register::TxMemoryLow, tx as u32);
        place(Register::TxMemoryHigh, (tx >> 32) as u32);
        let cells = |count: u32| (0..count).map(|_| Cell::new(0)).collect::<Box<[_]>>();
        let owners = (0..sizes.notifications).map(|_| Cell::new(Owner::Nobody)).collect();
        let shared = Shared {
            port: port.clone(),
            doorbells,
            pair,
            sizes,
            buffers,
            mask: sizes.notifications - 1,
            rx_head: Cell::new(0),
            tx_head: Cell::new(0),
            tx_tail: Cell::new(0),
            owners,
            tails: cells(PIPES),
            heads: cells(PIPES),
            places: cells(PIPES),
            pipes: Cell::new(0),
            returned: RefCell::new(Vec::new()),
            free_places: RefCell::new(Vec::new()),
            ready: RefCell::new(VecDeque::with_capacity(BATCH as usize)),
            is_ready: (0..PIPES).map(|_| Cell::new(false)).collect(),
        };
        Ok(Self { shared: Rc::new(shared) })
    }

    /// A pipe to receive from.
    ///
    /// # Errors
    /// Where there is not enough memory, or the NIC has no pipe left.
    pub fn rx_pipe(&self) -> Result<RxPipe, Refusal> {
        let ring = self.shared.port.ring(self.shared.sizes.ring)?;
        RxPipe::new(Rc::clone(&self.shared), ring)
    }

    /// A pipe to send from.
    ///
    /// # Errors
    /// Where there is not enough memory.
    pub fn tx_pipe(&self) -> Result<TxPipe, Refusal> {
        TxPipe::new(Rc::clone(&self.shared))
    }

    /// A pipe that sends back from where it receives.
    ///
    /// # Errors
    /// As for [`Device::rx_pipe`].
    pub fn rx_tx_pipe(&self) -> Result<RxTxPipe, Refusal> {
        let ring = self.shared.port.ring(self.shared.sizes.ring)?;
        RxTxPipe::new(Rc::clone(&self.shared), ring)
    }

    /// So many of them, made together: that is faster where they are many, and their memory goes with the
    /// last of them.
    ///
    /// # Errors
    /// As for [`Device::rx_pipe`].
    pub fn rx_tx_pipes(&self, count: usize) -> Result<Vec<RxTxPipe>, Refusal> {
        let rings = self.shared.port.rings(count, self.shared.sizes.ring)?;
        self.shared.port.reserve_pipes(count);
        rings.into_iter().map(|ring| RxTxPipe::new(Rc::clone(&self.shared), ring)).collect()
    }

    /// The place, among the pipes of this device in the order in which they were made, of the next pipe
    /// that has received something; none where nothing has come.
    #[inline(always)]
    pub fn next(&self) -> Option<usize> {
        let shared = &*self.shared;
        let mut ready = shared.ready.borrow_mut();
        if ready.is_empty() {
            shared.complete();
            shared.take_notifications(&mut ready);
        }
        let pipe = ready.pop_front()?;
        shared.is_ready[pipe as usize].set(false);
        Some(shared.places[pipe as usize].get() as usize)
    }

    /// Takes note of what the NIC has sent. [`Device::next`] and waiting do so too.
    #[inline(always)]
    pub fn complete(&self) {
        self.shared.complete();
    }

    /// Changes the NIC's configuration, and waits until it is done.
    ///
    /// # Errors
    /// Where the NIC has gone.
    pub fn configure(&self, configuration: Configuration) -> Result<(), Gone> {
        self.shared.configure(configuration)
    }
}

/// Whether the NIC lays out what it shares as a device of these sizes does.
fn fits(port: &Port, sizes: Sizes) -> Result<(), Refusal> {
    match port.form() {
        Form::Pipes { ring, notifications, .. }
            if (ring, notifications) == (sizes.ring, sizes.notifications) =>
        {
            Ok(())
        }
        other => Err(Refusal {
            attempt: format!(
                "use pipes of {} KiB with {} notifications",
                sizes.ring / 1024,
                sizes.notifications
            ),
            source: io::Error::new(io::ErrorKind::Unsupported, format!("the NIC has {other}")),
            remedy: "ask for what it has".into(),
        }),
    }
}

impl Shared {
    fn rx(&self, index: u32) -> &RxNotification {
        // SAFETY: the buffers hold so many notifications of each kind, at whole flits; all fields that
        // both sides use are atomic.
        unsafe { &*self.buffers.pointer().cast::<RxNotification>().wrapping_add(index as usize) }
    }

    fn tx(&self, index: u32) -> &TxNotification {
        let index = (self.sizes.notifications + index) as usize;
        // SAFETY: as above; the second half is that of TX notifications.
        unsafe { &*self.buffers.pointer().cast::<TxNotification>().wrapping_add(index) }
    }

    /// A new pipe's number, with its place among this device's.
    pub(super) fn number_pipe(&self) -> Result<u32, Refusal> {
        let pipe = self.port.take_pipe()?;
        self.places[pipe as usize].set(self.pipes.get());
        self.pipes.set(self.pipes.get() + 1);
        self.tails[pipe as usize].set(0);
        self.heads[pipe as usize].set(0);
        Ok(pipe)
    }

    /// A place for a new TX pipe, and where its flits come back.
    pub(super) fn place_tx_pipe(&self) -> (u32, Rc<Cell<u32>>) {
        let returned = Rc::new(Cell::new(0));
        let mut all = self.returned.borrow_mut();
        let place = self.free_places.borrow_mut().pop().unwrap_or_else(|| {
            all.push(Rc::clone(&returned));
            all.len() as u32 - 1
        });
        all[place as usize] = Rc::clone(&returned);
        (place, returned)
    }

    /// Nothing more comes back for the TX pipe that has this place.
    pub(super) fn free_tx_place(&self, place: u32) {
        self.free_places.borrow_mut().push(place);
    }

    /// Takes notifications, a batch at most; how many.
    #[inline(always)]
    fn take_notifications(&self, ready: &mut VecDeque<u32>) -> u32 {
        let mut head = self.rx_head.get();
        let mut taken = 0;
        while taken < BATCH {
            let Some((pipe, tail)) = self.rx(head).take() else { break };
            let pipe = pipe % PIPES;
            self.tails[pipe as usize].set(tail);
            if !self.is_ready[pipe as usize].replace(true) {
                ready.push_back(pipe);
            }
            head = (head + 1) & self.mask;
            taken += 1;
        }
        if taken > 0 {
            self.rx_head.set(head);
            // The doorbell also orders the signals, which are 0 now, before the NIC's next lap.
            self.doorbells.write(Register::RxHead.of(Queue::Buffers(self.pair)), head);
        }
        taken
    }

    /// Takes note of what was sent, and gives its room back.
    #[inline(always)]
    pub(super) fn complete(&self) {
        let tail = self.tx_tail.get();
        let mut head = self.tx_head.get();
        for _ in 0..BATCH {
            if head == tail || !self.tx(head).is_done() {
                break;
            }
            match self.owners[head as usize].get() {
                Owner::Nobody => {}
                Owner::Pipe(pipe, flits) => self.free(pipe, flits),
                Owner::Tx(pipe, flits) => {
                    let returned = &self.returned.borrow()[pipe as usize];
                    returned.set(returned.get().wrapping_add(flits));
                }
            }
            head = (head + 1) & self.mask;
        }
        self.tx_head.set(head);
    }

    /// Moves the head of a pipe on.
    #[inline(always)]
    pub(super) fn free(&self, pipe: u32, flits: u32) {
        let mask = (self.sizes.ring / FLIT - 1) as u32;
        let head = &self.heads[pipe as usize];
        head.set((head.get() + flits) & mask);
        self.doorbells.write(Register::RxHead.of(Queue::Pipe(pipe)), head.get());
    }

    /// Asks the NIC to send flits of a ring of this device: one at least.
    #[inline(always)]
    pub(super) fn send(
        &self,
        ring: &Memory,
        start: u32,
        flits: u32,
        owner: Owner,
    ) -> Result<(), Gone> {
        let mut at = start as usize * FLIT;
        let mut left = flits as usize * FLIT;
        loop {
            // As the card has no use for a ring that is mapped twice, no part goes beyond its end.
            let part = left.min(LONGEST_TRANSFER).min(self.sizes.ring - at);
            let last = part == left;
            let slot = self.slot()?;
            self.tx(slot).ask_to_send(ring.bus() + at as u64, part as u64);
            self.owners[slot as usize].set(if last { owner } else { Owner::Nobody });
            self.tx_tail.set((slot + 1) & self.mask);
            if last {
                break;
            }
            left -= part;
            at = (at + part) % self.sizes.ring;
        }
        self.ring();
        Ok(())
    }

    /// Tells the NIC how many TX notifications there are.
    #[inline(always)]
    fn ring(&self) {
        self.doorbells.write(Register::TxTail.of(Queue::Buffers(self.pair)), self.tx_tail.get());
    }

    /// The next free TX notification. Waits where all are under way.
    #[inline(always)]
    fn slot(&self) -> Result<u32, Gone> {
        let slot = self.tx_tail.get();
        if (slot + 1) & self.mask == self.tx_head.get() {
            // The NIC may not know of the first parts of what is being sent.
            self.ring();
            self.wait(|| (slot + 1) & self.mask != self.tx_head.get())?;
        }
        Ok(slot)
    }

    /// Takes note of completions until something holds.
    #[cold]
    pub(super) fn wait(&self, holds: impl Fn() -> bool) -> Result<(), Gone> {
        loop {
            self.complete();
            if holds() {
                return Ok(());
            }
            if self.port.gone() {
                return Err(Gone);
            }
            std::hint::spin_loop();
        }
    }

    /// Waits until nothing is under way.
    pub(super) fn wait_until_sent(&self) -> Result<(), Gone> {
        self.wait(|| self.tx_head.get() == self.tx_tail.get())
    }

    /// Notifications of a pipe that goes are of no use to the next that gets its number.
    pub(super) fn forget(&self, pipe: u32) {
        let mut ready = self.ready.borrow_mut();
        while self.take_notifications(&mut ready) > 0 {}
        ready.retain(|other| *other != pipe);
        self.is_ready[pipe as usize].set(false);
        self.tails[pipe as usize].set(0);
    }

    pub(super) fn configure(&self, configuration: Configuration) -> Result<(), Gone> {
        let slot = self.slot()?;
        let notification = self.tx(slot);
        notification.ask_to_configure(configuration.words());
        self.owners[slot as usize].set(Owner::Nobody);
        self.tx_tail.set((slot + 1) & self.mask);
        self.ring();
        self.wait(|| notification.is_done())
    }

    pub(super) fn bind(&self, pipe: u32, flow: Flow) -> Result<(), Gone> {
        self.configure(Configuration::Bind { flow, pipe })
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.port.detach(self.pair);
    }
}
