//! Verification of check sequences: an access within the bounds passes, and one outside traps or is redirected.

use lab::sample::Failure;

use super::{
    Access, AddressForm, CheckParams, CheckedBounds, Mechanism, REGION, UNTOUCHED, sequence,
    set_bounds, state,
};
use crate::timing::{Data, TimingLoop};

/// A value beyond the bounds, which no access may read or replace.
const SECRET: u64 = 77;
/// A value within the bounds, which a load reads.
const INSIDE: u64 = 5;
/// Offset of an access from the start of the region, or from its end.
const OFFSET: usize = 128;

/// Result of an access.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// The check stopped it.
    Trapped,
    /// It passed or was redirected; the value of the register that a load writes.
    Done(u64),
}

/// Executes a sequence for an address within the bounds and for those outside that it checks. Returns the number of
/// accesses.
///
/// # Errors
/// Returns a failed check if one is judged wrongly, and `unavailable` if an emulator decodes the sequence wrongly.
pub(super) fn judged(params: &CheckParams, data: &Data) -> Result<u64, Failure> {
    judged_by(params, &sequence::lines(params)?, data)
}

/// As [`judged`], by the lines of another sequence.
pub(super) fn judged_by(
    params: &CheckParams,
    lines: &[String],
    data: &Data,
) -> Result<u64, Failure> {
    if machine::cpu::emulated() && params.checked_by.is_mpx() && params.address == AddressForm::Lea
    {
        return Err(Failure::unavailable(
            "QEMU decodes the bytes of a LEA-style address of bndcl and bndcu as another instruction",
            "use address = register, or a CPU with MPX",
        ));
    }
    data.fill(0);
    set_bounds(data);
    data.set(OFFSET, INSIDE);
    let start = data.address();
    let run = |address| outcome(lines, data, address);
    let expected = match params.access {
        Access::Load => INSIDE,
        Access::Store => UNTOUCHED,
    };
    match run(start + OFFSET as u64)? {
        Outcome::Done(value) if value == expected => {}
        other @ (Outcome::Trapped | Outcome::Done(_)) => {
            return Err(wrong("within the bounds", &other));
        }
    }
    let mut judged = 1;
    match params.bounds {
        CheckedBounds::None => return Ok(judged),
        CheckedBounds::One => {}
        CheckedBounds::Both => {
            above(params, data, run(beyond(data))?)?;
            judged += 1;
        }
    }
    if let Some(is_expected) = below(params) {
        // The page before the data may belong to something else: only sequences that never access it are run.
        let outcome = run(start - 8)?;
        if !is_expected(&outcome) {
            return Err(wrong("below the bounds", &outcome));
        }
        judged += 1;
    }
    Ok(judged)
}

/// Stores the secret beyond the bounds and returns its address.
fn beyond(data: &Data) -> u64 {
    data.set(REGION as usize + OFFSET, SECRET);
    data.address() + REGION + OFFSET as u64
}

/// Checks that an access at the secret neither read nor replaced it.
fn above(params: &CheckParams, data: &Data, outcome: Outcome) -> Result<(), Failure> {
    let is_read = params.access == Access::Load && outcome == Outcome::Done(SECRET);
    if is_read || data.get(REGION as usize + OFFSET) != SECRET {
        return Err(wrong("above the bounds", &outcome));
    }
    Ok(())
}

/// Returns whether an access below the bounds has its expected outcome; `None` if the sequence may make that access.
fn below(params: &CheckParams) -> Option<fn(&Outcome) -> bool> {
    match (params.checked_by, params.bounds) {
        (Mechanism::Branch | Mechanism::FatPointer | Mechanism::Mpx, _) => {
            Some(|outcome| *outcome == Outcome::Trapped)
        }
        // A single masked bound limits an address only to the alignment of the region.
        (Mechanism::None, _) | (Mechanism::Mask, CheckedBounds::One) => None,
        (Mechanism::Cmov | Mechanism::Mask, _) => Some(|outcome| *outcome != Outcome::Trapped),
    }
}

fn wrong(place: &str, outcome: &Outcome) -> Failure {
    Failure::check(format!("an access {place} was judged wrongly: {outcome:?}"))
}

/// Executes a sequence for an address.
fn outcome(lines: &[String], data: &Data, address: u64) -> Result<Outcome, Failure> {
    let code = sequence::code(lines, 3)?;
    let mut state = state(data, address);
    Ok(match TimingLoop::new(&code, false)?.run(&mut state, 2) {
        Ok(()) => Outcome::Done(state.general(9)),
        Err(_) => Outcome::Trapped,
    })
}
