//! `tollgate copy`: ESCAPE's options, table and CSV file.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod harness;

use std::collections::BTreeSet;
use std::os::fd::AsRawFd;

use harness::{Bench, file, full_device, shared_object};
use lab::journal::{self, Run};
use lab::point::Point;

const HEADER: &str = "Experiment Description, Copy length (Bytes), Copy Type, \
    Throughput (GBps), Number of Runs, Number of Threads";

/// Returns the newest run of a suite's command, without the samples of the lab.
fn journal(bench: &Bench) -> Run {
    let newest = journal::newest(&bench.path().join("results/adhoc")).unwrap();
    let mut run = journal::open(&newest).unwrap();
    run.samples.retain(|sample| sample.experiment == "copy/throughput");
    run
}

/// Returns the points that have a valid sample.
fn measured(run: &Run) -> BTreeSet<&Point> {
    let valid = run.samples.iter().filter(|sample| sample.is_valid() && !sample.twin);
    valid.map(|sample| &sample.point).collect()
}

#[test]
fn the_table_and_file_have_the_form_of_escape() {
    let bench = Bench::new();
    let text = bench.ok(&["copy", "0", "1", "-r", "100", "-n", "2", "--rounds", "3"]);
    assert!(text.contains("0) App writes to host-heap"), "{text}");
    let csv = std::fs::read_to_string(bench.path().join("results.csv")).unwrap();
    let mut lines = csv.lines();
    assert_eq!(lines.next(), Some(HEADER));
    let rows: Vec<Vec<&str>> = lines.map(|line| line.split(',').collect()).collect();
    let run = journal(&bench);
    let all: BTreeSet<_> = run.samples.iter().map(|sample| &sample.point).collect();
    assert_eq!(all.len(), 2 * 2 * 3, "directions, lengths, functions");
    assert_eq!(rows.len(), measured(&run).len(), "{text}");
    for row in &rows {
        let [about, length, function, rate, runs, threads] = row[..] else { panic!("{row:?}") };
        assert!(about.ends_with("host-heap") && rate.parse::<f64>().unwrap() > 0.0, "{row:?}");
        assert_eq!((runs, threads), ("100", "0"));
        let line = format!("{length:>8} bytes using {function:>12} = ");
        assert!(text.contains(&line), "{line}: {text}");
    }
    let void = text.matches("    not measured: void: in every round").count();
    assert_eq!(rows.len() + void, all.len(), "{text}");
    assert!(bench.path().join("results/adhoc").is_dir());
    let line = bench.refused(&["show"], 2);
    assert!(line.contains("no run here"), "a suite's command adds no run to show: {line}");
}

#[test]
fn experiments_can_be_named() {
    let bench = Bench::new();
    bench.ok(&["copy", "read-heap", "-n", "1", "--rounds", "1"]);
    let csv = std::fs::read_to_string(bench.path().join("results.csv")).unwrap();
    let rows: Vec<&str> = csv.lines().skip(1).collect();
    assert!(rows.iter().all(|row| row.starts_with("App reads from host-heap,16,")), "{csv}");
    assert_eq!(rows.len(), measured(&journal(&bench)).len(), "{csv}");
}

#[test]
fn unavailable_device_memory_is_reported_and_the_others_are_measured() {
    let bench = Bench::new();
    let output = bench.run(&["copy", "0", "4", "-n", "1", "--rounds", "1"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let all = text.clone() + &String::from_utf8_lossy(&output.stderr);
    let run = journal(&bench);
    let heap = run.samples.iter().filter(|sample| sample.point.text("memory") == "heap");
    assert!(
        heap.clone().count() >= 3 && heap.clone().all(|sample| sample.error.is_none()),
        "{all}"
    );
    assert!(all.contains("/dev/mem") || all.contains("--allow physical"), "{all}");
}

/// Builds a shared object in the folder of the bench.
fn build(bench: &Bench, name: &str, code: &str) {
    let source = file(bench, "own.c", code);
    shared_object(bench, name, &source, &["-fno-tree-loop-distribute-patterns"]);
}

#[test]
fn a_user_function_is_measured() {
    let bench = Bench::new();
    let code = "#include <stddef.h>\nvoid *slow(void *d, const void *s, size_t n) {\n\
        char *to = d; const char *from = s; while (n--) *to++ = *from++; return d; }\n\
        void *wrong(void *d, const void *s, size_t n) { (void)s; (void)n; return d; }\n";
    build(&bench, "own.so", code);
    let given = ["copy", "0", "-n", "1", "--rounds", "1", "--allow", "code", "--function"];
    bench.ok(&[&given[..], &["./own.so:slow"]].concat());
    let run = journal(&bench);
    let slow = |point: &Point| point.text("function") == "./own.so:slow";
    let mut slow = run.samples.iter().filter(|sample| slow(&sample.point));
    assert!(slow.any(|sample| sample.values.contains_key("throughput")));
    let wrong = bench.run(&[&given[..], &["./own.so:wrong"]].concat());
    assert_eq!(wrong.status.code(), Some(1), "a function that does not copy fails its check");
}

/// Shared object whose constructor creates a file.
const PLANTED: &str = "#include <stddef.h>\n#include <fcntl.h>\n#include <unistd.h>\n\
    __attribute__((constructor)) static void planted(void) {\n\
        close(open(\"loaded\", O_CREAT | O_WRONLY, 0600)); }\n\
    void *copy(void *d, const void *s, size_t n) {\n\
        char *to = d; const char *from = s; while (n--) *to++ = *from++; return d; }\n";

/// Experiments of each method that use the shared object.
const NAMING: &str = r#"
[[experiment]]
name = "mine"
suite = "copy"
method = "throughput"
about = "a function of my own"
metric = "throughput"
rounds = 1
min_rounds = 1
[experiment.factors]
function = ["./planted.so:copy"]
length = ["64 B"]

[[experiment]]
name = "mine-frames"
suite = "copy"
method = "frames"
about = "a function of my own"
metric = "throughput"
rounds = 1
min_rounds = 1
[experiment.factors]
function = ["./planted.so:copy"]
length = ["4 KiB"]

[[experiment]]
name = "mine-mediation"
suite = "copy"
method = "mediation"
about = "a function of my own"
metric = "throughput"
rounds = 1
min_rounds = 1
[experiment.factors]
function = ["./planted.so:copy"]
length = ["4 KiB"]
scale = [16384]
"#;

#[test]
fn code_is_loaded_only_by_run_with_allow_code() {
    let bench = Bench::new();
    build(&bench, "planted.so", PLANTED);
    file(&bench, "my.toml", NAMING);
    let loaded = bench.path().join("loaded");
    let names = ["copy/mine", "copy/mine-frames", "copy/mine-mediation"];
    let run = |extra: &[&str]| {
        let words = ["run", "-e", "my.toml", "--quiet"];
        bench.run(&[&words[..], &names[..], extra].concat())
    };
    let commands: [&[&str]; 6] = [
        &["list", "-e", "my.toml"],
        &["doctor"],
        &["claims", "-e", "my.toml"],
        &["show"],
        &["plot"],
        &["copy", "0", "-n", "1", "--rounds", "1", "--function", "./planted.so:copy"],
    ];
    // Before and after a run; the exit status of the commands does not matter.
    for _ in 0..2 {
        for command in commands {
            bench.run(command);
            assert!(!loaded.exists(), "{command:?} loaded it");
        }
        run(&[]);
        assert!(!loaded.exists(), "a run loaded what was not allowed");
    }
    let allowed = run(&["--allow", "code", "--fresh"]);
    let errors = String::from_utf8_lossy(&allowed.stderr);
    assert!(loaded.exists(), "{errors}");
}

#[test]
fn a_user_function_requires_allow_code() {
    let bench = Bench::new();
    let line = bench.refused(&["copy", "0", "--function", "./mine.so:copy"], 2);
    assert!(line.contains("--allow code") && line.contains("./mine.so:copy"), "{line}");
}

#[test]
fn an_unrelated_file_is_not_replaced() {
    let bench = Bench::new();
    let foreign = "name,salary\n";
    let path = file(&bench, "results.csv", foreign);
    let given = ["copy", "0", "-n", "1", "--rounds", "1"];
    let line = bench.refused(&given, 2);
    assert!(line.contains("results.csv") && line.contains("--csv"), "{line}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), foreign);
    assert!(!bench.path().join("results").exists(), "nothing is measured for it");
    bench.ok(&[&given[..], &["--csv", "other.csv"]].concat());
    // A file written by tollgate is replaced, also through a link.
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("other.csv", &path).unwrap();
    bench.ok(&given);
    assert!(path.is_symlink());
    assert!(std::fs::read_to_string(&path).unwrap().starts_with(HEADER));
    // A device is written, not replaced.
    let text = bench.ok(&[&given[..], &["--csv", "/dev/stdout"]].concat());
    assert!(text.contains(HEADER), "{text}");
}

#[test]
fn a_file_that_cannot_be_created_is_a_usage_error_and_a_write_error_a_failure() {
    let bench = Bench::new();
    let given = ["copy", "0", "-n", "1", "--rounds", "1", "--csv"];
    let line = bench.refused(&[&given[..], &["none/x.csv"]].concat(), 2);
    assert!(line.contains("none/x.csv") && line.contains("create its folder first"), "{line}");
    let _socket = std::os::unix::net::UnixListener::bind(bench.path().join("socket")).unwrap();
    let line = bench.refused(&[&given[..], &["socket"]].concat(), 2);
    assert!(line.contains("cannot write socket: is a socket"), "{line}");
    assert!(!bench.path().join("results").exists(), "nothing is measured for it");
    // Through a descriptor of the test: a bug would make root lose /dev/full.
    let Some(full) = full_device("copy --csv to a full disk") else { return };
    let name = format!("/proc/{}/fd/{}", std::process::id(), full.as_raw_fd());
    let line = bench.refused(&[&given[..], &[&name]].concat(), 1);
    assert!(line.contains("free space or choose another file with --csv"), "{line}");
    assert!(!journal(&bench).samples.is_empty(), "it was measured");
}

#[test]
fn wrong_options_are_status_2() {
    let bench = Bench::new();
    for arguments in [
        &["copy", "7"][..],
        &["copy", "-n", "11"],
        &["copy", "--fast"],
        &["copy", "-t", "65"],
        &["copy", "-t", "18446744073709551616"],
        &["copy", "-r", "1000000001"],
        &["copy", "-z", "18446744073709551615"],
        &["copy", "--rounds", "0"],
        &["copy", "--priority", "99"],
        &["copy", "--allow", "everything"],
        &["copy", "--set", "runs=5"],
        &["copy", "--set", "here"],
        &["copy", "--set", "file-folder="],
        &["copy", "--set", "device-address=here"],
        &["copy", "--set", "dax-device=/dev/dax0.0", "--set", "dax-device=/dev/dax0.1"],
        &["copy", "--rounds", "-1"],
        &["copy", "--function", "mine"],
        &["copy", "--function", ":f"],
        &["copy", "--function", "mine.so:"],
    ] {
        let output = bench.run(arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {errors}");
        assert_eq!(errors.trim().lines().count(), 1, "{arguments:?}: {errors}");
    }
}
