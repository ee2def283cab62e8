//! One core's access to a NIC by pipes: notification buffers and the state that its pipes share.

use std::io;
use std::rc::Rc;

use lab::factor::LevelType;
use machine::SysError;
pub(super) use released_space::CompletionTarget;

use super::ConfigError;
use crate::nic::configuration::Configuration;
use crate::nic::doorbells::DoorbellSender;
use crate::nic::layout::{FLIT, NOTIFICATIONS, Queue, RING, Register};
use crate::nic::{InterfaceConfig, Memory, Port};
use crate::wire::Flow;
use released_space::ReleasedSpace;
use rx_notifications::RxNotificationState;
use tx_notifications::TxNotificationState;

mod released_space;
mod rx_notifications;
mod tx_notifications;

/// How many receive notifications, and how many completions, are taken at a time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, LevelType)]
pub enum NotificationBatch {
    /// Up to 64, as in Ensō's library. [`Device::next`] returns a pipe for each notification, in order. Packets of which several
    /// notifications of a batch report are received with the first, so that the others find none.
    #[default]
    #[level("64")]
    Of64,
    /// Up to 2048. [`Device::next`] returns each pipe once, so that packets of a pipe are received and sent together even if
    /// each has its own notification and notifications of other pipes are between them.
    Merged,
}

/// Size of a batch in Ensō's library.
const PUBLISHED: u32 = 64;
/// Size of a batch whose notifications are merged.
const MERGED: u32 = 2048;

impl NotificationBatch {
    /// Returns the maximum number of notifications.
    #[inline(always)]
    pub(super) fn max(self) -> u32 {
        match self {
            Self::Of64 => PUBLISHED,
            Self::Merged => MERGED,
        }
    }
}

/// Sizes of rings and buffers, by default those of the hardware, and of batches. All are powers of two.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    /// Size of each pipe's ring, in bytes.
    pub ring: usize,
    /// Capacity of each notification buffer.
    pub notifications: u32,
    /// How many notifications are taken at a time.
    pub batch: NotificationBatch,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { ring: RING, notifications: NOTIFICATIONS, batch: NotificationBatch::default() }
    }
}

/// The NIC has stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the NIC has stopped; start it again")]
pub struct NicClosed;

/// One core's access to a NIC by pipes.
pub struct Device {
    pub(super) shared: Rc<Shared>,
}

impl Device {
    /// Attaches to a NIC with a pair of notification buffers.
    ///
    /// # Errors
    /// Returns an error if the NIC has another configuration, or memory or buffer pairs are exhausted.
    pub fn new(port: &Port, sizes: Sizes) -> Result<Self, SysError> {
        assert!(
            sizes.ring.is_power_of_two() && sizes.notifications.is_power_of_two(),
            "sizes are powers of two"
        );
        assert!(sizes.notifications > 1, "one notification slot always stays free");
        check_config(port, sizes)?;
        let shared = Shared::new(port, sizes)?;
        Ok(Self { shared: Rc::new(shared) })
    }

    /// Returns the pipe of the next notification, as an index in the order of creation. Returns `None` if there is none.
    /// The pipe may have no packets left: see [`NotificationBatch`].
    #[inline(always)]
    pub fn next(&self) -> Option<usize> {
        self.shared.next()
    }

    /// Returns the pipe that [`Device::next`] returns next if its notification is already taken.
    #[inline(always)]
    pub fn upcoming(&self) -> Option<usize> {
        self.shared.upcoming()
    }

    /// Processes the NIC's completions of sent packets. [`Device::next`] and waiting do so too.
    #[inline(always)]
    pub fn complete(&self) {
        self.shared.complete();
    }

    /// Changes the NIC's configuration and waits until it is done.
    ///
    /// # Errors
    /// Returns an error if the NIC has stopped or refuses the configuration.
    pub fn configure(&self, configuration: Configuration) -> Result<(), ConfigError> {
        self.shared.configure(configuration)
    }

    /// As [`Device::next`], but returns the NIC's ID of the pipe.
    #[inline(always)]
    pub fn next_id(&self) -> Option<u32> {
        self.shared.next_id()
    }

    /// Returns the number of requests to send that the NIC has not completed, as of the last call that processed
    /// completions.
    pub fn in_flight(&self) -> usize {
        self.shared.in_flight() as usize
    }

    /// Returns whether the NIC has stopped.
    pub fn is_closed(&self) -> bool {
        self.shared.port.is_closed()
    }
}

/// Checks that the NIC has the configuration of a device with these sizes.
fn check_config(port: &Port, sizes: Sizes) -> Result<(), SysError> {
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
            remedy: "use the NIC's configuration".into(),
        }),
    }
}

/// State that a device's pipes share.
pub(in crate::host) struct Shared {
    pub(in crate::host) port: Port,
    pub(in crate::host) doorbells: DoorbellSender,
    pub(in crate::host) pair: u32,
    pub(in crate::host) sizes: Sizes,
    /// Receive notifications, followed by transmit notifications.
    pub(super) buffers: Memory,
    /// Capacity of each notification buffer, minus 1.
    pub(super) mask: u32,
    rx_notifications: RxNotificationState,
    tx_notifications: TxNotificationState,
    released: ReleasedSpace,
}

impl Shared {
    /// Allocates a pair of notification buffers and registers it with the NIC.
    pub(super) fn new(port: &Port, sizes: Sizes) -> Result<Self, SysError> {
        let each = sizes.notifications as usize * FLIT;
        let buffers = port.plain(2 * each)?;
        let (pair, doorbells) = port.attach()?;
        let write = |register: Register, value| {
            doorbells.write(register.of(Queue::Buffers(pair)), value);
        };
        let (rx, tx) = (buffers.bus(), buffers.bus() + each as u64);
        write(Register::RxMemoryLow, rx as u32);
        write(Register::RxMemoryHigh, (rx >> 32) as u32);
        write(Register::TxMemoryLow, tx as u32);
        write(Register::TxMemoryHigh, (tx >> 32) as u32);
        Ok(Self {
            port: port.clone(),
            doorbells,
            pair,
            sizes,
            buffers,
            mask: sizes.notifications - 1,
            rx_notifications: RxNotificationState::new(sizes.batch),
            tx_notifications: TxNotificationState::new(sizes.notifications),
            released: ReleasedSpace::new(),
        })
    }

    /// Allocates the ID of a new pipe.
    pub(in crate::host) fn new_pipe_id(&self) -> Result<u32, SysError> {
        let pipe = self.port.alloc_pipe()?;
        self.rx_notifications.add(pipe);
        self.released.reset(pipe);
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
