//! The connection cache of Ensō's evaluation: 1,024 entries, 4-way, keyed by a 32-bit hash only.
//!
//! Two connections with equal hashes share an entry. They have the same entry of the table too, so this matters only after
//! the table changed.

use super::Connections;
use super::table::{Backend, Table};
use crate::hash;
use crate::packet::Flow;

const SETS: usize = 256;
const WAYS: usize = 4;

/// The connections whose hashes are equal modulo [`SETS`]; half a cache line.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C, align(32))]
struct Set {
    hashes: [u32; WAYS],
    backends: [Backend; WAYS],
    /// One bit per entry.
    used: u32,
    /// The oldest entry, if all are used.
    oldest: u32,
}

/// The cache.
#[derive(Debug, Clone)]
pub struct HashCache {
    sets: Box<[Set; SETS]>,
    misses: u64,
}

impl Default for HashCache {
    fn default() -> Self {
        Self { sets: Box::new([Set::default(); SETS]), misses: 0 }
    }
}

impl Set {
    /// Returns the backend of a hash.
    #[inline(always)]
    fn find(&self, hash: u32) -> Option<Backend> {
        let equal =
            (0..WAYS).fold(0, |equal, way| equal | u32::from(self.hashes[way] == hash) << way);
        let found = equal & self.used;
        (found != 0).then(|| self.backends[found.trailing_zeros() as usize % WAYS])
    }

    /// Replaces an unused entry, or else the oldest.
    #[inline(always)]
    fn insert(&mut self, hash: u32, backend: Backend) {
        let unused = (!self.used).trailing_zeros();
        let way = if unused < WAYS as u32 { unused } else { self.oldest } as usize % WAYS;
        self.hashes[way] = hash;
        self.backends[way] = backend;
        self.used |= 1 << way;
        self.oldest = (way as u32 + 1) % WAYS as u32;
    }
}

impl Connections for HashCache {
    const CHECKSUMS: bool = false;

    #[inline(always)]
    fn backend(&mut self, flow: Flow, table: &Table) -> Backend {
        let hash = hash::of_flow(flow);
        // The table uses the high bits of these 32, the sets the low ones.
        let key = (hash >> 32) as u32;
        let set = &mut self.sets[key as usize % SETS];
        if let Some(backend) = set.find(key) {
            return backend;
        }
        self.misses += 1;
        let backend = table.backend(hash);
        set.insert(key, backend);
        backend
    }

    fn forget(&mut self, backend: Backend) {
        for Set { backends, used, .. } in self.sets.iter_mut() {
            let of_backend = backends.iter().enumerate().filter(|(_, other)| **other == backend);
            of_backend.for_each(|(way, _)| *used &= !(1 << way));
        }
    }

    fn misses(&self) -> u64 {
        self.misses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_keeps_the_newest_four() {
        let mut set = Set::default();
        assert_eq!(set.find(0), None, "an unused entry has no hash, not even 0");
        for hash in 0..10u32 {
            set.insert(hash, hash as Backend * 7);
            for other in 0..10u32 {
                let is_kept = other <= hash && hash - other < 4;
                assert_eq!(set.find(other), is_kept.then_some(other as Backend * 7));
            }
        }
    }

    #[test]
    fn forgotten_backends_leave_no_entry() {
        let addresses: Vec<_> = (1..=3u32).map(std::net::Ipv4Addr::from).collect();
        let table = Table::new(&addresses, |_| true).unwrap();
        let mut cache = HashCache::default();
        let flow = |n| Flow { addresses: n, ports: 0 };
        let first: Vec<_> = (0..100).map(|n| cache.backend(flow(n), &table)).collect();
        assert_eq!(cache.misses(), 100);
        let others = Table::new(&addresses, |backend| backend != 1).unwrap();
        cache.forget(1);
        for (n, first) in first.iter().enumerate() {
            let now = cache.backend(flow(n as u64), &others);
            assert!(now == *first || *first == 1 && now != 1, "connections keep their backend");
        }
        let forgotten = first.iter().filter(|backend| **backend == 1).count() as u64;
        assert!(forgotten > 10);
        assert_eq!(cache.misses(), 100 + forgotten);
    }
}
