//! `tollgate fleet --check`: one line and an exit status for scripts of node health.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use lab::sample::{Failure, FailureKind};

use crate::harness::Bench;
use crate::journal;
use crate::nodes::{Node, Nodes};

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
    let (status, line) = check(&bench, &["--node", "n003.example.org"]);
    assert_eq!((status, line.starts_with("worse: n003 is worse")), (1, true), "{line}");
    fs::remove_dir_all(all.join("n003")).unwrap();
    let (status, line) = check(&bench, &[]);
    assert_eq!(status, 0, "{line}");
    assert!(line.starts_with("ok: 15 nodes with 15 runs"), "{line}");
}

#[test]
fn an_old_run_is_not_judged() {
    let bench = Bench::new();
    let all = bench.path().join("all");
    let nodes = Nodes::new(8);
    nodes.write_fleet(&all, 16);
    // The samples are of January 2026.
    for node in [&["--node", "n003"][..], &[]] {
        let (status, line) = check(&bench, &[&["--max-age", "100h"], node].concat());
        assert_eq!(status, 3, "{line}");
        assert!(line.starts_with("not judged: the last run of n0"), "{line}");
        assert!(line.ends_with(" old\n"), "{line}");
    }
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let mut today = nodes.run(&Node::new("n004", 4));
    today.samples.iter_mut().for_each(|sample| sample.at = now.as_secs_f64());
    journal::write(&today, &all.join("n004"));
    let (status, line) = check(&bench, &["--max-age", "100h", "--node", "n004"]);
    assert_eq!(status, 0, "{line}");
    bench.refused(&["fleet", "all", "--max-age", "1h"], 2);
    let output = bench.run(&["export", "openmetrics", "--fleet", "all"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("tollgate_fleet_last_sample_timestamp_seconds{node=\"n003\"} 17672"),
        "{text}"
    );
}

#[test]
fn runs_of_the_future_and_of_several_hosts_are_not_compared() {
    let bench = Bench::new();
    let all = bench.path().join("all");
    let nodes = Nodes::new(8);
    nodes.write_fleet(&all, 16);
    let mut ahead = nodes.run(&Node::new("n020", 20));
    ahead.samples.iter_mut().for_each(|sample| sample.at = 4e9);
    journal::write(&ahead, &all.join("n020"));
    let mut roles = nodes.run(&Node::new("n021", 21));
    let host = |name: &str, role: &str| lab::host::HostRecord {
        name: name.into(),
        role: Some(role.into()),
        ssh: name.into(),
        cpus: None,
        environment: Default::default(),
    };
    roles.record.hosts = vec![host("a", "dut"), host("b", "generator")];
    journal::write(&roles, &all.join("n021"));
    let json = bench.json(&["fleet", "all", "--json"]);
    assert_eq!(json["nodes"].as_array().unwrap().len(), 16, "{json}");
    assert_eq!(json["unjudged"]["runs_on_several_hosts"], 1);
    let unreadable = json["unreadable"][0].as_str().unwrap();
    assert!(unreadable.contains("'at' is in the future"), "{unreadable}");
}

#[test]
fn a_check_ends_when_its_time_is_over() {
    let bench = Bench::new();
    Nodes::new(8).write_fleet(&bench.path().join("all"), 12);
    let (status, line) = check(&bench, &["--within", "1 us"]);
    assert_eq!(status, 2, "{line}");
    assert!(line.contains(" runs were read within"), "{line}");
    assert_eq!(check(&bench, &["--within", "60s"]).0, 1);
    bench.refused(&["fleet", "all", "--node", "n001"], 2);
    bench.refused(&["fleet", "all", "--check", "--json"], 2);
}

#[test]
fn a_node_may_be_named_without_its_domain() {
    let bench = Bench::new();
    let all = bench.path().join("all");
    let nodes = Nodes::new(8);
    for seed in 0..16 {
        let name = format!("n{seed}.rack{}.example.org", seed % 2);
        let node = Node::new(&name, seed);
        nodes.write(&all, &if seed == 3 { Node { factor: 1.2, ..node } } else { node });
    }
    assert_eq!(check(&bench, &["--node", "n3"]).0, 1);
    assert_eq!(check(&bench, &["--node", "n4"]).0, 0);
    assert_eq!(check(&bench, &["--node", "n3.rack0.example.org"]).0, 2, "another domain");
    nodes.write(&all, &Node::new("n3.rack9.example.org", 99));
    let (status, line) = check(&bench, &["--node", "n3"]);
    assert_eq!(status, 2);
    assert!(line.contains("'n3' names 2 nodes, e.g. n3.rack1.example.org and n3.rack9"), "{line}");
}

#[test]
fn a_node_whose_every_sample_failed_is_worse() {
    let bench = Bench::new();
    let all = bench.path().join("all");
    let nodes = Nodes::new(8);
    for seed in 0..12 {
        let name = format!("n{seed:03}");
        let mut run = nodes.run(&Node::new(&name, seed));
        for sample in run.samples.iter_mut().filter(|_| seed == 3) {
            sample.values.clear();
            sample.error = Some(Failure::new(FailureKind::Crashed, "killed by SIGSEGV"));
        }
        journal::write(&run, &all.join(&name));
    }
    let failed =
        "worse: n003 has no judged value, 32 samples failed; 1 node not judged, 1 failed\n";
    assert_eq!(check(&bench, &[]), (1, failed.into()));
    assert_eq!(check(&bench, &["--node", "n003"]), (1, failed.into()));
    let (status, line) = check(&bench, &["--node", "n004"]);
    assert_eq!(status, 0);
    assert!(line.ends_with("; 1 node not judged, 1 failed\n"), "{line}");
}

#[test]
fn the_time_of_a_check_includes_the_search() {
    let bench = Bench::new();
    let all = bench.path().join("all");
    for outer in 0..100 {
        for inner in 0..200 {
            fs::create_dir_all(all.join(format!("{outer}/{inner}"))).unwrap();
        }
    }
    let (status, line) = check(&bench, &["--within", "1 us"]);
    assert_eq!(status, 2, "{line}");
    assert!(line.contains(": 0 of 0 runs were read within 0.000001 s; "), "{line}");
    let (status, line) = check(&bench, &["--within", "600s"]);
    assert_eq!((status, line.contains("no run here")), (2, true), "{line}");
}

#[test]
fn machines_with_one_host_name_are_different_nodes() {
    let bench = Bench::new();
    let all = bench.path().join("all");
    let nodes = Nodes::new(8);
    for seed in 0..16 {
        let node = Node::new("localhost", seed);
        let mut run = nodes.run(&if seed == 3 { Node { factor: 1.2, ..node } } else { node });
        run.record.sessions[0].boot_id = format!("boot {seed}");
        let environment = run.record.environments.values_mut().next().unwrap();
        environment.boot_id = format!("boot {seed}");
        journal::write(&run, &all.join(format!("d{seed}")));
    }
    let (status, line) = check(&bench, &[]);
    assert_eq!(status, 1, "{line}");
    assert!(line.starts_with("worse: localhost/d3 is worse at 3 of 3 points"), "{line}");
    let of = |node| check(&bench, &["--node", node]);
    assert_eq!([of("localhost/d3").0, of("localhost/d4").0], [1, 0]);
    let (status, line) = of("localhost");
    assert_eq!(status, 2);
    assert!(line.contains("'localhost' names 16 nodes, e.g. localhost/d0 and "), "{line}");
    let errors = String::from_utf8(bench.run(&["fleet", "all"]).stderr).unwrap();
    assert!(errors.contains("several machines are named 'localhost'"), "{errors}");
}

/// The program in docs/fleet.md for Slurm's health check.
#[test]
fn the_documented_health_check_drains_a_slow_node() {
    let bench = Bench::new();
    let nodes = Nodes::new(8);
    let text =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/fleet.md")).unwrap();
    let script = text.split("```").find(|block| block.trim_start().starts_with("#!/bin/sh"));
    let script = script.unwrap().replace("/shared/fleet", "all");
    fs::create_dir(bench.path().join("bin")).unwrap();
    let folder = bench.path().join("bin");
    let program = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    program("hostname", "echo $TEST_NODE");
    program("scontrol", "printf '%s|' \"$@\"");
    program("logger", "printf 'log:%s|' \"$@\"");
    program("tollgate", &format!("exec {} \"$@\"", env!("CARGO_BIN_EXE_tollgate")));
    let run = |node: &str| {
        let mut command = Command::new("sh");
        command.current_dir(bench.path());
        let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
        let output =
            command.args(["-c", &script]).env("PATH", path).env("TEST_NODE", node).output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    let all = bench.path().join("all");
    assert!(run("n003").contains("log:") && !run("n003").contains("DRAIN"), "no run");
    nodes.write_fleet(&all, 16);
    assert!(run("n003").starts_with("update|NodeName=n003|State=DRAIN|Reason=worse: n003"));
    assert_eq!(run("n004"), "");
    assert!(run("absent").contains("log:") && run("absent").contains("no run of node 'absent'"));
}
