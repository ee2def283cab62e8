//! The configuration of a NIC's interface, on which NIC and host must agree.

// Sizes may come from another process, and this crate is compiled without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use std::fmt;

use machine::mapping::PAGE;

use super::descriptor::{BUFFER_SPACE, Descriptor, PER_LINE, RxSize};
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
        /// Size of the descriptors to receive into.
        size: RxSize,
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
            Self::Descriptors { rx, tx, size } => {
                [2, rx.into(), tx.into(), (size == RxSize::Long).into()]
            }
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
            [2, rx, tx, long] => Self::Descriptors {
                rx: rx.try_into().ok()?,
                tx: tx.try_into().ok()?,
                size: if long == 0 { RxSize::Short } else { RxSize::Long },
            },
            _ => return None,
        };
        config.is_possible().then_some(config)
    }

    /// Returns the memory that `queues` pipes or queues need, in bytes, without notification buffers.
    pub(crate) fn memory(self, queues: u64) -> u64 {
        match self {
            Self::Pipes { ring, .. } => queues.saturating_mul(ring as u64),
            Self::Descriptors { rx, tx, size } => {
                let each = |bytes: usize| (bytes as u64).saturating_add(BUFFER_SPACE as u64);
                let rx = u64::from(rx).saturating_mul(each(size.bytes()));
                let tx = u64::from(tx).saturating_mul(each(size_of::<Descriptor>()));
                queues.saturating_mul(rx.saturating_add(tx))
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
            Self::Descriptors { rx, tx, .. } => [rx, tx]
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
            Self::Descriptors { rx, tx, size } => {
                let bytes = size.bytes();
                write!(
                    to,
                    "rings of {rx} descriptors of {bytes} B for receiving and {tx} for sending"
                )
            }
            Self::Virtio { queues } => write!(to, "{queues} pairs of virtqueues"),
            Self::Link(mode) => mode.fmt(to),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_configurations_are_decoded() {
        let pipes = |notify| InterfaceConfig::Pipes { notify, ring: 1 << 21, notifications: 64 };
        let descriptors = |size| InterfaceConfig::Descriptors { rx: 1024, tx: 512, size };
        for config in [
            pipes(Notify::Reactively),
            pipes(Notify::EveryPacket),
            descriptors(RxSize::Short),
            descriptors(RxSize::Long),
        ] {
            assert_eq!(InterfaceConfig::of(config.words()), Some(config));
        }
    }
}
