//! Calls of copy functions, each from a place of its own.
//!
//! Where several functions share one call instruction, what the processor learnt of its target for
//! one is wrong for the next, and on some processors stays so: about 3 cycles a call, which is more
//! than a short copy takes. So there is a copy of the timed loops for each function.

use super::timed::{Mover, Ring, chained, fixed, walked};
use crate::functions::CopyFn;

/// Places; more functions than that share the last.
const PLACES: usize = 12;

/// A function, called by its address from the loops of one place.
#[derive(Clone, Copy)]
pub(super) struct Function {
    copy: CopyFn,
    loops: &'static Loops,
}

impl Function {
    pub(super) fn new(copy: CopyFn, place: usize) -> Self {
        Self { copy, loops: &LOOPS[place.min(PLACES - 1)] }
    }
}

/// The loops of one place.
struct Loops {
    fixed: unsafe fn(CopyFn, *mut u8, *const u8, usize, usize),
    walked: unsafe fn(CopyFn, *mut u8, *const u8, Ring),
    chained: unsafe fn(CopyFn, *mut u8, *const u8, Ring),
}

static LOOPS: [Loops; PLACES] = [
    loops::<0>(),
    loops::<1>(),
    loops::<2>(),
    loops::<3>(),
    loops::<4>(),
    loops::<5>(),
    loops::<6>(),
    loops::<7>(),
    loops::<8>(),
    loops::<9>(),
    loops::<10>(),
    loops::<11>(),
];

const fn loops<const PLACE: usize>() -> Loops {
    Loops {
        // SAFETY: each passes on what its caller promises.
        fixed: |copy, to, from, length, count| unsafe {
            fixed(&Placed::<PLACE>(copy), to, from, length, count);
        },
        // SAFETY: as above.
        walked: |copy, to, from, walk| unsafe { walked(&Placed::<PLACE>(copy), to, from, walk) },
        // SAFETY: as above.
        chained: |copy, to, from, walk| unsafe { chained(&Placed::<PLACE>(copy), to, from, walk) },
    }
}

/// A function as the loops of one place call it.
struct Placed<const PLACE: usize>(CopyFn);

impl<const PLACE: usize> Mover for Placed<PLACE> {
    #[inline(always)]
    unsafe fn copy(&self, destination: *mut u8, source: *const u8, at: usize, length: usize) {
        // A remark in the assembly, no instruction: without it the compiler finds all places equal
        // and makes them one.
        // SAFETY: it does nothing.
        unsafe {
            std::arch::asm!("/* {} */", const PLACE, options(nomem, nostack, preserves_flags));
        }
        // SAFETY: as the caller promises.
        unsafe { (self.0)(destination.add(at), source.add(at), length) }
    }
}

impl Mover for Function {
    unsafe fn copy(&self, destination: *mut u8, source: *const u8, at: usize, length: usize) {
        // SAFETY: as the caller promises.
        unsafe { (self.copy)(destination.add(at), source.add(at), length) }
    }

    unsafe fn fixed(&self, destination: *mut u8, source: *const u8, length: usize, count: usize) {
        // SAFETY: as the caller promises.
        unsafe { (self.loops.fixed)(self.copy, destination, source, length, count) }
    }

    unsafe fn walked(&self, destination: *mut u8, source: *const u8, walk: Ring) {
        // SAFETY: as the caller promises.
        unsafe { (self.loops.walked)(self.copy, destination, source, walk) }
    }

    unsafe fn chained(&self, destination: *mut u8, source: *const u8, walk: Ring) {
        // SAFETY: as the caller promises.
        unsafe { (self.loops.chained)(self.copy, destination, source, walk) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_function_has_a_place_of_its_own() {
        let places: BTreeSet<usize> = LOOPS.iter().map(|loops| loops.fixed as usize).collect();
        assert_eq!(places.len(), PLACES);
        assert!(crate::functions::all().len() + 2 <= PLACES);
    }
}
