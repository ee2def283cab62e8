//! What the NIC makes of a configuration that it was asked for.

use super::Gone;
use crate::nic::configuration::Configuration;
use crate::nic::flow_table::Full;
use crate::nic::notification::{TAKEN, TxNotification};

/// Why the NIC was not configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotConfigured {
    /// It has ended.
    #[error(transparent)]
    Gone(#[from] Gone),
    /// A flow was to be bound, and its packets go where they went before.
    #[error(transparent)]
    Full(#[from] Full),
    /// Another program has the flow, or what was to be set.
    #[error("another program of this NIC has the flow or setting; end it, or ask for another")]
    Taken,
    /// It has descriptors.
    #[error("a NIC with descriptors writes no timestamps into packets; use pipes for them")]
    Timestamp,
    /// It has descriptors, and all buffers for them are in bursts or with the NIC.
    #[error("no buffer is free to configure the NIC by; clear a burst first")]
    NoBuffer,
}

/// What the NIC, which is done with it, says of a configuration.
pub(super) fn answer(
    configuration: Configuration,
    notification: &TxNotification,
) -> Result<(), NotConfigured> {
    match (configuration, notification.refused()) {
        (_, TAKEN) => Err(NotConfigured::Taken),
        (Configuration::Bind { flow, .. }, rules @ 1..) => {
            Err(Full { flow, rules: rules as usize }.into())
        }
        _ => Ok(()),
    }
}
