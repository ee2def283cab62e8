//! SmallBank's five transactions, as defined by Alomari et al.

use super::store::{Key, Record, Store};
use super::{alone, alone_with_both};
use crate::allocator;
use crate::workload::{Random, Tally};
use core::ptr;

/// The maximum amount of a transaction.
const LARGEST: u64 = 100;
/// The penalty for a cheque that is not covered.
const PENALTY: i64 = 1;
/// Number of log entries that a thread keeps.
const KEPT: usize = 15;

/// A thread that runs transactions.
pub struct Teller {
    store: &'static Store,
    /// Deposits minus withdrawals.
    pub put_in: i64,
    log: Log,
}

/// The records of a customer.
struct Accounts {
    savings: &'static Record,
    checking: &'static Record,
}

impl Teller {
    /// Creates a teller.
    pub fn new(store: &'static Store) -> Self {
        Self { store, put_in: 0, log: Log { entries: [ptr::null_mut(); KEPT], oldest: 0 } }
    }

    /// Runs one of the five transactions, with equal probability; returns `None` and changes nothing if no space is
    /// left.
    pub fn any(&mut self, random: &mut Random) -> Option<()> {
        let customer = self.customer(Key::name(random.below(self.store.customers)))?;
        let amount = random.below(LARGEST) as i64 + 1;
        match random.below(5) {
            0 => self.balance(customer).map(drop),
            1 => self.deposit_checking(customer, amount),
            2 => {
                self.transact_savings(customer, if random.below(2) == 0 { amount } else { -amount })
            }
            3 => {
                let to = self.customer(Key::name(random.below(self.store.customers)))?;
                self.amalgamate(customer, to)
            }
            _ => self.write_check(customer, amount),
        }
    }

    /// Looks up a customer's number by name.
    fn customer(&self, name: Key) -> Option<u64> {
        self.store.find(name).map(|record| record.value() as u64)
    }

    fn accounts(&self, customer: u64) -> Option<Accounts> {
        Some(Accounts {
            savings: self.store.find(Key::savings(customer))?,
            checking: self.store.find(Key::checking(customer))?,
        })
    }

    /// Returns the sum of a customer's accounts.
    fn balance(&self, customer: u64) -> Option<i64> {
        let of = self.accounts(customer)?;
        Some(alone(customer, || of.savings.value() + of.checking.value()))
    }

    /// Deposits money.
    fn deposit_checking(&mut self, customer: u64, amount: i64) -> Option<()> {
        let of = self.accounts(customer)?;
        alone(customer, || self.log.write([(of.checking, of.checking.value() + amount)]))?;
        self.put_in += amount;
        Some(())
    }

    /// Deposits or withdraws money; refuses to overdraw the account.
    fn transact_savings(&mut self, customer: u64, amount: i64) -> Option<()> {
        let of = self.accounts(customer)?;
        self.put_in += alone(customer, || {
            let left = of.savings.value() + amount;
            if left < 0 { Some(0) } else { self.log.write([(of.savings, left)]).map(|()| amount) }
        })?;
        Some(())
    }

    /// Moves all money of one customer to another.
    fn amalgamate(&mut self, from: u64, to: u64) -> Option<()> {
        let (of, other) = (self.accounts(from)?, self.accounts(to)?);
        alone_with_both(from, to, || {
            let all = of.savings.value() + of.checking.value();
            if from == to {
                return self.log.write([(of.savings, 0), (of.checking, all)]);
            }
            let gets = other.checking.value() + all;
            self.log.write([(of.savings, 0), (of.checking, 0), (other.checking, gets)])
        })
    }

    /// Withdraws money even if the account is not covered, then with a penalty.
    fn write_check(&mut self, customer: u64, amount: i64) -> Option<()> {
        let of = self.accounts(customer)?;
        self.put_in -= alone(customer, || {
            let covered = of.savings.value() + of.checking.value() >= amount;
            let taken = if covered { amount } else { amount + PENALTY };
            self.log.write([(of.checking, of.checking.value() - taken)]).map(|()| taken)
        })?;
        Some(())
    }
}

/// The last entries of a thread's log: each writing transaction adds one, like a ledger.
struct Log {
    entries: [*mut u8; KEPT],
    oldest: usize,
}

impl Log {
    /// Writes all records, or none if no space is left: everything is allocated before the first record changes.
    fn write<const N: usize>(&mut self, changes: [(&'static Record, i64); N]) -> Option<()> {
        let entry = Tally::default().malloc(size_of_val(&changes) as u64);
        if entry.is_null() {
            return None;
        }
        // SAFETY: the entry is long enough and aligned.
        unsafe { entry.cast::<[(&Record, i64); N]>().write(changes) };
        self.keep(entry);
        let mut prepared = changes.map(|(record, number)| record.prepare(number));
        if prepared.iter().any(Option::is_none) {
            return None;
        }
        prepared.iter_mut().flatten().for_each(|value| value.commit());
        Some(())
    }

    /// Keeps an entry, and frees the oldest.
    fn keep(&mut self, entry: *mut u8) {
        let leaves = core::mem::replace(&mut self.entries[self.oldest], entry);
        self.oldest = (self.oldest + 1) % KEPT;
        // SAFETY: it is NULL or was allocated by `write`, and no other thread has it.
        unsafe { allocator::free(leaves) };
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        for entry in self.entries {
            // SAFETY: it is NULL or was allocated by `write`, and no other thread has it.
            unsafe { allocator::free(entry) };
        }
    }
}
