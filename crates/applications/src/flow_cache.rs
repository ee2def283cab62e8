//! A cache keyed by complete flows, 4-way, that replaces the oldest entry of a set.

use crate::packet::Flow;

/// Number of entries in a set.
pub const WAYS: usize = 4;

/// Bits of the second word besides ports and protocol: whether the entry is used, ...
const USED: u64 = 1 << 40;
/// ... in the first entry of a set the number of the oldest one, ...
const OLDEST_SHIFT: u32 = 41;
const OLDEST: u64 = 3 << OLDEST_SHIFT;
/// ... and the value.
const VALUE_SHIFT: u32 = 48;
/// The bits that a flow is compared by.
const KEY: u64 = USED | (USED - 1);

/// One cache line.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
struct Set {
    addresses: [u64; WAYS],
    others: [u64; WAYS],
}

/// A cache of `SETS` sets, a power of two; its values are numbers.
#[derive(Debug, Clone)]
pub struct FlowCache<const SETS: usize> {
    sets: Box<[Set]>,
}

impl<const SETS: usize> Default for FlowCache<SETS> {
    fn default() -> Self {
        const { assert!(SETS.is_power_of_two()) };
        Self { sets: vec![Set { addresses: [0; WAYS], others: [0; WAYS] }; SETS].into() }
    }
}

/// The entry of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Number of the entry in the cache.
    pub number: usize,
    /// The value.
    pub value: u16,
}

impl<const SETS: usize> FlowCache<SETS> {
    /// Number of entries.
    pub const ENTRIES: usize = SETS * WAYS;

    #[inline(always)]
    fn set_of(hash: u64) -> usize {
        hash as usize % SETS
    }

    /// Returns the entry of a flow; `hash` is that of the flow.
    #[inline(always)]
    pub fn find(&self, flow: Flow, hash: u64) -> Option<Entry> {
        let index = Self::set_of(hash);
        // SAFETY: there are `SETS` sets.
        let set = unsafe { self.sets.get_unchecked(index) };
        let key = flow.ports | USED;
        let found = (0..WAYS).fold(0, |found, way| {
            let is_equal =
                (set.addresses[way] ^ flow.addresses) | ((set.others[way] ^ key) & KEY) == 0;
            found | u32::from(is_equal) << way
        });
        if found == 0 {
            return None;
        }
        let way = found.trailing_zeros() as usize % WAYS;
        let value = (set.others[way] >> VALUE_SHIFT) as u16;
        Some(Entry { number: index * WAYS + way, value })
    }

    /// Adds a flow that has no entry. Returns the number of its entry, which another flow may have had.
    #[inline(always)]
    pub fn insert(&mut self, flow: Flow, hash: u64, value: u16) -> usize {
        let index = Self::set_of(hash);
        // SAFETY: there are `SETS` sets.
        let set = unsafe { self.sets.get_unchecked_mut(index) };
        let oldest = (set.others[0] & OLDEST) >> OLDEST_SHIFT;
        let unused = set.others.iter().position(|other| other & USED == 0);
        let way = unused.unwrap_or(oldest as usize) % WAYS;
        set.addresses[way] = flow.addresses;
        set.others[way] = flow.ports | USED | u64::from(value) << VALUE_SHIFT;
        let oldest = (way as u64 + 1) % WAYS as u64;
        set.others[0] = set.others[0] & !OLDEST | oldest << OLDEST_SHIFT;
        index * WAYS + way
    }

    /// Removes all flows with a value.
    pub fn remove_value(&mut self, value: u16) {
        let others = self.sets.iter_mut().flat_map(|set| &mut set.others);
        for other in others.filter(|other| (**other >> VALUE_SHIFT) as u16 == value) {
            *other &= !USED;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(n: u64) -> Flow {
        Flow { addresses: n, ports: 17 << 32 | n << 16 & 0xffff_ffff }
    }

    #[test]
    fn a_set_keeps_the_newest_four_flows() {
        let mut cache = FlowCache::<4>::default();
        assert_eq!(
            cache.find(Flow { addresses: 0, ports: 0 }, 0),
            None,
            "unused entries are empty"
        );
        for n in 0..10 {
            // Another set is not affected.
            let number = cache.insert(flow(n), 2, n as u16);
            assert!((8..12).contains(&number), "{number}");
            for other in 0..10 {
                let found = cache.find(flow(other), 2);
                let is_kept = other <= n && n - other < 4;
                assert_eq!(found.map(|entry| entry.value), is_kept.then_some(other as u16));
                assert_eq!(cache.find(flow(other), 1), None);
            }
            assert_eq!(cache.find(flow(n), 2), Some(Entry { number, value: n as u16 }));
        }
    }

    #[test]
    fn flows_that_differ_in_one_field_have_different_entries() {
        let mut cache = FlowCache::<1>::default();
        let base = Flow { addresses: 0x0102_0304_0506_0708, ports: 6 << 32 | 0x0a0b_0c0d };
        cache.insert(base, 0, 1);
        for bit in 0..64 {
            let other = Flow { addresses: base.addresses ^ 1 << bit, ..base };
            assert_eq!(cache.find(other, 0), None);
        }
        for bit in 0..40 {
            let other = Flow { ports: base.ports ^ 1 << bit, ..base };
            assert_eq!(cache.find(other, 0), None);
        }
        assert!(cache.find(base, 0).is_some());
    }

    #[test]
    fn flows_of_a_removed_value_are_gone() {
        let mut cache = FlowCache::<8>::default();
        (0..30).for_each(|n| {
            cache.insert(flow(n), n, (n % 2) as u16);
        });
        cache.remove_value(1);
        for n in 0..30 {
            assert_eq!(cache.find(flow(n), n).is_some(), n % 2 == 0);
        }
        cache.insert(flow(99), 0, 1);
        assert!(cache.find(flow(99), 0).is_some());
    }
}
