//! Parameters of a round trip: the trip, the CPUs, and whose loop makes it.

use std::time::Duration;

use lab::capability::has;
use lab::factor::LevelType;
use lab::method::Params;
use lab::sample::Failure;

use super::{perf, syscalls};

/// A round trip into the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, LevelType)]
pub enum Trip {
    /// The empty loop and the fenced pair.
    None,
    /// An almost empty system call, by the bare instruction.
    Getppid,
    /// The same through libc, with one more return.
    GetppidLibc,
    /// A system call with an unused number.
    UnknownSyscall,
    /// First write to a page of anonymous memory.
    FaultAnonymous,
    /// First read of a page of anonymous memory.
    FaultZeroPage,
    /// First read of a page of a file in the page cache.
    FaultFile,
    /// First write through this mapping to an existing page of shared memory.
    FaultShared,
    /// Write to an inaccessible page, and a handler that skips it.
    Sigsegv,
    /// Breakpoint instruction, and a handler that returns.
    BreakpointSignal,
    /// Two threads that wake each other with a futex.
    Futex,
    /// Two threads that pass a byte through two pipes.
    Pipe,
    /// One nop through io_uring, submitted and awaited.
    IoUring,
    /// 32 nops through io_uring, submitted and awaited together.
    IoUringBatched,
    /// A missing page that another thread supplies.
    Userfaultfd,
}

impl Trip {
    /// Returns whether the trip involves two threads.
    fn has_two_threads(self) -> bool {
        match self {
            Self::Futex | Self::Pipe | Self::Userfaultfd => true,
            Self::None
            | Self::Getppid
            | Self::GetppidLibc
            | Self::UnknownSyscall
            | Self::FaultAnonymous
            | Self::FaultZeroPage
            | Self::FaultFile
            | Self::FaultShared
            | Self::Sigsegv
            | Self::BreakpointSignal
            | Self::IoUring
            | Self::IoUringBatched => false,
        }
    }
}

/// The program whose loop makes the trips.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, LevelType)]
pub enum By {
    /// The built-in loop.
    Tollgate,
    /// perf bench.
    Perf,
    /// A built-in loop like lmbench's lat_pagefault, with counted faults.
    Lmbench,
}

/// Placement of the two threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, LevelType)]
pub enum Cpus {
    /// Both on one CPU.
    One,
    /// Each on its own CPU.
    Two,
}

/// Params of `round-trips`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Params)]
pub struct TripParams {
    /// round trip into the kernel; none is only the loop and the fenced pair
    #[factor(default = "getppid")]
    pub trip: Trip,
    /// whether the two threads of futex, pipe and userfaultfd run on one CPU or on two
    #[factor(default = "one")]
    pub cpus: Cpus,
    /// whose loop: tollgate, perf (bench syscall basic) or lmbench (like lat_pagefault, with counted faults)
    #[factor(default = "tollgate")]
    pub by: By,
}

impl TripParams {
    /// Returns whether the two threads run on two CPUs.
    pub fn has_two_cpus(self) -> bool {
        self.cpus == Cpus::Two
    }

    /// Checks that the levels can be combined.
    fn check_combination(self) -> Result<(), Failure> {
        let unavailable = |why: String, remedy: &str| Err(Failure::unavailable(why, remedy));
        let name = self.trip;
        match (self.by, self.trip) {
            (By::Perf, Trip::GetppidLibc) | (By::Lmbench, Trip::FaultFile) | (By::Tollgate, _) => {}
            (By::Perf, _) => {
                let remedy = "use by = perf with trip = getppid-libc, which it calls";
                return unavailable(format!("perf bench has no {name}"), remedy);
            }
            (By::Lmbench, _) => {
                let remedy = "use by = lmbench with trip = fault-file";
                return unavailable(format!("lmbench's lat_pagefault has no {name}"), remedy);
            }
        }
        if self.has_two_cpus() && !self.trip.has_two_threads() {
            let remedy = "use cpus = two with trip = futex, pipe or userfaultfd";
            return unavailable(format!("{name} has only one thread"), remedy);
        }
        Ok(())
    }

    /// Checks that the levels can be combined and that the kernel and the required programs are available.
    ///
    /// # Errors
    /// Returns `unavailable` with the cause and the fix.
    pub fn available(self) -> Result<(), Failure> {
        self.check_combination()?;
        match self.by {
            By::Perf => return perf::PROGRAM.find().map(drop),
            By::Tollgate | By::Lmbench => {}
        }
        match self.trip {
            Trip::UnknownSyscall => syscalls::check_enosys(),
            Trip::IoUring | Trip::IoUringBatched => has("io-uring"),
            Trip::Userfaultfd => has("userfaultfd"),
            Trip::None
            | Trip::Getppid
            | Trip::GetppidLibc
            | Trip::FaultAnonymous
            | Trip::FaultZeroPage
            | Trip::FaultFile
            | Trip::FaultShared
            | Trip::Sigsegv
            | Trip::BreakpointSignal
            | Trip::Futex
            | Trip::Pipe => Ok(()),
        }
    }

    /// Estimates the time of a sample, including preparation.
    pub fn expected(self, budget: Duration) -> Duration {
        let preparation_ms = if self.trip == Trip::FaultFile {
            // The file is written to the disk first.
            30
        } else if self.has_two_cpus() {
            // The proximity of the CPUs is measured before and after.
            10
        } else {
            2
        };
        match self.by {
            By::Perf => perf::expected(budget),
            By::Tollgate | By::Lmbench => budget + Duration::from_millis(preparation_ms),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_builtin_loop_makes_every_trip_on_one_cpu() {
        for trip in Trip::ALL {
            let params = TripParams { trip, cpus: Cpus::One, by: By::Tollgate };
            assert_eq!(params.check_combination(), Ok(()), "{trip}");
        }
    }

    #[test]
    fn an_impossible_combination_is_refused_with_a_possible_one() {
        for (trip, cpus, by, reason) in [
            (Trip::Getppid, Cpus::Two, By::Tollgate, "getppid has only one thread"),
            (Trip::Pipe, Cpus::One, By::Perf, "perf bench has no pipe"),
            (Trip::Getppid, Cpus::One, By::Lmbench, "lat_pagefault has no getppid"),
        ] {
            let failure = TripParams { trip, cpus, by }.check_combination().unwrap_err();
            assert!(failure.why.contains(reason) && failure.remedy.is_some(), "{failure}");
        }
        for (trip, cpus, by) in [
            (Trip::Pipe, Cpus::Two, By::Tollgate),
            (Trip::GetppidLibc, Cpus::One, By::Perf),
            (Trip::FaultFile, Cpus::One, By::Lmbench),
        ] {
            assert_eq!(TripParams { trip, cpus, by }.check_combination(), Ok(()));
        }
    }
}
