//! Tests of the rules by which a level counts as measured or absent, and of the lists.

use std::collections::BTreeMap;

use lab::point::Point;
use lab::sample::{Failure, FailureKind, Sample};

use crate::coverage::{Coverage, ExperimentLevel, SUITES};
use crate::harness::Bench;
use crate::lists::{
    ABSENT, ELSEWHERE, FAILS, WITHOUT_HUGE_PAGES, WITHOUT_RIGHTS, WITHOUT_SETTINGS,
};
use crate::notes::grouped;

const UNCHANGED: &str = "this load changed the core clock by only 0.02%";

fn coverage() -> Coverage {
    Coverage::of_all_profiles(ABSENT.to_vec())
}

fn sample(experiment: &str, point: &Point, result: Result<f64, Failure>) -> Sample {
    let values = result.iter().map(|value| ("time".to_owned(), *value)).collect::<BTreeMap<_, _>>();
    let (experiment, point) = (experiment.to_owned(), point.clone());
    Sample { experiment, point, values, error: result.err(), ..Sample::default() }
}

fn unavailable(why: &str) -> Result<f64, Failure> {
    Err(Failure::unavailable(why, "use another machine"))
}

/// Returns a level, and the point that is measured for it.
fn nearest(coverage: &Coverage, experiment: &str, level: &str) -> (ExperimentLevel, Point) {
    let level = ExperimentLevel::parse(experiment, level);
    let point = coverage.declared[&level].point.clone();
    (level, point)
}

#[test]
fn a_level_that_fails_with_a_level_of_another_factor_is_not_absent() {
    let mut coverage = coverage();
    let clock = "crossing/clock";
    let (getppid, near) = nearest(&coverage, clock, "trip=getppid");
    let (other_core, changed) = nearest(&coverage, clock, "load=other-core");
    assert_eq!((near.text("load"), changed.text("load")), ("none", "other-core"));
    coverage.add_samples(None, &[sample(clock, &changed, unavailable(UNCHANGED))]);
    // Its nearest point has the trip of the baseline, getppid.
    assert_eq!(changed.text("trip"), "getppid");
    assert!(coverage.why_absent(&other_core).unwrap().contains("by only 0.02%"));
    assert_eq!(coverage.why_absent(&getppid), None);
    let unsettled = coverage.unsettled();
    assert!(unsettled.contains(&getppid) && !unsettled.contains(&other_core));
    // The reason is not one for lacking a trip, even at its nearest point.
    coverage.add_samples(None, &[sample(clock, &near, unavailable(UNCHANGED))]);
    assert!(coverage.unsettled().contains(&getppid));
    coverage.add_samples(None, &[sample(clock, &near, Ok(1.0))]);
    assert!(!coverage.unsettled().contains(&getppid));
}

#[test]
fn what_a_guest_has_is_absent_only_if_the_guest_cannot_measure_it() {
    let mut coverage = coverage();
    let (level, point) = nearest(&coverage, "crossing/one-way", "kind=invalid-opcode");
    let (intercepted, guest) = ("KVM intercepts invalid opcodes", "nested-clock");
    let add = |coverage: &mut Coverage, guest: Option<&str>, why: &str| {
        coverage.add_samples(guest, &[sample("crossing/one-way", &point, unavailable(why))]);
    };
    add(&mut coverage, None, "/dev/kvm does not exist");
    assert_eq!(coverage.absence(None, &level).unwrap().1, Some(guest));
    add(&mut coverage, Some("nested"), intercepted);
    assert_eq!(coverage.why_absent(&level), None, "another guest says nothing about it");
    add(&mut coverage, Some(guest), intercepted);
    let why = coverage.why_absent(&level).unwrap();
    assert!(why.contains("/dev/kvm") && why.contains("in the guest nested-clock"), "{why}");
    // Each failure needs a listed reason.
    add(&mut coverage, Some(guest), "something else");
    assert_eq!(coverage.why_absent(&level), None);
}

#[test]
fn a_fault_in_a_guest_is_not_mended_by_a_success_elsewhere() {
    let mut coverage = coverage();
    let (_, point) = nearest(&coverage, "copy/throughput", "memory=heap");
    let throughput = |result| sample("copy/throughput", &point, result);
    coverage.add_samples(Some("plain"), &[throughput(Err(Failure::check("torn")))]);
    coverage.add_samples(None, &[throughput(Ok(1.0))]);
    assert_eq!(coverage.faults.len(), 1);
    coverage.add_samples(Some("plain"), &[throughput(Ok(1.0))]);
    assert!(coverage.faults.is_empty());
    // An unavailable point is no fault, and a void one measures nothing.
    let void = |values: Sample| Sample { void: Some("a stall".into()), ..values };
    let mut other = Coverage::of_all_profiles(Vec::new());
    let empty = Sample { values: BTreeMap::new(), ..throughput(Ok(1.0)) };
    other.add_samples(None, &[throughput(unavailable("nothing here")), void(empty)]);
    assert!(other.faults.is_empty() && other.measured.is_empty() && other.busy.is_empty());
    // A void sample with values shows that the level runs, on a busy machine.
    let (heap, _) = nearest(&other, "copy/throughput", "memory=heap");
    assert!(other.unsettled().contains(&heap));
    other.add_samples(None, &[void(throughput(Ok(1.0)))]);
    assert_eq!(other.busy.get(&heap).map(String::as_str), Some("a stall"));
    assert!(!other.unsettled().contains(&heap) && !other.measured.contains(&heap));
    // It is void while nothing else happened in its nearest point.
    let mut busy = Coverage::of_all_profiles(Vec::new());
    let (heap, _) = nearest(&busy, "copy/throughput", "memory=heap");
    assert!(!busy.is_void(&heap));
    busy.add_samples(None, &[throughput(Err(Failure::new(FailureKind::Void, "a stall")))]);
    assert!(busy.is_void(&heap));
    busy.add_samples(None, &[throughput(unavailable("nothing here"))]);
    assert!(!busy.is_void(&heap));
}

#[test]
fn the_suites_are_those_of_the_program_without_the_one_that_tests_it() {
    let bench = Bench::new();
    let listed: serde_json::Value = serde_json::from_str(&bench.ok(&["list", "--json"])).unwrap();
    let names =
        listed["suites"].as_array().unwrap().iter().map(|one| one["suite"].as_str().unwrap());
    let names: Vec<_> = names.filter(|name| *name != "planted").collect();
    assert_eq!(names, SUITES.map(|suite| suite.name()));
}

#[test]
fn levels_that_lack_for_one_cause_are_one_note_that_names_them() {
    let coverage = coverage();
    let level = |text: &str| (ExperimentLevel::parse("enclave/ecall", text), "no SGX".to_owned());
    let heap = ExperimentLevel::parse("enclave/heap", "kind=sgx");
    let mut absent = vec![level("kind=sgx"), (heap, "no SGX".to_owned())];
    absent.extend((1..=9).map(|count| level(&format!("threads={count}"))));
    // Measured numbers differ, names with digits too.
    let slow = |factor: &str, why: &str| {
        (ExperimentLevel::parse("crossing/one-way", factor), why.to_owned())
    };
    absent.extend([
        slow("route=guest", "ring 0 takes 3328 ticks (35.7%)"),
        slow("stamp=fenced", "ring 0 takes 3201 ticks (34%)"),
        slow("stamp=plain", "no AVX-512"),
        slow("kind=trap", "no AVX2"),
    ]);
    // All forms of a class are the class.
    let listed = coverage.declared.keys().filter(|one| one.experiment == "bounds/instructions");
    let listed = listed.filter(|one| one.level.starts_with("bnd") || one.level == "rdpkru");
    absent.extend(listed.map(|one| (one.clone(), "not here".to_owned())));
    let note = |what: &str, why: &str| (what.to_owned(), why.to_owned());
    assert_eq!(
        grouped(absent.into_iter(), &coverage.declared),
        [
            note("bounds/instructions: form=class mpx,rdpkru", "not here"),
            note("crossing/one-way: stamp=plain", "no AVX-512"),
            note("crossing/one-way: kind=trap", "no AVX2"),
            note("crossing/one-way: route=guest stamp=fenced", "ring 0 takes 3328 ticks (35.7%)"),
            note("enclave/ecall: kind=sgx threads=1,2,3,4,5,6,7,8,9", "no SGX"),
            note("enclave/heap: kind=sgx", "no SGX"),
        ]
    );
}

#[test]
fn a_form_that_a_guest_has_is_absent_only_if_the_guest_fails_too() {
    let mut coverage = coverage();
    let (level, point) = nearest(&coverage, "bounds/instructions", "form=rdpkru");
    let add = |coverage: &mut Coverage, guest: Option<&str>, result| {
        coverage.add_samples(guest, &[sample("bounds/instructions", &point, result)]);
    };
    add(&mut coverage, None, unavailable("this CPU has no PKU (CPUID)"));
    assert_eq!(coverage.absence(None, &level).unwrap().1, Some("plain"));
    // The guest has it, so that it lacks there is no reason.
    let mut lacking = Coverage::of_all_profiles(ABSENT.to_vec());
    add(&mut lacking, None, unavailable("this CPU has no PKU (CPUID)"));
    add(&mut lacking, Some("plain"), unavailable("this CPU has no PKU (CPUID)"));
    assert_eq!(lacking.why_absent(&level), None);
    add(&mut coverage, Some("plain"), Ok(1.0));
    assert!(!coverage.unsettled().contains(&level));
}

#[test]
fn the_levels_of_all_profiles_are_declared_and_so_is_what_the_lists_name() {
    let coverage = coverage();
    let of_profile = |name: &str| coverage.declared.values().any(|it| it.profile.name() == name);
    assert!(["full", "standard", "quick"].iter().all(|name| of_profile(name)));
    let is_declared = |experiment: &str, level: &str| {
        coverage.declared.contains_key(&ExperimentLevel::parse(experiment, level))
    };
    let (experiment, level, _) = FAILS;
    assert!(is_declared(experiment, level));
    for (guest, experiment, level, _) in ELSEWHERE {
        assert!(is_declared(experiment, level), "{experiment} {level}");
        vm::declaration::find(guest).unwrap();
    }
    for one in [ABSENT, WITHOUT_SETTINGS, WITHOUT_RIGHTS, WITHOUT_HUGE_PAGES].concat() {
        let is_explained = |level: &ExperimentLevel| one.explains(level, one.why);
        assert!(coverage.declared.keys().any(is_explained), "{one:?}");
        if let Some(guest) = one.guest {
            vm::declaration::find(guest).unwrap();
        }
    }
}
