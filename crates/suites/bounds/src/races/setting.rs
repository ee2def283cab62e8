//! What a point of the races asks for.

use std::time::Duration;

use lab::point::Point;
use lab::sample::Failure;

use crate::mpx::Machine;

/// What an access of the model takes at most where two threads want the same lines.
const MODEL_ACCESS: Duration = Duration::from_nanos(40);
/// What an emulated access takes, and one that ends in a signal.
const MPX_ACCESS: Duration = Duration::from_nanos(500);
const MPX_SIGNAL: Duration = Duration::from_micros(10);
/// Starting the program, and learning how near the CPUs are.
const START: Duration = Duration::from_millis(100);

/// The most pointers: what the array of MPX's program holds.
pub(super) const MAX_POINTERS: u64 = 65_536;
/// The most accesses: minutes of them.
pub(super) const MAX_ACCESSES: u64 = 10_000_000_000;

/// What runs the race.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Implementation {
    /// Directory and tables in software.
    Model,
    /// MPX itself.
    Mpx(Machine),
}

/// What is done against the race.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fix {
    /// Nothing, as in MPX.
    None,
    /// A lock around pointer and bounds.
    Lock,
    /// One 16-byte entry by vector moves.
    VectorEntry,
    /// One 16-byte entry by `cmpxchg16b`.
    CompareEntry,
}

impl Fix {
    /// Whether this processor has what it takes.
    pub(super) fn available(self) -> Result<(), Failure> {
        let has = match self {
            Self::None | Self::Lock => true,
            Self::VectorEntry => std::arch::is_x86_feature_detected!("avx"),
            Self::CompareEntry => std::arch::is_x86_feature_detected!("cmpxchg16b"),
        };
        match (has, self) {
            (true, _) => Ok(()),
            (false, Self::VectorEntry) => {
                Err(Failure::unsupported("16-byte moves are atomic only with AVX"))
            }
            (false, _) => Err(Failure::unsupported("the processor has no cmpxchg16b")),
        }
    }
}

/// A point's levels.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setting {
    pub(super) implementation: Implementation,
    pub(super) fix: Fix,
    /// Whether every access is beyond its object.
    pub(super) beyond: bool,
    /// Whether another thread fills the array.
    pub(super) filled_by_other: bool,
    /// Pointers in the array.
    pub(super) pointers: u64,
    /// Accesses at least.
    pub(super) accesses: u64,
}

impl Setting {
    /// Reads a point.
    ///
    /// # Errors
    /// Where it lacks a factor or a count is 0.
    pub(super) fn of(point: &Point) -> Result<Self, Failure> {
        let implementation = match point.text("implementation") {
            "mpx" => Implementation::Mpx(Machine::Native),
            "mpx-emulated" => Implementation::Mpx(Machine::Emulated),
            _ => Implementation::Model,
        };
        let fix = match point.text("fix") {
            "lock" => Fix::Lock,
            "vector-entry" => Fix::VectorEntry,
            "cmpxchg-entry" => Fix::CompareEntry,
            _ => Fix::None,
        };
        Ok(Self {
            implementation,
            fix,
            beyond: point.text("case") == "false-negative",
            filled_by_other: point.text("filled_by") == "other-thread",
            pointers: count(point, "pointers", MAX_POINTERS)?,
            accesses: count(point, "accesses", MAX_ACCESSES)?,
        })
    }

    /// How long a sample takes at most on a machine that is not too busy.
    pub(super) fn expected(&self) -> Duration {
        let each = match (self.implementation, self.beyond) {
            (Implementation::Model, _) => MODEL_ACCESS,
            (Implementation::Mpx(_), false) => MPX_ACCESS,
            (Implementation::Mpx(_), true) => MPX_SIGNAL,
        };
        START + each.saturating_mul(u32::try_from(self.accesses).unwrap_or(u32::MAX))
    }
}

fn count(point: &Point, factor: &str, most: u64) -> Result<u64, Failure> {
    let asked = point.get(factor).and_then(|level| level.count()).unwrap_or(0);
    if (1..=most).contains(&asked) {
        return Ok(asked);
    }
    let remedy = format!("set {factor} to a number from 1 to {most}");
    Err(Failure::unavailable(format!("a race of {asked} {factor}"), remedy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_bounded_and_the_bounds_are_told() {
        let of = |pointers, accesses| {
            Setting::of(&Point::from([("pointers", pointers), ("accesses", accesses)]))
        };
        assert!(of("65536", "10000000000").is_ok());
        for (pointers, accesses, why) in [
            ("0", "1", "a race of 0 pointers"),
            ("65537", "1", "a race of 65537 pointers"),
            ("1", "18446744073709551615", "a race of 18446744073709551615 accesses"),
        ] {
            let failure = of(pointers, accesses).unwrap_err();
            assert_eq!(failure.why, why);
            assert!(failure.remedy.unwrap().contains("from 1 to "));
        }
    }
}
