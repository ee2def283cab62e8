//! A small image that does what code inside may and must not do.

use std::path::Path;
use std::process::Command;

use enclave_interface::{Ecall, Ocall};

/// Adds to a thread-local sum, which is initially 7, and returns it.
pub(super) const SUM: Ecall = Ecall::usable_size;
/// Returns the sum of its five words, each multiplied by its position.
pub(super) const FIVE: Ecall = Ecall::fill;
/// Returns its word through the upper half of a 256-bit vector.
pub(super) const WIDE: Ecall = Ecall::equal;
/// Stores the address of a word that finishing increments.
pub(super) const REMEMBER: Ecall = Ecall::larson;
/// Increments the word at an address and waits until another thread sets it.
pub(super) const STAY: Ecall = Ecall::consume;
/// Sets the word and wakes the waiting threads.
pub(super) const LET_GO: Ecall = Ecall::produce;
/// Works for a number of rounds; the result depends only on their number.
pub(super) const WORK: Ecall = Ecall::drain;
/// Writes a word at an address.
pub(super) const POKE: Ecall = Ecall::bank_open;
/// Takes the address of a file's name; returns the address of a function that tries to create the file.
pub(super) const MARK: Ecall = Ecall::bank_close;

/// Compiles the image.
pub(super) fn bytes() -> &'static [u8] {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("image");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/boundary/image.c");
    let calls = [
        ("INITIALISE", Ecall::initialise),
        ("NOTHING", Ecall::nothing),
        ("LEAVE", Ecall::leave),
        ("SUM", SUM),
        ("FIVE", FIVE),
        ("WIDE", WIDE),
        ("REMEMBER", REMEMBER),
        ("FINISH", Ecall::finish),
        ("STAY", STAY),
        ("LET_GO", LET_GO),
        ("WORK", WORK),
        ("POKE", POKE),
        ("MARK", MARK),
    ];
    let ocalls = [("NOTHING", Ocall::nothing), ("WAIT", Ocall::wait), ("WAKE", Ocall::wake)];
    let made = Command::new("cc")
        .args([
            "-O1",
            "-Wall",
            "-ffreestanding",
            "-fno-stack-protector",
            "-fPIE",
            "-ftls-model=local-exec",
        ])
        .args(["-fno-optimize-sibling-calls", "-Wno-infinite-recursion", "-fcf-protection=none"])
        .args(["-nostdlib", "-static-pie", "-Wl,-e,enclave_entry,-z,noexecstack,-z,separate-code"])
        .args(calls.map(|(name, call)| format!("-D{name}={}", call as u64)))
        .args(ocalls.map(|(name, call)| format!("-DOCALL_{name}={}", call as u64)))
        .arg(source)
        .arg("-o")
        .arg(&file)
        .status()
        .unwrap();
    assert!(made.success());
    Vec::leak(std::fs::read(file).unwrap())
}
