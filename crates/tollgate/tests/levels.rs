//! Every level of every factor of every experiment is measured once for real: on this machine, or in a guest of QEMU.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod harness;

use std::collections::{BTreeMap, BTreeSet};

use harness::Bench;
use lab::journal::Run;
use lab::sample::{Failure, FailureKind};

/// Levels that most machines lack, and the guest in which they are measured: the guest, the experiment, the level, and
/// further arguments.
const ELSEWHERE: &[(&str, &str, &str, &[&str])] = &[
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
    // A reported access takes tens of microseconds there.
    ("mpx", "bounds/races", "implementation=mpx", &["--where", "accesses=100000"]),
    ("mpx", "bounds/checks", "checked_by=mpx", &[]),
];

/// What a machine may lack without a guest that has it: parts of the reasons. Any other reason is a defect.
const ABSENT: &[&str] = &[
    "has no SGX",
    "not in CPUID or not in XCR0",
    "(CPUID)",
    "no shadow stack",
    "/proc/cpuinfo has no flag",
    "icc is not installed",
    "gcc-mpx is not installed",
    "no sibling",
    "to be balanced by a blocker",
    "cannot load the CUDA driver",
    "instructions cannot be counted",
    "the core clock by only",
    "does not control the core clock",
    "/dev/kvm",
    "guest's kernel is emulated",
    "running kernel does not stamp crossings",
    "on bare metal the guest runs without Linux",
    "are allowed (measure on a machine with more cores)",
    // Built and tested by `scripts/test --full` in a step of its own.
    "this build of tollgate has no WebAssembly",
    // Without the variable TOLLGATE_TEST_SETTINGS.
    "was not allowed",
];

/// A level at which every point fails, and why. This is a result, not an absence.
const FAILS: (&str, &str, &str, &str) =
    ("enclave/heap-sizes", "heap", "256", "the heap is too small");

/// A factor of an experiment, and a level.
type FactorLevel = (String, String, String);

/// What runs have measured.
#[derive(Default)]
struct Coverage {
    declared: BTreeSet<FactorLevel>,
    measured: BTreeSet<FactorLevel>,
    failures: BTreeMap<FactorLevel, Vec<Failure>>,
}

impl Coverage {
    fn add(&mut self, run: &Run) {
        for (id, experiment) in &run.record.experiments {
            for point in experiment.points.iter().filter(|_| !id.starts_with("lab/")) {
                self.declared.extend(levels(id, point));
            }
        }
        for sample in &run.samples {
            let levels = levels(&sample.experiment, &sample.point);
            match &sample.error {
                None if !harness::was_made(sample) => {}
                None => self.measured.extend(levels),
                Some(failure) => {
                    for level in levels {
                        self.failures.entry(level).or_default().push(failure.clone());
                    }
                }
            }
        }
    }

    fn failures(&self, level: &FactorLevel) -> &[Failure] {
        self.failures.get(level).map_or(&[], Vec::as_slice)
    }

    fn missing(&self) -> Vec<FactorLevel> {
        self.declared.difference(&self.measured).cloned().collect()
    }

    /// Returns why no machine here has a level. A void sample says that the machine is busy, not that the level does not
    /// work.
    fn absence(&self, level: &FactorLevel) -> Option<&Failure> {
        self.failures(level).iter().find(|failure| match failure.kind {
            FailureKind::Void => true,
            FailureKind::Unavailable | FailureKind::Unsupported => {
                ABSENT.iter().any(|part| failure.to_string().contains(part))
            }
            _ => false,
        })
    }

    /// Returns whether each point with a level failed as `FAILS` states.
    fn fails_as_expected(&self, level: &FactorLevel) -> bool {
        let (experiment, factor, name, why) = FAILS;
        let failures = self.failures(level);
        (level.0.as_str(), level.1.as_str(), level.2.as_str()) == (experiment, factor, name)
            && !failures.is_empty()
            && failures.iter().all(|failure| failure.to_string().contains(why))
    }
}

fn levels(experiment: &str, point: &lab::point::Point) -> Vec<FactorLevel> {
    let names = point.0.iter();
    names.map(|(name, level)| (experiment.into(), name.clone(), level.to_string())).collect()
}

/// Returns what enables the user's copy function and, where tests may change settings, the tracepoints.
fn options(bench: &Bench) -> Vec<String> {
    let source = "void *copy(void *to, const void *from, unsigned long length)\n\
        { __builtin_memcpy(to, from, length); return to; }\n";
    let source = harness::file(bench, "apex.c", source);
    let object = harness::shared_object(bench, "apex.so", &source, &[]);
    let mut options = vec!["--allow".into(), "code".into()];
    options.extend(["--set".into(), format!("apex={}:copy", object.display())]);
    if std::env::var_os("TOLLGATE_TEST_SETTINGS").is_some() {
        options.extend(["--allow", "tracefs", "--allow", "bpf"].map(String::from));
    }
    options
}

/// Measures each level once and returns the run.
fn measure(bench: &Bench, arguments: &[&str]) -> Run {
    let common =
        ["run", "--each-level", "--profile", "full", "--rounds", "1", "--fresh", "--quiet"];
    let words = [&common[..], arguments].concat();
    let output = bench.command_with_user_cache(&words).output().unwrap();
    println!("{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
    bench.journal()
}

#[test]
#[ignore = "minutes"]
fn long_every_level_of_every_factor_is_measured_or_has_a_reason() {
    let bench = Bench::new();
    let options = options(&bench);
    let options: Vec<_> = options.iter().map(String::as_str).collect();
    let mut coverage = Coverage::default();
    coverage.add(&measure(&bench, &options));
    for (guest, experiment, level, further) in ELSEWHERE {
        let (factor, name) = level.split_once('=').unwrap();
        let key = (experiment.to_string(), factor.to_owned(), name.to_owned());
        if coverage.measured.contains(&key) {
            continue;
        }
        let arguments = [&[experiment, "--guest", guest, "--where", level], *further].concat();
        coverage.add(&measure(&bench, &arguments));
        assert!(coverage.measured.contains(&key), "{key:?}: not measured in guest {guest}");
    }
    let mut unexplained = Vec::new();
    for level in coverage.missing() {
        let (experiment, factor, name) = &level;
        if !coverage.measured.contains(&level) && coverage.absence(&level).is_none() {
            // The first point with this level cannot be measured for another level of it: try others.
            let selected = format!("{factor}={name}");
            let arguments = [&[experiment, "--where", &selected], &options[..]].concat();
            coverage.add(&measure(&bench, &arguments));
        }
        if coverage.measured.contains(&level) || coverage.fails_as_expected(&level) {
            continue;
        }
        match coverage.absence(&level) {
            Some(why) => machine::untested::note(&format!("{experiment}: {factor}={name}"), why),
            None => unexplained.push((level.clone(), coverage.failures(&level).to_vec())),
        }
    }
    assert!(unexplained.is_empty(), "{unexplained:#?}");
}
