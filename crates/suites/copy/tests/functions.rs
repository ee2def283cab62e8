//! Every copy function that can run here, byte for byte, with a guard page after both buffers.

#![allow(clippy::unwrap_used)] // Also outside of test functions.

use copy::functions::{self, LoadedFunction};
use lab::sample::FailureKind;
use machine::mapping::{Mapping, PAGE};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::process::Command;

/// Maximum length of the exhaustive tests, bytes, and the margin around it for alignments.
const SHORT: usize = 4096;
const MARGIN: usize = 256;
const GUARD: u8 = 0xc3;

/// Pages followed by an inaccessible page.
struct Pages {
    mapping: Mapping,
    length: usize,
}

impl Pages {
    fn new(length: usize) -> Self {
        let length = length.next_multiple_of(PAGE);
        let mapping = Mapping::anonymous(length + PAGE).unwrap();
        let guard = mapping.as_mut_ptr().wrapping_add(length).cast();
        // SAFETY: the page belongs to the mapping, and no references into it exist.
        assert_eq!(unsafe { libc::mprotect(guard, PAGE, libc::PROT_NONE) }, 0);
        Self { mapping, length }
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is readable and writable for this length and is borrowed once.
        unsafe { std::slice::from_raw_parts_mut(self.mapping.as_mut_ptr(), self.length) }
    }
}

fn available() -> Vec<LoadedFunction> {
    functions::all().iter().filter_map(|function| functions::find(function.name).ok()).collect()
}

/// Fills a source without repeated runs of 8 bytes within reach of a wrong pointer.
fn pattern(bytes: &mut [u8]) {
    let mut rng = Pcg64Mcg::seed_from_u64(0x5eed);
    rng.fill(bytes);
}

/// Copies `length` bytes between the two offsets and checks them and `MARGIN` bytes on each side, as
/// far as the pages reach. The destination contains `GUARD` before and after.
fn check(
    function: &LoadedFunction,
    to: &mut [u8],
    at: usize,
    from: &[u8],
    source: usize,
    length: usize,
) {
    let range = at..at + length;
    function.copy(&mut to[range.clone()], &from[source..source + length]);
    let case = || format!("{}: {length} bytes from {source} to {at}", function.name());
    assert!(to[range.clone()] == from[source..source + length], "wrong bytes, {}", case());
    let before = at.saturating_sub(MARGIN)..at;
    let after = range.end..to.len().min(range.end + MARGIN);
    assert!(to[before].iter().all(|&byte| byte == GUARD), "wrote before the start, {}", case());
    assert!(to[after].iter().all(|&byte| byte == GUARD), "wrote past the end, {}", case());
    to[range].fill(GUARD);
}

/// Checks each length at the guard pages, and at these offsets of destination and source: the sixteen
/// combinations around a vector's edge, and a varying offset against 0, itself and others, so that 64
/// consecutive lengths cover all 64 offsets against 0, 0 against all 64, and the diagonal.
#[test]
fn every_length_up_to_4_kib_at_many_alignments() {
    let (mut to, mut from) = (Pages::new(SHORT + 2 * MARGIN), Pages::new(SHORT + 2 * MARGIN));
    let (to, from) = (to.bytes(), from.bytes());
    to.fill(GUARD);
    pattern(from);
    for function in available() {
        for length in 0..=SHORT {
            check(&function, to, to.len() - length, from, from.len() - length, length);
            check(&function, to, to.len() - length, from, MARGIN, length);
            check(&function, to, MARGIN, from, from.len() - length, length);
            let offset = length % 64;
            let edges = [0, 1, 31, 63].into_iter().flat_map(|a| [0, 1, 32, 63].map(|b| (a, b)));
            let rows = [
                (offset, 0),
                (0, offset),
                (offset, offset),
                (offset, length / 64),
                (offset, 63 - offset),
            ];
            for (destination, source) in edges.chain(rows) {
                check(&function, to, MARGIN + destination, from, source, length);
            }
        }
    }
}

#[test]
fn every_alignment_pair_at_the_edges_of_size_classes() {
    let (mut to, mut from) = (Pages::new(2 * SHORT), Pages::new(2 * SHORT));
    let (to, from) = (to.bytes(), from.bytes());
    to.fill(GUARD);
    pattern(from);
    for function in available() {
        for length in [1, 16, 17, 63, 64, 65, 127, 129, 257, 513, 1000, 2113] {
            for pair in 0..64 * 64 {
                check(&function, to, MARGIN + pair / 64, from, pair % 64, length);
            }
        }
    }
}

#[test]
fn random_lengths_up_to_8_mib_and_one_beyond_the_caches() {
    const LONG: usize = 128 << 20;
    let (mut to, mut from) = (Pages::new(LONG + 4 * SHORT), Pages::new(LONG + 4 * SHORT));
    let (to, from) = (to.bytes(), from.bytes());
    to.fill(GUARD);
    pattern(from);
    let mut rng = Pcg64Mcg::seed_from_u64(20);
    for function in available() {
        for _ in 0..24 {
            // Log-uniform, so that every size class is covered.
            let length = rng.random_range(12.0..23.0_f64).exp2() as usize;
            let at = MARGIN + rng.random_range(0..SHORT);
            let source = rng.random_range(0..SHORT);
            check(&function, to, at, from, source, length);
        }
        check(&function, to, to.len() - LONG, from, from.len() - LONG, LONG);
    }
}

#[test]
fn names_are_unique_and_our_functions_are_marked() {
    let names: Vec<&str> = functions::all().iter().map(|function| function.name).collect();
    let mut unique = names.clone();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), names.len());
    for name in ["glibc", "naive", "rep-movsb"] {
        assert!(!functions::find(name).expect("runs on every x86-64 with glibc").is_ours());
    }
    for function in functions::all() {
        match functions::find(function.name) {
            Ok(loaded) => {
                assert_eq!((loaded.name(), loaded.is_ours()), (function.name, function.is_ours))
            }
            Err(error) => assert_eq!(error.kind, FailureKind::Unsupported, "{error}"),
        }
    }
}

#[test]
fn glibc_is_the_memcpy_of_this_process() {
    let glibc = functions::find("glibc").expect("a glibc build");
    // SAFETY: libc always has this symbol; only its address is used.
    let memcpy = unsafe { libc::dlsym(libc::RTLD_NEXT, c"memcpy".as_ptr()) };
    assert_eq!(glibc.pointer() as usize, memcpy as usize);
}

#[test]
fn an_unknown_name_lists_the_known_ones() {
    let error = functions::find("apex").expect_err("not one of ours");
    assert_eq!(error.kind, FailureKind::Failed);
    let line = error.to_string();
    assert!(
        line.contains("apex") && line.contains("tollgate") && line.contains("PATH.so:SYMBOL"),
        "{line}"
    );
    assert_eq!(line.lines().count(), 1);
}

#[test]
fn a_user_supplied_function_is_loaded_from_a_shared_object() {
    let folder = tempfile::tempdir().expect("a folder");
    let (source, object) = (folder.path().join("mine.c"), folder.path().join("mine.so"));
    std::fs::write(
        &source,
        "void *mine(char *d, const char *s, unsigned long n)\n\
         { for (unsigned long i = 0; i < n; i++) d[i] = s[i]; return d; }\n",
    )
    .expect("written");
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .arg(&object)
        .arg(&source)
        .status();
    assert!(compiled.expect("a C compiler").success());
    let path = object.to_str().expect("UTF-8");

    let mine = functions::find(&format!("{path}:mine")).expect("loads");
    assert!(!mine.is_ours());
    let mut destination = [0; 5];
    mine.copy(&mut destination, b"bytes");
    assert_eq!(&destination, b"bytes");

    for (text, named) in [
        (format!("{path}:other"), "other"),
        ("/nowhere/mine.so:mine".to_owned(), "/nowhere/mine.so"),
        (format!("{path}:"), "PATH.so:SYMBOL"),
    ] {
        let error = functions::find(&text).expect_err("cannot load");
        assert_eq!(error.kind, FailureKind::Failed);
        let line = error.to_string();
        assert!(line.contains(named) && line.lines().count() == 1, "{line}");
    }
}
