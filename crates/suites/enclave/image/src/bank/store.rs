//! A key-value store: a hash table of records, one allocation each; a value is an allocation too, and a new
//! one takes its place.

use crate::allocator;
use crate::heap::{self, Tally};
use core::ptr;
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::{AcqRel, Acquire};

/// Which table, and whose record.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key([u8; 16]);

impl Key {
    /// A customer's number is under their name, as text.
    pub fn name(customer: u64) -> Self {
        let mut key = *b"customer        ";
        let mut rest = customer;
        for digit in key[8..].iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        Self(key)
    }

    /// A customer's savings.
    pub fn savings(customer: u64) -> Self {
        Self::numbered(b"savings ", customer)
    }

    /// What a customer may draw cheques on.
    pub fn checking(customer: u64) -> Self {
        Self::numbered(b"checking", customer)
    }

    fn numbered(table: &[u8; 8], customer: u64) -> Self {
        let mut key = [0; 16];
        key[..8].copy_from_slice(table);
        key[8..].copy_from_slice(&customer.to_le_bytes());
        Self(key)
    }

    /// Mixes the key's two words.
    fn hash(self) -> usize {
        let whole = u128::from_le_bytes(self.0);
        let mixed = (whole as u64 ^ (whole >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 29) ^ (whole as u64).rotate_left(17))
            .wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 32)) as usize
    }
}

/// What a record holds, and how often it was replaced.
struct Value {
    version: u64,
    number: i64,
}

/// A record.
pub struct Record {
    next: *mut Record,
    key: Key,
    value: AtomicPtr<Value>,
}

impl Record {
    /// Its value. Whoever reads has the customer's lock, so it is not freed meanwhile.
    pub fn value(&self) -> i64 {
        // SAFETY: a record has a value as long as it lives.
        unsafe { (*self.value.load(Acquire)).number }
    }

    /// A value to take the place of its own; none where there is no room.
    pub fn prepare(&self, number: i64) -> Option<Prepared<'_>> {
        // SAFETY: as above.
        let version = unsafe { (*self.value.load(Acquire)).version } + 1;
        Some(Prepared { record: self, value: allocate(Value { version, number })? })
    }
}

/// A value that waits to take its place, or is freed.
pub struct Prepared<'a> {
    record: &'a Record,
    value: *mut Value,
}

impl Prepared<'_> {
    /// Takes its place; what stood there is freed as this is dropped.
    pub fn commit(&mut self) {
        self.value = self.record.value.swap(self.value, AcqRel);
    }
}

impl Drop for Prepared<'_> {
    fn drop(&mut self) {
        // SAFETY: nobody else has it.
        unsafe { allocator::free(self.value.cast()) };
    }
}

/// Puts what is given into memory of the allocator's; none where there is no room.
fn allocate<T>(content: T) -> Option<*mut T> {
    const { assert!(align_of::<T>() <= allocator::ALIGNMENT) };
    let memory = Tally::default().malloc(size_of::<T>() as u64).cast::<T>();
    if memory.is_null() {
        return None;
    }
    // SAFETY: it is long enough, and aligned.
    unsafe { memory.write(content) };
    Some(memory)
}

/// The store. Records come before anybody reads, and go after; their values change under the locks.
pub struct Store {
    /// How many customers it is for.
    pub customers: u64,
    heads: *mut *mut Record,
    /// One less than the number of heads, which is a power of two.
    mask: usize,
}

impl Store {
    /// An empty one; none where there is no room.
    pub fn new(customers: u64) -> Option<&'static Self> {
        let heads = heap::bytes(customers).checked_mul(3)?.checked_next_power_of_two()?;
        // SAFETY: it asks nothing of its caller.
        let table =
            unsafe { allocator::calloc(heads, size_of::<*mut Record>()) }.cast::<*mut Record>();
        if table.is_null() {
            return None;
        }
        let Some(store) = allocate(Self { customers, heads: table, mask: heads - 1 }) else {
            // SAFETY: allocated above.
            unsafe { allocator::free(table.cast()) };
            return None;
        };
        // SAFETY: allocated above, and freed by `close`.
        Some(unsafe { &*store })
    }

    /// Where the records of a key's kind begin.
    fn head(&self, key: Key) -> *mut *mut Record {
        // SAFETY: within the table.
        unsafe { self.heads.add(key.hash() & self.mask) }
    }

    /// Adds a record; false where there is no room. Before anybody reads.
    pub fn insert(&self, key: Key, number: i64) -> bool {
        let head = self.head(key);
        let Some(value) = allocate(Value { version: 0, number }) else { return false };
        // SAFETY: within the table.
        let next = unsafe { head.read() };
        let Some(record) = allocate(Record { next, key, value: AtomicPtr::new(value) }) else {
            // SAFETY: allocated above.
            unsafe { allocator::free(value.cast()) };
            return false;
        };
        // SAFETY: within the table, and nobody else is there.
        unsafe { head.write(record) };
        true
    }

    /// A key's record.
    pub fn find(&self, key: Key) -> Option<&Record> {
        // SAFETY: within the table; records live as long as the store.
        let mut record = unsafe { self.head(key).read().as_ref() };
        while let Some(found) = record {
            if found.key == key {
                return Some(found);
            }
            // SAFETY: as above.
            record = unsafe { found.next.as_ref() };
        }
        None
    }

    /// Frees all of it. Nobody reads any more.
    pub fn close(&'static self) {
        for at in 0..=self.mask {
            // SAFETY: within the table.
            let mut record = unsafe { self.heads.add(at).read() };
            while !record.is_null() {
                // SAFETY: each record and its value are freed once, and nobody reads them.
                unsafe {
                    let next = (*record).next;
                    allocator::free((*record).value.load(Acquire).cast());
                    allocator::free(record.cast());
                    record = next;
                }
            }
        }
        // SAFETY: as above, and the store itself is not used again.
        unsafe {
            allocator::free(self.heads.cast());
            allocator::free(ptr::from_ref(self).cast_mut().cast());
        }
    }
}
