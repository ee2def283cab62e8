//! SmallBank on a key-value store that allocates every record and every value separately.

mod store;
mod transactions;

use crate::lock::Spin;
use crate::workload::Random;
use core::ptr;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicI64, AtomicPtr};
use store::{Key, Store};
use transactions::Teller;

/// The initial balance of each account.
const OPENING: i64 = 1000;

/// The bank, while it is open. Only one thread opens or closes it, while no other uses it.
static BANK: AtomicPtr<Store> = AtomicPtr::new(ptr::null_mut());
/// Deposits minus withdrawals of all transactions.
static PUT_IN: AtomicI64 = AtomicI64::new(0);

/// A lock on its own cache line.
#[repr(align(64))]
struct Stripe(Spin<()>);

/// The locks of the customers, indexed by customer number modulo the table's length.
static STRIPES: [Stripe; 256] = [const { Stripe(Spin::new(())) }; 256];

/// Runs `work` with exclusive access to a customer's accounts.
fn alone<R>(customer: u64, work: impl FnOnce() -> R) -> R {
    STRIPES[customer as usize % STRIPES.len()].0.with(|()| work())
}

/// Runs `work` with exclusive access to two customers' accounts. The locks are taken in index order, and only once if
/// they are the same.
fn alone_with_both<R>(one: u64, other: u64, work: impl FnOnce() -> R) -> R {
    let stripe = |customer: u64| customer as usize % STRIPES.len();
    let (first, second) = (stripe(one).min(stripe(other)), stripe(one).max(stripe(other)));
    STRIPES[first]
        .0
        .with(|()| if first == second { work() } else { STRIPES[second].0.with(|()| work()) })
}

/// Returns the open bank.
fn bank() -> Option<&'static Store> {
    // SAFETY: it is NULL or a store that lives until `close`.
    unsafe { BANK.load(Acquire).as_ref() }
}

/// Opens a bank; returns the number of customers, or 0 if no space is left or a bank is open.
pub fn open(customers: u64) -> u64 {
    if bank().is_some() {
        return 0;
    }
    let Some(store) = Store::new(customers) else { return 0 };
    for customer in 0..customers {
        let records = [
            (Key::name(customer), customer as i64),
            (Key::savings(customer), OPENING),
            (Key::checking(customer), OPENING),
        ];
        if !records.into_iter().all(|(key, value)| store.insert(key, value)) {
            store.close();
            return 0;
        }
    }
    PUT_IN.store(0, Relaxed);
    BANK.store(ptr::from_ref(store).cast_mut(), Release);
    customers
}

/// Runs transactions; returns how many completed.
pub fn run(transactions: u64, seed: u64) -> u64 {
    let Some(store) = bank() else { return 0 };
    if store.customers == 0 {
        return 0;
    }
    let mut random = Random::new(seed);
    let mut teller = Teller::new(store);
    let carried_out = (0..transactions).filter(|_| teller.any(&mut random).is_some()).count();
    PUT_IN.fetch_add(teller.put_in, AcqRel);
    carried_out as u64
}

/// Returns the total balance of all accounts, minus deposits, plus withdrawals.
pub fn money() -> u64 {
    let Some(store) = bank() else { return 0 };
    let held: i64 = (0..store.customers)
        .flat_map(|customer| [Key::savings(customer), Key::checking(customer)])
        .filter_map(|key| store.find(key))
        .map(store::Record::value)
        .sum();
    (held - PUT_IN.load(Acquire)) as u64
}

/// Closes the bank; returns how many customers it had.
pub fn close() -> u64 {
    let Some(store) = bank() else { return 0 };
    let customers = store.customers;
    BANK.store(ptr::null_mut(), Release);
    store.close();
    customers
}
