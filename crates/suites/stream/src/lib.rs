//! From the NIC to the application: a stream of contiguous packets (pipes) against a descriptor a packet.

pub mod echo;
pub mod generator;
pub mod host;
pub mod nic;
pub mod wire;
