//! The NIC as a vhost-user back end: an unmodified program of DPDK attaches to it by its virtio driver.
//!
//! The crate `vhost` parses the control messages on a socket. Packets pass through [virtqueues](super::virtio) in the
//! program's memory, which the NIC's thread polls.

mod backend;
mod engine;
mod requests;
mod server;

#[cfg(test)]
mod tests;

pub use engine::VirtioNet;
pub use requests::VhostControl;
pub use server::VhostServer;

/// Maximum number of queue pairs of a device.
pub const MAX_QUEUES: u32 = 128;
