//! What a bounds check costs: as instructions, in loops, in the system, in programs; and whether it works
//! with threads.

mod assembler;
mod bounds_registers;
mod checks;
mod hand;
mod instructions;
mod kernels;
mod looped;
mod mpx;
mod races;
mod software;
mod suite;
mod tables;
mod way;

pub use suite::BoundsSuite;

/// The suite, for the program that holds all suites.
pub static SUITE: BoundsSuite = BoundsSuite;
