//! What a point asks for: which trip, on which CPUs, by whose loop.

use std::time::Duration;

use lab::capability::has;
use lab::factor::LevelType;
use lab::method::Params;
use lab::sample::Failure;

use super::{perf, syscalls};

/// A way into the kernel and back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, LevelType)]
pub enum Trip {
    /// The loop and the fenced pair with nothing inside.
    None,
    /// A system call that does next to nothing, by the instruction alone.
    Getppid,
    /// The same as a C program calls it, which costs one more return.
    GetppidLibc,
    /// A system call whose number no kernel has.
    UnknownSyscall,
    /// The first write of a page of anonymous memory.
    FaultAnonymous,
    /// The first read of a page of anonymous memory.
    FaultZeroPage,
    /// The first read of a page of a file that is in the page cache.
    FaultFile,
    /// The first write here of a page of shared memory that is there already.
    FaultShared,
    /// A write to a page that may not be touched, and a handler that skips it.
    Sigsegv,
    /// A breakpoint instruction, and a handler that returns.
    BreakpointSignal,
    /// Two threads that wake each other by a futex.
    Futex,
    /// Two threads that pass a byte by two pipes.
    Pipe,
    /// One nop through io_uring, waited for.
    IoUring,
    /// 32 nops through io_uring, waited for together.
    IoUringBatched,
    /// A missing page that another thread puts there.
    Userfaultfd,
}

impl Trip {
    /// Whether two threads take part.
    fn has_two_threads(self) -> bool {
        matches!(self, Self::Futex | Self::Pipe | Self::Userfaultfd)
    }
}

/// Whose loop makes the trips.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, LevelType)]
pub enum By {
    /// Ours.
    Tollgate,
    /// The program perf's.
    Perf,
    /// One as lmbench's lat_pagefault has it, with the faults counted.
    Lmbench,
}

/// Where the two threads run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, LevelType)]
pub enum Cpus {
    /// On one CPU.
    One,
    /// On a CPU each.
    Two,
}

/// Levels of `round-trips`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Params)]
pub struct TripParams {
    /// the way into the kernel and back; none is the loop and the fenced pair alone
    #[factor(default = "getppid")]
    pub trip: Trip,
    /// whether the two threads of futex, pipe and userfaultfd share one CPU or have two
    #[factor(default = "one")]
    pub cpus: Cpus,
    /// whose loop: tollgate, perf (bench syscall basic) or lmbench (lat_pagefault, counted)
    #[factor(default = "tollgate")]
    pub by: By,
}

impl TripParams {
    /// Whether the two threads have a CPU each.
    pub fn has_two_cpus(self) -> bool {
        self.cpus == Cpus::Two
    }

    fn goes_together(self) -> Result<(), Failure> {
        let wrong = |why: String, remedy: &str| Err(Failure::unavailable(why, remedy));
        let name = self.trip;
        match (self.by, self.trip) {
            (By::Perf, Trip::GetppidLibc) | (By::Lmbench, Trip::FaultFile) | (By::Tollgate, _) => {}
            (By::Perf, _) => {
                let remedy = "by = perf with trip = getppid-libc, for it calls through libc";
                return wrong(format!("perf bench has no {name}"), remedy);
            }
            (By::Lmbench, _) => {
                let remedy = "by = lmbench with trip = fault-file";
                return wrong(format!("lmbench's lat_pagefault has no {name}"), remedy);
            }
        }
        if self.has_two_cpus() && !self.trip.has_two_threads() {
            let remedy = "cpus = two with trip = futex, pipe or userfaultfd";
            return wrong(format!("{name} has one thread, which needs one CPU"), remedy);
        }
        Ok(())
    }

    /// Whether the levels go together, and the kernel and the programs that this needs are here.
    ///
    /// # Errors
    /// The reason why not, and the remedy.
    pub fn available(self) -> Result<(), Failure> {
        self.goes_together()?;
        match (self.trip, self.by) {
            (_, By::Perf) => perf::PROGRAM.find().map(drop),
            (Trip::UnknownSyscall, _) => syscalls::unknown_is_refused(),
            (Trip::IoUring | Trip::IoUringBatched, _) => has("io-uring"),
            (Trip::Userfaultfd, _) => has("userfaultfd"),
            _ => Ok(()),
        }
    }

    /// How long a sample takes with all that it prepares.
    pub fn expected(self, budget: Duration) -> Duration {
        let prepared = match (self.by, self.trip) {
            (By::Perf, _) => return perf::expected(budget),
            // A file is written to the disk first.
            (_, Trip::FaultFile) => 30,
            // How near the CPUs are is measured before and after.
            _ if self.has_two_cpus() => 10,
            _ => 2,
        };
        budget + Duration::from_millis(prepared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_trip_goes_on_one_cpu_by_tollgate() {
        for trip in Trip::ALL {
            let params = TripParams { trip, cpus: Cpus::One, by: By::Tollgate };
            assert_eq!(params.goes_together(), Ok(()), "{trip}");
        }
    }

    #[test]
    fn what_does_not_go_together_is_refused_with_what_does() {
        for (trip, cpus, by, reason) in [
            (Trip::Getppid, Cpus::Two, By::Tollgate, "getppid has one thread"),
            (Trip::Pipe, Cpus::One, By::Perf, "perf bench has no pipe"),
            (Trip::Getppid, Cpus::One, By::Lmbench, "lat_pagefault has no getppid"),
        ] {
            let failure = TripParams { trip, cpus, by }.goes_together().unwrap_err();
            assert!(failure.why.contains(reason) && failure.remedy.is_some(), "{failure}");
        }
        for (trip, cpus, by) in [
            (Trip::Pipe, Cpus::Two, By::Tollgate),
            (Trip::GetppidLibc, Cpus::One, By::Perf),
            (Trip::FaultFile, Cpus::One, By::Lmbench),
        ] {
            assert_eq!(TripParams { trip, cpus, by }.goes_together(), Ok(()));
        }
    }
}
