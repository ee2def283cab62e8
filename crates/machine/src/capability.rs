//! Capabilities of this machine, with a reason and a remedy for each that is absent.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

mod cpu;
mod kernel;
mod memory;

pub use cpu::MPX_REMEDY;

/// A capability that points may require.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Capability {
    /// The name in a point's requirements, e.g. `huge-pages-2m`.
    pub name: String,
    /// A short description.
    pub about: String,
    /// Whether this machine has it.
    pub state: State,
}

/// Whether a capability is present.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum State {
    /// It is present, as far as an actual attempt shows.
    Present {
        /// Its amount or version.
        detail: String,
    },
    /// It is absent.
    Absent {
        /// The reason, in one line.
        reason: String,
        /// The remedy, in one line.
        remedy: String,
    },
}

impl State {
    /// Returns whether the capability is present.
    pub fn is_present(&self) -> bool {
        matches!(self, Self::Present { .. })
    }

    fn present(detail: impl Into<String>) -> Self {
        Self::Present { detail: detail.into() }
    }

    fn absent(reason: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Absent { reason: reason.into(), remedy: remedy.into() }
    }

    /// Present or absent by a single fact.
    fn when(fact: bool, detail: &str, reason: &str, remedy: &str) -> Self {
        if fact { Self::present(detail) } else { Self::absent(reason, remedy) }
    }
}

/// A capability that can be checked: its name, description and check.
struct Check {
    name: &'static str,
    about: &'static str,
    state: fn() -> State,
}

const CHECKS: &[Check] = &[
    Check {
        name: "invariant-tsc",
        about: "invariant time-stamp counter",
        state: cpu::invariant_tsc,
    },
    Check { name: "core-clock", about: "stable core clock", state: cpu::core_clock },
    Check {
        name: "own-core",
        about: "core not shared with a busy SMT sibling",
        state: cpu::own_core,
    },
    Check {
        name: "performance-counters",
        about: "hardware cycle counter",
        state: kernel::performance_counters,
    },
    Check { name: "avx2", about: "256-bit vectors", state: cpu::avx2 },
    Check { name: "avx-512", about: "512-bit vectors (F, BW, VL)", state: cpu::avx512 },
    Check { name: "erms", about: "enhanced rep movsb", state: cpu::erms },
    Check { name: "fsrm", about: "fast short rep movsb", state: cpu::fsrm },
    Check { name: "mpx", about: "bounds registers", state: cpu::mpx },
    Check { name: "sgx", about: "enclaves in hardware", state: cpu::sgx },
    Check { name: "huge-pages-2m", about: "reserved 2 MiB pages", state: memory::huge_pages_2m },
    Check { name: "huge-pages-1g", about: "reserved 1 GiB pages", state: memory::huge_pages_1g },
    Check { name: "dev-mem", about: "physical memory through /dev/mem", state: memory::dev_mem },
    Check { name: "pci-bar", about: "device memory in a PCI BAR", state: memory::pci_bar },
    Check { name: "dax", about: "persistent or device memory through DAX", state: memory::dax },
    Check { name: "numa", about: "more than one NUMA node", state: memory::numa },
    Check { name: "real-time", about: "real-time scheduling", state: kernel::real_time },
    Check { name: "nice", about: "negative nice values", state: kernel::nice },
    Check { name: "tracefs", about: "kernel tracepoints", state: kernel::tracefs },
    Check {
        name: "userfaultfd",
        about: "page faults handled in user mode",
        state: kernel::userfaultfd,
    },
    Check { name: "io-uring", about: "batched system calls", state: kernel::io_uring },
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
    /// Checks every capability now, in about 0.1 s once the time-stamp counter is calibrated.
    pub fn all() -> Vec<Self> {
        CHECKS.iter().map(Check::run).collect()
    }
}

/// Returns the names of all capabilities.
pub fn names() -> impl Iterator<Item = &'static str> {
    CHECKS.iter().map(|check| check.name)
}

/// Checks the capability of this name now; `None` if the name is unknown.
pub fn find(name: &str) -> Option<Capability> {
    CHECKS.iter().find(|check| check.name == name).map(Check::run)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_has_a_distinct_name_and_one_line_texts() {
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
            state: State::absent("the CPU has none", "use an emulator"),
        };
        let text = serde_json::to_string(&absent).unwrap();
        assert_eq!(serde_json::from_str::<Capability>(&text).unwrap(), absent);
    }

    #[test]
    fn all_checks_are_quick() {
        let _ = crate::tsc::Tsc::get();
        // CPU time of this thread, because other threads may have the CPU.
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
