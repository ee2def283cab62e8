//! What runs inside an enclave, with no system below: the calls' answers, and the allocators.
//!
//! An image is a binary of this package that links one allocator by [`link!`].
#![no_std]
#![warn(clippy::undocumented_unsafe_blocks)]

mod allocation;
pub mod allocator;
mod bank;
mod calls;
mod entry;
mod heap;
pub mod linked;
mod lock;
mod memory;
mod misbehave;
mod random;
mod shared;
mod thread;
