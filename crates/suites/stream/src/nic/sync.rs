//! Primitives of the doorbell queue and of notifications. The loom tests replace this module.

pub(super) use std::hint::spin_loop;
pub(super) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Maximum number of register writes in flight.
pub(crate) const CREDIT: u32 = 4096;
