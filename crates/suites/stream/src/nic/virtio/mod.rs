//! Virtqueues in a driver's memory: split and packed rings of the virtio specification 1.2, as a network device uses them.
//!
//! A driver is another process, which may write anything into its memory at any time. Every value is therefore read once
//! and checked, and a driver that breaks the rules only ends its own ring.

// Sizes come from another process, and this crate is compiled without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod buffer;
mod memory;
mod packed;
mod ring;
mod split;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

/// Primitives of the rings, which the loom tests replace.
mod sync {
    pub(super) use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering, fence};
}

pub(crate) use buffer::{HEADER, Scratch};
pub(crate) use memory::{GuestMemory, GuestRegion};
pub(crate) use ring::{Ring, RingAddresses, RingParams, Taken};
