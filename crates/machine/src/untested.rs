//! Records of what tests could not test on this machine, so that the test run lists them.

use std::io::Write;

use crate::tsc::Tsc;

/// The variable that names the file to which tests append what they could not test; `scripts/test`
/// sets it and prints the file at the end.
pub const FILE: &str = "TOLLGATE_UNTESTED";

/// Records that a test lacks a requirement. For tests only.
pub fn note(test: &str, why: &dyn std::fmt::Display) {
    println!("not tested: {test}: {why}");
    let Some(path) = std::env::var_os(FILE) else { return };
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
    // One write per line because tests run concurrently.
    let noted = file.and_then(|mut file| file.write_all(format!("{test}: {why}\n").as_bytes()));
    if let Err(error) = noted {
        println!("cannot record this: {error}");
    }
}

/// Returns the time-stamp counter; `None`, with a record, if it is unusable. For tests only.
pub fn tsc(test: &str) -> Option<&'static Tsc> {
    Tsc::get().inspect_err(|why| note(test, why)).ok()
}
