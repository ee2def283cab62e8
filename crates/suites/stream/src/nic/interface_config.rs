//! What a program and the NIC must lay out alike.

// Sizes may be another process's: this crate is compiled without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::fmt;

use machine::mapping::PAGE;

use super::descriptor::{BUFFER, Descriptor, PER_LINE};

/// When a program is notified of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notify {
    /// Of a pipe's first packet, and then when the program moves its head and there is more.
    Reactively,
    /// Of every packet.
    EveryPacket,
}

/// The interface that a NIC has, and how large its parts are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InterfaceConfig {
    /// Pipes.
    Pipes {
        /// When programs are notified.
        notify: Notify,
        /// Bytes of each ring.
        ring: usize,
        /// Notifications of each buffer.
        notifications: u32,
    },
    /// A descriptor and a buffer a packet.
    Descriptors {
        /// Descriptors of each ring to receive.
        rx: u32,
        /// Of each ring to send.
        tx: u32,
    },
}

impl InterfaceConfig {
    /// As it is told to another process.
    pub(super) fn words(self) -> [u64; 4] {
        match self {
            Self::Pipes { notify, ring, notifications } => {
                [1, (notify == Notify::EveryPacket).into(), ring as u64, notifications.into()]
            }
            Self::Descriptors { rx, tx } => [2, rx.into(), tx.into(), 0],
        }
    }

    /// What another process said; none where it is no form that a NIC can have.
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

    /// Bytes of memory that so many pipes or queues take, without notification buffers.
    pub(crate) fn memory(self, queues: u64) -> u64 {
        match self {
            Self::Pipes { ring, .. } => queues.saturating_mul(ring as u64),
            Self::Descriptors { rx, tx } => {
                const EACH: u64 = (BUFFER + size_of::<Descriptor>()) as u64;
                let descriptors = u64::from(rx).saturating_add(tx.into());
                queues.saturating_mul(EACH.saturating_mul(descriptors))
            }
        }
    }

    /// Whether a NIC can have it.
    pub(crate) fn is_possible(self) -> bool {
        match self {
            Self::Pipes { ring, notifications, .. } => {
                let rings = (PAGE..=1 << 30).contains(&ring) && ring.is_power_of_two();
                rings && (2..=1 << 20).contains(&notifications) && notifications.is_power_of_two()
            }
            Self::Descriptors { rx, tx } => [rx, tx]
                .iter()
                .all(|size| (PER_LINE as u32..=1 << 20).contains(size) && size.is_power_of_two()),
        }
    }
}

impl fmt::Display for InterfaceConfig {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pipes { notify, ring, notifications } => {
                let each = if *notify == Notify::EveryPacket { " for every packet" } else { "" };
                write!(to, "pipes of {} KiB with {notifications} notifications{each}", ring / 1024)
            }
            Self::Descriptors { rx, tx } => {
                write!(to, "rings of {rx} descriptors to receive and {tx} to send")
            }
        }
    }
}
