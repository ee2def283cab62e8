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
    // Timed by a planted clock.
    ("nested-clock", "crossing/one-way", "route=guest", &[]),
    ("stamped-clock", "crossing/one-way", "route=patched", &[]),
    ("nested-clock", "crossing/one-way-clock", "route=guest", &[]),
    ("stamped-clock", "crossing/one-way-clock", "route=patched", &[]),
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

/// Enclaves of an optional feature of the build.
pub(crate) const WASM: Absence =
    absent("enclave/", "kind=wasm", "this build of tollgate has no WebAssembly");

/// Reasons for which machines lack levels, the reasons that a guest removes first. Any other reason is a defect.
pub(crate) const ABSENT: &[Absence] = &[
    in_guest("nested", "enclave/", "kind=kvm", "/dev/kvm"),
    in_guest("nested", "enclave/", "kind=kvm", "guest's kernel"),
    // They measure nothing but times, which are those of a planted clock in these guests. A virtual machine inside of one has
    // no planted clock.
    in_guest("nested", "crossing/one-way", "route=patched-vm", "/dev/kvm"),
    in_guest("nested", "crossing/one-way", "route=patched-vm", "guest's kernel"),
    absent("crossing/one-way", "route=patched-vm", "this CPU is emulated"),
    in_guest("nested-clock", "crossing/one-way", "", "/dev/kvm"),
    in_guest("nested-clock", "crossing/one-way", "", "guest's kernel"),
    in_guest("stamped-clock", "crossing/one-way", "", "running kernel does not stamp crossings"),
    in_guest("nested", "crossing/stamping", "", "/dev/kvm"),
    in_guest("nested", "crossing/stamping", "", "guest's kernel"),
    in_guest("stamped", "crossing/stamping", "", "running kernel does not stamp crossings"),
    in_guest("mpx", "bounds/", "", "not in CPUID or not in XCR0"),
    in_guest("mpx", "bounds/", "form=", "this CPU has no MPX (CPUID)"),
    // QEMU's emulator has these, of AMD, of Intel and of recent CPUs.
    in_guest("plain", "bounds/instructions", "form=", "this CPU has no PKU (CPUID)"),
    in_guest("plain", "bounds/instructions", "form=", "this CPU has no SSE4A (CPUID)"),
    in_guest("plain", "bounds/instructions", "form=", "this CPU has no VAES (CPUID)"),
    in_guest("siblings", "bounds/instructions", "sibling=busy", "no sibling"),
    in_guest("smp", "stream/", "", "are allowed (measure on a machine with more cores)"),
    absent("bounds/sharing", "form=bnd", "this CPU is emulated"),
    absent("crossing/one-way", "kind=invalid-opcode", "KVM intercepts invalid opcodes"),
    absent("crossing/one-way", "route=bare-metal", "on bare metal the guest runs without Linux"),
    absent("crossing/", "load=other-core", "the core clock by only"),
    // The guest with a planted clock has one CPU.
    absent("crossing/one-way-clock", "load=other-core", "no other CPU for the load"),
    absent("crossing/", "load=slow-clock", "does not control the core clock"),
    absent("enclave/", "kind=sgx", "has no SGX"),
    // Built and tested by `scripts/test --full` in a separate step.
    WASM,
    absent("bounds/", "mechanism=", "Linux does not manage tables of bounds"),
    // What an emulator makes of compiled programs says nothing about MPX.
    absent("bounds/", "mechanism=gcc-mpx", "QEMU decodes MPX instructions"),
    absent("bounds/", "mechanism=", "/proc/cpuinfo has no flag lam"),
    absent("bounds/", "mechanism=icc", "icc is not installed"),
    absent("bounds/", "mechanism=gcc-mpx", "gcc-mpx is not installed"),
    absent("bounds/", "mechanism=rust-asan", "rustc-nightly is not installed"),
    absent("bounds/", "counted=instructions", "instructions cannot be counted"),
    absent("bounds/instructions", "form=", "(CPUID)"),
    absent("bounds/instructions", "form=", "no shadow stack"),
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
/// Reasons for which machines lack levels for users without the capabilities of an administrator.
pub(crate) const WITHOUT_RIGHTS: &[Absence] = &[
    absent("stream/kernel-", "", "network namespaces need rights"),
    // The test makes them in namespaces.
    absent("stream/two-host-", "", "no network interface is named"),
    absent("crossing/tracepoint", "", "mounting it needs CAP_SYS_ADMIN"),
    absent("crossing/tracepoint", "", "need CAP_BPF and CAP_PERFMON"),
    absent("crossing/tracepoint", "", "Permission denied"),
    absent("crossing/tracepoint", "", "Operation not permitted"),
];
/// Reasons for which machines lack levels without free pages of 2 MiB.
pub(crate) const WITHOUT_HUGE_PAGES: &[Absence] = &[absent("stream/", "", "huge pages of 2 MiB")];

/// A level at which every point fails, and why. This is a result, not an absence.
pub(crate) const FAILS: (&str, &str, &str) =
    ("enclave/heap-sizes", "heap=256", "the heap is too small");

/// Hardware that no test drives, and levels that other tests measure, with the reasons.
pub(crate) const NEVER: [(&str, &str); 2] = [
    (
        "stream: a real NIC",
        "stream/two-host-rate and stream/two-host-rtt can drive one through Linux (docs/interfaces.md); the test gives \
         them a veth pair. The NIC of the other experiments is a program on a separate core; docs/stream.md states what \
         that shows of hardware",
    ),
    (
        "planted: the levels of its experiments",
        "they test the lab and measure no boundary: tests/planted.rs runs them",
    ),
];
