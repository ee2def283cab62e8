//! Every copy function that can run here, byte for byte, with a guard page behind both ends.

use copy::functions::{self, Loaded, Unavailable};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::process::Command;

/// The longest length of the exhaustive part, and the bytes kept free around it for alignments.
const SHORT: usize = 4096;
const MARGIN: usize = 256;
const GUARD: u8 = 0xc3;

/// Pages that end at one which faults when touched.
struct Pages {
    start: *mut u8,
    length: usize,
    mapped: usize,
}

impl Pages {
    fn new(length: usize) -> Self {
        let length = length.next_multiple_of(4096);
        let mapped = length + 4096;
        // SAFETY: a fresh anonymous mapping, then the last page of it made inaccessible.
        let start = unsafe {
            let start = libc::mmap(
                std::ptr::null_mut(),
                mapped,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(start, libc::MAP_FAILED);
            assert_eq!(libc::mprotect(start.byte_add(length), 4096, libc::PROT_NONE), 0);
            start.cast()
        };
        Self { start, length, mapped }
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is readable and writable for this length and is borrowed once.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.length) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping that `new` made.
        unsafe { libc::munmap(self.start.cast(), self.mapped) };
    }
}

fn available() -> Vec<Loaded> {
    functions::all().iter().filter_map(|function| functions::find(function.name).ok()).collect()
}

/// Source bytes of which no run of 8 repeats within reach of a wrong pointer.
fn pattern(bytes: &mut [u8]) {
    let mut chance = Pcg64Mcg::seed_from_u64(0x5eed);
    chance.fill(bytes);
}

/// Copies `length` bytes between the two places and checks them and `MARGIN` bytes on each side,
/// as far as the pages reach. The destination holds `GUARD` before and after.
fn check(function: &Loaded, to: &mut [u8], at: usize, from: &[u8], source: usize, length: usize) {
    let range = at..at + length;
    function.copy(&mut to[range.clone()], &from[source..source + length]);
    let place = || format!("{}: {length} bytes from {source} to {at}", function.name());
    assert!(to[range.clone()] == from[source..source + length], "wrong bytes, {}", place());
    let before = at.saturating_sub(MARGIN)..at;
    let after = range.end..to.len().min(range.end + MARGIN);
    assert!(to[before].iter().all(|&byte| byte == GUARD), "wrote before the start, {}", place());
    assert!(to[after].iter().all(|&byte| byte == GUARD), "wrote past the end, {}", place());
    to[range].fill(GUARD);
}

/// For each length: the ends at the guard pages, and these alignments of destination and source:
/// the sixteen combinations around a vector's edge, one of each kind of every row and column in
/// turn, so that 64 lengths in a row meet all 64 against 0, all 0 against 64, and the diagonal.
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
            let turn = length % 64;
            let edges = [0, 1, 31, 63].into_iter().flat_map(|a| [0, 1, 32, 63].map(|b| (a, b)));
            let rows = [(turn, 0), (0, turn), (turn, turn), (turn, length / 64), (turn, 63 - turn)];
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
    let mut chance = Pcg64Mcg::seed_from_u64(20);
    for function in available() {
        for _ in 0..24 {
            // Log-uniform, so that each size class is met.
            let length = chance.random_range(12.0..23.0_f64).exp2() as usize;
            let at = MARGIN + chance.random_range(0..SHORT);
            let source = chance.random_range(0..SHORT);
            check(&function, to, at, from, source, length);
        }
        check(&function, to, to.len() - LONG, from, from.len() - LONG, LONG);
    }
}

#[test]
fn names_are_unique_and_our_own_are_named_so() {
    let names: Vec<&str> = functions::all().iter().map(|function| function.name).collect();
    let mut unique = names.clone();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), names.len());
    for name in ["glibc", "naive", "rep-movsb"] {
        assert!(!functions::find(name).expect("runs on every x86-64 with glibc").own());
    }
    for function in functions::all() {
        match functions::find(function.name) {
            Ok(loaded) => assert_eq!((loaded.name(), loaded.own()), (function.name, function.own)),
            Err(error) => assert!(matches!(error, Unavailable::Unsupported { .. }), "{error}"),
        }
    }
}

#[test]
fn glibc_is_the_memcpy_that_the_process_runs() {
    let glibc = functions::find("glibc").expect("a glibc build");
    // SAFETY: a symbol that libc always has; only its address is taken.
    let memcpy = unsafe { libc::dlsym(libc::RTLD_NEXT, c"memcpy".as_ptr()) };
    assert_eq!(glibc.pointer() as usize, memcpy as usize);
}

#[test]
fn an_unknown_name_lists_the_known_ones() {
    let error = functions::find("apex").expect_err("not one of ours");
    assert!(matches!(error, Unavailable::Unknown { .. }));
    let line = error.to_string();
    assert!(
        line.contains("apex") && line.contains("tollgate") && line.contains("PATH.so:SYMBOL"),
        "{line}"
    );
    assert_eq!(line.lines().count(), 1);
}

#[test]
fn a_function_of_ones_own_is_loaded_from_a_shared_object() {
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
    assert!(!mine.own());
    let mut destination = [0; 5];
    mine.copy(&mut destination, b"bytes");
    assert_eq!(&destination, b"bytes");

    for (text, named) in [
        (format!("{path}:other"), "other"),
        ("/nowhere/mine.so:mine".to_owned(), "/nowhere/mine.so"),
        (format!("{path}:"), "PATH.so:SYMBOL"),
    ] {
        let error = functions::find(&text).expect_err("cannot load");
        assert!(matches!(error, Unavailable::Load { .. }));
        let line = error.to_string();
        assert!(line.contains(named) && line.lines().count() == 1, "{line}");
    }
}
