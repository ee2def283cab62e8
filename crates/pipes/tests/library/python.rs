//! The module for Python.

use crate::build::python;
use crate::process::{Nic, Running, SOCKET, alone};

#[test]
fn misuse_raises_an_error() {
    let Some(_alone) = alone() else { return };
    let Some(mut command) = python("tests/programs/misuse.py") else { return };
    let folder = tempfile::tempdir().unwrap();
    let nic = Nic::start(folder.path(), "2_64_1_2.pcap", "1kpps");
    let said = Running::start(folder.path(), command.arg(SOCKET)).succeeds();
    assert_eq!(said, "all checks passed\n");
    nic.interrupt();
}
