//! Time and memory of large fleets.

use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use crate::harness::Bench;
use crate::nodes::{Node, Nodes};

/// Runs `tollgate fleet --json`; returns its output and its peak resident memory, in bytes.
fn read(bench: &Bench, folder: &str) -> (serde_json::Value, u64) {
    let mut command = bench.command(&["fleet", folder, "--json"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let pid = child.id() as libc::pid_t;
    let json = serde_json::from_reader(child.stdout.take().unwrap()).unwrap();
    // SAFETY: all zeros is a valid `rusage`.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are null or point to a value that outlives the call. The child is not waited for elsewhere.
    let waited = unsafe { libc::wait4(pid, std::ptr::null_mut(), 0, &raw mut usage) };
    assert_eq!(waited, pid);
    assert!(child.wait().is_err(), "it was waited for");
    (json, usage.ru_maxrss as u64 * 1024)
}

fn write(nodes: &Nodes, folder: &Path, count: u64) {
    for seed in 0..count {
        let name = format!("n{seed:05}");
        let node = Node::new(&name, seed);
        nodes.write(folder, &if seed == 77 { Node { factor: 1.1, ..node } } else { node });
    }
}

#[test]
#[ignore = "minutes: it writes 20,000 files"]
fn long_ten_thousand_nodes_are_read() {
    let bench = Bench::new();
    write(&Nodes::new(10), &bench.path().join("all"), 10_000);
    let start = Instant::now();
    let (json, memory) = read(&bench, "all");
    let (seconds, mib) = (start.elapsed().as_secs_f64(), memory >> 20);
    println!("10,000 nodes: {seconds:.1} s, {mib} MiB");
    assert_eq!(json["nodes"].as_array().unwrap().len(), 10_000);
    let outliers = json["outliers"].as_array().unwrap();
    let names: Vec<_> = outliers.iter().map(|one| one["node"].as_str().unwrap()).collect();
    assert_eq!(names, ["n00077"]);
    assert!(seconds < 100.0, "{seconds} s, even on a busy machine");
    assert!(mib < 400, "{mib} MiB");
}

#[test]
#[ignore = "minutes: it writes 300 MB"]
fn long_memory_does_not_grow_with_the_samples() {
    let bench = Bench::new();
    for (folder, rounds) in [("short", 300), ("long", 6000)] {
        write(&Nodes::new(rounds), &bench.path().join(folder), 30);
    }
    let (short, of_short) = read(&bench, "short");
    let (long, of_long) = read(&bench, "long");
    println!("{} and {} MiB", of_short >> 20, of_long >> 20);
    assert_eq!(short["judged"], long["judged"]);
    assert!(of_long < of_short + (16 << 20), "{of_short} and {of_long} bytes");
}
