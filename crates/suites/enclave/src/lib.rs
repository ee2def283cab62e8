//! Allocators inside an enclave.
//!
//! An image with one allocator ([`images`]) is loaded into its region ([`region`]) and entered by many threads
//! ([`kinds`]). The methods measure what that costs.

// A new level of a factor must not compile until every match defines it.
#![deny(clippy::wildcard_enum_match_arm)]

pub mod allocation;
pub mod batch;
pub mod cli;
pub mod conf;
pub mod cross_thread;
pub mod ecall;
pub mod elf;
pub mod error;
mod faults;
pub mod heap;
pub mod images;
pub mod kinds;
pub mod limits;
pub mod loaded;
pub mod metrics;
mod ocalls;
pub mod params;
pub mod region;
mod regions;
pub mod signals;
pub mod smallbank;
mod suite;
mod system_calls;
mod tcs;
mod thread;
pub mod threads;
mod trampoline;
#[cfg(feature = "wasm")]
mod wasm_engine;

pub use suite::SUITE;

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    #[test]
    #[should_panic(expected = "overflow")]
    fn an_integer_overflow_panics() {
        black_box(black_box(u64::MAX) + black_box(1));
    }
}
