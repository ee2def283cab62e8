//! What this machine can do, and for what it cannot: why, and what would help.

use serde::{Deserialize, Serialize};

mod kernel;
mod memory;
mod processor;

/// One thing that a point may need.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capability {
    /// What points call it, such as `huge-pages-2m`.
    pub name: String,
    /// What it is, in a few words.
    pub about: String,
    /// Whether it is here.
    pub state: State,
}

/// Whether a capability is here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum State {
    /// It is, as far as a real try shows.
    Present {
        /// How much, or which.
        detail: String,
    },
    /// It is not.
    Absent {
        /// Why, in one line.
        reason: String,
        /// What would help, in one line.
        remedy: String,
    },
}

impl State {
    /// Whether it is here.
    pub fn is_present(&self) -> bool {
        matches!(self, Self::Present { .. })
    }

    fn present(detail: impl Into<String>) -> Self {
        Self::Present { detail: detail.into() }
    }

    fn absent(reason: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Absent { reason: reason.into(), remedy: remedy.into() }
    }

    /// Present or absent by a fact that has nothing more to say.
    fn when(fact: bool, detail: &str, reason: &str, remedy: &str) -> Self {
        if fact { Self::present(detail) } else { Self::absent(reason, remedy) }
    }
}

/// A capability that can be tried: its name, what it is, and the try.
struct Check {
    name: &'static str,
    about: &'static str,
    state: fn() -> State,
}

const CHECKS: &[Check] = &[
    Check {
        name: "invariant-tsc",
        about: "a time stamp counter that keeps time",
        state: processor::invariant_tsc,
    },
    Check {
        name: "core-clock",
        about: "a core clock on which two chains agree",
        state: processor::core_clock,
    },
    Check {
        name: "performance-counters",
        about: "cycles counted in hardware",
        state: kernel::performance_counters,
    },
    Check { name: "avx2", about: "256-bit vectors", state: processor::avx2 },
    Check { name: "avx-512", about: "512-bit vectors (F, BW, VL)", state: processor::avx512 },
    Check { name: "erms", about: "enhanced rep movsb", state: processor::erms },
    Check { name: "fsrm", about: "fast short rep movsb", state: processor::fsrm },
    Check { name: "mpx", about: "bounds registers", state: processor::mpx },
    Check { name: "sgx", about: "enclaves in hardware", state: processor::sgx },
    Check { name: "huge-pages-2m", about: "reserved pages of 2 MiB", state: memory::huge_pages_2m },
    Check { name: "huge-pages-1g", about: "reserved pages of 1 GiB", state: memory::huge_pages_1g },
    Check { name: "dev-mem", about: "physical memory through /dev/mem", state: memory::dev_mem },
    Check { name: "pci-bar", about: "device memory in a PCI BAR", state: memory::pci_bar },
    Check { name: "dax", about: "persistent or device memory by DAX", state: memory::dax },
    Check { name: "numa", about: "more than one NUMA node", state: memory::numa },
    Check { name: "real-time", about: "real-time scheduling", state: kernel::real_time },
    Check { name: "nice", about: "a better nice value", state: kernel::nice },
    Check { name: "tracefs", about: "the kernel's tracepoints", state: kernel::tracefs },
    Check {
        name: "userfaultfd",
        about: "page faults handled in user space",
        state: kernel::userfaultfd,
    },
    Check { name: "io-uring", about: "system calls in batches", state: kernel::io_uring },
];

impl Check {
    fn run(&self) -> Capability {
        Capability {
            name: self.name.to_owned(),
            about: self.about.to_owned(),
            state: (self.state)(),
        }
    }
}

impl Capability {
    /// Every capability of the machine, tried now; some milliseconds after the time stamp counter is known.
    pub fn all() -> Vec<Self> {
        CHECKS.iter().map(Check::run).collect()
    }
}

/// The capability of this name, tried now; none where there is no such name.
pub fn find(name: &str) -> Option<Capability> {
    CHECKS.iter().find(|check| check.name == name).map(Check::run)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_has_a_name_of_its_own_and_says_all_in_one_line() {
        let all = Capability::all();
        let names: BTreeSet<_> = all.iter().map(|capability| &capability.name).collect();
        assert_eq!(names.len(), all.len());
        for capability in &all {
            println!("{capability:?}");
            let texts = match &capability.state {
                State::Present { detail } => vec![detail],
                State::Absent { reason, remedy } => vec![reason, remedy],
            };
            assert!(
                texts.iter().all(|text| !text.is_empty() && !text.contains('\n')),
                "{capability:?}"
            );
        }
    }

    #[test]
    fn found_by_name() {
        assert_eq!(find("avx2").unwrap().state.is_present(), crate::cpu::has_avx2());
        assert_eq!(find("warp-drive"), None);
    }

    #[test]
    fn survives_json() {
        let absent = Capability {
            name: "mpx".into(),
            about: "bounds registers".into(),
            state: State::absent("the processor has none", "use an emulator"),
        };
        let text = serde_json::to_string(&absent).unwrap();
        assert_eq!(serde_json::from_str::<Capability>(&text).unwrap(), absent);
    }

    #[test]
    fn all_are_quick() {
        let _ = crate::tsc::Tsc::get();
        // Of this thread, for others may have the CPU meanwhile.
        let now = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        let cost = || {
            let begin = now();
            Capability::all();
            std::time::Duration::try_from(now() - begin).unwrap()
        };
        let least = (0..5).map(|_| cost()).min().unwrap();
        println!("all capabilities {least:?}");
        assert!(least.as_millis() < 100, "{least:?}");
    }
}
