//! Every round trip is made, counted and takes a plausible time.

#![allow(clippy::unwrap_used, clippy::expect_used)] // Also in functions that tests share.

use std::sync::Mutex;
use std::time::Duration;

use crossing::trips::{By, Conditions, Cpus, METRICS, Trip, TripParams, Trips};
use lab::histogram::decode_histogram;
use lab::measure::Measurement;
use lab::proximity::ROUND_TRIP;
use lab::sample::{Failure, FailureKind};
use machine::topology::allowed_cpus;
use machine::tsc::Tsc;

/// Lock of a measurement, because concurrent trips on one CPU would disturb each other.
static MEASURING: Mutex<()> = Mutex::new(());

fn params(trip: Trip) -> TripParams {
    TripParams { trip, cpus: Cpus::One, by: By::Tollgate }
}

/// Measures a trip on a new thread, which it pins; notes and returns `None` if it is unavailable.
fn measure(params: TripParams, budget: Duration) -> Option<Measurement> {
    let cpus: Vec<usize> = allowed_cpus().into_iter().rev().collect();
    let conditions = Conditions { cpus: &cpus, budget, seed: 1, folder: std::env::temp_dir() };
    let _lock = MEASURING.lock();
    let body = || Trips::default().measure_trip(params, &conditions, Tsc::get().unwrap());
    let result = std::thread::scope(|scope| scope.spawn(body).join().unwrap());
    match result {
        Ok(measurement) => Some(measurement),
        Err(Failure { kind: FailureKind::Void, why, .. }) => {
            Some(Measurement { void: Some(why), ..Measurement::default() })
        }
        Err(failure) => {
            assert_eq!(failure.kind, FailureKind::Unavailable, "{params:?}: {failure}");
            machine::untested::note(&format!("{params:?}"), &failure);
            None
        }
    }
}

/// Checks that all metrics are declared and consistent.
fn check_plausible(params: TripParams, measurement: &Measurement) {
    let value = |name: &str| measurement.values.get(name).copied();
    for name in measurement.values.keys().chain(measurement.histograms.keys()) {
        assert!(METRICS.iter().any(|metric| metric.name == name), "{name} is not declared");
    }
    let (time, min) = (value("time").unwrap(), value("time_min").unwrap());
    // On a busy machine two threads wait milliseconds for each other.
    assert!(min > 0.0 && min <= time && time < 1e8, "{params:?} {measurement:?}");
    assert!(value("operations").unwrap() >= 5.0);
    if let Some(each) = value("each") {
        assert!(value("each_min").unwrap() <= each && each <= value("each_p999").unwrap());
        let histogram = decode_histogram(&measurement.histograms["each"]).unwrap();
        assert!(histogram.len() >= 32, "{params:?} {}", histogram.len());
        // Two measurements of the same trip. On a busy machine every batch between two CPUs contains a wait.
        let ratio = value("each_min").unwrap() / min;
        let lowest = if params.cpus == Cpus::Two { 1e-4 } else { 0.1 };
        assert!((lowest..10.0).contains(&ratio), "{params:?} {measurement:?}");
    }
}

#[test]
fn every_trip_is_made_and_takes_a_plausible_time() {
    for trip in Trip::ALL {
        let Some(measurement) = measure(params(trip), Duration::from_millis(2)) else { continue };
        assert!(measurement.covariates.is_empty());
        match &measurement.void {
            Some(why) => machine::untested::note(&format!("{trip:?}"), why),
            None => check_plausible(params(trip), &measurement),
        }
    }
}

#[test]
fn two_threads_on_two_cpus_report_their_proximity() {
    if allowed_cpus().len() < 2 {
        return machine::untested::note("round trips between two CPUs", &"only one CPU");
    }
    for trip in [Trip::Futex, Trip::Pipe, Trip::Userfaultfd] {
        let two = TripParams { cpus: Cpus::Two, ..params(trip) };
        let Some(measurement) = measure(two, Duration::from_millis(2)) else { continue };
        if measurement.values.contains_key("time") {
            check_plausible(two, &measurement);
        }
        // If the CPUs were busy the proximity is unknown and the sample void.
        assert!(measurement.covariates.contains_key(ROUND_TRIP) || measurement.void.is_some());
    }
}

#[test]
fn every_page_faults_once_except_those_of_a_file() {
    for trip in [Trip::FaultAnonymous, Trip::FaultZeroPage, Trip::FaultShared] {
        let measurement = measure(params(trip), Duration::from_millis(2)).unwrap();
        let value = |name: &str| measurement.values[name];
        assert_eq!(value("faults_made"), value("pages_touched"), "{trip:?}");
        assert!(value("faults_counted") >= value("faults_made"), "{trip:?}");
        assert!(value("operations") <= value("faults_made"));
    }
    for by in [By::Tollgate, By::Lmbench] {
        let file = TripParams { by, ..params(Trip::FaultFile) };
        let measurement = measure(file, Duration::from_millis(2)).unwrap();
        if let Some(why) = &measurement.void {
            machine::untested::note("faults of a file", why);
            continue;
        }
        check_plausible(file, &measurement);
        let (faults, pages) =
            (measurement.values["faults_made"], measurement.values["pages_touched"]);
        assert!(faults >= pages / 512.0 && faults <= pages, "{faults} {pages}");
        let ratio =
            measurement.values["time"] * faults / (measurement.values["time_per_page"] * pages);
        assert!((ratio - 1.0).abs() < 1e-6, "{ratio}");
    }
}

/// Pairs of short, alternating samples: the median of their ratios is valid if fewer than half of the pairs are
/// disturbed.
const PAIRS: usize = 9;
/// Maximum attempts for a sample that is not void.
const MAX_ATTEMPTS: usize = 10;

/// Returns the median ratio of the times of two trips; `None`, with a note, if either is unavailable or stays void.
fn ratio(one: TripParams, other: TripParams, metric: &str) -> Option<f64> {
    let value = |params| {
        let mut last = String::new();
        for _ in 0..MAX_ATTEMPTS {
            let measurement = measure(params, Duration::from_millis(5))?;
            match measurement.void {
                None => return measurement.values.get(metric).copied(),
                Some(why) => last = why,
            }
        }
        let why = format!("{MAX_ATTEMPTS} void samples; the last: {last}");
        machine::untested::note(&format!("the ratio of {params:?} to another trip"), &why);
        None
    };
    let pairs: Option<Vec<f64>> = (0..PAIRS).map(|_| Some(value(one)? / value(other)?)).collect();
    let ratio = lab::statistics::median(&pairs?);
    println!("{one:?} / {other:?}: {ratio:?}");
    ratio
}

#[test]
fn the_lmbench_loop_agrees_on_the_time_of_a_fault() {
    let lmbench = TripParams { by: By::Lmbench, ..params(Trip::FaultFile) };
    if let Some(ratio) = ratio(lmbench, params(Trip::FaultFile), "time_min") {
        assert!((0.7..1.4).contains(&ratio), "{ratio}");
    }
}

#[test]
fn perf_agrees_on_the_time_of_a_system_call() {
    let by_perf = TripParams { by: By::Perf, ..params(Trip::GetppidLibc) };
    if let Some(ratio) = ratio(by_perf, params(Trip::GetppidLibc), "time") {
        assert!((0.7..1.4).contains(&ratio), "{ratio}");
    }
}

/// On any CPU, a trip that enters the kernel more often takes longer.
#[test]
fn more_entries_into_the_kernel_take_longer() {
    for (less, more) in [
        (Trip::None, Trip::Getppid),
        (Trip::Getppid, Trip::Sigsegv),
        (Trip::Getppid, Trip::BreakpointSignal),
        (Trip::Getppid, Trip::Pipe),
        (Trip::FaultZeroPage, Trip::Userfaultfd),
    ] {
        if let Some(ratio) = ratio(params(more), params(less), "time_min") {
            assert!(ratio > 1.0, "{more:?} takes {ratio} times as long as {less:?}");
        }
    }
}

#[test]
fn impossible_trips_are_unavailable_with_a_fix() {
    for (trip, cpus, by) in [
        (Trip::Getppid, Cpus::Two, By::Tollgate),
        (Trip::Pipe, Cpus::One, By::Perf),
        (Trip::Futex, Cpus::One, By::Lmbench),
    ] {
        let failure = crossing::trips::available(TripParams { trip, cpus, by }).unwrap_err();
        assert!(failure.kind == FailureKind::Unavailable && failure.remedy.is_some());
    }
    let none = Conditions { cpus: &[], budget: Duration::ZERO, seed: 0, folder: "/".into() };
    let refused = Trips::default().measure_trip(params(Trip::None), &none, Tsc::get().unwrap());
    assert!(refused.unwrap_err().why.contains("no allowed CPU"));
}
