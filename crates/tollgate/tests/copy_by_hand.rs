//! `tollgate copy`: the seed's options, its table and its file.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod harness;

use std::process::Command;

use harness::{Bench, file};

const HEADER: &str = "Experiment Description, Copy length (Bytes), Copy Type, \
    Throughput (GBps), Number of Runs, Number of Threads";

#[test]
fn the_seeds_table_and_file() {
    let bench = Bench::new();
    let text = bench.ok(&["copy", "0", "1", "-r", "100", "-n", "2", "--rounds", "3"]);
    assert!(text.contains("0) App writes to host-heap"), "{text}");
    assert!(text.contains("     256 bytes using glibc_memcpy ="), "{text}");
    let csv = std::fs::read_to_string(bench.path().join("results.csv")).unwrap();
    let mut lines = csv.lines();
    assert_eq!(lines.next(), Some(HEADER));
    let rows: Vec<Vec<&str>> = lines.map(|line| line.split(',').collect()).collect();
    assert_eq!(rows.len(), 2 * 2 * 3, "directions, lengths, functions");
    assert_eq!(rows[0][..3], ["App writes to host-heap", "16", "glibc_memcpy"]);
    for row in &rows {
        let rate: f64 = row[3].parse().unwrap();
        assert!(rate > 0.1 && rate < 2000.0, "{row:?}");
        assert_eq!(row[4..], ["100", "0"]);
    }
    assert!(bench.path().join("results/by-hand").is_dir());
    let line = bench.refused(&["show"], 1);
    assert!(line.contains("no run here"), "what is tried by hand is not the run: {line}");
}

#[test]
fn experiments_have_names_too() {
    let bench = Bench::new();
    bench.ok(&["copy", "read-heap", "-n", "1", "--rounds", "1"]);
    let csv = std::fs::read_to_string(bench.path().join("results.csv")).unwrap();
    assert!(csv.contains("App reads from host-heap,16,") && !csv.contains("writes"), "{csv}");
}

#[test]
fn device_memory_says_what_it_needs_and_the_rest_goes_on() {
    let bench = Bench::new();
    let output = bench.run(&["copy", "0", "4", "-n", "1", "--rounds", "1"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let all = text.clone() + &String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("16 bytes using glibc_memcpy ="), "{all}");
    assert!(all.contains("/dev/mem") || all.contains("--allow physical"), "{all}");
}

#[test]
fn a_function_of_ones_own_is_measured() {
    let bench = Bench::new();
    let code = "#include <stddef.h>\nvoid *slow(void *d, const void *s, size_t n) {\n\
        char *to = d; const char *from = s; while (n--) *to++ = *from++; return d; }\n\
        void *wrong(void *d, const void *s, size_t n) { (void)s; (void)n; return d; }\n";
    let source = file(&bench, "own.c", code);
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-fno-tree-loop-distribute-patterns", "-o", "own.so"])
        .arg(source)
        .current_dir(bench.path())
        .status()
        .unwrap();
    assert!(built.success());
    let given = ["copy", "0", "-n", "1", "--rounds", "1", "--function"];
    let text = bench.ok(&[&given[..], &["./own.so:slow"]].concat());
    assert!(text.contains("slow"), "{text}");
    let wrong = bench.run(&[&given[..], &["./own.so:wrong"]].concat());
    assert_eq!(wrong.status.code(), Some(1), "a function that does not copy fails its check");
}

#[test]
fn wrong_options_are_status_2() {
    let bench = Bench::new();
    for arguments in [&["copy", "7"][..], &["copy", "-n", "11"], &["copy", "--fast"]] {
        let output = bench.run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr).trim().lines().count(), 1);
    }
}
