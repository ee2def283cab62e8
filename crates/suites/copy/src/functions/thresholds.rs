//! The lengths at which `tollgate` changes its way, from this machine's caches; set once.

// The system may say any numbers: this crate is compiled without overflow checks.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use machine::cache::Caches;
use std::arch::x86_64::__cpuid_count;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes. Up to this, source and destination fit in the first cache and ordinary stores win.
/// Apart from the others, because assembly reads it on every call above 512 bytes.
pub(super) static LARGE: AtomicUsize = AtomicUsize::new(16 << 10);

/// Where each way of a large copy ends, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Thresholds {
    /// The first cache still holds both ends
    pub large: usize,
    /// `rep movsb` is at least as fast as vectors up to here; 0 without ERMS
    pub rep: usize,
    /// The last cache still holds both ends with room to spare
    pub cached: usize,
    /// The last cache still holds much of the source
    pub source_cached: usize,
}

impl Thresholds {
    fn new(first: usize, last: usize, fast_rep: bool) -> Self {
        Self {
            large: first / 2,
            rep: if fast_rep { last / 8 } else { 0 },
            cached: last / 4,
            source_cached: (last / 2).saturating_mul(3),
        }
    }
}

/// This machine's thresholds; the first call reads the cache sizes and sets [`LARGE`].
pub(super) fn thresholds() -> &'static Thresholds {
    static THRESHOLDS: OnceLock<Thresholds> = OnceLock::new();
    THRESHOLDS.get_or_init(|| {
        let caches = Caches::detect();
        let size = |level| caches.data(level).and_then(|bytes| usize::try_from(bytes).ok());
        let first = size(1).unwrap_or(32 << 10);
        // A virtual machine may report a whole socket's cache; no core fills more than this.
        let last = size(3).unwrap_or(32 << 20).min(96 << 20);
        // Leaf 7, EBX bit 9: enhanced rep movsb.
        let fast_rep = __cpuid_count(7, 0).ebx & 1 << 9 != 0;
        let thresholds = Thresholds::new(first, last, fast_rep);
        LARGE.store(thresholds.large, Ordering::Relaxed);
        thresholds
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_ends_where_the_next_begins() {
        let with_rep = Thresholds::new(32 << 10, 32 << 20, true);
        let ends = [with_rep.large, with_rep.rep, with_rep.cached, with_rep.source_cached];
        assert_eq!(ends, [16 << 10, 4 << 20, 8 << 20, 48 << 20]);
        assert_eq!(Thresholds::new(32 << 10, 32 << 20, false).rep, 0);
    }

    #[test]
    fn this_machine_sets_the_limit_that_assembly_reads() {
        assert_eq!(thresholds().large, LARGE.load(Ordering::Relaxed));
        assert!(thresholds().large >= 4096, "{:?}", thresholds());
        assert!(thresholds().source_cached <= 144 << 20, "{:?}", thresholds());
    }
}
