//! Copies into memory that another process or host sees.
//!
//! The suite measures how fast bytes pass into and out of each kind of memory
//! ([`throughput`]), how frames pass between two processes ([`frames`]), what a mediated pool
//! costs and stops ([`mediation`]), and why mapped memory stops scaling ([`faults`]). Whether bytes
//! arrive at all is tested without a clock ([`delivery`]).

pub mod delivery;
pub mod factors;
pub mod faults;
pub mod frames;
pub mod functions;
pub mod hand;
pub mod lengths;
pub mod limit;
pub mod mediation;
pub mod memory;
pub mod metrics;
pub mod pattern;
pub mod pool;
mod suite;
pub mod throughput;

pub use suite::CopySuite;

/// The suite, for the program that holds all suites.
pub static SUITE: CopySuite = CopySuite;
