//! The regions of loaded enclaves, as the handlers of signals read them.

#[cfg(test)]
mod orders;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use table::Regions;

/// The atomics of the table, in whose place a test puts loom's.
mod sync {
    pub(super) use std::sync::atomic::{AtomicU64, Ordering};
}
