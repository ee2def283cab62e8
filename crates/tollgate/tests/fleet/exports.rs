//! Exports of fleets, as other programs read them.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use lab::journal::RECORD;
use machine::untested;

use crate::harness::Bench;
use crate::nodes::{Node, Nodes, POINTS};

/// Returns the block of Python in the page about fleets.
fn query_of_documentation() -> String {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/fleet.md");
    let text = fs::read_to_string(page).unwrap();
    let (_, block) = text.split_once("```python\n").unwrap();
    block.split_once("```").unwrap().0.to_owned()
}

/// Executes Python with the packages of the tests; `None`, with a note, if a module is not there.
fn python(bench: &Bench, test: &str, module: &str, program: &str) -> Option<String> {
    let run = |program: &str| {
        let mut command = Command::new("python3");
        let packages = std::env::var_os("TOLLGATE_PYTHON");
        command.args(["-c", program]).current_dir(bench.path());
        command.envs(packages.map(|path| ("PYTHONPATH", path))).output().unwrap()
    };
    if !run(&format!("import {module}")).status.success() {
        let why = format!("python3 has no {module}; TOLLGATE_PYTHON names a folder with it");
        untested::note(test, &why);
        return None;
    }
    let output = run(program);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn duckdb_reads_a_fleet_by_host() {
    let bench = Bench::new();
    let all = bench.path().join("all");
    let nodes = Nodes::new(6);
    nodes.write_fleet(&all, 10);
    // A copy of a run, a run of another day, and one that cannot be read.
    let copy = nodes.run(&Node::new("n001", 1));
    crate::journal::write(&copy, &all.join("copy"));
    let other = Node::new("n001", 77);
    crate::journal::write(&nodes.run(&other), &all.join("tuesday"));
    let damaged = nodes.write(&all, &Node::new("n999", 78));
    fs::write(damaged.join(RECORD), "{}").unwrap();
    let output = bench.run(&["export", "parquet", "--fleet", "all", "-o", "parquet"]);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{errors}");
    assert!(errors.contains("parquet: 11 files of 10 hosts; 1 of the runs are copies"), "{errors}");
    assert!(
        errors.contains("not exported: ") && errors.contains("n999-quick-1/run.json"),
        "{errors}"
    );
    let folders: BTreeSet<_> = fs::read_dir(bench.path().join("parquet"))
        .unwrap()
        .flatten()
        .collect::<Vec<_>>()
        .iter()
        .map(|it| it.file_name().into_string().unwrap())
        .collect();
    assert_eq!(folders.len(), 10);
    assert!(folders.contains("host=n003"), "{folders:?}");
    let query = query_of_documentation();
    let Some(printed) = python(&bench, "the DuckDB query of the documentation", "duckdb", &query)
    else {
        return;
    };
    // The slow node is first: host, experiment, trip, median, and its ratio to all hosts.
    let rows: Vec<Vec<&str>> =
        printed.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows.len(), 10 * POINTS, "{printed}");
    assert!(rows[..POINTS].iter().all(|row| row[0] == "n003"), "{printed}");
    let ratio: f64 = rows[0].last().unwrap().parse().unwrap();
    assert!((1.05..1.2).contains(&ratio), "{printed}");
}

#[test]
fn files_of_an_earlier_export_are_named() {
    let bench = Bench::new();
    let nodes = Nodes::new(6);
    nodes.write_fleet(&bench.path().join("all"), 4);
    let export = || bench.run(&["export", "parquet", "--fleet", "all", "-o", "parquet"]);
    assert!(export().status.success() && export().status.success(), "the same files again");
    fs::write(bench.path().join("parquet/host=n001/notes.txt"), "").unwrap();
    fs::remove_dir_all(bench.path().join("all/n003")).unwrap();
    let output = export();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(
        errors.contains("parquet: 1 file of another export there, e.g. parquet/host=n003/"),
        "{errors}"
    );
}

#[test]
fn openmetrics_name_the_nodes_that_differ() {
    let bench = Bench::new();
    Nodes::new(8).write_fleet(&bench.path().join("all"), 12);
    let text = bench.ok(&["export", "openmetrics", "--fleet", "all"]);
    for line in [
        "tollgate_fleet_nodes 12",
        "tollgate_fleet_outlier_points{direction=\"worse\",node=\"n003\"} 3",
        "tollgate_fleet_outlier_points{direction=\"worse\",node=\"n004\"} 0",
        "tollgate_fleet_outlier_setting_info{node=\"n003\",others=\"performance\",setting=\"governor\",value=\"powersave\"} 1",
        "# EOF",
    ] {
        assert!(text.lines().any(|one| one == line), "{line}: {text}");
    }
    fs::write(bench.path().join("fleet.prom"), &text).unwrap();
    let program = "from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse\n\
                   print(sum(len(family.samples) for family in parse(open('fleet.prom').read())))";
    let printed = python(&bench, "OpenMetrics of fleets", "prometheus_client", program);
    let samples = text.lines().filter(|line| !line.starts_with('#')).count();
    assert!(printed.is_none_or(|printed| printed.trim() == samples.to_string()));
    for (words, why) in [
        (&["csv"][..], "only openmetrics and parquet export a fleet"),
        (&["parquet"], "name their folder with --output DIR"),
    ] {
        let line = bench.refused(&[&["export"], words, &["--fleet", "all"]].concat(), 2);
        assert!(line.contains(why), "{line}");
    }
}
