//! Storage of pointers in memory and of their bounds in tables: racy as in MPX, and with fixes.

use std::sync::atomic::{AtomicU64, Ordering};

use lab::sample::Failure;
use machine::mapping::Mapping;

use crate::software::{Directory, Entry, TABLE_BYTES, offset_in_table};

use super::pair;

/// First and last byte of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) lower: u64,
    pub(super) upper: u64,
}

impl Bounds {
    /// Bounds that every access satisfies: those of a pointer without stored bounds.
    pub(super) const INIT: Self = Self { lower: 0, upper: u64::MAX };

    /// Returns whether an access of one byte is outside the bounds.
    #[inline(always)]
    pub(super) fn violated(&self, address: u64) -> bool {
        address < self.lower || address > self.upper
    }
}

/// Array of pointers, and the tables with their bounds.
pub(super) struct Pointers {
    slots: Box<[AtomicU64]>,
    directory: Directory,
    _tables: Vec<Mapping>,
}

impl Pointers {
    /// Allocates `count` null pointers and every table that they need.
    pub(super) fn new(count: usize) -> Result<Self, Failure> {
        let slots: Box<[AtomicU64]> = (0..count).map(|_| AtomicU64::new(0)).collect();
        let directory = Directory::new()?;
        let mut tables = Vec::new();
        for slot in &slots {
            let entry = directory.entry(slot.as_ptr() as usize);
            if entry.load(Ordering::Relaxed) == 0 {
                let table = Mapping::reserved(TABLE_BYTES)?;
                entry.store(table.as_ptr() as usize, Ordering::Relaxed);
                tables.push(table);
            }
        }
        Ok(Self { slots, directory, _tables: tables })
    }

    /// Returns the number of pointers.
    pub(super) fn count(&self) -> usize {
        self.slots.len()
    }

    /// Returns the table entry of a slot, looked up as the CPU does: by the directory, then in the table.
    #[inline(always)]
    fn entry(&self, slot: &AtomicU64) -> &Entry {
        let at = slot.as_ptr() as usize;
        let table = self.directory.entry(at).load(Ordering::Relaxed);
        // SAFETY: `new` mapped the table of every slot. It outlives the borrow, contains the offset, is initially
        // zero, and is accessed only by atomics.
        unsafe { &*(table.wrapping_add(offset_in_table(at)) as *const Entry) }
    }
}

/// Access to a pointer with its bounds.
pub(super) trait BoundsStorage {
    /// Stores a pointer and its bounds.
    fn store(pointers: &Pointers, index: usize, pointer: u64, bounds: Bounds);
    /// Loads a pointer and its bounds.
    fn load(pointers: &Pointers, index: usize) -> (u64, Bounds);
}

/// The pointer, then its bounds in three words, without atomicity, as compilers use MPX. Release and acquire compile to
/// plain moves and preserve the order.
pub(super) struct SplitEntry;

impl BoundsStorage for SplitEntry {
    #[inline(always)]
    fn store(pointers: &Pointers, index: usize, pointer: u64, bounds: Bounds) {
        let slot = &pointers.slots[index];
        slot.store(pointer, Ordering::Release);
        store_entry(pointers.entry(slot), pointer, bounds);
    }

    #[inline(always)]
    fn load(pointers: &Pointers, index: usize) -> (u64, Bounds) {
        let slot = &pointers.slots[index];
        let pointer = slot.load(Ordering::Acquire);
        (pointer, load_entry(pointers.entry(slot), pointer))
    }
}

/// Stores an entry as `bndstx` does.
#[inline(always)]
fn store_entry(entry: &Entry, pointer: u64, bounds: Bounds) {
    entry.lower.store(bounds.lower, Ordering::Release);
    entry.upper.store(bounds.upper, Ordering::Release);
    entry.pointer.store(pointer, Ordering::Release);
}

/// Loads an entry as `bndldx` does: if it is of another pointer, the bounds are [`Bounds::INIT`].
#[inline(always)]
fn load_entry(entry: &Entry, pointer: u64) -> Bounds {
    let lower = entry.lower.load(Ordering::Acquire);
    let upper = entry.upper.load(Ordering::Acquire);
    let stored = entry.pointer.load(Ordering::Acquire);
    if stored == pointer { Bounds { lower, upper } } else { Bounds::INIT }
}

/// A split entry under a spin lock in the entry's unused word.
pub(super) struct Locked;

impl BoundsStorage for Locked {
    #[inline(always)]
    fn store(pointers: &Pointers, index: usize, pointer: u64, bounds: Bounds) {
        let slot = &pointers.slots[index];
        let entry = pointers.entry(slot);
        lock(entry);
        slot.store(pointer, Ordering::Relaxed);
        store_entry(entry, pointer, bounds);
        entry.reserved.store(0, Ordering::Release);
    }

    #[inline(always)]
    fn load(pointers: &Pointers, index: usize) -> (u64, Bounds) {
        let slot = &pointers.slots[index];
        let entry = pointers.entry(slot);
        lock(entry);
        let pointer = slot.load(Ordering::Relaxed);
        let bounds = load_entry(entry, pointer);
        entry.reserved.store(0, Ordering::Release);
        (pointer, bounds)
    }
}

#[inline(always)]
fn lock(entry: &Entry) {
    while entry.reserved.swap(1, Ordering::Acquire) != 0 {
        while entry.reserved.load(Ordering::Relaxed) != 0 {
            std::hint::spin_loop();
        }
    }
}

/// The pointer and its bounds as one 16-byte word of the entry, which accesses use. The slot still contains the pointer,
/// for code that does not use bounds.
pub(super) struct AtomicEntry<P>(std::marker::PhantomData<P>);

impl<P: pair::Pair> BoundsStorage for AtomicEntry<P> {
    #[inline(always)]
    fn store(pointers: &Pointers, index: usize, pointer: u64, bounds: Bounds) {
        let slot = &pointers.slots[index];
        slot.store(pointer, Ordering::Release);
        let entry = pointers.entry(slot);
        // SAFETY: the entry is aligned to 32 bytes, and its first 16 are accessed only through `P`.
        unsafe {
            P::store((&raw const *entry).cast_mut().cast(), [pointer, packed(pointer, bounds)])
        };
    }

    #[inline(always)]
    fn load(pointers: &Pointers, index: usize) -> (u64, Bounds) {
        let entry = pointers.entry(&pointers.slots[index]);
        // SAFETY: the entry is aligned to 32 bytes, and its first 16 are accessed only through `P`.
        let [pointer, packed] = unsafe { P::load((&raw const *entry).cast_mut().cast()) };
        (pointer, unpacked(pointer, packed))
    }
}

/// Packs the bounds of a pointer into 64 bits: its offset in the object, and the object's length minus 1. Objects are
/// smaller than 4 GiB.
#[inline(always)]
fn packed(pointer: u64, bounds: Bounds) -> u64 {
    u64::from(pointer.wrapping_sub(bounds.lower) as u32)
        | bounds.upper.wrapping_sub(bounds.lower) << 32
}

#[inline(always)]
fn unpacked(pointer: u64, packed: u64) -> Bounds {
    let lower = pointer.wrapping_sub(packed & 0xffff_ffff);
    Bounds { lower, upper: lower.wrapping_add(packed >> 32) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check_round_trip<K: BoundsStorage>() {
        let pointers = Pointers::new(300_000).unwrap();
        assert!(pointers._tables.len() >= 2, "the array must exceed a MiB");
        for index in [0, 1, 150_000, 299_999] {
            let lower = 0x10_0000 + index as u64;
            let bounds = Bounds { lower, upper: lower + 63 };
            K::store(&pointers, index, lower + 8, bounds);
            assert_eq!(K::load(&pointers, index), (lower + 8, bounds));
        }
        assert_eq!(pointers.slots[1].load(Ordering::Relaxed), 0x10_0009);
    }

    #[test]
    fn loads_return_what_was_stored() {
        check_round_trip::<SplitEntry>();
        check_round_trip::<Locked>();
        check_round_trip::<AtomicEntry<pair::Compare>>();
        check_round_trip::<AtomicEntry<pair::Vector>>();
    }

    #[test]
    fn an_entry_of_another_pointer_has_initial_bounds() {
        let pointers = Pointers::new(1).unwrap();
        SplitEntry::store(&pointers, 0, 100, Bounds { lower: 100, upper: 163 });
        pointers.slots[0].store(101, Ordering::Relaxed);
        assert_eq!(SplitEntry::load(&pointers, 0), (101, Bounds::INIT));
    }

    proptest! {
        #[test]
        fn packing_is_lossless(lower in 0..1u64 << 47, length in 0..1u64 << 32, into in 0..1u64 << 32) {
            let bounds = Bounds { lower, upper: lower + length };
            let pointer = lower + into.min(length);
            prop_assert_eq!(unpacked(pointer, packed(pointer, bounds)), bounds);
        }
    }
}
