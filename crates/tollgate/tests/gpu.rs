//! Copies to memory of a GPU with a driver over memory of the host, which the dynamic linker finds as it finds the
//! system's driver.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod harness;

use std::path::Path;
use std::process::Output;

use harness::Bench;
use lab::sample::{Failure, FailureKind, Sample};

/// Builds the driver of the suite's tests as `libcuda.so.1` in the folder of the bench.
fn build(bench: &Bench, definitions: &[&str]) {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../suites/copy/tests/gpu/driver.c");
    let flags: Vec<_> = definitions.iter().map(|name| format!("-D{name}")).collect();
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    harness::shared_object(bench, "libcuda.so.1", Path::new(source), &flags);
}

/// Runs the program with the driver of the bench.
fn run(bench: &Bench, arguments: &[&str]) -> Output {
    bench.command(arguments).env("LD_LIBRARY_PATH", bench.path()).output().unwrap()
}

/// Measures some points of `copy/gpu` once with a driver of these definitions.
fn measure(definitions: &[&str]) -> (Option<i32>, Vec<Sample>) {
    let bench = Bench::new();
    build(&bench, definitions);
    let output = run(
        &bench,
        &[
            "run",
            "copy/gpu",
            "--rounds",
            "1",
            "--quiet",
            "--where",
            "length=4 KiB",
            "--profile",
            "full",
        ],
    );
    let samples = bench.journal().samples.into_iter();
    let is_gpu = |sample: &Sample| {
        sample.experiment == "copy/gpu" && sample.point.text("memory").starts_with("gpu")
    };
    let samples: Vec<_> = samples.filter(is_gpu).filter(|one| !one.twin).collect();
    println!("{}", String::from_utf8_lossy(&output.stderr));
    (output.status.code(), samples)
}

#[test]
fn copies_by_the_driver_and_through_the_bar_are_measured_and_verified() {
    let (_, samples) = measure(&[]);
    let valid: Vec<_> = samples.iter().filter(|sample| sample.error.is_none()).collect();
    for memory in ["gpu", "gpu-bar"] {
        for direction in ["write", "read"] {
            let levels = |sample: &&&Sample| {
                sample.point.text("memory") == memory && sample.point.text("direction") == direction
            };
            let Some(sample) = valid.iter().find(levels) else {
                // On a busy machine all attempts may be void.
                let all: Vec<_> = samples.iter().filter(|one| levels(&one)).collect();
                let is_void = |one: &&Sample| {
                    one.void.is_some()
                        || one.error.as_ref().is_some_and(|it| it.kind == FailureKind::Void)
                };
                assert!(!all.is_empty() && all.into_iter().all(|one| is_void(&one)), "{samples:?}");
                machine::untested::note(
                    &format!("{direction} of {memory}"),
                    &"all samples are void",
                );
                continue;
            };
            assert_eq!(sample.values["checked"], 4096.0, "{sample:?}");
            assert!(sample.void.is_some() || sample.values["throughput"] > 0.0, "{sample:?}");
            assert_eq!(sample.covariates["gpu"].as_str(), "Test GPU, CUDA 12.4");
        }
    }
}

#[test]
fn a_driver_that_loses_bytes_fails_the_check() {
    let (status, samples) = measure(&["DAMAGED"]);
    assert_eq!(status, Some(1));
    let by_calls = || samples.iter().filter(|sample| sample.point.text("memory") == "gpu");
    assert!(by_calls().count() >= 2);
    // On a busy machine attempts are void before the first copy, and a failure of kind void marks their point.
    let made = by_calls().filter(|sample| harness::was_made(sample));
    let failures = made.map(|sample| sample.error.as_ref().unwrap());
    let checked: Vec<_> = failures.filter(|failure| failure.kind != FailureKind::Void).collect();
    if checked.is_empty() {
        machine::untested::note("a driver that loses bytes", &"all samples are void");
    }
    for failure in checked {
        assert_eq!(failure.kind, FailureKind::Check, "{failure}");
    }
}

/// Returns the failures of all samples, which must be of one kind of absence.
fn unavailable(definitions: &[&str]) -> Vec<Failure> {
    let (_, samples) = measure(definitions);
    assert_eq!(samples.len(), 4, "{samples:?}");
    let failures: Vec<_> = samples.into_iter().map(|sample| sample.error.unwrap()).collect();
    assert!(failures.iter().all(|it| it.kind == FailureKind::Unavailable), "{failures:?}");
    failures
}

#[test]
fn an_absent_gpu_is_a_result_with_a_remedy() {
    for failure in unavailable(&["NO_GPU"]) {
        assert!(failure.why.contains("cuInit: CUDA_ERROR_NO_DEVICE (100)"), "{failure}");
        assert!(failure.remedy.unwrap().contains("nvidia-smi"));
    }
    for failure in unavailable(&["FULL"]) {
        assert!(failure.why.contains("CUDA_ERROR_OUT_OF_MEMORY (2): out of memory"), "{failure}");
    }
}

#[test]
fn the_doctor_reports_the_gpu_or_the_fix() {
    let state = |definitions: &[&str]| {
        let bench = Bench::new();
        build(&bench, definitions);
        let output = run(&bench, &["doctor", "--json"]);
        let text = String::from_utf8(output.stdout).unwrap();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        find(&json).unwrap_or_else(|| panic!("no capability gpu: {text}"))
    };
    let present = state(&[]);
    assert!(present.contains("Test GPU, CUDA 12.4"), "{present}");
    let absent = state(&["NO_GPU"]);
    assert!(absent.contains("CUDA_ERROR_NO_DEVICE") && absent.contains("nvidia-smi"), "{absent}");
}

/// Returns the text of the object named `gpu`.
fn find(json: &serde_json::Value) -> Option<String> {
    match json {
        serde_json::Value::Object(fields) if fields.get("name").is_some_and(|it| it == "gpu") => {
            Some(json.to_string())
        }
        serde_json::Value::Object(fields) => fields.values().find_map(find),
        serde_json::Value::Array(all) => all.iter().find_map(find),
        _ => None,
    }
}
