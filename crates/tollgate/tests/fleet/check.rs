//! `tollgate fleet --check`: one line and an exit status for scripts of node health.

use std::fs;

use crate::harness::Bench;
use crate::nodes::Nodes;

/// Runs a check; returns its exit status and what it printed, which is one line.
#[track_caller]
fn check(bench: &Bench, arguments: &[&str]) -> (i32, String) {
    let output = bench.run(&[&["fleet", "all", "--check"], arguments].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    let all = text + &errors;
    assert_eq!(all.lines().count(), 1, "{all}");
    (output.status.code().unwrap(), all)
}

#[test]
fn a_check_states_in_one_line_whether_a_node_is_worse() {
    let bench = Bench::new();
    let all = bench.path().join("all");
    assert_eq!(check(&bench, &[]).0, 2, "no folder");
    fs::create_dir(&all).unwrap();
    let (status, line) = check(&bench, &[]);
    assert_eq!(status, 2);
    assert!(line.contains("no run here"), "{line}");
    let nodes = Nodes::new(8);
    nodes.write_fleet(&all, 5);
    let (status, line) = check(&bench, &[]);
    assert_eq!(status, 3, "{line}");
    assert!(line.starts_with("not judged: 5 nodes"), "{line}");
    nodes.write_fleet(&all, 16);
    let (status, line) = check(&bench, &[]);
    assert_eq!(status, 1, "{line}");
    assert!(
        line.starts_with("worse: n003 is worse at 3 of 3 points, +")
            && line.contains("governor powersave, others performance"),
        "{line}"
    );
    assert_eq!(check(&bench, &["--node", "n003"]).0, 1);
    let (status, line) = check(&bench, &["--node", "n004"]);
    assert_eq!(status, 0, "{line}");
    assert!(line.starts_with("ok: 16 nodes"), "{line}");
    let (status, line) = check(&bench, &["--node", "absent"]);
    assert_eq!(status, 2);
    assert!(line.contains("no run of node 'absent'"), "{line}");
    fs::remove_dir_all(all.join("n003")).unwrap();
    let (status, line) = check(&bench, &[]);
    assert_eq!(status, 0, "{line}");
    assert!(line.starts_with("ok: 15 nodes with 15 runs"), "{line}");
}

#[test]
fn a_check_ends_when_its_time_is_over() {
    let bench = Bench::new();
    Nodes::new(8).write_fleet(&bench.path().join("all"), 12);
    let (status, line) = check(&bench, &["--within", "1 us"]);
    assert_eq!(status, 2, "{line}");
    assert!(line.contains("of 12 runs were read within"), "{line}");
    assert_eq!(check(&bench, &["--within", "60s"]).0, 1);
    bench.refused(&["fleet", "all", "--node", "n001"], 2);
    bench.refused(&["fleet", "all", "--check", "--json"], 2);
}
