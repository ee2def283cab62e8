//! `enclave/smallbank`: the SmallBank benchmark on a key-value store inside the enclave. On an emulated CPU the transactions
//! are counted and not timed.

use std::time::Duration;

use enclave_interface::Enter;
use lab::measure::{Context, Measurement};
use lab::sample::Failure;

use crate::allocation::{LOADING, call_counts, common_metrics};
use crate::loaded::{self, LoadedEnclave, checked, clock, failed};
use crate::method::{EnclaveMethod, TIMES, TRANSACTIONS_CHECKED};
use crate::params::SmallBankParams;
use crate::threads::{EnclaveThreads, seed};

/// A customer's initial balance: 1000 in each of two accounts.
const MONEY: u64 = 2000;
/// Expected duration of a transaction under a contended lock.
const EACH: Duration = Duration::from_nanos(500);

/// The method that runs SmallBank inside.
pub static SMALL_BANK: EnclaveMethod<SmallBankParams> = EnclaveMethod {
    name: "smallbank",
    how: "Each thread runs its share of the transactions in one ECALL; the time is from the first thread's \
          start to the last one's end, by the time-stamp counter. All transactions must complete, and the \
          total balance must be the initial one plus deposits minus withdrawals.",
    metrics: TIMES,
    available: |params| loaded::available(&params.enclave),
    expected: |params, _| LOADING + EACH * u32::try_from(params.transactions).unwrap_or(u32::MAX),
    measure,
};

fn measure(context: &mut Context, params: &SmallBankParams) -> Result<Measurement, Failure> {
    let tsc = clock(context)?;
    let SmallBankParams { accounts: customers, transactions, threads, .. } = *params;
    let enclave = LoadedEnclave::load(&params.enclave, threads, context)?;
    let inside = enclave.enclave();
    if checked(inside.bank_open(customers))? != customers {
        let why = format!("{customers} customers do not fit in {} pages", params.enclave.heap);
        return Err(Failure::check(why));
    }
    let round = context.round;
    let share = |thread: u64| transactions / threads + u64::from(thread < transactions % threads);
    let (answers, time) = EnclaveThreads::of(threads, context)
        .work(&enclave, |thread| inside.bank_run(share(thread), seed(round, thread)))?;
    for (thread, answer) in answers.into_iter().enumerate() {
        let made = answer.map_err(|why| failed(thread, &why))?;
        if made != share(thread as u64) {
            let why =
                format!("thread {thread} made {made} of {} transactions", share(thread as u64));
            return Err(Failure::check(why));
        }
    }
    let money = checked(inside.bank_money())?;
    if money != customers * MONEY {
        let expected = customers * MONEY;
        return Err(Failure::check(format!(
            "the bank's total balance is {money}, expected {expected}"
        )));
    }
    if checked(inside.bank_close())? != customers {
        return Err(Failure::check("the bank did not close"));
    }
    enclave.check_no_syscalls()?;
    let measurement = match tsc.map(|tsc| time.wall(tsc)) {
        Some(wall) => common_metrics(&enclave, wall, &time)
            .value("transactions", transactions as f64 * 1e9 / wall),
        None => call_counts(&enclave),
    };
    Ok(measurement.value(TRANSACTIONS_CHECKED, transactions as f64))
}
