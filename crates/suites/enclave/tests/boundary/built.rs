//! A small image that does what an enclave may and must not.

use std::path::Path;
use std::process::Command;

use enclave_interface::{Ecall, Ocall};

/// Adds to a thread's own sum, which begins at 7, and gives it.
pub(super) const SUM: Ecall = Ecall::usable_size;
/// Gives its five words, each as often as its place.
pub(super) const FIVE: Ecall = Ecall::fill;
/// Gives its word back through the upper half of a vector of 256 bits.
pub(super) const WIDE: Ecall = Ecall::equal;
/// Remembers the address of a word that ending raises.
pub(super) const REMEMBER: Ecall = Ecall::larson;
/// Raises the word at an address and stays until it is another's.
pub(super) const STAY: Ecall = Ecall::consume;
/// Sets the word and wakes.
pub(super) const LET_GO: Ecall = Ecall::produce;
/// Works for so many rounds; the result depends on their number alone.
pub(super) const WORK: Ecall = Ecall::drain;
/// Writes a word at an address.
pub(super) const POKE: Ecall = Ecall::bank_open;
/// Takes the address of a file's name; returns that of a function that makes the file, where it can.
pub(super) const MARK: Ecall = Ecall::bank_close;

/// The image, compiled.
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
