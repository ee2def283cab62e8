//! What a test could not test here, so that a run of tests says so by name.

use std::io::Write;

use crate::tsc::Tsc;

/// The variable that names the file into which tests write what they could not test; `scripts/test`
/// sets it and prints the file at its end.
pub const FILE: &str = "TOLLGATE_UNTESTED";

/// Notes that a test lacks what it needs. For tests alone.
pub fn note(test: &str, why: &dyn std::fmt::Display) {
    println!("not tested: {test}: {why}");
    let Some(path) = std::env::var_os(FILE) else { return };
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
    // One write a line, since tests run side by side.
    let noted = file.and_then(|mut file| file.write_all(format!("{test}: {why}\n").as_bytes()));
    if let Err(error) = noted {
        println!("it could not be noted: {error}");
    }
}

/// The time stamp counter; `None`, with a note, if it gives no time here. For tests alone.
pub fn tsc(test: &str) -> Option<&'static Tsc> {
    Tsc::get().inspect_err(|why| note(test, why)).ok()
}
