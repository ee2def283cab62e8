//! From the NIC to the application: a stream of contiguous packets (pipes) against a descriptor a packet.

pub mod echo;
pub mod generator;
mod hand;
pub mod host;
pub mod nic;
pub mod suite;
#[cfg(test)]
mod testing;
pub mod wire;

/// The suite, for the program that holds all suites.
pub static SUITE: suite::StreamSuite = suite::StreamSuite;
