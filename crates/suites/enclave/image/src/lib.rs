//! What runs inside an enclave, with no system below: the calls' answers, and the allocators.
//!
//! An image is a binary of this package that links one allocator by [`link!`]. With the feature `outside` the
//! same code has the system below it, for the allocators that need one.
#![no_std]
#![warn(clippy::undocumented_unsafe_blocks)]

#[cfg(feature = "outside")]
extern crate std;

// By its name here too, since what `link!` names is named in other packages.
extern crate self as inside;

mod allocation;
pub mod allocator;
mod arch;
mod bank;
mod calls;
mod heap;
pub mod linked;
mod lock;
#[cfg(all(target_arch = "x86_64", not(feature = "outside")))]
mod memory;
mod random;
mod runtime;
mod shared;
