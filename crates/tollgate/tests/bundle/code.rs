//! The timed code in a bundle: what the run recorded, and what its program contains.

use std::collections::BTreeSet;

use lab::journal;
use lab::timed_code::TimedCode;
use serde_json::Value;

use crate::harness::Bench;
use crate::{Entries, measured, read};

/// Names of the experiments that the tests measure.
const EXPERIMENTS: [&str; 2] = ["bounds/checks", "copy/sizes"];

fn measure(bench: &Bench, rounds: &str) {
    let words = ["run", EXPERIMENTS[0], EXPERIMENTS[1], "--quiet", "--rounds", rounds];
    bench.ok(&words);
}

fn recorded(bench: &Bench) -> Vec<TimedCode> {
    journal::open_code(&journal::newest(&bench.path().join("results")).unwrap()).unwrap()
}

fn text<'e>(entries: &'e Entries, name: &str) -> &'e str {
    let bytes = entries.get(name).unwrap_or_else(|| panic!("{name}: {:?}", entries.keys()));
    str::from_utf8(bytes).unwrap()
}

/// Returns the bytes of the first function in a listing with this name; its listing repeats nothing.
fn bytes_of(listing: &str, function: &str) -> Vec<u8> {
    let lines = listing.lines().skip_while(|line| *line != function).skip(3);
    let lines = lines.take_while(|line| !line.is_empty());
    let bytes = lines.flat_map(|line| line[8..].split("   ").next().unwrap().split(' '));
    bytes.filter_map(|byte| u8::from_str_radix(byte, 16).ok()).collect()
}

/// Returns the row of an experiment, which has code or a reason.
fn row<'r>(readme: &'r str, experiment: &str) -> &'r str {
    let is_its = |line: &&str| line.starts_with(&format!("| {experiment} |"));
    let row = readme.lines().find(is_its).unwrap_or_else(|| panic!("{experiment}: {readme}"));
    assert!(!row.contains("| none | none |  |"), "{row}");
    row
}

#[test]
fn a_run_records_its_generated_loops_and_a_bundle_lists_all_timed_code() {
    let bench = Bench::new();
    measure(&bench, "1");
    let codes = recorded(&bench);
    for one in &codes {
        bench.validate("timed-code", &serde_json::to_value(one).unwrap());
    }
    // Every measured point, once.
    let run = bench.journal();
    for experiment in EXPERIMENTS {
        let measured: BTreeSet<_> = run
            .samples
            .iter()
            .filter(|one| one.experiment == experiment && !one.values.is_empty())
            .map(|one| one.point.to_string())
            .collect();
        let codes: Vec<_> = codes.iter().filter(|one| one.experiment == experiment).collect();
        let points: BTreeSet<_> = codes.iter().map(|one| one.point.to_string()).collect();
        assert_eq!(codes.len(), points.len(), "{experiment}");
        assert!(points.is_superset(&measured), "{experiment}: {points:?}");
        assert!(codes.iter().all(|one| one.omitted == 0 && !one.loops.is_empty()));
    }
    let checks = codes.iter().find(|one| one.experiment == "bounds/checks").unwrap();
    // dec r15; jnz; jmp [r13 + exit]; ud2
    let code = checks.loops[0].decode().unwrap();
    let end = &code[code.len() - 18..];
    assert!(
        end.starts_with(&[0x49, 0xFF, 0xCF, 0x0F, 0x85]) && end.ends_with(&[0x0F, 0x0B]),
        "{end:x?}"
    );
    // Further rounds, and a second session, execute code that is recorded.
    measure(&bench, "2");
    assert_eq!(recorded(&bench), codes);

    bench.ok(&["bundle"]);
    let path = bench.path().join("bundle.zip");
    assert!(bench.ok(&["bundle", "--check", "bundle.zip"]).contains("none modified"));
    let entries = read(&path);
    let folder = journal::newest(&bench.path().join("results")).unwrap();
    assert_eq!(entries["code.jsonl"], std::fs::read(folder.join("code.jsonl")).unwrap());
    let listing = text(&entries, "code/generated/bounds.checks.txt");
    for one in codes.iter().filter(|one| one.experiment == "bounds/checks") {
        assert!(listing.contains(&format!("=== {}\n", one.point)), "{}", one.point);
    }
    for part in ["dec     r15\n", "jne     +0x0\n", "ud2\n", " more times, up to 0x"] {
        assert!(listing.contains(part), "{part}: {listing}");
    }
    // Of the program: the functions that read the clock, and copy functions, which are called by their address.
    let runner = text(&entries, "code/program/copy.throughput.txt");
    assert!(runner.contains("rdtsc"), "{runner}");
    assert!(text(&entries, "code/program/bounds.timing.txt").contains("rdtsc"));
    let functions = text(&entries, "code/program/copy.functions.txt");
    let name = functions.lines().find(|line| line.contains("reference::naive")).unwrap();
    let code = bytes_of(functions, name);
    let program = std::fs::read(env!("CARGO_BIN_EXE_tollgate")).unwrap();
    assert!(
        code.len() > 8 && program.windows(code.len()).any(|window| window == code),
        "{code:x?}"
    );
    // Of the C library: the variant of memcpy that the loader chose.
    let sizes = text(&entries, "code/generated/copy.sizes.txt");
    let memcpy = sizes.lines().find(|line| line.contains(": memcpy of libc.so.6, 0x")).unwrap();
    let after = sizes.split_once(memcpy).unwrap().1.split("\n--- ").next().unwrap();
    assert!(after.contains(" ret\n") && !after.contains("(bad)"), "{after}");
    let readme = text(&entries, "code/README.md");
    for (experiment, file) in [
        ("bounds/checks", "`code/generated/bounds.checks.txt`"),
        ("bounds/checks", "`code/program/bounds.timing.txt`"),
        ("copy/sizes", "`code/generated/copy.sizes.txt`"),
        ("copy/sizes", "`code/program/copy.functions.txt`"),
    ] {
        let row = row(readme, experiment);
        assert!(row.contains(file), "{row}");
    }
    let metadata: Value = serde_json::from_slice(&entries["ro-crate-metadata.json"]).unwrap();
    let graph = metadata["@graph"].as_array().unwrap();
    let described =
        |name: &str| graph.iter().any(|one| one["@id"] == name && one["sha256"].is_string());
    for name in entries.keys().filter(|name| name.starts_with("code")) {
        assert!(described(name), "{name}");
    }
    let measurement = graph.iter().find(|one| one["@id"] == "#measurement").unwrap();
    assert!(measurement["result"].to_string().contains("code.jsonl"), "{measurement}");
}

#[test]
fn a_bundle_lists_compiled_programs_and_states_what_was_not_measured() {
    let bench = Bench::new();
    let experiments = ["bounds/kernels", "crossing/clock", "copy/two-host-mediation"];
    bench.ok(&[&["run", "--quiet", "--rounds", "1"][..], &experiments].concat());
    bench.ok(&["bundle"]);
    let entries = read(&bench.path().join("bundle.zip"));
    let readme = text(&entries, "code/README.md");
    // The compiled kernel reads the counter twice around its loop.
    let kernels = text(&entries, "code/generated/bounds.kernels.txt");
    let points = recorded(&bench).into_iter().filter(|one| one.experiment == "bounds/kernels");
    let mut instrumented = 0;
    for one in points {
        let rdtsc = |code: &[u8]| code.windows(2).filter(|window| *window == [0x0F, 0x31]).count();
        let codes = one.loops.iter().map(|one| one.decode().unwrap());
        let read = codes.map(|code| rdtsc(&code)).sum::<usize>();
        assert!(read >= 2, "{}: {read} readings of the counter", one.point);
        instrumented += usize::from(one.point.to_string().contains("asan"));
    }
    assert!(instrumented > 0 && kernels.contains(" rdtsc\n"), "{kernels}");
    assert!(row(readme, "bounds/kernels").contains("`code/generated/bounds.kernels.txt`"));
    let clock = row(readme, "crossing/clock");
    assert!(clock.contains("`code/program/crossing.trips.txt`"), "{clock}");
    let unmeasured = row(readme, "copy/two-host-mediation");
    assert!(unmeasured.contains("| none | none | not measured in this run"), "{unmeasured}");
    assert!(!entries.contains_key("code/program/copy.two_hosts.txt"), "it was not measured");
}

#[test]
fn a_bundle_lists_the_insides_of_the_enclaves_that_ran() {
    let bench = Bench::new();
    bench.ok(&["run", "enclave/ecall", "--where", "kind=none", "--quiet", "--rounds", "1"]);
    bench.ok(&["bundle"]);
    let entries = read(&bench.path().join("bundle.zip"));
    for allocator in ["dlmalloc", "snmalloc"] {
        let listing = text(&entries, &format!("code/images/{allocator}.txt"));
        let code = bytes_of(listing, "tollgate_allocator_malloc");
        let image = enclave::images::find(allocator).unwrap().bytes;
        let is_in_image = image.windows(code.len()).any(|window| window == code);
        assert!(code.len() > 4 && is_in_image, "{allocator}: {code:x?}");
    }
    assert!(!entries.contains_key("code/images/talc.txt"), "it did not run");
    let row = row(text(&entries, "code/README.md"), "enclave/ecall");
    assert!(row.contains("`code/program/enclave.*.txt`, `code/images/*.txt`"), "{row}");
}

#[test]
fn code_of_another_program_than_that_of_the_run_is_not_listed() {
    // The environment of the run is that of this test, which is another program.
    let bench = measured();
    bench.ok(&["bundle"]);
    let entries = read(&bench.path().join("bundle.zip"));
    let readme = text(&entries, "code/README.md");
    assert!(
        readme.contains("another build of tollgate wrote this bundle than measured the run"),
        "{readme}"
    );
    assert!(readme.contains("The run recorded no code"), "{readme}");
    assert!(!entries.keys().any(|name| name.starts_with("code/program")), "{:?}", entries.keys());
    assert!(!entries.contains_key("code.jsonl"));
}

#[test]
fn damaged_code_is_one_clear_error() {
    let bench = measured();
    let folder = journal::newest(&bench.path().join("results")).unwrap();
    std::fs::write(folder.join("code.jsonl"), "{}\n").unwrap();
    let line = bench.refused(&["bundle"], 1);
    assert!(line.contains("code.jsonl: line 1 is not the code of a point"), "{line}");
}
