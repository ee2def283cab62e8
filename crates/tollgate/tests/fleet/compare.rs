//! The comparison of nodes as tables and JSON.

use std::fs;
use std::path::Path;

use lab::journal::{RECORD, SAMPLES};

use crate::harness::Bench;
use crate::nodes::{EXPERIMENT, Node, Nodes, POINTS};

/// Copies the folders of a folder, as a user does.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to.parent().unwrap()).unwrap();
    let status = std::process::Command::new("cp").arg("-r").args([from, to]).status().unwrap();
    assert!(status.success());
}

#[test]
fn a_slow_node_is_named_with_its_setting() {
    let bench = Bench::new();
    Nodes::new(10).write_fleet(&bench.path().join("all"), 20);
    let text = bench.ok(&["fleet", "all"]);
    for part in [
        "20 nodes with 20 runs: 3 points of 1 experiment compared, ",
        "1 node differs from the others",
        "n003 is worse at 3 of 3 points, +",
        "governor: powersave (others: performance)",
        "all/n003/n003-quick-1",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let json = bench.json(&["fleet", "all", "--json"]);
    // A few values have correlated rounds, which are too few for an interval.
    let without_value = json["unjudged"]["points_without_value"].as_u64().unwrap();
    assert_eq!(json["judged"].as_u64().unwrap() + without_value, 20 * POINTS as u64, "{json}");
    assert!(without_value <= 6, "{json}");
    let outlier = &json["outliers"][0];
    assert_eq!(json["outliers"].as_array().unwrap().len(), 1, "{json}");
    assert_eq!(outlier["node"], "n003");
    assert_eq!(outlier["points"].as_array().unwrap().len(), POINTS);
    assert_eq!(outlier["settings"][0]["setting"], "governor");
    let ratio = outlier["points"][0]["ratio"].as_f64().unwrap();
    assert!((1.05..1.16).contains(&ratio), "{outlier}");
    assert_eq!(outlier["points"][0]["direction"], "worse");
    let selected = bench.json(&["fleet", "all", "crossing", "--json"]);
    assert_eq!(selected["judged"], json["judged"]);
    let line = bench.refused(&["fleet", "all", "copy"], 2);
    assert!(line.contains("no values of 'copy'"), "{line}");
}

#[test]
fn results_of_several_people_and_days_merge_by_copying() {
    let bench = Bench::new();
    let at = |name: &str| bench.path().join(name);
    let nodes = Nodes::new(10);
    nodes.write_fleet(&at("cluster/monday"), 12);
    // Alice has some of the same runs, and others of other nodes.
    for name in ["n001", "n003"] {
        copy(&at("cluster/monday").join(name), &at("cluster/alice/results").join(name));
    }
    for name in ["a1", "a2"] {
        nodes.write(&at("cluster/alice/results"), &Node::new(name, name.as_bytes()[1].into()));
    }
    // Bob's run of n003, one day later: it is no longer slow.
    let mut newer = nodes.run(&Node::new("n003", 99));
    newer.samples.iter_mut().for_each(|sample| sample.at += 86_400.0);
    crate::journal::write(&newer, &at("cluster/bob/tuesday"));
    // A damaged run does not hide the others.
    let damaged = nodes.write(&at("cluster/bob/tuesday"), &Node::new("b1", 98));
    let text = fs::read_to_string(damaged.join(SAMPLES)).unwrap();
    fs::write(damaged.join(SAMPLES), text.replacen("\"round\":", "\"round\"=", 1)).unwrap();
    // An incomplete last line is a sample in flight.
    let running = nodes.write(&at("cluster/bob/tuesday"), &Node::new("b2", 97));
    let text = fs::read_to_string(running.join(SAMPLES)).unwrap();
    fs::write(running.join(SAMPLES), &text[..text.len() - 20]).unwrap();

    let json = bench.json(&["fleet", "cluster", "--json"]);
    let named: Vec<_> = json["nodes"].as_array().unwrap().iter().collect();
    assert_eq!(named.len(), 12 + 2 + 1, "{named:?}");
    assert_eq!(json["unjudged"]["copies"], 2);
    assert_eq!(json["unjudged"]["older_runs"], 1);
    assert_eq!(json["outliers"], serde_json::json!([]), "the newest run counts");
    let unreadable = json["unreadable"].as_array().unwrap();
    assert_eq!(unreadable.len(), 1);
    assert!(unreadable[0].as_str().unwrap().contains("b1-quick-1/samples.jsonl: line 1 is not"));
    let text = bench.ok(&["fleet", "cluster"]);
    assert!(text.contains("2 copies of a run, counted once"), "{text}");
}

#[test]
fn other_definitions_and_versions_are_not_mixed() {
    let bench = Bench::new();
    let at = bench.path().join("all");
    let nodes = Nodes::new(10);
    nodes.write_fleet(&at, 10);
    let mut other = nodes.run(&Node { factor: 2.0, ..Node::new("other", 50) });
    let experiment = other.record.experiments.get_mut(EXPERIMENT).unwrap();
    experiment.effort.budget *= 2;
    crate::journal::write(&other, &at.join("other"));
    let json = bench.json(&["fleet", "all", "--json"]);
    let lines = json["unjudged"]["other_definitions"].as_array().unwrap();
    assert_eq!(lines.len(), 1, "{json}");
    assert!(
        lines[0].as_str().unwrap().starts_with("crossing/round-trips: 1 node, budget"),
        "{json}"
    );
    assert_eq!(json["nodes_not_judged"], serde_json::json!(["other"]));
    // A journal of a newer program.
    let record = at.join("n001/n001-quick-1").join(RECORD);
    let text = fs::read_to_string(&record).unwrap();
    let format = format!("\"format\": {}", lab::journal::FORMAT);
    fs::write(&record, text.replacen(&format, "\"format\": 9999", 1)).unwrap();
    let json = bench.json(&["fleet", "all", "--json"]);
    let line = json["unreadable"][0].as_str().unwrap();
    assert!(line.contains("format 9999") && line.contains("use a newer tollgate"), "{line}");
}
