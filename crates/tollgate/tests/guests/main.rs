//! Experiments in guests of QEMU, with the bytes of devices checked from outside, in the files that are their memory.
//!
//! The CPU is emulated, so no time is measured.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod copies;
#[path = "../harness/mod.rs"]
mod harness;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use harness::Bench;
use lab::sample::{FailureKind, Sample};

/// Bytes per copy: an odd number of pages and part of a page.
const LENGTH: usize = 20_001;
/// Address of the memory that `guests/devices.toml` reserves; it is its offset in the file of the guest's memory.
const RESERVED: u64 = 0x800_0000;

/// Returns ESCAPE's pattern: each byte is its index plus `offset`.
fn pattern(offset: u8) -> Vec<u8> {
    pattern_of(LENGTH, offset)
}

fn pattern_of(length: usize, offset: u8) -> Vec<u8> {
    (0..length).map(|index| (index as u8).wrapping_add(offset)).collect()
}

/// A bench with a folder of backing files.
struct Machine {
    bench: Bench,
}

impl Machine {
    fn new() -> Self {
        let machine = Self { bench: Bench::new() };
        fs::create_dir(machine.bench.path().join("files")).unwrap();
        for (name, text) in [
            ("devices.toml", include_str!("devices.toml")),
            ("numa-files.toml", include_str!("numa-files.toml")),
            ("experiments.toml", include_str!("experiments.toml")),
        ] {
            let text = text.replace("FILES", machine.file("").to_str().unwrap());
            fs::write(machine.bench.path().join(name), text).unwrap();
        }
        machine
    }

    fn file(&self, name: &str) -> PathBuf {
        self.bench.path().join("files").join(name)
    }

    /// Writes to a file of `devices.toml`, which is created with the declared length.
    fn put(&self, name: &str, at: u64, bytes: &[u8]) {
        let file = File::options().create(true).truncate(false).write(true).open(self.file(name));
        let file = file.unwrap();
        file.set_len(if name == "ram" { 1 << 30 } else { 1 << 20 }).unwrap();
        file.write_all_at(bytes, at).unwrap();
    }

    /// Returns the bytes of a copy, and the byte after it.
    fn bytes(&self, name: &str, at: u64) -> (Vec<u8>, u8) {
        let mut bytes = vec![0; LENGTH + 1];
        File::open(self.file(name)).unwrap().read_exact_at(&mut bytes, at).unwrap();
        let next = bytes.pop().unwrap();
        (bytes, next)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        self.bench.command_with_user_cache(arguments)
    }

    fn output(&self, arguments: &[&str]) -> Output {
        let output = self.command(arguments).output().unwrap();
        println!("{}", String::from_utf8_lossy(&output.stderr));
        output
    }

    /// Runs experiments once in a guest with backing files and returns their samples.
    fn run(&self, guest: &str, arguments: &[&str]) -> Vec<Sample> {
        let common = ["run", "-e", "experiments.toml", "--guest", guest, "--guest-files", "files"];
        let once = ["--rounds", "1", "--quiet", "--fresh"];
        let output = self.output(&[&common[..], &once, arguments].concat());
        assert!(output.status.success(), "{output:?}");
        let run = self.bench.journal();
        let name = Path::new(guest).file_stem().unwrap().to_str().unwrap();
        let guests = run.record.guests.as_ref().unwrap();
        assert_eq!(guests.name, name);
        // The journal has the declaration as it is written.
        let declared = match fs::read_to_string(self.bench.path().join(guest)) {
            Ok(text) => text,
            Err(_) => vm::declaration::find(guest).unwrap().text,
        };
        assert_eq!(guests.declaration, declared);
        assert_eq!(run.record.host, name);
        let samples =
            run.samples.into_iter().filter(|one| !lab::run::is_lab_experiment(&one.experiment));
        samples.collect()
    }
}

fn is_fault(sample: &Sample) -> bool {
    sample.error.as_ref().is_some_and(|error| error.kind.is_fault())
}

/// Returns the samples by memory; checks that those of this memory arrived and have no time.
#[track_caller]
fn arrived(samples: &[Sample], kinds: &[&str]) {
    for kind in kinds {
        let of_kind = samples.iter().filter(|one| one.point.text("memory") == *kind);
        let of_kind: Vec<_> = of_kind.collect();
        assert!(!of_kind.is_empty(), "{kind}: no sample");
        for sample in of_kind {
            assert_eq!(sample.error, None, "{}", sample.point);
            let names: Vec<_> = sample.values.keys().collect();
            assert_eq!(names, ["checked"], "an emulated CPU has no time: {sample:?}");
            assert!(sample.values["checked"] > 0.0 && sample.clock.is_none());
        }
    }
}

#[test]
fn copies_in_a_guest_move_the_right_bytes_to_and_from_devices() {
    let machine = Machine::new();
    machine.put("bar", 0, &pattern(7));
    machine.put("ram", RESERVED, &pattern(7));
    let read = machine.run("./devices.toml", &["copy/reads", "--set", "source-offset=7"]);
    arrived(&read, &["pci-bar", "host-physical"]);

    machine.put("bar", 0, &[0xee; 1 << 20]);
    let written = machine.run("./devices.toml", &["copy/writes", "--set", "source-offset=33"]);
    arrived(&written, &["pci-bar", "host-physical", "dax"]);
    // The devices' memory has exactly the bytes that the program reports.
    for (file, at, next) in [("bar", 0, 0xee), ("ram", RESERVED, 0)] {
        assert_eq!(machine.bytes(file, at), (pattern(33), next), "{file}");
    }
    // The DAX device starts after Linux' records in the file.
    let bytes = fs::read(machine.file("nvdimm")).unwrap();
    let found = bytes.chunks(4096).position(|page| page == &pattern(33)[..4096]).unwrap();
    assert_eq!(machine.bytes("nvdimm", found as u64 * 4096), (pattern(33), 0));
    // The guest has no memory at ESCAPE's address.
    let device = written.iter().find(|one| one.point.text("memory") == "device").unwrap();
    let refused = device.error.as_ref().unwrap();
    assert_eq!(refused.kind, FailureKind::Unavailable, "{refused}");
}

/// The command of the documentation for all experiments of ESCAPE: with five lengths and one round, since a guest is slow.
const ALL_OF_ESCAPE: &str = "copy 0 1 2 3 4 5 -t 16 -n 5 --rounds 1";

#[test]
#[ignore = "boots a guest"]
fn long_every_experiment_of_escape_runs_by_the_documented_command() {
    let manual = include_str!("../../../../docs/virtual.md");
    assert!(manual.contains(&format!("tollgate guest escape -- {ALL_OF_ESCAPE}  ")));
    let machine = Machine::new();
    let all: Vec<_> = ALL_OF_ESCAPE.split(' ').collect();
    let files = ["guest", "escape", "--guest-files", "files", "--"];
    let output = machine.output(&[&files[..], &all].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    let rows = text.lines().filter(|line| line.contains("= verified, not timed ("));
    let (experiments, lengths, functions) = (6, 5, 3);
    assert_eq!(rows.count(), experiments * lengths * functions, "{text}");
    // The last write of experiment 4 or the fill of experiment 5: the shortest has 16 B.
    let (bytes, _) = machine.bytes("escape", 0);
    let is_ascending = bytes[..16].windows(2).all(|two| two[1] == two[0].wrapping_add(1));
    assert!(is_ascending, "{:?}", &bytes[..16]);
}

#[test]
#[ignore = "boots a guest"]
fn long_packets_of_applications_on_several_cores_return_in_a_guest() {
    let machine = Machine::new();
    let samples = machine.run("smp", &["stream/on-cores", "stream/loaded"]);
    let of = |id: &'static str| samples.iter().filter(move |one| one.experiment == id);
    let mut applications = BTreeMap::<&str, usize>::new();
    for sample in of("stream/on-cores") {
        assert_eq!(sample.error, None, "{}", sample.point);
        assert_eq!(sample.values["checked"], 16384.0, "{}: {sample:?}", sample.point);
        assert_eq!(sample.values["delivered"], 1.0, "{}: {sample:?}", sample.point);
        let is_known = |name: &String| {
            ["checked", "delivered", "depth", "dropped", "flows_without_rule", "missing_values"]
                .contains(&name.as_str())
                || name.starts_with("lost")
        };
        assert!(sample.values.keys().all(is_known), "an emulated CPU has no time: {sample:?}");
        assert!(sample.clock.is_none() && sample.trials.is_empty(), "{sample:?}");
        *applications.entry(sample.point.text("application")).or_default() += 1;
    }
    // The echo also over descriptors, and on 4 and 8 cores.
    let expected =
        [("echo", 4), ("key-value", 1), ("log-monitor", 1), ("maglev", 1), ("telemetry", 1)];
    assert_eq!(applications, expected.into());
    let loaded: Vec<_> = of("stream/loaded").filter_map(|one| one.error.as_ref()).collect();
    assert_eq!(loaded.len(), 1, "{loaded:?}");
    assert_eq!(loaded[0].kind, FailureKind::Unavailable, "a load needs a clock: {}", loaded[0]);
}

/// Returns the counts of heaps by allocator.
fn heaps(samples: Vec<Sample>) -> BTreeMap<String, BTreeMap<String, f64>> {
    let counts = |one: Sample| {
        assert_eq!(one.error, None, "{}", one.point);
        let names: Vec<_> = one.values.keys().map(String::as_str).collect();
        assert_eq!(names, ["heap_per_thread", "pages", "reusable", "usable"], "{}", one.point);
        (one.point.text("allocator").to_owned(), one.values)
    };
    samples.into_iter().filter(|one| one.experiment == "enclave/heaps").map(counts).collect()
}

#[test]
#[ignore = "minutes"]
fn long_enclaves_of_kind_kvm_work_in_a_nested_guest() {
    let machine = Machine::new();
    let guests = heaps(machine.run("nested", &["enclave/heaps", "--where", "kind=kvm"]));
    assert_eq!(guests.len(), enclave::images::all().len());
    // The same code on the same heap has the same answers in this machine's process; those of an allocator that aligns
    // its memory also depend on the heap's address.
    let here = ["run", "-e", "experiments.toml", "enclave/heaps", "--where", "kind=simulate"];
    let output = machine.output(&[&here[..], &["--rounds", "1", "--quiet", "--fresh"]].concat());
    assert!(output.status.success(), "{output:?}");
    let here = heaps(machine.bench.journal().samples);
    for allocator in ["dlmalloc", "dlmalloc-wait", "rlsf", "talc"] {
        assert_eq!(guests[allocator], here[allocator], "{allocator}");
    }
    for (allocator, counts) in &guests {
        let ratio = counts["pages"] / here[allocator]["pages"];
        assert!((0.75..1.33).contains(&ratio), "{allocator}: {counts:?}, {:?}", here[allocator]);
    }
    // Calls are counted and not timed.
    let calls = machine.run("nested", &["enclave/calls"]);
    assert_eq!(calls.len(), 2);
    for sample in calls {
        assert_eq!(sample.error, None, "{}", sample.point);
        assert_eq!(sample.values, [("calls_answered".to_owned(), 800.0)].into(), "{sample:?}");
        assert!(sample.histograms.is_empty() && sample.clock.is_none(), "{sample:?}");
    }
}

#[test]
fn a_wrong_guest_is_refused_in_one_line() {
    let machine = Machine::new();
    let refused = |guest: &str, status| {
        machine.bench.refused(&["run", "copy/throughput", "--guest", guest], status)
    };
    assert!(refused("no-such", 2).contains("unknown guest 'no-such'"));
    assert!(refused("./none.toml", 2).contains("./none.toml"));
    fs::write(machine.bench.path().join("rules.toml"), "range = 1").unwrap();
    for (arguments, why) in [
        ("guest plain --host x -- list", "omit --host"),
        ("guest plain --guest-files .", "<COMMAND>"),
        ("run copy --accelerator kvm", "--guest"),
        ("doctor --guest-files .", "--guest"),
        ("run copy/two-host-mediation --guest pool --set rules=rules.toml", "--set rules:1"),
    ] {
        let words: Vec<_> = arguments.split(' ').collect();
        let line = machine.bench.refused(&words, 2);
        assert!(line.contains(why), "{line}");
    }
    fs::write(
        machine.bench.path().join("mine.toml"),
        "about = 'one'\nset = { dax-divice = '/dev/dax0.0' }",
    )
    .unwrap();
    assert!(refused("./mine.toml", 2).contains("unknown name 'dax-divice'"));
}

#[test]
fn an_experiment_with_more_roles_than_hosts_is_refused_before_the_boot() {
    let machine = Machine::new();
    let words = ["run", "planted/roles", "--guest", "plain"];
    // Neither boots a guest nor makes a kernel: this cache has none.
    let line = machine.bench.refused(&words, 2);
    let expected = "experiment 'planted/roles': its 2 roles need a host each, and guest 'plain' has 1 host; use --guest with \
        one of escape, pool, shared-bar";
    assert!(line.ends_with(expected), "{line}");
    assert!(!machine.bench.path().join("cache").exists());
}

#[test]
fn without_qemu_no_kernel_is_made() {
    let machine = Machine::new();
    let words: [&[&str]; 2] =
        [&["run", "planted/delay", "--guest", "plain"], &["guest", "plain", "--", "list"]];
    for words in words {
        let mut command = machine.bench.command(words);
        let output = command.env("PATH", machine.bench.path()).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{errors}");
        let last = errors.lines().last().unwrap();
        assert!(last.contains("the program qemu-system-x86_64 is not installed"), "{errors}");
        assert!(!machine.bench.path().join("cache").exists());
    }
}

/// Runs a command that starts the guest `mine.toml`, which has this declaration, and fails; returns its error line and the
/// number of lines that contain the cause.
fn failed_start(declared: &str, words: &[&str], cause: &str) -> (String, usize) {
    let machine = Machine::new();
    fs::write(machine.bench.path().join("mine.toml"), declared).unwrap();
    let output = machine.output(words);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    let last = errors.lines().last().unwrap();
    assert!(last.starts_with("error: "), "{errors}");
    (last.to_owned(), errors.lines().filter(|line| line.contains(cause)).count())
}

const RUN: [&str; 4] = ["run", "copy/throughput", "--guest", "./mine.toml"];
const LIST: [&str; 4] = ["guest", "./mine.toml", "--", "list"];

#[test]
fn a_guest_that_qemu_does_not_start_is_named_with_the_cause() {
    let declared = "about = 'one'\narguments = ['-device', 'no-such-device']";
    let (line, lines) = failed_start(declared, &RUN, "no-such-device");
    assert!(line.starts_with("error: cannot start: guest 'mine' exited with status 1: "), "{line}");
    assert!(line.contains("no-such-device") && lines == 1, "{line}");
    assert!(line.ends_with("see its console with 'tollgate guest ./mine.toml -- list'"), "{line}");
    let (line, lines) = failed_start(declared, &LIST, "no-such-device");
    assert!(line.starts_with("error: guest 'mine': QEMU exited with status 1"), "{line}");
    assert!(line.contains("no-such-device") && lines == 1, "{line}");
}

#[test]
#[ignore = "boots a guest twice"]
fn long_a_guest_without_its_module_does_not_start() {
    let declared = "about = 'one'\nmodules = ['no_such_module']";
    let doctor = ["guest", "./mine.toml", "--", "doctor"];
    for words in [&RUN[..], &doctor] {
        let (line, lines) = failed_start(declared, words, "no module 'no_such_module'");
        assert!(line.contains("no module 'no_such_module'") && lines == 1, "{line}");
    }
}

#[test]
#[ignore = "boots a guest twice"]
fn long_a_guest_whose_devices_are_not_prepared_does_not_start() {
    let declared = "about = 'one'\nprepare = 'exit 3'";
    let cause = "'prepare' of the guest's declaration failed: it exited with status 3";
    for words in [&RUN, &LIST] {
        let (line, lines) = failed_start(declared, words, cause);
        assert!(line.contains(cause) && line.contains("guest '") && lines == 1, "{line}");
    }
}

#[test]
#[ignore = "boots a guest"]
fn long_a_run_in_a_guest_measures_what_its_hosts_can() {
    let machine = Machine::new();
    let words = ["run", "planted/roles", "planted/artefact", "--guest", "plain", "--rounds", "1"];
    let output = machine.output(&[&words[..], &["--quiet"]].concat());
    assert!(output.status.success(), "{output:?}");
    let samples = machine.bench.journal().samples;
    let of = |id: &'static str| samples.iter().filter(move |one| one.experiment == id);
    assert!(of("planted/roles").count() > 0);
    for sample in of("planted/roles") {
        let failure = sample.error.as_ref().unwrap();
        assert_eq!(failure.kind, FailureKind::Unavailable, "{failure}");
        assert!(failure.why.contains("guest 'plain' has 1 host"), "{failure}");
        assert!(failure.remedy.as_ref().unwrap().contains("escape"), "{failure}");
    }
    let is_table = |one: &&Sample| one.point.text("artefact") == "table";
    let table: Vec<_> = of("planted/artefact").filter(is_table).collect();
    assert!(!table.is_empty() && table.iter().all(|one| !is_fault(one)), "{table:?}");
}

#[test]
#[ignore = "boots a guest"]
fn long_the_command_inside_a_guest_has_its_exit_status() {
    let machine = Machine::new();
    let output = machine.output(&["guest", "plain", "--", "run", "no-such-suite"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains("no-such-suite"), "{errors}");
}
