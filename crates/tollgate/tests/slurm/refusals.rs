//! Refusals by Slurm, and by tollgate before it: one line each, and no job is left.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

use crate::cluster::{self, Cluster};
use crate::harness::Bench;

/// Runs a command that must fail; returns its error.
#[track_caller]
fn refused(mut command: Command, status: i32) -> String {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(status), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(errors.starts_with("error: "), "{errors}");
    errors
}

#[test]
fn without_slurm_there_is_one_clear_error() {
    let bench = Bench::new();
    let mut command = bench.command(&["run", "planted/delay", "--slurm"]);
    command.env("PATH", bench.path());
    let line = refused(command, 1);
    assert!(
        line.contains("sinfo: not found; run this where Slurm's commands are installed"),
        "{line}"
    );
    for words in [
        &["--nodes", "2"][..],
        &["--slurm", "--nodes", "0"],
        &["--slurm", "--nodes", "1", "--nodelist", "n1"],
        &["--slurm", "--json"],
        &["--slurm", "--guest", "pool"],
    ] {
        bench.refused(&[&["run", "planted/delay"], words].concat(), 2);
    }
    // What would replace the job, and paths that a script cannot name.
    for option in ["/path/x.sh", "--wrap=true", "--test-only"] {
        let option = format!("--sbatch={option}");
        let line = bench.refused(&["run", "planted/delay", "--slurm", &option], 2);
        assert!(line.contains("--sbatch '"), "{line}");
    }
    let mut command = bench.command(&["run", "planted/delay", "--slurm", "--results"]);
    command.arg(OsStr::from_bytes(b"r\xff"));
    let line = refused(command, 2);
    assert!(line.contains("not UTF-8, as the script of a job is; rename it"), "{line}");
    assert!(
        std::fs::read_dir(bench.path()).unwrap().flatten().all(|it| it.file_name() != "r\u{fffd}")
    );
    // Before a job is submitted.
    let line = bench.refused(&["run", "planted/none", "--slurm"], 2);
    assert!(line.contains("planted/none"), "{line}");
}

#[test]
fn a_refused_submission_leaves_no_job() {
    let Some(cluster) = cluster::start("submissions that Slurm refuses") else { return };
    let tollgate =
        |words: &[&str]| cluster.tollgate(&[&["run", "planted/delay", "--slurm"], words].concat());
    for (words, status, part) in [
        (&["--partition", "absent"][..], 2, "partition 'absent': no nodes"),
        (&["--nodelist", "n[1-3]"], 2, "the partition has no node n3"),
        (&["--nodelist=--help"], 2, "names no node"),
        (&["--nodes", "3"], 2, "2 of 2 nodes of the partition can run jobs"),
        (&["--partition", "one", "--nodelist", "n1"], 2, "the partition has no node n1"),
        (&["--sbatch=--time=never"], 1, "Slurm refuses the job: "),
        (&["--sbatch=--licenses=none:1"], 1, "Slurm refuses the job: "),
    ] {
        let line = refused(tollgate(words), status);
        assert!(line.contains(part), "{words:?}: {line}");
    }
    assert_eq!(cluster.slurm("squeue", &["--noheader"]), "", "no job is left");
}

#[test]
#[ignore = "half a minute"]
fn long_a_failed_job_is_named_with_its_log() {
    let Some(cluster) = cluster::start("a job that fails") else { return };
    // A shell's characters in a folder's name.
    let results = "it's $HOME `x` %j";
    let words =
        ["run", "planted/faults", "--slurm", "--wait", "--rounds", "1", "--results", results];
    let output = cluster.tollgate(&words).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(
        errors.contains("n1: failed, exit status 1; see ") && errors.contains("_0.log"),
        "{errors}"
    );
    assert!(errors.contains("error: 2 of 2 jobs failed, e.g. n1; "), "{errors}");
    let job = Cluster::job_of(&String::from_utf8(output.stdout).unwrap());
    let log = cluster.path(results).join(format!("slurm/{job}_0.log"));
    assert!(std::fs::read_to_string(&log).unwrap().contains("failed"), "{log:?}");
    assert_eq!(cluster::runs(&cluster.path(results), "n2").len(), 1);
}
