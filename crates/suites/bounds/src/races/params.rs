//! Parameters of `bounds/races`.

use std::time::Duration;

use lab::factor::{LevelType, Levels};
use lab::method::Params;
use lab::sample::Failure;

use crate::mpx::Machine;

/// Upper limit of an access of the model while two threads contend for the same cache lines.
const MODEL_ACCESS: Duration = Duration::from_nanos(40);
/// Upper limits of an emulated access, without and with a signal.
const MPX_ACCESS: Duration = Duration::from_nanos(500);
const MPX_SIGNAL: Duration = Duration::from_micros(10);
/// Time to start the program and to learn the distance between the CPUs.
const START: Duration = Duration::from_millis(100);

/// Maximum number of pointers: the size of the array in the MPX program.
pub(super) const MAX_POINTERS: u64 = 65_536;
/// Maximum number of accesses, which take minutes.
const MAX_ACCESSES: u64 = 10_000_000_000;

/// Whether accesses are within their objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, LevelType)]
pub(super) enum Case {
    /// Every access is beyond its object: a wrong judgement misses a violation.
    FalseNegative,
    /// Every access is within its object: a wrong judgement is a false alarm.
    FalsePositive,
}

/// Implementation of the bounds tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, LevelType)]
pub(super) enum Implementation {
    /// Directory and tables in software.
    Model,
    /// MPX of this CPU.
    Mpx,
    /// MPX emulated by QEMU.
    MpxEmulated,
}

impl Implementation {
    /// Returns the machine that runs the MPX program; `None` for the software model.
    pub(super) fn machine(self) -> Option<Machine> {
        match self {
            Self::Model => None,
            Self::Mpx => Some(Machine::Native),
            Self::MpxEmulated => Some(Machine::Emulated),
        }
    }
}

/// Thread that stores pointers to one object or the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, LevelType)]
pub(super) enum FilledBy {
    /// A second thread, concurrently with the accesses: a race.
    OtherThread,
    /// The accessing thread, between its passes: the control.
    SameThread,
}

/// Remedy against the race.
#[derive(Debug, Clone, Copy, PartialEq, Eq, LevelType)]
pub(super) enum Fix {
    /// None, as in MPX.
    None,
    /// A lock around pointer and bounds.
    Lock,
    /// One 16-byte entry, accessed by vector moves.
    VectorEntry,
    /// One 16-byte entry, accessed by `cmpxchg16b`.
    CmpxchgEntry,
}

impl Fix {
    /// Checks that this CPU supports the instructions of the fix.
    ///
    /// # Errors
    /// Returns `unsupported` if it does not.
    pub(super) fn available(self) -> Result<(), Failure> {
        let (supported, reason) = match self {
            Self::None | Self::Lock => return Ok(()),
            Self::VectorEntry => (
                std::arch::is_x86_feature_detected!("avx"),
                "this CPU has no AVX, without which 16-byte moves are not atomic",
            ),
            Self::CmpxchgEntry => {
                (std::arch::is_x86_feature_detected!("cmpxchg16b"), "this CPU has no cmpxchg16b")
            }
        };
        if supported {
            Ok(())
        } else {
            Err(Failure::unsupported(reason, "use a CPU that has it, or another fix"))
        }
    }
}

/// Params of `races`.
#[derive(Debug, Clone, Copy, Params)]
pub(crate) struct RaceParams {
    /// false-negative: every access is beyond its object; false-positive: every access is within it
    #[factor(default = "false-negative")]
    pub(super) case: Case,
    /// model: directory and tables in software; mpx: this CPU's; mpx-emulated: QEMU's, for counts only
    #[factor(default = "model")]
    pub(super) implementation: Implementation,
    /// the thread that stores pointers to one object or the other: a second one, or the accessing one between passes
    #[factor(default = "other-thread")]
    pub(super) filled_by: FilledBy,
    /// none, as in MPX; a lock around pointer and bounds; one 16-byte entry, accessed by vector moves or cmpxchg16b
    #[factor(default = "none")]
    pub(super) fix: Fix,
    /// the number of pointers in the array
    #[factor(default = "1000", levels = Levels::Count(1, MAX_POINTERS))]
    pub(super) pointers: u64,
    /// the minimum number of accesses per sample
    #[factor(default = "1000000", levels = Levels::Count(1, MAX_ACCESSES))]
    pub(super) accesses: u64,
}

impl RaceParams {
    /// Returns whether every access is beyond its object.
    pub(super) fn is_beyond(&self) -> bool {
        self.case == Case::FalseNegative
    }

    /// Returns whether a second thread fills the array.
    pub(super) fn has_writer(&self) -> bool {
        self.filled_by == FilledBy::OtherThread
    }

    /// Returns an upper limit for the time of a sample on a machine with idle CPUs.
    pub(super) fn expected(&self) -> Duration {
        let per_access = match (self.implementation, self.case) {
            (Implementation::Model, _) => MODEL_ACCESS,
            (Implementation::Mpx | Implementation::MpxEmulated, Case::FalsePositive) => MPX_ACCESS,
            (Implementation::Mpx | Implementation::MpxEmulated, Case::FalseNegative) => MPX_SIGNAL,
        };
        START + per_access.saturating_mul(u32::try_from(self.accesses).unwrap_or(u32::MAX))
    }
}
