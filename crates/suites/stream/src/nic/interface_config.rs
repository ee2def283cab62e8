//! The configuration of a NIC's interface, on which NIC and host must agree.

// Sizes may come from another process, and this crate is compiled without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::fmt;

use machine::mapping::PAGE;

use super::descriptor::{BUFFER, Descriptor, PER_LINE};
use super::link_mode::LinkMode;
use super::vhost::MAX_QUEUES;

/// When the NIC notifies of received packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notify {
    /// For the first packet of a pipe, then whenever the host moves the head and there are more packets.
    Reactively,
    /// For every packet.
    EveryPacket,
}

/// The interface of a NIC and the sizes of its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InterfaceConfig {
    /// Pipes.
    Pipes {
        /// When the NIC notifies.
        notify: Notify,
        /// Size of each ring, in bytes.
        ring: usize,
        /// Capacity of each notification buffer.
        notifications: u32,
    },
    /// One descriptor and one buffer per packet.
    Descriptors {
        /// Descriptors of each receive ring.
        rx: u32,
        /// Descriptors of each transmit ring.
        tx: u32,
    },
    /// Virtqueues in the memory of a program that attaches by vhost-user.
    Virtio {
        /// Pairs of rings.
        queues: u32,
    },
    /// An interface of Linux, to which no program attaches.
    Link(LinkMode),
}

impl InterfaceConfig {
    /// Encodes the configuration for another process.
    pub(super) fn words(self) -> [u64; 4] {
        match self {
            Self::Pipes { notify, ring, notifications } => {
                [1, (notify == Notify::EveryPacket).into(), ring as u64, notifications.into()]
            }
            Self::Descriptors { rx, tx } => [2, rx.into(), tx.into(), 0],
            // No client of this project's protocol can have it.
            Self::Virtio { queues } => [3, queues.into(), 0, 0],
            Self::Link(_) => [4, 0, 0, 0],
        }
    }

    /// Decodes the configuration from another process. Returns `None` if no NIC can have it.
    pub(super) fn of(words: [u64; 4]) -> Option<Self> {
        let notify = |each| if each == 0 { Notify::Reactively } else { Notify::EveryPacket };
        let config = match words {
            [1, each, ring, notifications] => Self::Pipes {
                notify: notify(each),
                ring: ring.try_into().ok()?,
                notifications: notifications.try_into().ok()?,
            },
            [2, rx, tx, _] => {
                Self::Descriptors { rx: rx.try_into().ok()?, tx: tx.try_into().ok()? }
            }
            _ => return None,
        };
        config.is_possible().then_some(config)
    }

    /// Returns the memory that `queues` pipes or queues need, in bytes, without notification buffers.
    pub(crate) fn memory(self, queues: u64) -> u64 {
        match self {
            Self::Pipes { ring, .. } => queues.saturating_mul(ring as u64),
            Self::Descriptors { rx, tx } => {
                const EACH: u64 = (BUFFER + size_of::<Descriptor>()) as u64;
                let descriptors = u64::from(rx).saturating_add(tx.into());
                queues.saturating_mul(EACH.saturating_mul(descriptors))
            }
            // The program's, and the kernel's.
            Self::Virtio { .. } | Self::Link(_) => 0,
        }
    }

    /// Returns whether a NIC can have the configuration.
    pub fn is_possible(self) -> bool {
        match self {
            Self::Pipes { ring, notifications, .. } => {
                let rings = (PAGE..=1 << 30).contains(&ring) && ring.is_power_of_two();
                rings && (2..=1 << 20).contains(&notifications) && notifications.is_power_of_two()
            }
            Self::Descriptors { rx, tx } => [rx, tx]
                .iter()
                .all(|size| (PER_LINE as u32..=1 << 20).contains(size) && size.is_power_of_two()),
            Self::Virtio { queues } => (1..=MAX_QUEUES).contains(&queues),
            Self::Link(_) => true,
        }
    }
}

impl fmt::Display for InterfaceConfig {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pipes { notify, ring, notifications } => {
                let each = if *notify == Notify::EveryPacket { " per packet" } else { "" };
                write!(to, "pipes of {} KiB with {notifications} notifications{each}", ring / 1024)
            }
            Self::Descriptors { rx, tx } => {
                write!(to, "rings of {rx} descriptors for receiving and {tx} for sending")
            }
            Self::Virtio { queues } => write!(to, "{queues} pairs of virtqueues"),
            Self::Link(mode) => mode.fmt(to),
        }
    }
}
