//! What one core has of a NIC: notification buffers, and what all its pipes share.

use std::io;
use std::rc::Rc;

use machine::SysError;
pub(super) use released_space::CompletionTarget;

use super::{ConfigError, RxPipe, RxTxPipe, TxPipe};
use crate::nic::configuration::Configuration;
use crate::nic::doorbells::DoorbellSender;
use crate::nic::layout::{FLIT, NOTIFICATIONS, Queue, RING, Register};
use crate::nic::memory::Memory;
use crate::nic::{InterfaceConfig, Port};
use crate::wire::Flow;
use released_space::ReleasedSpace;
use rx_notifications::RxNotificationState;
use tx_notifications::TxNotificationState;

mod released_space;
mod rx_notifications;
mod tx_notifications;

/// Notifications taken, or completions looked at, before anything else is done: so many that packets of a pipe
/// are sent together where each has a notification of its own and those of other pipes lie between.
const BATCH: u32 = 2048;

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
pub struct NicClosed;

/// What one core has of a NIC.
pub struct Device {
    pub(super) shared: Rc<Shared>,
}

impl Device {
    /// A pair of notification buffers of a NIC.
    ///
    /// # Errors
    /// Where there is not enough memory.
    pub fn new(port: &Port, sizes: Sizes) -> Result<Self, SysError> {
        assert!(
            sizes.ring.is_power_of_two() && sizes.notifications.is_power_of_two(),
            "powers of two"
        );
        assert!(sizes.notifications > 1, "one notification always stays free");
        fits(port, sizes)?;
        let shared = Shared::new(port, sizes)?;
        Ok(Self { shared: Rc::new(shared) })
    }

    /// A pipe to receive from.
    ///
    /// # Errors
    /// Where there is not enough memory, or the NIC has no pipe left.
    pub fn rx_pipe(&self) -> Result<RxPipe, SysError> {
        let ring = self.shared.port.ring(self.shared.sizes.ring)?;
        RxPipe::new(Rc::clone(&self.shared), ring)
    }

    /// A pipe to send from.
    ///
    /// # Errors
    /// Where there is not enough memory.
    pub fn tx_pipe(&self) -> Result<TxPipe, SysError> {
        TxPipe::new(Rc::clone(&self.shared))
    }

    /// A pipe that sends back from where it receives.
    ///
    /// # Errors
    /// As for [`Device::rx_pipe`].
    pub fn rx_tx_pipe(&self) -> Result<RxTxPipe, SysError> {
        let ring = self.shared.port.ring(self.shared.sizes.ring)?;
        RxTxPipe::new(Rc::clone(&self.shared), ring)
    }

    /// So many of them, made together: that is faster where they are many, and their memory goes with the
    /// last of them.
    ///
    /// # Errors
    /// As for [`Device::rx_pipe`].
    pub fn rx_tx_pipes(&self, count: usize) -> Result<Vec<RxTxPipe>, SysError> {
        let rings = self.shared.port.rings(count, self.shared.sizes.ring)?;
        self.shared.port.reserve_pipes(count);
        rings.into_iter().map(|ring| RxTxPipe::new(Rc::clone(&self.shared), ring)).collect()
    }

    /// The place, among the pipes of this device in the order in which they were made, of the next pipe
    /// that has received something; none where nothing has come.
    #[inline(always)]
    pub fn next(&self) -> Option<usize> {
        self.shared.next()
    }

    /// Takes note of what the NIC has sent. [`Device::next`] and waiting do so too.
    #[inline(always)]
    pub fn complete(&self) {
        self.shared.complete();
    }

    /// Changes the NIC's configuration, and waits until it is done.
    ///
    /// # Errors
    /// Where the NIC has gone, or has no place for a rule.
    pub fn configure(&self, configuration: Configuration) -> Result<(), ConfigError> {
        self.shared.configure(configuration)
    }
}

/// Whether the NIC lays out what it shares as a device of these sizes does.
fn fits(port: &Port, sizes: Sizes) -> Result<(), SysError> {
    match port.config() {
        InterfaceConfig::Pipes { ring, notifications, .. }
            if (ring, notifications) == (sizes.ring, sizes.notifications) =>
        {
            Ok(())
        }
        other => Err(SysError {
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

/// What a device's pipes share.
pub(in crate::host) struct Shared {
    pub(in crate::host) port: Port,
    pub(in crate::host) doorbells: DoorbellSender,
    pub(in crate::host) pair: u32,
    pub(in crate::host) sizes: Sizes,
    /// Notifications: those of the NIC, and then those of the program.
    pub(super) buffers: Memory,
    /// Notifications of each buffer, a power of two, less one.
    pub(super) mask: u32,
    rx_notifications: RxNotificationState,
    tx_notifications: TxNotificationState,
    released: ReleasedSpace,
}

impl Shared {
    /// A pair of notification buffers, of which the NIC knows.
    pub(super) fn new(port: &Port, sizes: Sizes) -> Result<Self, SysError> {
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
        Ok(Self {
            port: port.clone(),
            doorbells,
            pair,
            sizes,
            buffers,
            mask: sizes.notifications - 1,
            rx_notifications: RxNotificationState::new(),
            tx_notifications: TxNotificationState::new(sizes.notifications),
            released: ReleasedSpace::new(),
        })
    }

    /// A new pipe's number.
    pub(in crate::host) fn number_pipe(&self) -> Result<u32, SysError> {
        let pipe = self.port.alloc_pipe()?;
        self.rx_notifications.place(pipe);
        self.released.begin(pipe);
        Ok(pipe)
    }

    pub(in crate::host) fn bind(&self, pipe: u32, flow: Flow) -> Result<(), ConfigError> {
        self.configure(Configuration::Bind { flow, pipe })
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.port.detach(self.pair);
    }
}
