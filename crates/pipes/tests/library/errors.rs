//! Misuse of the library: a code and a line of text, and no crash.

use std::process::Command;

use crate::build::{Link, c_program};
use crate::process::{Nic, Running, SOCKET, alone};

/// Runs a program of `tests/programs`, which checks codes and texts itself, against a NIC that sends.
fn checks(name: &str) {
    let Some(_alone) = alone() else { return };
    let folder = tempfile::tempdir().unwrap();
    let name = format!("tests/programs/{name}.c");
    for link in [Link::Static, Link::Dynamic] {
        let program = c_program(folder.path(), &name, link);
        let nic = Nic::start(folder.path(), "2_64_1_2.pcap", "1kpps");
        let said = Running::start(folder.path(), Command::new(program).arg(SOCKET)).succeeds();
        assert!(said.ends_with("all checks passed\n"), "{said}");
        nic.interrupt();
    }
}

#[test]
fn misuse_is_a_code_and_a_line() {
    checks("misuse");
}

#[test]
fn handles_belong_to_their_thread() {
    checks("threads");
}

#[test]
fn the_child_of_a_fork_has_no_devices() {
    checks("forked");
}
