//! One partition of the store: a lossy index and a circular log.
//!
//! As in MICA (Lim et al., *MICA: A Holistic Approach to Fast In-Memory Key-Value Storage*, NSDI 2014, in cache
//! mode): a bucket of the index is one cache line of 8 entries, each a 16-bit tag of the key's hash and the offset of its item
//! in the log. A new item is appended to the log, where it replaces the oldest one. Its entry replaces an unused entry of
//! the bucket, or else that of the oldest item. Either can evict a key, which is a miss afterwards. An item whose key is in the
//! log is updated in place, because all values have the same size.
//!
//! One thread uses a partition (MICA's EREW mode), so there are no locks.

use crate::hash;
use crate::memory::{Array, MemoryError, Zeros, prefetch};

/// Number of entries in a bucket.
const WAYS: usize = 8;

/// Bits of an offset in an entry; offsets are counted modulo 2^48.
const OFFSET_BITS: u32 = 48;

/// One cache line of the index. Tags are contiguous, so that one instruction compares all.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
struct Bucket {
    /// 0 if the entry is unused.
    tags: [u16; WAYS],
    high: [u16; WAYS],
    low: [u32; WAYS],
}

// SAFETY: numbers may be 0.
unsafe impl Zeros for Bucket {}

/// An item of the log.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C, align(16))]
struct Item {
    key: u64,
    value: u64,
}

// SAFETY: numbers may be 0.
unsafe impl Zeros for Item {}

/// Size of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Number of buckets, a power of two.
    pub buckets: usize,
    /// Number of items in the log, a power of two.
    pub log: usize,
}

impl Size {
    /// Returns the size for a number of keys: a log of at least as many items, and buckets that are half full on average,
    /// so that 0.8% of random keys have no entry.
    pub fn of_keys(keys: usize) -> Self {
        let log = keys.clamp(1, 1 << 40).next_power_of_two();
        Self { buckets: (log / 4).max(1), log }
    }

    /// Returns the memory that it needs, in bytes.
    pub fn bytes(&self) -> usize {
        self.buckets * size_of::<Bucket>() + self.log * size_of::<Item>()
    }
}

/// The hash of a key, which selects its partition, bucket and tag by different bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyHash(u64);

impl KeyHash {
    /// Returns the hash of a key.
    #[inline(always)]
    pub fn new(key: u64) -> Self {
        Self(hash::of_number(key, 0))
    }

    /// Returns the number of the key's partition among `partitions`: by bits 48 to 63.
    #[inline(always)]
    pub fn partition(self, partitions: u16) -> u16 {
        (((self.0 >> 48) * u64::from(partitions)) >> 16) as u16
    }

    /// Returns bits 32 to 47 as a tag that is not 0.
    #[inline(always)]
    fn tag(self) -> u16 {
        let tag = (self.0 >> 32) as u16;
        tag + u16::from(tag == 0)
    }
}

/// A partition.
pub struct Partition {
    buckets: Array<Bucket>,
    log: Array<Item>,
    /// Offset of the next item.
    tail: u64,
}

impl Partition {
    /// Creates an empty partition.
    ///
    /// # Errors
    /// Returns an error if there is not enough memory.
    pub fn new(size: Size) -> Result<Self, MemoryError> {
        let buckets = Array::new(size.buckets.next_power_of_two())?;
        Ok(Self { buckets, log: Array::new(size.log.next_power_of_two())?, tail: 0 })
    }

    #[inline(always)]
    fn bucket_of(&self, hash: KeyHash) -> usize {
        // Bits 0 to 31, and those of the tag in an index of more than 2^32 buckets.
        hash.0 as usize & (self.buckets.len() - 1)
    }

    #[inline(always)]
    fn position(&self, offset: u64) -> usize {
        offset as usize & (self.log.len() - 1)
    }

    /// Starts to load the bucket of a key.
    #[inline(always)]
    pub fn prefetch_bucket(&self, hash: KeyHash) {
        prefetch(&self.buckets[self.bucket_of(hash)]);
    }

    /// Starts to load the item of a key, whose bucket should have been loaded.
    #[inline(always)]
    pub fn prefetch_item(&self, hash: KeyHash) {
        let bucket = &self.buckets[self.bucket_of(hash)];
        let equal = bucket.equal(hash.tag());
        // Without equal tag this is the item of another key, which is no harm; it saves a branch.
        prefetch(&self.log[self.position(bucket.offset(equal.trailing_zeros() as usize % WAYS))]);
    }

    /// Returns the position in the log of a key's item.
    #[inline(always)]
    fn find(&self, hash: KeyHash, key: u64) -> Option<usize> {
        let bucket = &self.buckets[self.bucket_of(hash)];
        let mut equal = bucket.equal(hash.tag());
        while equal != 0 {
            let position = self.position(bucket.offset(equal.trailing_zeros() as usize % WAYS));
            // The item may have been replaced by one of another key.
            if self.log[position].key == key {
                return Some(position);
            }
            equal &= equal - 1;
        }
        None
    }

    /// Returns the value of a key; `None` if it was not set or has been evicted.
    #[inline(always)]
    pub fn get(&self, hash: KeyHash, key: u64) -> Option<u64> {
        self.find(hash, key).map(|position| self.log[position].value)
    }

    /// Sets the value of a key.
    #[inline(always)]
    pub fn set(&mut self, hash: KeyHash, key: u64, value: u64) {
        if let Some(position) = self.find(hash, key) {
            self.log[position].value = value;
            return;
        }
        let (position, bucket) = (self.position(self.tail), self.bucket_of(hash));
        self.log[position] = Item { key, value };
        self.buckets[bucket].insert(hash.tag(), self.tail);
        self.tail = (self.tail + 1) & ((1 << OFFSET_BITS) - 1);
    }
}

impl Bucket {
    /// Returns one bit per entry whose tag is equal.
    #[inline(always)]
    fn equal(&self, tag: u16) -> u32 {
        // SAFETY: SSE2 is part of x86-64, and a bucket is aligned to 64 bytes.
        unsafe {
            use std::arch::x86_64::*;
            let tags = _mm_load_si128(self.tags.as_ptr().cast());
            let equal = _mm_cmpeq_epi16(tags, _mm_set1_epi16(tag.cast_signed()));
            _mm_movemask_epi8(_mm_packs_epi16(equal, _mm_setzero_si128())) as u32
        }
    }

    #[inline(always)]
    fn offset(&self, way: usize) -> u64 {
        u64::from(self.low[way]) | u64::from(self.high[way]) << 32
    }

    /// Replaces an unused entry, or else that of the oldest item.
    #[inline(always)]
    fn insert(&mut self, tag: u16, offset: u64) {
        let unused = self.equal(0);
        let way =
            if unused != 0 { unused.trailing_zeros() as usize % WAYS } else { self.oldest(offset) };
        self.tags[way] = tag;
        self.low[way] = offset as u32;
        self.high[way] = (offset >> 32) as u16;
    }

    #[inline(never)]
    fn oldest(&self, tail: u64) -> usize {
        let age = |way: usize| tail.wrapping_sub(self.offset(way)) & ((1 << OFFSET_BITS) - 1);
        (0..WAYS).max_by_key(|way| age(*way)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn set(partition: &mut Partition, key: u64, value: u64) {
        partition.set(KeyHash::new(key), key, value);
    }

    fn get(partition: &Partition, key: u64) -> Option<u64> {
        let hash = KeyHash::new(key);
        // A prefetch changes nothing.
        partition.prefetch_bucket(hash);
        partition.prefetch_item(hash);
        partition.get(hash, key)
    }

    proptest! {
        #[test]
        fn a_value_is_the_last_one_set(
            operations in proptest::collection::vec((0u64..300, any::<bool>(), any::<u64>()), 1..600),
            buckets in 0u32..6,
            log in 0u32..9,
        ) {
            let size = Size { buckets: 1 << buckets, log: 1 << log };
            let mut partition = Partition::new(size).unwrap();
            let mut model = HashMap::new();
            for (key, is_set, value) in operations {
                if is_set {
                    set(&mut partition, key, value);
                    model.insert(key, value);
                    prop_assert_eq!(get(&partition, key), Some(value), "the newest is never evicted");
                }
                if let Some(found) = get(&partition, key) {
                    prop_assert_eq!(Some(&found), model.get(&key));
                }
            }
        }
    }

    #[test]
    fn the_newest_items_of_a_log_are_kept() {
        // With this number of buckets none is full.
        let mut partition = Partition::new(Size { buckets: 4096, log: 64 }).unwrap();
        for key in 0..500 {
            set(&mut partition, key, key + 1);
            set(&mut partition, key, key + 2);
            for other in 0..=key {
                let is_kept = key - other < 64;
                assert_eq!(
                    get(&partition, other),
                    is_kept.then_some(other + 2),
                    "{other} after {key}"
                );
            }
        }
    }

    /// Sets keys of a partition with one bucket, and checks after each that it has the last eight.
    fn keeps_the_newest_of(partition: &mut Partition, keys: u64) {
        for key in 0..keys {
            set(partition, key, key);
            for other in 0..=key {
                let is_kept = key - other < 8;
                assert_eq!(get(partition, other).is_some(), is_kept, "{other} after {key}");
            }
        }
    }

    #[test]
    fn the_newest_entries_of_a_bucket_are_kept() {
        let mut partition = Partition::new(Size { buckets: 1, log: 1024 }).unwrap();
        keeps_the_newest_of(&mut partition, 100);
    }

    #[test]
    fn offsets_wrap_around() {
        let mut partition = Partition::new(Size { buckets: 1, log: 16 }).unwrap();
        partition.tail = (1 << OFFSET_BITS) - 3;
        keeps_the_newest_of(&mut partition, 30);
    }

    #[test]
    fn a_partition_of_the_recommended_size_keeps_nearly_all_keys() {
        const KEYS: u64 = 1 << 16;
        let mut partition = Partition::new(Size::of_keys(KEYS as usize)).unwrap();
        (0..KEYS).for_each(|key| set(&mut partition, key, !key));
        let kept = (0..KEYS).filter(|key| get(&partition, *key) == Some(!key)).count();
        // Poisson: buckets with an average of 4 keys have (X - 8)+ too many, 0.8% of all.
        let lost = 1.0 - kept as f64 / KEYS as f64;
        assert!((0.002..0.02).contains(&lost), "{lost} of the keys are lost");
    }

    #[test]
    fn partitions_have_equal_shares() {
        for partitions in [1u16, 3, 16, 1000] {
            let mut counts = vec![0u32; usize::from(partitions)];
            for key in 0..100_000 {
                counts[usize::from(KeyHash::new(key).partition(partitions))] += 1;
            }
            let expected = 100_000.0 / f64::from(partitions);
            let tolerance = 6.0 * expected.sqrt();
            assert!(counts.iter().all(|count| (f64::from(*count) - expected).abs() < tolerance));
        }
    }

    #[test]
    fn sizes_are_powers_of_two() {
        assert_eq!(Size::of_keys(0), Size { buckets: 1, log: 1 });
        assert_eq!(Size::of_keys(1000), Size { buckets: 256, log: 1024 });
        assert_eq!(Size::of_keys(1024).bytes(), 256 * 64 + 1024 * 16);
    }
}
