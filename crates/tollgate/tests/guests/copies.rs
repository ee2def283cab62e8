//! Copies to and from each kind of memory of the guests, of which the bytes are also compared in the files that are it.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use lab::sample::Sample;

use super::{LENGTH, Machine, arrived, pattern, pattern_of};

/// The kinds of memory of each embedded guest, each with the backing file in which its bytes are.
type Kinds = &'static [(&'static str, Option<&'static str>)];
const KINDS: [(&str, Kinds); 7] = [
    ("ivshmem", &[("pci-bar", Some("bar"))]),
    ("reserved", &[("host-physical", None)]),
    ("escape", &[("device", Some("escape")), ("host-physical", None)]),
    ("nvdimm", &[("dax", Some("nvdimm")), ("numa-node-0", None), ("numa-node-2", Some("kmem"))]),
    ("cxl", &[("dax", Some("cxl")), ("numa-node-1", Some("cxl"))]),
    ("numa", &[("numa-node-0", None), ("numa-node-1", None)]),
    ("./numa-files.toml", &[("numa-node-1", Some("far"))]),
];

/// The copy functions of the experiments `matrix`, `large` and `writes-by`: all but those that need AVX-512, `apex`, which a
/// user supplies, and `naive-compiled`, whose loop is that of `naive` within the timed one.
const FUNCTIONS: [&str; 8] = [
    "glibc",
    "naive",
    "tollgate",
    "rep-movsb",
    "avx2",
    "non-temporal",
    "cached-quarter",
    "rep-aligned",
];

/// Checks that a backing file has all pages of a copy. The pages of a NUMA node may be anywhere in it.
#[track_caller]
fn has_all_pages(file: &Path, expected: &[u8]) {
    has_pages(file, expected, expected.len() / 4096);
}

/// Checks that a backing file has at least so many whole pages of a copy, and its last bytes.
#[track_caller]
fn has_pages(file: &Path, expected: &[u8], least: usize) {
    let bytes = fs::read(file).unwrap();
    let (pages, last) = expected.as_chunks::<4096>();
    // The pages of the pattern are equal.
    let found = bytes.chunks(4096).filter(|page| *page == pages[0]).count();
    assert!(found >= least, "{}: {found} of {} pages", file.display(), pages.len());
    let has_last = bytes.chunks(4096).any(|page| page.starts_with(last) && *page != pages[0]);
    assert!(
        has_last || last.is_empty(),
        "{}: the last {} B are missing",
        file.display(),
        last.len()
    );
}

/// Checks that each copy of the experiment `matrix` arrived, of every thread, and that no combination is missing.
#[track_caller]
fn every_copy_arrived(samples: &[Sample], kind: &str) {
    let number = |sample: &Sample, factor: &str| match sample.point.text(factor) {
        "" => panic!("no {factor}: {}", sample.point),
        text => lab::quantity::bytes(text).or(text.parse()).unwrap() as usize,
    };
    let samples: Vec<_> = samples.iter().filter(|one| one.experiment == "copy/matrix").collect();
    // Physical memory of the host is mapped in parts of at most 512 KiB.
    let lengths = if kind == "host-physical" { 6 } else { 9 };
    assert_eq!(
        samples.len(),
        2 * FUNCTIONS.len() * (lengths + 7),
        "{kind}: directions, functions, lengths and threads"
    );
    for sample in samples {
        let (length, threads) = (number(sample, "length"), number(sample, "threads").max(1));
        let lanes =
            if kind == "host-physical" { threads.min((512 << 10) / length) } else { threads };
        assert_eq!(sample.values["checked"], (length * lanes) as f64, "{}", sample.point);
    }
}

/// Copies by each function, length and number of threads to and from a kind of memory.
#[track_caller]
fn copies_all(machine: &Machine, guest: &str, kind: &str) {
    let level = format!("memory={kind}");
    // Physical memory of the host is mapped in parts of at most 512 KiB.
    let large = (kind != "host-physical").then_some("copy/large");
    let words = ["copy/matrix", "--where", &level];
    let samples = machine.run(guest, &[&words[..], large.as_slice()].concat());
    arrived(&samples, &[kind]);
    every_copy_arrived(&samples, kind);
    let copied: Vec<_> =
        samples.iter().filter(|one| Some(one.experiment.as_str()) == large).collect();
    let expected = if large.is_some() { 2 * FUNCTIONS.len() } else { 0 };
    assert_eq!(copied.len(), expected, "{guest}: {kind}: directions and functions of 64 MiB");
    assert!(copied.iter().all(|one| one.values["checked"] == (64 << 20) as f64));
}

#[test]
#[ignore = "minutes"]
fn long_each_function_length_and_thread_count_is_copied_in_each_guest() {
    for (guest, kinds) in KINDS {
        for (kind, file) in kinds {
            let machine = Machine::new();
            copies_all(&machine, guest, kind);
            // The file has the bytes that the program reports to have written last. No earlier copy had this pattern.
            if let Some(file) = file {
                let level = format!("memory={kind}");
                let words = ["copy/writes", "--set", "source-offset=33", "--where", &level];
                arrived(&machine.run(guest, &words), &[kind]);
                has_all_pages(&machine.file(file), &pattern(33));
                if !kind.starts_with("numa") {
                    reads_what_the_host_put(&machine, guest, kind, file);
                }
            }
        }
    }
}

/// A large copy, and one by threads: the experiment, its bytes, and the offset of its pattern, which no other copy has.
const LARGE: [(&str, usize, u8); 2] =
    [("copy/writes-large", 64 << 20, 34), ("copy/writes-by-threads", 16 * (64 << 10), 35)];

#[test]
#[ignore = "minutes"]
fn long_large_copies_and_copies_by_threads_are_seen_from_outside() {
    for (guest, kinds) in KINDS {
        for (kind, file) in kinds {
            let Some(file) = file else { continue };
            let machine = Machine::new();
            for (experiment, bytes, offset) in LARGE {
                let (level, set) = (format!("memory={kind}"), format!("source-offset={offset}"));
                let words = [experiment, "--set", &set, "--where", &level];
                arrived(&machine.run(guest, &words), &[kind]);
                // After the copy Linux may use a few pages of a node, which are free again, for itself.
                let pages = bytes / 4096;
                let least = if kind.starts_with("numa") { pages * 9 / 10 } else { pages };
                has_pages(&machine.file(file), &pattern_of(bytes, offset), least);
            }
        }
    }
}

/// Puts other bytes into the file of a device, where the guest wrote [`pattern`] 33, and has the guest read them.
#[track_caller]
fn reads_what_the_host_put(machine: &Machine, guest: &str, kind: &str, file: &str) {
    let path = machine.file(file);
    let bytes = fs::read(&path).unwrap();
    let page = &pattern(33)[..4096];
    // A DAX device starts after Linux' records in the file.
    let found = bytes.chunks(4096).position(|one| one == page).unwrap() as u64 * 4096;
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(&pattern(7), found).unwrap();
    let level = format!("memory={kind}");
    let words = ["copy/reads-outside", "--set", "source-offset=7", "--where", &level];
    let samples = machine.run(guest, &words);
    arrived(&samples, &[kind]);
    assert_eq!(samples.len(), 2, "{samples:?}");
    let after = fs::read(&path).unwrap();
    let end = found as usize + LENGTH;
    assert_eq!(after[found as usize..end], pattern(7), "a read changes nothing");
}

#[test]
#[ignore = "boots a guest for each function"]
fn long_what_each_function_writes_is_seen_from_outside() {
    let machine = Machine::new();
    for (index, function) in FUNCTIONS.into_iter().enumerate() {
        let offset = 40 + index as u8;
        let (set, by) = (format!("source-offset={offset}"), format!("function={function}"));
        let words = ["copy/writes-by", "--set", &set, "--where", &by];
        let samples = machine.run("escape", &words);
        arrived(&samples, &["device"]);
        assert_eq!(samples.len(), 1, "{samples:?}");
        // No other copy had this pattern.
        assert_eq!(machine.bytes("escape", 0).0, pattern(offset), "{function}");
    }
}
