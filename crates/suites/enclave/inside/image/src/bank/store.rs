//! A key-value store: a hash table whose records are separate allocations. A value is an allocation too, and an
//! update replaces it by a new one.

use crate::allocator;
use crate::workload::{self, Tally};
use core::ptr;
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::{AcqRel, Acquire};

/// A table and a customer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key([u8; 16]);

impl Key {
    /// Returns the key of the customer's number, which is stored under the customer's name, as text.
    pub fn name(customer: u64) -> Self {
        let mut key = *b"customer        ";
        let mut rest = customer;
        for digit in key[8..].iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        Self(key)
    }

    /// Returns the key of a customer's savings account.
    pub fn savings(customer: u64) -> Self {
        Self::numbered(b"savings ", customer)
    }

    /// Returns the key of a customer's checking account.
    pub fn checking(customer: u64) -> Self {
        Self::numbered(b"checking", customer)
    }

    fn numbered(table: &[u8; 8], customer: u64) -> Self {
        let mut key = [0; 16];
        key[..8].copy_from_slice(table);
        key[8..].copy_from_slice(&customer.to_le_bytes());
        Self(key)
    }

    /// Hashes the key's two words.
    fn hash(self) -> usize {
        let whole = u128::from_le_bytes(self.0);
        let mixed = (whole as u64 ^ (whole >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 29) ^ (whole as u64).rotate_left(17))
            .wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 32)) as usize
    }
}

/// The value of a record, and how often it was replaced.
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
    /// Returns the value. The reader has the customer's lock, so the value is not freed concurrently.
    pub fn value(&self) -> i64 {
        // SAFETY: a record has a value as long as it lives.
        unsafe { (*self.value.load(Acquire)).number }
    }

    /// Allocates a new value for the record; returns `None` if no space is left.
    pub fn prepare(&self, number: i64) -> Option<Prepared<'_>> {
        // SAFETY: a record has a value as long as it lives.
        let version = unsafe { (*self.value.load(Acquire)).version } + 1;
        Some(Prepared { record: self, value: allocate(Value { version, number })? })
    }
}

/// A new value of a record, which is freed unless it is committed.
pub struct Prepared<'a> {
    record: &'a Record,
    value: *mut Value,
}

impl Prepared<'_> {
    /// Replaces the record's value; the old one is freed when this is dropped.
    pub fn commit(&mut self) {
        self.value = self.record.value.swap(self.value, AcqRel);
    }
}

impl Drop for Prepared<'_> {
    fn drop(&mut self) {
        // SAFETY: no other thread has it.
        unsafe { allocator::free(self.value.cast()) };
    }
}

/// Moves a value into allocated memory; returns `None` if no space is left.
fn allocate<T>(content: T) -> Option<*mut T> {
    const { assert!(align_of::<T>() <= allocator::ALIGNMENT) };
    let memory = Tally::default().malloc(size_of::<T>() as u64).cast::<T>();
    if memory.is_null() {
        return None;
    }
    // SAFETY: the memory is long enough and aligned.
    unsafe { memory.write(content) };
    Some(memory)
}

/// The store. Records are inserted before the first read and freed after the last; their values change under the
/// locks.
pub struct Store {
    /// Number of customers.
    pub customers: u64,
    heads: *mut *mut Record,
    /// One less than the number of heads, which is a power of two.
    mask: usize,
}

impl Store {
    /// Creates an empty store; returns `None` if no space is left.
    pub fn new(customers: u64) -> Option<&'static Self> {
        let heads = workload::bytes(customers).checked_mul(3)?.checked_next_power_of_two()?;
        // SAFETY: calloc has no precondition.
        let table =
            unsafe { allocator::calloc(heads, size_of::<*mut Record>()) }.cast::<*mut Record>();
        if table.is_null() {
            return None;
        }
        let Some(store) = allocate(Self { customers, heads: table, mask: heads - 1 }) else {
            // SAFETY: it was allocated above.
            unsafe { allocator::free(table.cast()) };
            return None;
        };
        // SAFETY: it was allocated above, and `close` frees it.
        Some(unsafe { &*store })
    }

    /// Returns the head of the list for a key.
    fn head(&self, key: Key) -> *mut *mut Record {
        // SAFETY: the index is inside the table.
        unsafe { self.heads.add(key.hash() & self.mask) }
    }

    /// Inserts a record, before the first read; returns false if no space is left.
    pub fn insert(&self, key: Key, number: i64) -> bool {
        let head = self.head(key);
        let Some(value) = allocate(Value { version: 0, number }) else { return false };
        // SAFETY: the index is inside the table.
        let next = unsafe { head.read() };
        let Some(record) = allocate(Record { next, key, value: AtomicPtr::new(value) }) else {
            // SAFETY: it was allocated above.
            unsafe { allocator::free(value.cast()) };
            return false;
        };
        // SAFETY: the index is inside the table, and no other thread uses the store yet.
        unsafe { head.write(record) };
        true
    }

    /// Returns the record of a key.
    pub fn find(&self, key: Key) -> Option<&Record> {
        // SAFETY: the index is inside the table; records live as long as the store.
        let mut record = unsafe { self.head(key).read().as_ref() };
        while let Some(found) = record {
            if found.key == key {
                return Some(found);
            }
            // SAFETY: records live as long as the store.
            record = unsafe { found.next.as_ref() };
        }
        None
    }

    /// Frees the store. No thread may use it any more.
    pub fn close(&'static self) {
        for at in 0..=self.mask {
            // SAFETY: the index is inside the table.
            let mut record = unsafe { self.heads.add(at).read() };
            while !record.is_null() {
                // SAFETY: each record and its value are freed once, and no thread reads them.
                unsafe {
                    let next = (*record).next;
                    allocator::free((*record).value.load(Acquire).cast());
                    allocator::free(record.cast());
                    record = next;
                }
            }
        }
        // SAFETY: both are freed once, no thread reads them, and the store itself is not used again.
        unsafe {
            allocator::free(self.heads.cast());
            allocator::free(ptr::from_ref(self).cast_mut().cast());
        }
    }
}
