//! The verifier in Python shares no code with tollgate; both must agree on every interval and verdict of simulated machines.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use machine::untested;
use serde_json::{Value, json};

use crate::harness::Bench;
use crate::{Entries, journal, read, simulated, write_bundle};

/// Number of simulated machines, and of those of the long test.
const MACHINES: u64 = 4;
const MANY_MACHINES: u64 = 100;

/// Returns a command for the verifier; `None`, with a note, without NumPy.
fn verifier(test: &str) -> Option<Command> {
    let python = || {
        let mut command = Command::new("python3");
        command
            .arg("-B")
            .envs(std::env::var_os("TOLLGATE_PYTHON").map(|path| ("PYTHONPATH", path)));
        command
    };
    let has_numpy = python().args(["-c", "import numpy"]).output();
    if !has_numpy.is_ok_and(|output| output.status.success()) {
        untested::note(test, &"python3 has no NumPy; TOLLGATE_PYTHON names a folder with it");
        return None;
    }
    let program = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scripts/verify.py");
    let mut command = python();
    command.arg(program);
    Some(command)
}

/// Writes the bundle of a simulated machine.
fn bundled(bench: &Bench, seed: u64) -> PathBuf {
    let results = format!("results-{seed}");
    journal::write(&simulated::run(seed), &bench.path().join(&results));
    let name = format!("{seed}.zip");
    bench.ok(&["bundle", "--results", &results, "-o", &name]);
    bench.path().join(name)
}

fn verify(test: &str, bundle: &Path) -> Option<Output> {
    Some(verifier(test)?.arg(bundle).output().unwrap())
}

/// Returns the kinds of the conditions of claims with a value, and the verdicts.
fn kinds_of(bundle: &Path, kinds: &mut BTreeSet<String>) {
    let claims: Value = serde_json::from_slice(&read(bundle)["claims.json"]).unwrap();
    for claim in claims["claims"].as_array().unwrap() {
        let has_value = claim["judgements"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|one| one["values"].as_array().unwrap())
            .any(|one| !one["value"].is_null());
        if has_value {
            let expect = &claim["declared"]["expect"];
            let text = |value: &Value| value.as_str().unwrap_or("published").to_owned();
            kinds.insert(text(&expect["kind"]));
            kinds.insert(text(&claim["verdict"]));
            kinds.extend(expect["form"].as_str().map(String::from));
        }
    }
}

/// Verifies the bundles of simulated machines; returns the kinds of the claims that were judged by values.
fn verify_machines(test: &str, seeds: std::ops::Range<u64>) -> Option<BTreeSet<String>> {
    let bench = Bench::new();
    let mut kinds = BTreeSet::new();
    for seed in seeds {
        let bundle = bundled(&bench, seed);
        let output = verify(test, &bundle)?;
        agrees(&bundle, &output);
        kinds_of(&bundle, &mut kinds);
        std::fs::remove_file(bundle).unwrap();
    }
    Some(kinds)
}

/// Asserts that a bundle verifies without a disagreement.
#[track_caller]
fn agrees(bundle: &Path, output: &Output) {
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {text}{errors}", bundle.display());
    assert!(text.contains(": 0 disagreements, 0 not verified"), "{}: {text}", bundle.display());
}

/// A real machine has values that simulated ones lack, e.g. twins that differ by exactly 0.
#[test]
fn the_verifier_agrees_on_the_stored_run() {
    let bundle = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/run.zip");
    let Some(output) = verify("the_verifier_agrees_on_the_stored_run", &bundle) else { return };
    agrees(&bundle, &output);
}

#[test]
fn the_verifier_agrees_on_simulated_machines() {
    verify_machines("the_verifier_agrees_on_simulated_machines", 0..MACHINES);
}

#[test]
#[ignore = "takes minutes"]
fn long_the_verifier_agrees_on_many_simulated_machines_with_all_kinds_of_claims() {
    let test = "long_the_verifier_agrees_on_many_simulated_machines_with_all_kinds_of_claims";
    let Some(kinds) = verify_machines(test, MACHINES..MANY_MACHINES) else { return };
    for kind in [
        "value",
        "published",
        "every-sample",
        "some-sample",
        "ratio",
        "ranking",
        "winner-changes",
        "shape",
        "rises",
        "falls",
        "flat",
        "saturates",
        "twins-differ-at-most",
        "rounds-differ-at-most",
        "reproduced",
        "contradicted",
        "inconclusive",
        "incomparable",
    ] {
        assert!(kinds.contains(kind), "no {kind} in {kinds:?}");
    }
}

/// Changes the JSON of an entry.
fn changed(entries: &Entries, name: &str, change: impl FnOnce(&mut Value)) -> Entries {
    let mut value = serde_json::from_slice(&entries[name]).unwrap();
    change(&mut value);
    let mut entries = entries.clone();
    entries.insert(name.into(), serde_json::to_vec(&value).unwrap());
    entries
}

/// Returns the first value with an interval.
fn first_interval(claims: &mut Value) -> &mut Value {
    let claims = claims["claims"].as_array_mut().unwrap().iter_mut();
    let judgements = claims.flat_map(|claim| claim["judgements"].as_array_mut().unwrap());
    let mut values = judgements.flat_map(|one| one["values"].as_array_mut().unwrap());
    &mut values.find(|one| one["interval"]["low"].is_f64()).unwrap()["interval"]
}

#[test]
fn the_verifier_finds_each_changed_interval_and_verdict() {
    let test = "the_verifier_finds_each_changed_interval_and_verdict";
    let bench = Bench::new();
    let bundle = bundled(&bench, 1);
    let original = read(&bundle);
    let verified = |entries: &Entries| {
        let path = bench.path().join("changed.zip");
        write_bundle(&path, entries.clone());
        let output = verify(test, &path)?;
        Some((output.status.code(), String::from_utf8(output.stdout).unwrap()))
    };
    let Some((status, text)) = verified(&original) else { return };
    assert_eq!(status, Some(0), "{text}");
    let slightly = |value: &mut Value| *value = json!(value.as_f64().unwrap() * (1.0 + 1e-8));
    let wider = changed(&original, "claims.json", |all| slightly(&mut first_interval(all)["low"]));
    let verdict = changed(&original, "claims.json", |all| {
        let claims = all["claims"].as_array_mut().unwrap();
        let one = claims.iter_mut().find(|one| one["verdict"] == "inconclusive").unwrap();
        one["verdict"] = json!("reproduced");
    });
    let row = changed(&original, "values.json", |all| {
        let experiments = all["experiments"].as_array_mut().unwrap().iter_mut();
        let mut rows = experiments.flat_map(|one| one["rows"].as_array_mut().unwrap());
        let row = rows.find(|one| one["estimate"]["interval"]["high"].is_f64()).unwrap();
        slightly(&mut row["estimate"]["interval"]["high"]);
    });
    for (entries, line) in [
        (wider, "(value, rounds, low, high) of"),
        (verdict, "the verdict is"),
        (row, "the value of"),
    ] {
        let (status, text) = verified(&entries).unwrap();
        assert!(status == Some(1) && text.contains(line), "{text}");
        assert!(text.contains(": 1 disagreement,"), "{text}");
    }
    // Two values of a claim whose points are exchanged: each is right, and neither is that of its points.
    let exchanged = changed(&original, "claims.json", |all| {
        let claims = all["claims"].as_array_mut().unwrap().iter_mut();
        let mut of_claims = claims.map(|one| one["judgements"].as_array_mut().unwrap());
        let has_value = |one: &&mut Value| one["values"][0]["value"].is_f64();
        let judgements = of_claims
            .find(|all| {
                let mut known = all.iter().filter(|one| one["values"][0]["value"].is_f64());
                let first = known.next().map(|one| &one["values"][0]["label"]);
                known.any(|one| first.is_some_and(|first| one["values"][0]["label"] != *first))
            })
            .unwrap();
        let mut known = judgements.iter_mut().filter(has_value);
        let one = &mut known.next().unwrap()["values"][0]["label"];
        let other = known.map(|other| &mut other["values"][0]["label"]).find(|it| *it != one);
        std::mem::swap(one, other.unwrap());
    });
    let (status, text) = verified(&exchanged).unwrap();
    assert!(status == Some(1) && text.contains(": 2 disagreements,"), "{text}");
    let renamed = changed(&original, "claims.json", |all| {
        let claims = all["claims"].as_array_mut().unwrap().iter_mut();
        let values = claims.map(|one| &mut one["judgements"][0]["values"][0]);
        let mut values = values.filter(|one| one["value"].is_f64() && one["label"] != "");
        values.next().unwrap()["label"] = json!("length=3 parsecs");
    });
    let (status, text) = verified(&renamed).unwrap();
    assert!(status == Some(1) && text.contains("no value of such points is computed"), "{text}");
    // A kind of claim that the verifier does not know is listed, not skipped.
    let unknown = changed(&original, "claims.json", |all| {
        let claims = all["claims"].as_array_mut().unwrap().iter_mut();
        let mut known = claims.filter(|one| one["declared"]["expect"]["kind"] == "value");
        let one = known.find(|one| one["judgements"][0]["values"][0]["value"].is_f64()).unwrap();
        one["declared"]["expect"]["kind"] = json!("of another version");
    });
    let (status, text) = verified(&unknown).unwrap();
    assert!(
        status == Some(3) && text.contains("not verified: 1 claim of kind of another version"),
        "{text}"
    );
}
