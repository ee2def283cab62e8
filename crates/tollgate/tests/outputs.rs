//! JSON output by its schemas, and exports of values.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod harness;

use std::collections::BTreeSet;

use harness::Bench;
use lab::journal::{RECORD, SAMPLES};
use serde_json::{Value, json};

/// Returns the names and versions of all schemas.
fn names(bench: &Bench) -> Vec<(String, String)> {
    let list = bench.ok(&["schema"]);
    let line = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        let [name, "version", version, ..] = words[..] else { panic!("{line}") };
        (name.to_owned(), version.to_owned())
    };
    list.lines().map(line).collect()
}

fn schema(bench: &Bench, name: &str) -> Value {
    serde_json::from_str(&bench.ok(&["schema", name])).unwrap()
}

/// Removes what describes a schema and is not part of the contract.
fn without_descriptions(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            // A property of that name has a schema, not a text.
            fields.retain(|name, value| name != "description" || !value.is_string());
            fields.values_mut().for_each(without_descriptions);
        }
        Value::Array(all) => all.iter_mut().for_each(without_descriptions),
        _ => {}
    }
}

/// Formats a schema with one line per keyword and per definition.
fn by_definition(schema: &Value) -> String {
    let line = |(name, value): (&String, &Value)| format!("{name}: {value}\n");
    let fields = schema.as_object().unwrap();
    let definitions = fields.get("$defs").and_then(Value::as_object);
    let keywords = fields.iter().filter(|(name, _)| *name != "$defs").map(line);
    keywords.chain(definitions.into_iter().flatten().map(line)).collect()
}

/// Returns the objects whose schema permits fields that it does not name.
fn open_objects(schema: &Value, path: &str, found: &mut Vec<String>) {
    match schema {
        Value::Object(fields) => {
            let closed = ["additionalProperties", "unevaluatedProperties"]
                .iter()
                .any(|name| fields.get(*name).is_some_and(|it| *it == Value::Bool(false)));
            if fields.get("properties").is_some_and(Value::is_object) && !closed {
                found.push(path.to_owned());
            }
            for (name, value) in fields {
                open_objects(value, &format!("{path}/{name}"), found);
            }
        }
        Value::Array(all) => {
            for (index, value) in all.iter().enumerate() {
                open_objects(value, &format!("{path}/{index}"), found);
            }
        }
        _ => {}
    }
}

#[test]
fn a_schema_changes_only_with_its_version() {
    let bench = Bench::new();
    let names = names(&bench);
    let distinct: BTreeSet<_> = names.iter().map(|(name, _)| name).collect();
    assert_eq!(distinct.len(), names.len(), "{names:?}");
    for (name, version) in &names {
        let mut schema = schema(&bench, name);
        jsonschema::draft202012::new(&schema).unwrap();
        let mut open = Vec::new();
        open_objects(&schema, "", &mut open);
        assert_eq!(open, Vec::<String>::new(), "{name}");
        without_descriptions(&mut schema);
        // If this differs, raise the version of the output, which renames the snapshot.
        insta::assert_snapshot!(format!("{name}-{version}"), by_definition(&schema));
    }
}

#[test]
fn a_schema_refuses_other_versions_and_unknown_fields() {
    let bench = Bench::new();
    let list = bench.json(&["list", "--json"]);
    let validator = jsonschema::draft202012::new(&schema(&bench, "list")).unwrap();
    assert!(validator.is_valid(&list));
    for (path, wrong) in [
        ("/schema_version", json!(0)),
        ("/suites/0/about", json!(1)),
        ("/suites/0/experiments/0/points", json!(-1)),
    ] {
        let mut changed = list.clone();
        *changed.pointer_mut(path).unwrap() = wrong;
        assert!(!validator.is_valid(&changed), "{path}");
    }
    for path in ["", "/suites/0", "/suites/0/experiments/0", "/suites/0/claims/0"] {
        let mut changed = list.clone();
        let object = changed.pointer_mut(path).unwrap().as_object_mut().unwrap();
        object.insert("unknown".into(), json!(1));
        assert!(!validator.is_valid(&changed), "{path}");
        let object = changed.pointer_mut(path).unwrap().as_object_mut().unwrap();
        object.clear();
        assert!(!validator.is_valid(&changed), "{path}");
    }
    let line = bench.refused(&["schema", "nothing"], 2);
    assert!(line.contains("unknown output 'nothing'; expected one of doctor, list, run"), "{line}");
}

#[test]
fn outputs_have_their_schemas() {
    let bench = Bench::new();
    // Samples with values, parts of roles, trials of searches, and of artefacts; and every kind of failure, for which the
    // exit status is 1.
    let names = ["delay", "roles", "search", "artefact", "faults"];
    let names = names.map(|name| format!("planted/{name}"));
    let words: Vec<_> = names.iter().map(String::as_str).collect();
    let output = bench.run(&[&["run"], &words[..], &["--rounds", "6", "--json"]].concat());
    bench.validate("run", &serde_json::from_slice(&output.stdout).unwrap());
    for words in [
        &["doctor"][..],
        &["list", "--all"],
        &["list", "planted"],
        &["show"],
        &["show", "planted/delay", "--unit", "cycles"],
        &["plot"],
        &["claims"],
        &["claims", "--results", "nowhere"],
        &["guest"],
        &["guest", "pool"],
        &["stream", "pcap", "2_64_1_2.pcap"],
    ] {
        bench.json(&[words, &["--json"]].concat());
    }
    bench.json(&["export", "json"]);
    let folder = lab::journal::newest(&bench.path().join("results")).unwrap();
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    bench.validate("run-record", &serde_json::from_str(&read(RECORD)).unwrap());
    let schema = schema(&bench, "sample");
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    for line in read(SAMPLES).lines() {
        let sample = serde_json::from_str(line).unwrap();
        validator.validate(&sample).unwrap_or_else(|why| panic!("{why}: {line}"));
    }
}

#[test]
fn values_are_exported() {
    let bench = Bench::new();
    bench.ok(&["run", "planted/delay", "--quiet", "--rounds", "6"]);
    let bmf: Value = serde_json::from_str(&bench.ok(&["export", "bmf", "planted/delay"])).unwrap();
    let rows = bench.json(&["show", "planted/delay", "--json"]);
    let rows = rows["experiments"][0]["rows"].as_array().unwrap().clone();
    let known = rows.iter().filter(|row| !row["estimate"].is_null()).count();
    let bmf = bmf.as_object().unwrap();
    assert!(known > 0 && bmf.len() >= known, "{bmf:?}");
    assert!(bmf.values().all(|it| it["planted-time"]["value"].is_number()), "{bmf:?}");
    bench.ok(&["export", "github-action-benchmark", "--better", "lower", "-o", "lower.json"]);
    let text = std::fs::read_to_string(bench.path().join("lower.json")).unwrap();
    let entries: Vec<Value> = serde_json::from_str(&text).unwrap();
    assert_eq!(entries.len(), bmf.len());
    let metrics = bench.ok(&["export", "openmetrics"]);
    assert!(metrics.contains("\ntollgate_planted_time_seconds{"), "{metrics}");
    assert!(metrics.ends_with("\n# EOF\n"), "{metrics}");
    let summary = bench.ok(&["export", "markdown"]);
    assert!(
        summary.starts_with("## tollgate: ") && summary.contains("### Verdicts\n"),
        "{summary}"
    );
    for (words, why) in [
        (&["github-action-benchmark"][..], "use --better higher for its tool customBiggerIsBetter"),
        (&["bmf", "--better", "higher"], "only github-action-benchmark needs a direction"),
        (&["markdown", "nothing"], "no samples of 'nothing'"),
    ] {
        let line = bench.refused(&[&["export"], words].concat(), 2);
        assert!(line.contains(why), "{line}");
    }
    let words = ["export", "github-action-benchmark", "--better", "higher"];
    let line = bench.refused(&words, 1);
    assert!(
        line.contains("no value to export: ") && line.contains("of another direction"),
        "{line}"
    );
}
