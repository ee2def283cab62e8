//! The guests in which levels are measured that most machines lack, and the reasons for which others are measured nowhere.

use crate::coverage::ExperimentLevel;

/// Levels that most machines lack, and the guest in which they are measured: the guest, the experiment, the level, and
/// further arguments.
pub(crate) const ELSEWHERE: &[(&str, &str, &str, &[&str])] = &[
    ("ivshmem", "copy/throughput", "memory=pci-bar", &[]),
    ("escape", "copy/throughput", "memory=host-physical", &[]),
    ("escape", "copy/throughput", "memory=device", &[]),
    ("nvdimm", "copy/throughput", "memory=dax", &[]),
    ("numa", "copy/throughput", "memory=numa-node-0", &[]),
    ("numa", "copy/throughput", "memory=numa-node-1", &[]),
    ("nvdimm", "copy/throughput", "memory=numa-node-2", &[]),
    ("escape", "copy/limit", "memory=device", &[]),
    ("escape", "copy/caching", "memory=host-physical", &[]),
    ("escape", "copy/caching", "memory=device", &[]),
    ("ivshmem", "copy/caching", "memory=pci-bar", &[]),
    ("nvdimm", "copy/caching", "memory=dax", &[]),
    ("ivshmem", "copy/caching", "caching=uncached", &[]),
    ("ivshmem", "copy/caching", "caching=write-combining", &[]),
    ("reserved", "copy/caching", "caching=write-back", &[]),
    ("escape", "copy/two-host-delivery", "memory=device", &[]),
    ("escape", "copy/two-host-frames", "memory=device", &[]),
    ("shared-bar", "copy/two-host-delivery", "memory=pci-bar", &[]),
    ("shared-bar", "copy/two-host-frames", "memory=pci-bar", &[]),
    ("pool", "copy/two-host-mediation", "memory=device", &[]),
    ("nested", "crossing/stamping", "route=guest", &[]),
    ("nested", "crossing/stamping", "route=patched-vm", &[]),
    ("nested", "enclave/heap", "kind=kvm", &[]),
    // Without the allocators' other sweeps: each loads in seconds there.
    ("nested", "enclave/ecall", "kind=kvm", &["--where", "allocator=dlmalloc"]),
    (
        "nested",
        "enclave/allocation",
        "kind=kvm",
        &["--where", "allocator=dlmalloc", "--where", "threads=1"],
    ),
    ("stamped", "crossing/stamping", "route=patched", &[]),
    // A reported access takes tens of microseconds there.
    ("mpx", "bounds/races", "implementation=mpx", &["--where", "accesses=100000"]),
    ("mpx", "bounds/checks", "checked_by=mpx", &[]),
    // Counted there: the others of MPX follow, because this host lacks them.
    ("mpx", "bounds/instructions", "form=bndldx BND [BASE+R64]", &[]),
];

/// A reason for which a machine may lack a level.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Absence {
    /// Start of the names of suite or experiment.
    pub(crate) experiment: &'static str,
    /// Start of `FACTOR=LEVEL`; empty for all levels, because the baseline needs it too.
    pub(crate) level: &'static str,
    /// Part of the reason.
    pub(crate) why: &'static str,
    /// The embedded guest that has what is missing. There the level is measured, or absent for a reason that no guest helps.
    pub(crate) guest: Option<&'static str>,
}

impl Absence {
    /// Returns whether it explains that a level failed with this reason.
    pub(crate) fn explains(&self, level: &ExperimentLevel, why: &str) -> bool {
        level.experiment.starts_with(self.experiment)
            && format!("{}={}", level.factor, level.level).starts_with(self.level)
            && why.contains(self.why)
    }
}

const fn absent(experiment: &'static str, level: &'static str, why: &'static str) -> Absence {
    Absence { experiment, level, why, guest: None }
}

const fn in_guest(
    guest: &'static str,
    experiment: &'static str,
    level: &'static str,
    why: &'static str,
) -> Absence {
    Absence { guest: Some(guest), ..absent(experiment, level, why) }
}

/// Reasons for which machines lack levels, the reasons that a guest removes first. Any other reason is a defect.
pub(crate) const ABSENT: &[Absence] = &[
    in_guest("nested", "enclave/", "kind=kvm", "/dev/kvm"),
    in_guest("nested", "enclave/", "kind=kvm", "guest's kernel"),
    in_guest("nested", "crossing/", "", "/dev/kvm"),
    in_guest("nested", "crossing/", "", "guest's kernel"),
    in_guest("stamped", "crossing/", "", "running kernel does not stamp crossings"),
    in_guest("mpx", "bounds/", "", "not in CPUID or not in XCR0"),
    in_guest("mpx", "bounds/", "form=", "this CPU has no MPX (CPUID)"),
    in_guest("smp", "stream/", "", "are allowed (measure on a machine with more cores)"),
    // They measure nothing but times, at every level.
    absent("crossing/one-way", "", "this CPU is emulated"),
    absent("bounds/sharing", "form=bnd", "this CPU is emulated"),
    absent("crossing/one-way", "kind=invalid-opcode", "KVM intercepts invalid opcodes"),
    absent("crossing/one-way", "route=bare-metal", "on bare metal the guest runs without Linux"),
    absent("crossing/", "load=other-core", "the core clock by only"),
    absent("crossing/", "load=slow-clock", "does not control the core clock"),
    absent("enclave/", "kind=sgx", "has no SGX"),
    // Built and tested by `scripts/test --full` in a separate step.
    absent("enclave/", "kind=wasm", "this build of tollgate has no WebAssembly"),
    absent("bounds/", "mechanism=", "Linux does not manage tables of bounds"),
    absent("bounds/", "mechanism=", "/proc/cpuinfo has no flag lam"),
    absent("bounds/", "mechanism=icc", "icc is not installed"),
    absent("bounds/", "mechanism=gcc-mpx", "gcc-mpx is not installed"),
    absent("bounds/", "counted=instructions", "instructions cannot be counted"),
    absent("bounds/instructions", "form=", "(CPUID)"),
    absent("bounds/instructions", "form=", "no shadow stack"),
    absent("bounds/instructions", "sibling=busy", "no sibling"),
    absent("bounds/sharing", "form=", "(CPUID)"),
    absent("bounds/sharing", "form=", "no shadow stack"),
    absent("bounds/sharing", "form=", "to be balanced by a blocker"),
    absent("copy/gpu", "memory=gpu", "cannot load the CUDA driver"),
    absent("copy/", "function=", "this CPU lacks AVX-512"),
    // The baseline of interface=dpdk has them.
    absent("stream/", "", "DPDK's vectorised packed rings need AVX-512"),
];

/// Reasons for which machines lack levels if tests may not change settings.
pub(crate) const WITHOUT_SETTINGS: &[Absence] = &[absent("crossing/", "", "was not allowed")];
/// Reasons for which machines lack levels without free pages of 2 MiB.
pub(crate) const WITHOUT_HUGE_PAGES: &[Absence] = &[absent("stream/", "", "huge pages of 2 MiB")];

/// A level at which every point fails, and why. This is a result, not an absence.
pub(crate) const FAILS: (&str, &str, &str) =
    ("enclave/heap-sizes", "heap=256", "the heap is too small");

/// Experiments of which a machine may measure no level: they time what ring 0 stamps, for which an emulated CPU has no time.
pub(crate) const WITHOUT_A_LEVEL: [&str; 2] = ["crossing/one-way", "crossing/one-way-clock"];

/// Hardware and programs that no experiment runs, with the reasons.
pub(crate) const NEVER: [(&str, &str); 1] = [(
    "stream: a real NIC",
    "the NIC is a program on a separate core; docs/stream.md states what that shows of hardware",
)];
