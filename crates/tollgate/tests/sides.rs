//! `tollgate compare --run`: two builds or settings within one run.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod harness;

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use harness::{Bench, file};
use lab::journal::{self, Run};
use lab::message::PROTOCOL;
use serde_json::Value;

const SLOWER: &str = "TOLLGATE_PLANTED_EFFECT=20%";

/// Returns the ratios new / old with their verdicts, of points whose samples are not void in every round.
fn ratios(printed: &Value) -> Vec<(f64, Value)> {
    let rows = printed["comparisons"][0]["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 7);
    let ratio = |row: &Value| Some((row["ratio"]["ratio"].as_f64()?, row["resolution"].clone()));
    let ratios: Vec<_> = rows.iter().filter_map(ratio).collect();
    if ratios.len() < rows.len() {
        machine::untested::note("a ratio of two sides", &"all samples of a side are void");
    }
    ratios
}

fn sided(bench: &Bench) -> Run {
    journal::open(&journal::newest(&bench.path().join("results/compare")).unwrap()).unwrap()
}

/// Returns a copy of the program that is another build: its digest differs.
fn other_build(bench: &Bench) -> PathBuf {
    let mut program = std::fs::read(env!("CARGO_BIN_EXE_tollgate")).unwrap();
    program.push(0);
    let path = bench.path().join("tollgate-old");
    std::fs::write(&path, program).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    path
}

#[test]
fn a_setting_that_slows_a_program_is_found_and_an_equal_build_is_not() {
    let bench = Bench::new();
    let measure = |old: &str, new: &str| {
        let words = ["compare", "--run", old, new, "planted/delay", "--rounds", "12", "--fresh"];
        bench.json(&[&words[..], &["--json"]].concat())
    };
    let slower = measure("-", SLOWER);
    let ratios_of = ratios(&slower);
    let is_near = |(ratio, _): &&(f64, Value)| (1.15..1.25).contains(ratio);
    assert!(2 * ratios_of.iter().filter(is_near).count() >= ratios_of.len(), "{slower}");
    assert!(ratios_of.iter().all(|(_, verdict)| verdict != "lower"), "{slower}");
    if !ratios_of.iter().any(|(_, verdict)| verdict == "higher") {
        machine::untested::note("a difference of 20% between sides", &"noise hides it");
    }

    let old = other_build(&bench);
    let equal = measure(old.to_str().unwrap(), "-");
    let ratios_of = ratios(&equal);
    let is_near = |(ratio, _): &&(f64, Value)| (0.97..1.03).contains(ratio);
    assert!(2 * ratios_of.iter().filter(is_near).count() >= ratios_of.len(), "{equal}");
    // One in twenty is resolved by chance.
    let resolved = ratios_of.iter().filter(|(_, verdict)| verdict.is_string()).count();
    assert!(resolved <= 3, "{equal}");
    let run = sided(&bench);
    // Two calibrations of the time-stamp counter would differ by a constant factor.
    let mut hertz = run.samples.iter().filter_map(|one| Some(one.clock?.tsc_hertz));
    let first = hertz.next();
    assert!(hertz.all(|one| Some(one) == first));
    let sides = &run.record.sides;
    assert_eq!(sides[0].side.program, Some(old.canonicalize().unwrap()));
    assert!(sides[0].digest.is_some() && sides[0].digest != sides[1].digest, "{sides:?}");
    assert_eq!(sides[0].version, sides[1].version);
}

#[test]
fn both_sides_measure_each_point_one_after_the_other() {
    let bench = Bench::new();
    let sides = ["compare", "--run", "-", "nice=3", "--rounds", "4"];
    bench.ok(&[&sides[..], &["planted/guest", "--where", "place=guest"]].concat());
    let words = [&sides[..], &["planted/search", "planted/roles"]].concat();
    let printed = bench.ok(&words);
    assert!(
        printed.contains("new  nice=3; version ") && printed.contains("new / old"),
        "{printed}"
    );
    let run = sided(&bench);
    let samples = |experiment: &str| -> Vec<_> {
        let of = run.samples.iter().filter(|one| one.experiment == experiment && one.is_final());
        of.map(|one| (one.round, one.point.without(["side"]))).collect()
    };
    for (experiment, points) in [("planted/search", 3), ("planted/roles", 2), ("planted/guest", 1)]
    {
        let samples = samples(experiment);
        // Both sides of each point, and both twins of one.
        assert_eq!(samples.len(), 4 * (2 * points + 2), "{experiment}");
        assert_eq!(samples.chunk_by(|a, b| a == b).count(), 4 * points, "{experiment}");
    }
    // A second call measures nothing and prints the same; other sides are refused.
    let count = run.samples.len();
    bench.ok(&words);
    assert_eq!(sided(&bench).samples.len(), count);
    let line = bench.refused(&["compare", "--run", "-", "nice=4", "planted/search"], 2);
    assert!(line.contains("the run has 'this program' and 'nice=3', now it is"), "{line}");
    let results = ["--results", "results/compare"];
    assert!(bench.ok(&[&["show"][..], &results].concat()).contains("side"));
    for command in ["claims", "plot"] {
        let line = bench.refused(&[&[command][..], &results].concat(), 2);
        assert!(line.contains("compares two sides"), "{line}");
    }
}

#[test]
fn a_side_that_cannot_measure_is_refused_in_one_line() {
    let bench = Bench::new();
    let script = |name: &str, text: &str| {
        let path = file(&bench, name, &format!("#!/bin/sh\n{text}\n"));
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        format!("./{name}")
    };
    let refused = |side: &str, status| {
        bench.refused(&["compare", "--run", "-", side, "planted/search"], status)
    };
    for (side, expected) in [
        ("nowhere", "nowhere: No such file or directory (os error 2); name a tollgate program"),
        ("nise=5", "nise=5: unknown setting; use 'nice=N' or an environment variable"),
    ] {
        let line = refused(side, 2);
        assert!(line.contains(expected), "{line}");
    }
    let other = script("other", "echo usage >&2; exit 2");
    let newer = script("newer", r#"echo '{"greeting":{"protocol":99}}'; read -r rest"#);
    let version =
        format!("its messages have version 99 instead of {PROTOCOL}; name a tollgate program");
    for (side, expected) in [
        (other, "the worker exited with status 2: usage; name a tollgate program"),
        (newer, &version),
    ] {
        let line = refused(&side, 1);
        assert!(line.starts_with("error: cannot start: /") && line.contains(expected), "{line}");
    }
    bench.wait_for_no_processes(harness::TIMEOUT);
}
