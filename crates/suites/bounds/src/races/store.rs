//! Pointers in memory with their bounds in tables: how both are stored and loaded, broken as in MPX and
//! mended.

use std::sync::atomic::{AtomicU64, Ordering};

use lab::sample::Failure;
use machine::mapping::Mapping;

use crate::software::{Directory, Entry, TABLE_BYTES, offset_in_table};

use super::pair;

/// The first and the last byte of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) lower: u64,
    pub(super) upper: u64,
}

impl Bounds {
    /// What every access keeps: a pointer of which nothing is known has them.
    pub(super) const INIT: Self = Self { lower: 0, upper: u64::MAX };

    /// Whether an access of one byte leaves them.
    #[inline(always)]
    pub(super) fn violated(&self, address: u64) -> bool {
        address < self.lower || address > self.upper
    }
}

/// An array of pointers, and the tables that hold their bounds.
pub(super) struct Pointers {
    slots: Box<[AtomicU64]>,
    directory: Directory,
    _tables: Vec<Mapping>,
}

impl Pointers {
    /// So many null pointers, and every table that they need.
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

    /// How many.
    pub(super) fn count(&self) -> usize {
        self.slots.len()
    }

    /// The entry of a slot, found as the processor does: by the directory, then in the table.
    #[inline(always)]
    fn entry(&self, slot: &AtomicU64) -> &Entry {
        let at = slot.as_ptr() as usize;
        let table = self.directory.entry(at).load(Ordering::Relaxed);
        // SAFETY: `new` has made the table of every slot; it lives as long as the borrow, the offset
        // is inside it, and its memory, zero at first, is used by atomics alone.
        unsafe { &*(table.wrapping_add(offset_in_table(at)) as *const Entry) }
    }
}

/// How a pointer and its bounds are stored and loaded.
pub(super) trait Keeping {
    /// Stores a pointer and its bounds.
    fn store(pointers: &Pointers, index: usize, pointer: u64, bounds: Bounds);
    /// Loads both.
    fn load(pointers: &Pointers, index: usize) -> (u64, Bounds);
}

/// As compilers use MPX: the pointer, then its bounds in three parts, nothing of it atomic. Release and
/// acquire are plain moves here, and hold the order.
pub(super) struct Apart;

impl Keeping for Apart {
    #[inline(always)]
    fn store(pointers: &Pointers, index: usize, pointer: u64, bounds: Bounds) {
        let slot = &pointers.slots[index];
        slot.store(pointer, Ordering::Release);
        put(pointers.entry(slot), pointer, bounds);
    }

    #[inline(always)]
    fn load(pointers: &Pointers, index: usize) -> (u64, Bounds) {
        let slot = &pointers.slots[index];
        let pointer = slot.load(Ordering::Acquire);
        (pointer, got(pointers.entry(slot), pointer))
    }
}

/// What `bndstx` does.
#[inline(always)]
fn put(entry: &Entry, pointer: u64, bounds: Bounds) {
    entry.lower.store(bounds.lower, Ordering::Release);
    entry.upper.store(bounds.upper, Ordering::Release);
    entry.pointer.store(pointer, Ordering::Release);
}

/// What `bndldx` does: bounds of another pointer are none.
#[inline(always)]
fn got(entry: &Entry, pointer: u64) -> Bounds {
    let lower = entry.lower.load(Ordering::Acquire);
    let upper = entry.upper.load(Ordering::Acquire);
    let of = entry.pointer.load(Ordering::Acquire);
    if of == pointer { Bounds { lower, upper } } else { Bounds::INIT }
}

/// The same under a spin lock, which the entry's unused word holds.
pub(super) struct Locked;

impl Keeping for Locked {
    #[inline(always)]
    fn store(pointers: &Pointers, index: usize, pointer: u64, bounds: Bounds) {
        let slot = &pointers.slots[index];
        let entry = pointers.entry(slot);
        lock(entry);
        slot.store(pointer, Ordering::Relaxed);
        put(entry, pointer, bounds);
        entry.reserved.store(0, Ordering::Release);
    }

    #[inline(always)]
    fn load(pointers: &Pointers, index: usize) -> (u64, Bounds) {
        let slot = &pointers.slots[index];
        let entry = pointers.entry(slot);
        lock(entry);
        let pointer = slot.load(Ordering::Relaxed);
        let bounds = got(entry, pointer);
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

/// The pointer and its bounds as one 16-byte word of the entry, which the access then goes by. The
/// pointer alone still stands in its slot, for code that knows of no bounds.
pub(super) struct Together<P>(std::marker::PhantomData<P>);

impl<P: pair::Pair> Keeping for Together<P> {
    #[inline(always)]
    fn store(pointers: &Pointers, index: usize, pointer: u64, bounds: Bounds) {
        let slot = &pointers.slots[index];
        slot.store(pointer, Ordering::Release);
        let entry = pointers.entry(slot);
        // SAFETY: the entry is aligned to 32 bytes, and whoever keeps pointers so uses its first 16
        // by `P` alone.
        unsafe {
            P::store((&raw const *entry).cast_mut().cast(), [pointer, packed(pointer, bounds)])
        };
    }

    #[inline(always)]
    fn load(pointers: &Pointers, index: usize) -> (u64, Bounds) {
        let entry = pointers.entry(&pointers.slots[index]);
        // SAFETY: as for the store.
        let [pointer, packed] = unsafe { P::load((&raw const *entry).cast_mut().cast()) };
        (pointer, unpacked(pointer, packed))
    }
}

/// Bounds beside a pointer in 64 bits: how far below it they begin, and how long they are. Objects are
/// under 4 GiB.
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

    fn keeps<K: Keeping>() {
        let pointers = Pointers::new(300_000).unwrap();
        assert!(pointers._tables.len() >= 2, "it takes more than a MiB");
        for index in [0, 1, 150_000, 299_999] {
            let lower = 0x10_0000 + index as u64;
            let bounds = Bounds { lower, upper: lower + 63 };
            K::store(&pointers, index, lower + 8, bounds);
            assert_eq!(K::load(&pointers, index), (lower + 8, bounds));
        }
        assert_eq!(pointers.slots[1].load(Ordering::Relaxed), 0x10_0009);
    }

    #[test]
    fn what_is_stored_is_loaded() {
        keeps::<Apart>();
        keeps::<Locked>();
        keeps::<Together<pair::Compare>>();
        keeps::<Together<pair::Vector>>();
    }

    #[test]
    fn bounds_of_another_pointer_are_none() {
        let pointers = Pointers::new(1).unwrap();
        Apart::store(&pointers, 0, 100, Bounds { lower: 100, upper: 163 });
        pointers.slots[0].store(101, Ordering::Relaxed);
        assert_eq!(Apart::load(&pointers, 0), (101, Bounds::INIT));
    }

    proptest! {
        #[test]
        fn packing_loses_nothing(lower in 0..1u64 << 47, length in 0..1u64 << 32, into in 0..1u64 << 32) {
            let bounds = Bounds { lower, upper: lower + length };
            let pointer = lower + into.min(length);
            prop_assert_eq!(unpacked(pointer, packed(pointer, bounds)), bounds);
        }
    }
}
