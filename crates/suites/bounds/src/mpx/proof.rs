//! Whether MPX does what it is to do on a machine: each kind of its instructions once, with what must
//! come of it. Where its instructions do nothing, or something else, no race is run on it.

use lab::sample::Failure;

use super::operation::Operation::{
    self, CheckLower, CheckLowerOf, CheckUpper, CheckUpperOf, CheckUpperStored, CheckUpperStoredOf,
    FromMemory, FromOther, Load, Make, Put, Store, ToMemory, ToOther,
};
use super::operation::carry_out;
use super::runner::Machine;

const LOWER: u64 = 0x10_0000;
const UPPER: u64 = 0x10_0fff;
const AT: u64 = 0x7000_1000;

/// Bounds after an operation.
type Bounds = (u64, u64);
const INIT: Bounds = (0, u64::MAX);
const MADE: Bounds = (LOWER, UPPER);
const OTHER: Bounds = (0x5000, 0x5007);

/// Operations, whether each raises #BR for a violation, and the bounds in bnd0 after it.
const DUE: &[(Operation, bool, Bounds)] = &[
    (CheckLower(0), false, INIT),
    (CheckUpper(u64::MAX), false, INIT),
    (Make(LOWER, UPPER - LOWER), false, MADE),
    (CheckLower(LOWER), false, MADE),
    (CheckLower(LOWER - 1), true, MADE),
    (CheckUpper(UPPER), false, MADE),
    (CheckUpper(UPPER + 1), true, MADE),
    (CheckUpperStored(!UPPER), false, MADE),
    (CheckUpperStored(!UPPER + 1), true, MADE),
    (CheckLowerOf(LOWER - 8, 8), false, MADE),
    (CheckLowerOf(LOWER - 8, 7), true, MADE),
    (CheckUpperOf(UPPER - 8, 8), false, MADE),
    (CheckUpperOf(UPPER - 8, 9), true, MADE),
    (CheckUpperStoredOf(!UPPER - 8, 8), false, MADE),
    (CheckUpperStoredOf(!UPPER - 8, 9), true, MADE),
    (ToOther, false, MADE),
    (Store { at: AT, pointer: LOWER }, false, MADE),
    (Make(0x5000, 7), false, OTHER),
    (ToMemory, false, OTHER),
    (FromOther, false, MADE),
    (FromMemory, false, OTHER),
    (Load { at: AT, pointer: LOWER }, false, MADE),
    // Another pointer in the same place, and another place: nothing is known of them.
    (Load { at: AT, pointer: LOWER + 1 }, false, INIT),
    (Load { at: AT, pointer: LOWER }, false, MADE),
    (Load { at: AT + 8, pointer: LOWER }, false, INIT),
    (Put(0, LOWER), false, INIT),
    // The upper bound is kept as its complement.
    (Put(1, !UPPER), false, INIT),
    (FromMemory, false, MADE),
];

/// Carries them out.
///
/// # Errors
/// Which of them did something else; and where the program cannot be run.
pub(super) fn prove(on: Machine) -> Result<(), Failure> {
    let operations: Vec<_> = DUE.iter().map(|(operation, _, _)| *operation).collect();
    let answers = carry_out(on, &operations)?;
    for ((operation, violates, bounds), answer) in DUE.iter().zip(&answers) {
        if answer.violated() != *violates || answer.bounds != *bounds {
            let why = format!("MPX does something else for {operation:x?}: {answer:x?}");
            return Err(Failure::check(why));
        }
    }
    // The first store alone found no table.
    let made: Vec<_> = answers.iter().filter(|answer| answer.missed_entry().is_some()).collect();
    match made.as_slice() {
        [one] if one.tables == 1 => Ok(()),
        _ => Err(Failure::check(format!("MPX asked for a table {} times of 1", made.len()))),
    }
}
