//! What the queue of posted writes is built of. A test that tries all orders of its loads and stores puts a
//! module of its own in the place of this one.

pub(super) use std::hint::spin_loop;
pub(super) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Writes under way at most: the credit.
pub(crate) const CREDIT: u32 = 4096;
