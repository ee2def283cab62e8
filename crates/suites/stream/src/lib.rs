//! From the NIC to the application: a stream of contiguous packets (pipes) against a descriptor a packet.

pub mod nic;
pub mod wire;
