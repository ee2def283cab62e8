//! The software NIC: a thread that behaves like the hardware, as seen by the host.
//!
//! It only copies what the hardware would transfer. Data shared with the host has the hardware's layout:
//! see [`layout`].

mod command_queue;
pub mod configuration;
pub mod counters;
pub mod descriptor;
pub mod descriptors;
mod doorbell_mapping;
pub(crate) mod doorbell_queue;
pub(crate) mod doorbells;
pub mod engine;
pub mod fallback;
pub mod flow_table;
pub mod interface_config;
pub mod layout;
mod link_mode;
pub(crate) mod memory;
pub mod notification;
pub mod pcie;
mod pipe_ids;
pub mod pipes;
mod placement;
mod port;
mod region;
mod register_writes;
pub mod remote;
mod shared;
mod steering;
mod thread;
pub mod vhost;
mod virtio;

#[cfg(test)]
mod tests;

/// Primitives of the doorbell queue and of notifications, which the loom tests replace.
mod sync {
    pub(super) use std::hint::spin_loop;
    pub(super) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

    /// Maximum number of register writes in flight.
    pub(crate) const CREDIT: u32 = 4096;
}

pub use counters::Counters;
pub use interface_config::InterfaceConfig;
pub use link_mode::LinkMode;
pub use memory::Pages;
pub use placement::PlacementOrder;
pub use port::{Memory, Port};
pub use region::{ClientId, Region};
pub(crate) use thread::ticks;
pub use thread::{Access, Error, Nic, NicParams};
