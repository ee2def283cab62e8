//! Copies into memory shared with another process, host or device.
//!
//! The suite measures how fast bytes pass into and out of each kind of memory ([`throughput`]),
//! how frames pass between two processes ([`frames`]), what a mediated pool costs and whether it
//! stops forbidden accesses ([`mediation`]), and why mapped memory stops scaling ([`faults`]).
//! [`delivery`] tests without a clock whether bytes arrive.

pub mod cli;
pub mod delivery;
pub mod factors;
pub mod faults;
pub mod frames;
pub mod functions;
pub mod lengths;
pub mod mbw;
pub mod mediation;
pub mod memory;
pub mod metrics;
pub mod pattern;
pub mod pool;
mod suite;
pub mod throughput;

pub use suite::{COMMAND, SUITE};
