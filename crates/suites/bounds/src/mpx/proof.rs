//! Verification that MPX works on a machine: each kind of instruction with its expected result. No race runs on a machine
//! that fails it.

use lab::sample::Failure;

use super::Machine;
use super::operation::Operation::{
    self, CheckLower, CheckLowerOf, CheckUpper, CheckUpperOf, CheckUpperStored, CheckUpperStoredOf,
    FromMemory, FromOther, Load, Make, Put, Store, ToMemory, ToOther,
};
use super::operation::execute;

const LOWER: u64 = 0x10_0000;
const UPPER: u64 = 0x10_0fff;
const AT: u64 = 0x7000_1000;

/// Lower and upper bound.
type Bounds = (u64, u64);
const INIT: Bounds = (0, u64::MAX);
const MADE: Bounds = (LOWER, UPPER);
const OTHER: Bounds = (0x5000, 0x5007);

/// Operations, whether each raises #BR for a violation, and the expected bounds in bnd0.
const EXPECTED: &[(Operation, bool, Bounds)] = &[
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
    // Another pointer at the same address, and another address, have no stored bounds.
    (Load { at: AT, pointer: LOWER + 1 }, false, INIT),
    (Load { at: AT, pointer: LOWER }, false, MADE),
    (Load { at: AT + 8, pointer: LOWER }, false, INIT),
    (Put(0, LOWER), false, INIT),
    // The upper bound is stored as its complement.
    (Put(1, !UPPER), false, INIT),
    (FromMemory, false, MADE),
];

/// Executes all operations and compares their results.
///
/// # Errors
/// Returns a failed check with the first difference, and a failure if the program cannot run.
pub(super) fn verify(on: Machine) -> Result<(), Failure> {
    let operations: Vec<_> = EXPECTED.iter().map(|(operation, _, _)| *operation).collect();
    let answers = execute(on, &operations)?;
    for ((operation, violates, bounds), answer) in EXPECTED.iter().zip(&answers) {
        if answer.violated() != *violates || answer.bounds != *bounds {
            let why = format!("unexpected result of MPX for {operation:x?}: {answer:x?}");
            return Err(Failure::check(why));
        }
    }
    // Only the first store finds no table.
    let made: Vec<_> = answers.iter().filter(|answer| answer.missed_entry().is_some()).collect();
    match made.as_slice() {
        [one] if one.tables == 1 => Ok(()),
        _ => Err(Failure::check(format!("MPX requested {} tables; expected 1", made.len()))),
    }
}
