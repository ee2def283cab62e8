//! What a point asks for: which trip, on which CPUs, by whose loop.

use std::time::Duration;

use lab::capability::has;
use lab::point::Point;
use lab::sample::Failure;

use super::{perf, syscalls};

/// A way into the kernel and back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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

/// Every trip and its name.
const TRIPS: &[(&str, Trip)] = &[
    ("none", Trip::None),
    ("getppid", Trip::Getppid),
    ("getppid-libc", Trip::GetppidLibc),
    ("unknown-syscall", Trip::UnknownSyscall),
    ("fault-anonymous", Trip::FaultAnonymous),
    ("fault-zero-page", Trip::FaultZeroPage),
    ("fault-file", Trip::FaultFile),
    ("fault-shared", Trip::FaultShared),
    ("sigsegv", Trip::Sigsegv),
    ("breakpoint-signal", Trip::BreakpointSignal),
    ("futex", Trip::Futex),
    ("pipe", Trip::Pipe),
    ("io-uring", Trip::IoUring),
    ("io-uring-batched", Trip::IoUringBatched),
    ("userfaultfd", Trip::Userfaultfd),
];

/// The names of the trips.
pub(super) const NAMES: &[&str] = &{
    let mut names = [""; TRIPS.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = TRIPS[at].0;
        at += 1;
    }
    names
};

impl Trip {
    /// Whether two threads take part.
    fn has_two_threads(self) -> bool {
        matches!(self, Self::Futex | Self::Pipe | Self::Userfaultfd)
    }
}

/// Whose loop makes the trips.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum By {
    /// Ours.
    Tollgate,
    /// The program perf's.
    Perf,
    /// One as lmbench's lat_pagefault has it, with the faults counted.
    Lmbench,
}

/// What a point asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Setup {
    /// Which trip.
    pub trip: Trip,
    /// Whether the two threads have a CPU each.
    pub two_cpus: bool,
    /// Whose loop.
    pub by: By,
}

impl Setup {
    /// What the point asks for; by tollgate on one CPU where it does not say.
    ///
    /// # Errors
    /// Where the levels do not go together, and which do.
    pub fn of(point: &Point) -> Result<Self, Failure> {
        let name = point.text("trip");
        let known = TRIPS.iter().find(|(known, _)| *known == name);
        let (_, trip) = known.ok_or_else(|| {
            Failure::unavailable(
                format!("there is no trip '{name}'"),
                "see `tollgate list` for the levels",
            )
        })?;
        let by = match point.text("by") {
            "perf" => By::Perf,
            "lmbench" => By::Lmbench,
            _ => By::Tollgate,
        };
        let setup = Self { trip: *trip, two_cpus: point.text("cpus") == "two", by };
        setup.goes_together(name).map(|()| setup)
    }

    fn goes_together(self, name: &str) -> Result<(), Failure> {
        let wrong = |why: String, remedy: &str| Err(Failure::unavailable(why, remedy));
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
        if self.two_cpus && !self.trip.has_two_threads() {
            let remedy = "cpus = two with trip = futex, pipe or userfaultfd";
            return wrong(format!("{name} has one thread, which needs one CPU"), remedy);
        }
        Ok(())
    }

    /// Whether the kernel and the programs that this needs are here.
    ///
    /// # Errors
    /// The reason why not, and the remedy.
    pub fn available(self) -> Result<(), Failure> {
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
            _ if self.two_cpus => 10,
            _ => 2,
        };
        budget + Duration::from_millis(prepared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(trip: &str, cpus: &str, by: &str) -> Result<Setup, Failure> {
        Setup::of(&Point::from([("trip", trip), ("cpus", cpus), ("by", by)]))
    }

    #[test]
    fn every_trip_goes_on_one_cpu_by_tollgate() {
        for (name, trip) in TRIPS {
            let setup = of(name, "one", "tollgate").unwrap();
            assert_eq!(setup, Setup { trip: *trip, two_cpus: false, by: By::Tollgate });
            assert!(NAMES.contains(name));
        }
    }

    #[test]
    fn what_does_not_go_together_is_refused_with_what_does() {
        for (trip, cpus, by, reason) in [
            ("getppid", "two", "tollgate", "one thread"),
            ("pipe", "one", "perf", "perf bench has no pipe"),
            ("getppid", "one", "lmbench", "lat_pagefault has no getppid"),
            ("walk", "one", "tollgate", "no trip 'walk'"),
        ] {
            let failure = of(trip, cpus, by).unwrap_err();
            assert!(failure.why.contains(reason) && failure.remedy.is_some(), "{failure}");
        }
        assert!(of("pipe", "two", "tollgate").unwrap().two_cpus);
        assert_eq!(of("getppid-libc", "one", "perf").unwrap().by, By::Perf);
        assert_eq!(of("fault-file", "one", "lmbench").unwrap().by, By::Lmbench);
    }
}
