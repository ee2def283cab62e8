//! Each round trip is made, counted and takes a plausible time.

#![allow(clippy::unwrap_used, clippy::expect_used)] // In functions that tests share too.

use std::sync::Mutex;
use std::time::Duration;

use crossing::trips::{By, Conditions, Cpus, METRICS, Trip, TripParams, Trips};
use lab::histogram::decode_histogram;
use lab::measure::Measurement;
use lab::sample::{Failure, FailureKind};
use machine::topology::allowed_cpus;
use machine::tsc::Tsc;

const ALL: [Trip; 15] = [
    Trip::None,
    Trip::Getppid,
    Trip::GetppidLibc,
    Trip::UnknownSyscall,
    Trip::FaultAnonymous,
    Trip::FaultZeroPage,
    Trip::FaultFile,
    Trip::FaultShared,
    Trip::Sigsegv,
    Trip::BreakpointSignal,
    Trip::Futex,
    Trip::Pipe,
    Trip::IoUring,
    Trip::IoUringBatched,
    Trip::Userfaultfd,
];

/// Held by who measures: trips on one CPU at the same time would be in each other's times.
static ALONE: Mutex<()> = Mutex::new(());

fn setup(trip: Trip) -> TripParams {
    TripParams { trip, cpus: Cpus::One, by: By::Tollgate }
}

/// Makes the trip in a thread of its own, which it pins; none where this machine cannot.
fn made(setup: TripParams, budget: Duration) -> Option<Measurement> {
    let cpus: Vec<usize> = allowed_cpus().into_iter().rev().collect();
    let conditions = Conditions { cpus: &cpus, budget, seed: 1, folder: std::env::temp_dir() };
    let _alone = ALONE.lock();
    let make = || Trips::default().measure_trip(setup, &conditions, Tsc::get().unwrap());
    let made = std::thread::scope(|scope| scope.spawn(make).join().unwrap());
    match made {
        Ok(measurement) => Some(measurement),
        Err(Failure { kind: FailureKind::Void, why, .. }) => {
            Some(Measurement { void: Some(why), ..Measurement::default() })
        }
        Err(failure) => {
            assert_eq!(failure.kind, FailureKind::Unavailable, "{setup:?}: {failure}");
            machine::untested::note(&format!("{setup:?}"), &failure);
            None
        }
    }
}

/// Whether all that was measured is declared, and hangs together.
fn plausible(setup: TripParams, told: &Measurement) {
    let value = |name: &str| told.values.get(name).copied();
    for name in told.values.keys().chain(told.histograms.keys()) {
        assert!(METRICS.iter().any(|metric| metric.name == name), "{name} is not declared");
    }
    let (time, least) = (value("time").unwrap(), value("time_min").unwrap());
    assert!(least > 0.0 && least <= time && time < 1e6, "{setup:?} {told:?}");
    assert!(value("operations").unwrap() >= 5.0);
    if let Some(each) = value("each") {
        assert!(value("each_min").unwrap() <= each && each <= value("each_p999").unwrap());
        let histogram = decode_histogram(&told.histograms["each"]).unwrap();
        assert!(histogram.len() >= 32, "{setup:?} {}", histogram.len());
        // The same trip in two ways, each without what others took of the CPU.
        let ratio = value("each_min").unwrap() / least;
        assert!((0.1..10.0).contains(&ratio), "{setup:?} {told:?}");
    }
}

#[test]
fn every_trip_is_made_and_takes_a_plausible_time() {
    for trip in ALL {
        let Some(told) = made(setup(trip), Duration::from_millis(2)) else { continue };
        assert!(told.covariates.is_empty());
        match &told.void {
            Some(why) => machine::untested::note(&format!("{trip:?}"), why),
            None => plausible(setup(trip), &told),
        }
    }
}

#[test]
fn two_threads_have_a_cpu_each_and_their_distance_is_told() {
    if allowed_cpus().len() < 2 {
        return machine::untested::note("round trips between two CPUs", &"there is one CPU");
    }
    for trip in [Trip::Futex, Trip::Pipe, Trip::Userfaultfd] {
        let two = TripParams { cpus: Cpus::Two, ..setup(trip) };
        let Some(told) = made(two, Duration::from_millis(2)) else { continue };
        if told.values.contains_key("time") {
            plausible(two, &told);
        }
        // Where others held the CPUs it is unknown, and the sample says so.
        assert!(told.covariates.contains_key("proximity") || told.void.is_some());
    }
}

#[test]
fn faults_are_counted_one_a_page_or_fewer_of_a_file() {
    for trip in [Trip::FaultAnonymous, Trip::FaultZeroPage, Trip::FaultShared] {
        let told = made(setup(trip), Duration::from_millis(2)).unwrap();
        let value = |name: &str| told.values[name];
        assert_eq!(value("faults_made"), value("pages_touched"), "{trip:?}");
        assert!(value("faults_counted") >= value("faults_made"), "{trip:?}");
        assert!(value("operations") <= value("faults_made"));
    }
    for by in [By::Tollgate, By::Lmbench] {
        let file = TripParams { by, ..setup(Trip::FaultFile) };
        let told = made(file, Duration::from_millis(2)).unwrap();
        if let Some(why) = &told.void {
            machine::untested::note("faults of a file", why);
            continue;
        }
        plausible(file, &told);
        let (faults, pages) = (told.values["faults_made"], told.values["pages_touched"]);
        assert!(faults >= pages / 512.0 && faults <= pages, "{faults} {pages}");
        let ratio = told.values["time"] * faults / (told.values["time_per_page"] * pages);
        assert!((ratio - 1.0).abs() < 1e-6, "{ratio}");
    }
}

/// Pairs of short samples, taken in turn: the median of their ratios is right as long as fewer than half of
/// the pairs are disturbed.
const PAIRS: usize = 9;
/// How often a sample is made that is void.
const TRIES: usize = 10;

/// The median ratio of one setup's time to another's; nothing where this machine lacks either, or where a
/// sample stays void, which is noted.
fn ratio(one: TripParams, other: TripParams, metric: &str) -> Option<f64> {
    let value = |setup| {
        let mut last = String::new();
        for _ in 0..TRIES {
            let told = made(setup, Duration::from_millis(5))?;
            match told.void {
                None => return told.values.get(metric).copied(),
                Some(why) => last = why,
            }
        }
        let why = format!("{TRIES} samples were void; the last: {last}");
        machine::untested::note(&format!("what {setup:?} costs beside another"), &why);
        None
    };
    let pairs: Option<Vec<f64>> = (0..PAIRS).map(|_| Some(value(one)? / value(other)?)).collect();
    let ratio = lab::statistics::median(&pairs?);
    println!("{one:?} / {other:?}: {ratio:?}");
    ratio
}

#[test]
fn lmbenchs_loop_agrees_on_what_a_fault_costs() {
    let lmbench = TripParams { by: By::Lmbench, ..setup(Trip::FaultFile) };
    if let Some(ratio) = ratio(lmbench, setup(Trip::FaultFile), "time_min") {
        assert!((0.7..1.4).contains(&ratio), "{ratio}");
    }
}

#[test]
fn perf_agrees_on_what_a_system_call_costs() {
    let by_perf = TripParams { by: By::Perf, ..setup(Trip::GetppidLibc) };
    if let Some(ratio) = ratio(by_perf, setup(Trip::GetppidLibc), "time") {
        assert!((0.7..1.4).contains(&ratio), "{ratio}");
    }
}

/// What holds on any processor: the one enters the kernel more often, or not at all.
#[test]
fn what_enters_the_kernel_more_often_costs_more() {
    for (less, more) in [
        (Trip::None, Trip::Getppid),
        (Trip::Getppid, Trip::Sigsegv),
        (Trip::Getppid, Trip::BreakpointSignal),
        (Trip::Getppid, Trip::Pipe),
        (Trip::FaultZeroPage, Trip::Userfaultfd),
    ] {
        if let Some(ratio) = ratio(setup(more), setup(less), "time_min") {
            assert!(ratio > 1.0, "{more:?} costs {ratio} of {less:?}");
        }
    }
}

#[test]
fn what_cannot_be_measured_says_why() {
    for (trip, cpus, by) in [
        (Trip::Getppid, Cpus::Two, By::Tollgate),
        (Trip::Pipe, Cpus::One, By::Perf),
        (Trip::Futex, Cpus::One, By::Lmbench),
    ] {
        let failure = crossing::trips::available(TripParams { trip, cpus, by }).unwrap_err();
        assert!(failure.kind == FailureKind::Unavailable && failure.remedy.is_some());
    }
    let none = Conditions { cpus: &[], budget: Duration::ZERO, seed: 0, folder: "/".into() };
    let refused = Trips::default().measure_trip(setup(Trip::None), &none, Tsc::get().unwrap());
    assert!(refused.unwrap_err().why.contains("no CPU"));
}
