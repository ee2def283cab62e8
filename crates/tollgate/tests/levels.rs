//! Every level of every factor of every experiment is measured once for real: on this machine, or in a guest of QEMU.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod harness;

use std::collections::{BTreeMap, BTreeSet};

use harness::Bench;
use lab::journal::Run;
use lab::point::Point;
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
    ("nested", "enclave/heap", "kind=kvm", &[]),
    ("stamped", "crossing/stamping", "route=patched", &[]),
    // A reported access takes tens of microseconds there.
    ("mpx", "bounds/races", "implementation=mpx", &["--where", "accesses=100000"]),
    ("mpx", "bounds/checks", "checked_by=mpx", &[]),
];

/// The guests of no level above, and the test of each.
const OTHERS: &[(&str, &str)] = &[
    ("cxl", include_str!("guests.rs")),
    ("plain", include_str!("guest_lifecycle.rs")),
    ("slow-clock", include_str!("cpus.rs")),
];

/// What a machine may lack without a guest that has it: the suites or experiments, by the start of their names, and part of
/// the reason. Any other reason is a defect.
const ABSENT: &[(&str, &str)] = &[
    ("enclave/", "has no SGX"),
    // Built and tested by `scripts/test --full` in a step of its own.
    ("enclave/", "this build of tollgate has no WebAssembly"),
    ("enclave/", "/dev/kvm"),
    ("enclave/", "guest's kernel"),
    ("crossing/", "/dev/kvm"),
    ("crossing/", "guest's kernel"),
    ("crossing/one-way", "running kernel does not stamp crossings"),
    ("crossing/", "on bare metal the guest runs without Linux"),
    // Without the variable TOLLGATE_TEST_SETTINGS.
    ("crossing/", "was not allowed"),
    ("crossing/clock", "the core clock by only"),
    ("crossing/clock", "does not control the core clock"),
    ("crossing/", "no sibling"),
    ("bounds/", "not in CPUID or not in XCR0"),
    ("bounds/", "Linux does not manage tables of bounds"),
    ("bounds/", "/proc/cpuinfo has no flag lam"),
    ("bounds/", "icc is not installed"),
    ("bounds/", "gcc-mpx is not installed"),
    ("bounds/", "instructions cannot be counted"),
    ("bounds/instructions", "(CPUID)"),
    ("bounds/instructions", "no shadow stack"),
    ("bounds/sharing", "(CPUID)"),
    ("bounds/sharing", "no shadow stack"),
    ("bounds/sharing", "to be balanced by a blocker"),
    ("bounds/", "no sibling"),
    ("copy/", "cannot load the CUDA driver"),
    ("copy/", "no sibling"),
    ("stream/", "are allowed (measure on a machine with more cores)"),
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
    /// Points that failed, without those that were measured later.
    faults: BTreeMap<(String, Point), Failure>,
}

impl Coverage {
    fn add(&mut self, run: &Run) {
        let of_suites =
            run.record.experiments.iter().filter(|(id, _)| !lab::run::is_lab_experiment(id));
        for (id, experiment) in of_suites {
            for point in &experiment.points {
                self.declared.extend(levels(id, point));
            }
        }
        for sample in &run.samples {
            let levels = levels(&sample.experiment, &sample.point);
            let key = (sample.experiment.clone(), sample.point.clone());
            match &sample.error {
                // A void sample says that the machine is busy, not that the level works.
                None if sample.void.is_some() || sample.values.is_empty() => {}
                None => {
                    self.measured.extend(levels);
                    self.faults.remove(&key);
                }
                Some(failure) => {
                    if failure.kind.is_fault() && failure.kind != FailureKind::Void {
                        self.faults.insert(key, failure.clone());
                    }
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

    /// Returns why no machine here has a level: all of its points are absent, apart from those that were void.
    fn absence(&self, level: &FactorLevel) -> Option<&Failure> {
        let failures = self.failures(level).iter().filter(|one| one.kind != FailureKind::Void);
        let is_absent = |failure: &&Failure| {
            let parts = ABSENT.iter().filter(|(start, _)| level.0.starts_with(start));
            !failure.kind.is_fault()
                && parts.map(|(_, part)| part).any(|part| failure.to_string().contains(part))
        };
        failures.clone().all(|failure| is_absent(&failure)).then(|| failures.clone().next())?
    }

    /// Returns the levels whose points were void in every round and nothing else.
    fn is_void(&self, level: &FactorLevel) -> bool {
        let failures = self.failures(level);
        !failures.is_empty() && failures.iter().all(|one| one.kind == FailureKind::Void)
    }

    /// Returns whether each point with a level failed as `FAILS` states.
    fn fails_as_expected(&self, level: &FactorLevel) -> bool {
        let (experiment, factor, name, why) = FAILS;
        let failures = self.failures(level);
        (level.0.as_str(), level.1.as_str(), level.2.as_str()) == (experiment, factor, name)
            && !failures.is_empty()
            && failures.iter().all(|failure| failure.to_string().contains(why))
    }

    /// Returns whether a level needs no further run.
    fn is_settled(&self, level: &FactorLevel) -> bool {
        self.measured.contains(level)
            || self.absence(level).is_some()
            || self.fails_as_expected(level)
    }

    /// Returns the levels that need a further run, by experiment.
    fn unsettled(&self) -> BTreeMap<String, Vec<FactorLevel>> {
        let mut all: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for level in self.missing().into_iter().filter(|level| !self.is_settled(level)) {
            all.entry(level.0.clone()).or_default().push(level);
        }
        all
    }
}

fn levels(experiment: &str, point: &Point) -> Vec<FactorLevel> {
    let names = point.0.iter();
    names.map(|(name, level)| (experiment.into(), name.clone(), level.to_string())).collect()
}

/// Returns what enables the user's copy function and, where tests may change settings, the tracepoints and the core clock.
fn options(bench: &Bench) -> Vec<String> {
    let source = "void *copy(void *to, const void *from, unsigned long length)\n\
        { __builtin_memcpy(to, from, length); return to; }\n";
    let source = harness::file(bench, "apex.c", source);
    let object = harness::shared_object(bench, "apex.so", &source, &[]);
    let mut options: Vec<String> =
        ["--allow", "code", "--allow", "network"].map(String::from).into();
    options.extend(["--set".into(), format!("apex={}:copy", object.display())]);
    if std::env::var_os("TOLLGATE_TEST_SETTINGS").is_some() {
        options.extend(
            ["--allow", "tracefs", "--allow", "bpf", "--allow", "cpufreq"].map(String::from),
        );
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

/// Further runs of an experiment with void points, on a busy machine.
const REPEATS: usize = 3;
/// Maximum levels of an experiment that are run one by one: the first point with a level may fail for another level of it.
const MAX_SINGLE_LEVELS: usize = 40;
/// Maximum share of levels that may be void in every run: the host was busy for the whole test.
const MAX_VOID: f64 = 0.02;

/// Measures what is not settled again: whole experiments, then single levels.
fn measure_again(bench: &Bench, options: &[&str], coverage: &mut Coverage) {
    for _ in 0..REPEATS {
        for (experiment, levels) in coverage.unsettled() {
            // Most of an experiment is void together, because its points share a process.
            if levels.iter().any(|level| coverage.is_void(level)) {
                coverage.add(&measure(bench, &[&[experiment.as_str()], options].concat()));
            }
        }
    }
    for (experiment, levels) in coverage.unsettled() {
        for level in levels.iter().take(MAX_SINGLE_LEVELS) {
            let selected = format!("{}={}", level.1, level.2);
            let arguments = [&[experiment.as_str(), "--where", &selected], options].concat();
            coverage.add(&measure(bench, &arguments));
        }
    }
    for ((experiment, point), _) in coverage.faults.clone() {
        let levels: Vec<_> =
            point.0.iter().map(|(name, level)| format!("{name}={level}")).collect();
        let selected = levels.iter().flat_map(|level| ["--where", level]);
        let arguments: Vec<_> = [experiment.as_str()].into_iter().chain(selected).collect();
        coverage.add(&measure(bench, &[&arguments[..], options].concat()));
    }
}

#[test]
fn every_embedded_guest_is_tested_and_documented() {
    let manual = include_str!("../../../docs/virtual.md");
    for guest in vm::declaration::embedded().unwrap() {
        let name = guest.name.as_str();
        let is_of_level = ELSEWHERE.iter().any(|(guest, ..)| *guest == name);
        let test = OTHERS.iter().find(|(guest, _)| *guest == name);
        let is_tested = test.is_some_and(|(_, text)| {
            text.contains(&format!("\"{name}\"")) || text.contains(&format!("guests/{name}.toml"))
        });
        assert!(is_of_level != is_tested, "'{name}' must be in ELSEWHERE or in OTHERS");
        let row = format!("| `{name}` |");
        assert!(manual.contains(&row), "docs/virtual.md has no row of '{name}'");
    }
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
    measure_again(&bench, &options, &mut coverage);
    assert!(coverage.faults.is_empty(), "failed and never passed: {:#?}", coverage.faults);

    let (void, unexplained): (Vec<_>, Vec<_>) =
        coverage.unsettled().into_values().flatten().partition(|level| coverage.is_void(level));
    let unexplained: Vec<_> =
        unexplained.iter().map(|level| (level, coverage.failures(level))).collect();
    assert!(unexplained.is_empty(), "{unexplained:#?}");
    assert!((void.len() as f64) <= MAX_VOID * coverage.declared.len() as f64, "void: {void:?}");
    let experiments = |levels: &BTreeSet<FactorLevel>| -> BTreeSet<String> {
        levels.iter().map(|level| level.0.clone()).collect()
    };
    let nothing: Vec<_> = experiments(&coverage.declared)
        .difference(&experiments(&coverage.measured))
        .filter(|id| void.iter().any(|level| level.0 == **id))
        .cloned()
        .collect();
    assert!(nothing.is_empty(), "void as a whole: {nothing:?}");
    for (experiment, factor, name) in coverage.missing() {
        let level = (experiment, factor, name);
        let why = coverage.absence(&level).map_or_else(|| "void".into(), ToString::to_string);
        machine::untested::note(&format!("{}: {}={}", level.0, level.1, level.2), &why);
    }
}
