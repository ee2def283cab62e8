//! Every level of every factor of every experiment is measured once for real: on this machine, or in a guest of QEMU.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod coverage;
#[path = "../harness/mod.rs"]
mod harness;
mod lists;
mod notes;
mod rules;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use coverage::{Coverage, ExperimentLevel};
use harness::Bench;
use harness::namespace::{self, Namespace};
use lab::experiment::Profile;
use lab::journal::Run;
use lab::point::Point;
use lists::{ABSENT, ELSEWHERE, NEVER, WASM, WITHOUT_HUGE_PAGES, WITHOUT_RIGHTS, WITHOUT_SETTINGS};
use machine::huge_pages;
use machine::setting::Setting;
use machine::untested::note;
use notes::grouped;
use rustix::thread::{CapabilitySet, capabilities};

/// The pool of 2 MiB pages, and how many the largest point of testpmd needs.
const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
const PAGES: usize = 160;
/// Further runs of void points, on a busy machine.
const REPEATS: usize = 3;
/// Void levels of an experiment that are measured one by one.
const FEW: usize = 10;

/// The variable that `scripts/test` sets after it measured the levels of enclaves of kind wasm, by another build.
const WASM_MEASURED: &str = "TOLLGATE_WASM_MEASURED";

/// Returns whether this process may make networks and trace.
fn has_rights() -> bool {
    let needed = CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW | CapabilitySet::SYS_ADMIN;
    capabilities(None).is_ok_and(|sets| sets.effective.contains(needed))
}

/// Returns whether tests may change settings.
fn may_change_settings() -> bool {
    has_rights() && std::env::var_os("TOLLGATE_TEST_SETTINGS").is_some()
}

/// Reserves 2 MiB pages until the result is dropped, if tests may.
fn reserve_pages() -> Option<Setting> {
    let reserve = || {
        let pool = Setting::record(Path::new(POOL))?;
        let now: usize = pool.original().parse().map_err(std::io::Error::other)?;
        pool.set(&(now + PAGES).to_string())?;
        Ok::<_, std::io::Error>(pool)
    };
    let reserved = may_change_settings().then(reserve)?;
    reserved.inspect_err(|why| println!("no 2 MiB pages: {why}")).ok()
}

/// Returns the reasons for which this machine may lack levels.
fn reasons() -> Vec<lists::Absence> {
    let mut reasons = ABSENT.to_vec();
    if !may_change_settings() {
        reasons.extend(WITHOUT_SETTINGS);
    }
    if !has_rights() {
        reasons.extend(WITHOUT_RIGHTS);
    }
    if huge_pages::free().unwrap_or(0) < PAGES {
        reasons.extend(WITHOUT_HUGE_PAGES);
    }
    reasons
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
    if may_change_settings() {
        options.extend(
            ["--allow", "tracefs", "--allow", "bpf", "--allow", "cpufreq"].map(String::from),
        );
    }
    options
}

/// Creates two namespaces for the roles of two hosts, and adds their interfaces to the options.
fn connect_roles(options: &mut Vec<String>) -> Option<[Namespace; 2]> {
    let namespaces = namespace::pair("stream: two hosts")?;
    let [near, far] = &namespaces;
    namespace::connect(near, far, "data0", None);
    for (role, namespace) in [("generator", near), ("dut", far)] {
        options.extend(["--set".into(), format!("{role}-interface={}/data0", namespace.0)]);
    }
    Some(namespaces)
}

/// The runs of the test.
struct Runs {
    bench: Bench,
    /// Options of runs on this host.
    options: Vec<String>,
    coverage: Coverage,
}

impl Runs {
    /// Measures each selected level once.
    fn measure(&mut self, profile: Profile, arguments: &[&str]) {
        let common = ["run", "--each-level", "--rounds", "1", "--fresh", "--quiet", "--profile"];
        let words = [&common[..], &[profile.name()], arguments].concat();
        let output = self.bench.command_with_user_cache(&words).output().unwrap();
        println!("{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
        let run: Run = self.bench.journal();
        self.coverage.add(&run);
    }

    /// Measures on this host.
    fn here(&mut self, profile: Profile, arguments: &[&str]) {
        let options = self.options.clone();
        let options = options.iter().map(String::as_str);
        self.measure(profile, &arguments.iter().copied().chain(options).collect::<Vec<_>>());
    }

    /// Measures one point, in a guest or on this host.
    fn point(&mut self, guest: Option<&str>, profile: Profile, experiment: &str, point: &Point) {
        let levels: Vec<_> =
            point.levels().map(|(name, level)| format!("{name}={level}")).collect();
        let selected = levels.iter().flat_map(|level| ["--where", level]);
        let mut arguments: Vec<_> = [experiment].into_iter().chain(selected).collect();
        match guest {
            None => self.here(profile, &arguments),
            Some(guest) => {
                arguments.extend(["--guest", guest]);
                self.measure(profile, &arguments);
            }
        }
    }

    /// Measures what most machines lack in guests.
    fn elsewhere(&mut self) {
        for (guest, experiment, level, further) in ELSEWHERE {
            let key = ExperimentLevel::parse(experiment, level);
            if !self.coverage.measured.contains(&key) {
                let selected = [experiment, "--guest", guest, "--where", level];
                self.measure(Profile::Full, &[&selected[..], further].concat());
                let is_measured = self.coverage.has_run(&key);
                assert!(is_measured, "{key}: not measured in guest {guest}");
            }
        }
    }

    /// Measures the nearest point of each level that no point had, perhaps because of its other levels.
    fn nearest_points(&mut self) {
        for level in self.coverage.unsettled() {
            if self.coverage.failures(None, &level).is_empty() {
                self.nearest_point(&level);
            }
        }
    }

    fn nearest_point(&mut self, level: &ExperimentLevel) {
        // Another level may have had the same point.
        if !self.coverage.measured.contains(level) {
            let nearest = self.coverage.declared[level].clone();
            self.point(None, nearest.profile, &level.experiment, &nearest.point);
        }
    }

    /// Measures points again that had no value before the host was too busy: a few levels by their nearest points; with more,
    /// the experiment, because most of it is void together if its points share a process.
    fn void_again(&mut self) {
        for _ in 0..REPEATS {
            let mut void: BTreeMap<String, Vec<ExperimentLevel>> = BTreeMap::new();
            let unsettled = self.coverage.unsettled().into_iter();
            for level in unsettled.filter(|level| self.coverage.is_void(level)) {
                void.entry(level.experiment.clone()).or_default().push(level);
            }
            for (experiment, levels) in void {
                match levels.len() {
                    ..=FEW => levels.iter().for_each(|level| self.nearest_point(level)),
                    _ => self.here(Profile::Full, &[&experiment]),
                }
            }
        }
    }

    /// Measures levels in the guest that has what this host lacks, one boot for each experiment and profile.
    fn in_guests(&mut self) {
        let mut missing: BTreeMap<_, Vec<ExperimentLevel>> = BTreeMap::new();
        for level in self.coverage.unsettled() {
            if let Some((_, Some(guest))) = self.coverage.absence(None, &level) {
                let profile = self.coverage.declared[&level].profile;
                let place = (guest, level.experiment.clone(), profile.name());
                missing.entry(place).or_default().push(level);
            }
        }
        for ((guest, experiment, _), levels) in missing {
            let profile = self.coverage.declared[&levels[0]].profile;
            let mut arguments = vec![experiment.as_str(), "--guest", guest];
            // In a guest the nearest point of each selected level is measured.
            let factors: BTreeSet<_> = levels.iter().map(|one| one.factor.as_str()).collect();
            let names: Vec<_> = levels.iter().map(|one| one.level.as_str()).collect();
            let selected = format!("{}={}", levels[0].factor, names.join(","));
            if factors.len() == 1 {
                arguments.extend(["--where", &selected]);
            }
            self.measure(profile, &arguments);
        }
    }

    /// Measures points that failed by a fault again, each where it failed.
    fn faults_again(&mut self) {
        for (guest, experiment, point) in self.coverage.faults.clone().into_keys() {
            let has_point = |level: &&ExperimentLevel| level.experiment == experiment;
            let levels = self.coverage.declared.iter().filter(|(level, _)| has_point(level));
            let of_point = levels.map(|(_, nearest)| nearest).find(|one| one.point == point);
            let profile = of_point.map_or(Profile::Full, |nearest| nearest.profile);
            self.point(guest.as_deref(), profile, &experiment, &point);
        }
    }
}

/// Returns why a level has no valid sample.
fn why_not_measured(coverage: &Coverage, level: &ExperimentLevel) -> String {
    match (coverage.busy.get(level), coverage.why_absent(level)) {
        (Some(cause), _) => format!("ran, on a busy machine: {cause}"),
        (None, Some(why)) => why,
        (None, None) => "failed as expected".into(),
    }
}

#[test]
#[ignore = "minutes"]
fn long_every_level_of_every_factor_is_measured_or_has_a_reason() {
    let pages = reserve_pages();
    let bench = Bench::new();
    let mut options = options(&bench);
    let namespaces = connect_roles(&mut options);
    let mut runs = Runs { bench, options, coverage: Coverage::of_all_profiles(reasons()) };
    runs.here(Profile::Full, &[]);
    runs.elsewhere();
    runs.nearest_points();
    runs.void_again();
    runs.in_guests();
    runs.faults_again();
    drop((pages, namespaces));

    let coverage = runs.coverage;
    assert!(coverage.faults.is_empty(), "failed and never passed: {:#?}", coverage.faults);
    let unexplained = coverage.unsettled();
    let unexplained: Vec<_> =
        unexplained.iter().map(|level| (level, coverage.failures(None, level))).collect();
    assert!(unexplained.is_empty(), "no value, and no reason for that: {unexplained:#?}");
    let nothing = coverage.experiments_without_a_level();
    assert!(nothing.is_empty(), "no level is measured: {nothing:?}");

    let others = coverage.declared.keys().filter(|level| !coverage.measured.contains(*level));
    let others = others.map(|level| (level.clone(), why_not_measured(&coverage, level)));
    let is_wasm_measured = std::env::var_os(WASM_MEASURED).is_some();
    let others = others.filter(|(level, why)| !(is_wasm_measured && WASM.explains(level, why)));
    for (what, why) in grouped(others, &coverage.declared) {
        note(&what, &why);
    }
    for (what, why) in NEVER {
        note(what, &why);
    }
}
