//! The code inside an enclave, freestanding: the implementation of the calls, and the allocators.
//!
//! An image is a binary of this package that links one allocator by [`link!`]. With the feature `outside`, the same
//! code runs on an operating system, for the allocators that need one.
#![no_std]
#![warn(clippy::undocumented_unsafe_blocks)]

#[cfg(feature = "outside")]
extern crate std;

// The crate's own name, because `link!` names it in other packages too.
extern crate self as inside;

mod allocation;
pub mod allocator;
mod arch;
mod bank;
mod calls;
pub mod linked;
mod lock;
#[cfg(all(target_arch = "x86_64", not(feature = "outside")))]
mod memory;
mod runtime;
mod shared;
mod workload;
