//! `enclave/smallbank`: the SmallBank benchmark on a store inside the enclave.

use std::time::Duration;

use enclave_interface::Enter;
use lab::measure::{Context, Measurement};
use lab::method::Probe;
use lab::point::Point;
use lab::sample::Failure;

use crate::allocation::{LOADING, timed};
use crate::crew::Crew;
use crate::entered::{self, Entered, failed};
use crate::limits;
use crate::setting::{Setting, count};

/// What a customer begins with: 1000 in each of two accounts.
const MONEY: u64 = 2000;
/// What a transaction takes under a lock that many want.
const EACH: Duration = Duration::from_nanos(500);

/// What measures the points of one order.
pub fn probe() -> Box<dyn Probe> {
    Box::new(SmallBank)
}

struct SmallBank;

impl Probe for SmallBank {
    fn measure(&mut self, context: &mut Context, point: &Point) -> Result<Measurement, Failure> {
        let tsc = context.tsc()?;
        let setting = Setting::of(point)?;
        let customers = accounts(point)?;
        let transactions = transactions(point)?;
        let enclave = Entered::load(&setting, context)?;
        let inside = enclave.enclave();
        let told = |answer: Result<u64, _>| answer.map_err(|why| failed(0, &why));
        if told(inside.bank_open(customers))? != customers {
            let why = format!("{customers} customers have no room in {} pages", setting.heap);
            return Err(Failure::check(why));
        }
        let (round, threads) = (context.round, setting.threads);
        let share =
            |thread: u64| transactions / threads + u64::from(thread < transactions % threads);
        let (answers, took) = Crew::of(threads, context).work(&enclave, |thread| {
            inside.bank_run(share(thread), Setting::seed(round, thread))
        })?;
        for (thread, answer) in answers.into_iter().enumerate() {
            let made = answer.map_err(|why| failed(thread, &why))?;
            if made != share(thread as u64) {
                let why =
                    format!("thread {thread} made {made} of {} transactions", share(thread as u64));
                return Err(Failure::check(why));
            }
        }
        let money = told(inside.bank_money())?;
        if money != customers * MONEY {
            let due = customers * MONEY;
            return Err(Failure::check(format!("{money} is in the bank where {due} is due")));
        }
        if told(inside.bank_close())? != customers {
            return Err(Failure::check("the bank did not close"));
        }
        enclave.behaved()?;
        let wall = took.wall(tsc);
        Ok(timed(&enclave, wall, &took).value("transactions", transactions as f64 * 1e9 / wall))
    }
}

fn accounts(point: &Point) -> Result<u64, Failure> {
    count(point, "accounts", limits::ACCOUNTS, 10)
}

fn transactions(point: &Point) -> Result<u64, Failure> {
    count(point, "transactions", limits::TRANSACTIONS, 1_000_000)
}

/// How long a sample takes.
pub fn expected(point: &Point) -> Duration {
    let available = Setting::of(point).and_then(|setting| entered::available(&setting));
    match (available, transactions(point)) {
        (Ok(()), Ok(transactions)) => {
            LOADING + EACH * u32::try_from(transactions).unwrap_or(u32::MAX)
        }
        _ => Duration::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_the_bank_have_limits() {
        for level in ["0", "18446744073709551615", "9007199254740993", "all"] {
            assert!(accounts(&Point::from([("accounts", level)])).is_err(), "{level}");
            assert!(transactions(&Point::from([("transactions", level)])).is_err(), "{level}");
        }
    }
}
