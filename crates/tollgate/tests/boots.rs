//! Each embedded guest boots once, and has what its declaration promises. The tests of what runs inside are long.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod harness;

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Mutex;
use std::time::Instant;

use harness::Bench;
use lab::sample::Sample;
use vm::declaration::StartOptions;
use vm::guest::Accelerator;

/// Guests that boot at the same time: a boot uses little more than one CPU.
const AT_ONCE: usize = 2;

/// A capability, and part of what the doctor reports of it: its details, or the reason why it is absent.
type Expected = (&'static str, &'static str);

/// A check in a guest by one run.
enum Check {
    /// The doctor, which must report this.
    Doctor(&'static [Expected]),
    /// A copy to this memory, which must be verified.
    Copy(&'static str),
    /// An instruction while the other thread of the core executes it, too.
    Sibling,
}

/// Returns the check of a guest; `None`, with a note, if its kernel is not built yet, which takes minutes.
fn check_of(guest: &str) -> Option<Check> {
    Some(match guest {
        "cxl" => Check::Doctor(&[("dax", "/dev/dax0.0"), ("numa", "2 nodes")]),
        "escape" => Check::Doctor(&[("dev-mem", "opens"), ("dax", "no /dev/dax device")]),
        "ivshmem" | "shared-bar" => Check::Copy("pci-bar"),
        "mpx" => Check::Doctor(&[("mpx", "CPUID and XCR0")]),
        "nested-clock" => Check::Doctor(&[("kvm-ring-0", "CS 0x8")]),
        "nested" => {
            Check::Doctor(&[("kvm-ring-0", "for counts only, because this CPU is emulated")])
        }
        "numa" => Check::Doctor(&[("numa", "2 nodes")]),
        "nvdimm" => Check::Doctor(&[("dax", "/dev/dax0.0"), ("numa", "2 nodes")]),
        "plain" => Check::Doctor(&[
            ("kvm-ring-0", "/dev/kvm does not exist"),
            ("numa", "1 node"),
            ("dax", "no /dev/dax device"),
        ]),
        "pool" => Check::Copy("device"),
        "reserved" => Check::Copy("host-physical"),
        "siblings" => Check::Sibling,
        "slow-clock" => Check::Doctor(&[("core-clock", "Hz")]),
        "smp" => Check::Doctor(&[("stream-8-cores", "the NIC on CPU")]),
        "stamped" | "stamped-clock" => {
            if !is_built(guest) {
                let why = "its kernel is not built yet; a long test builds and boots it";
                machine::untested::note(&format!("the guest '{guest}'"), &why);
                return None;
            }
            Check::Doctor(&[("crossing-stamps", "per thread, by prctl")])
        }
        other => panic!("{other}: state what it has"),
    })
}

/// Returns whether the cache has the kernel of a guest.
fn is_built(guest: &str) -> bool {
    let how = StartOptions {
        accelerator: Accelerator::Tcg,
        folder: None,
        options: &BTreeMap::new(),
        patches: &[crossing::patched::PATCH, bounds::TABLES_PATCH],
    };
    let declared = vm::declaration::find(guest).unwrap();
    declared.with_command(&how, None, &[]).unwrap().preparation().is_none()
}

/// Runs the doctor in a guest and checks what it reports of each capability.
fn check_doctor(guest: &str, expected: &[Expected]) {
    let bench = Bench::new();
    let words = ["doctor", "--guest", guest, "--json"];
    let output = bench.command_with_user_cache(&words).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{guest}: {errors}");
    let doctor: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let groups = doctor["groups"].as_array().unwrap().iter();
    let all = groups.filter_map(|group| group["capabilities"].as_array()).flatten();
    let text = |one: &serde_json::Value| {
        let state = &one["state"];
        let text = state["detail"].as_str().or(state["reason"].as_str()).unwrap();
        (one["name"].as_str().unwrap().to_owned(), text.to_owned())
    };
    let found: BTreeMap<_, _> = all.map(text).collect();
    // A planted clock is used, and no other.
    let has_clock = !found["invariant-tsc"].contains("this CPU is emulated");
    let declared = vm::declaration::find(guest).unwrap().declaration;
    assert_eq!(has_clock, declared.planted_clock, "{guest}: {found:?}");
    for (name, part) in expected {
        assert!(found[*name].contains(part), "{guest}: {name}: {found:?}");
    }
}

/// Measures a point once in a guest and returns its samples, of which each has only this metric.
fn counted(guest: &str, experiment: &str, point: &[&str], metric: &str) -> Vec<f64> {
    let bench = Bench::new();
    let point = point.iter().flat_map(|level| ["--where", level]);
    let how = ["--guest", guest, "--profile", "full", "--rounds", "1", "--quiet"];
    let words: Vec<_> = ["run", experiment].into_iter().chain(how).chain(point).collect();
    let output = bench.command_with_user_cache(&words).output().unwrap();
    assert!(output.status.success(), "{guest}: {}", String::from_utf8_lossy(&output.stderr));
    let samples = bench.journal().samples.into_iter().filter(|one| one.experiment == experiment);
    let value = |sample: Sample| {
        assert_eq!(sample.error, None, "{guest}: {}", sample.point);
        assert_eq!(sample.values.keys().collect::<Vec<_>>(), [metric], "{guest}: {sample:?}");
        sample.values[metric]
    };
    let values: Vec<_> = samples.map(value).collect();
    assert!(!values.is_empty(), "{guest}: no sample");
    values
}

/// Copies once to a memory of a guest and checks that the bytes were verified there.
fn check_copy(guest: &str, memory: &str) {
    let memory = format!("memory={memory}");
    let point = [&memory, "direction=write", "length=64 KiB", "function=glibc", "threads=0"];
    let checked = counted(guest, "copy/throughput", &point, "checked");
    assert!(checked.iter().all(|bytes| *bytes == 65536.0), "{guest}: {checked:?}");
}

/// Executes a form in a guest whose cores have two threads, while the other thread executes it, too.
fn check_sibling(guest: &str) {
    let point = ["form=add R64 R64", "sibling=busy"];
    let copies = counted(guest, "bounds/instructions", &point, "copies_executed");
    assert!(copies.iter().all(|count| *count >= 8.0), "{guest}: {copies:?}");
}

#[test]
fn every_embedded_guest_boots_and_has_what_its_declaration_promises() {
    let guests = vm::declaration::embedded().unwrap().into_iter();
    let guests = guests.filter_map(|one| Some((check_of(&one.name)?, one.name)));
    let left = Mutex::new(guests.collect::<Vec<_>>());
    // Not captured, so that the times are always seen. They are reported and not asserted: the machine may be busy.
    let report = |line: &str| writeln!(std::io::stderr(), "{line}").unwrap();
    let (all, total) = (Instant::now(), Mutex::new(0.0));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some((check, guest)) = { left.lock().unwrap().pop() } {
                    let start = Instant::now();
                    match check {
                        Check::Doctor(expected) => check_doctor(&guest, expected),
                        Check::Copy(memory) => check_copy(&guest, memory),
                        Check::Sibling => check_sibling(&guest),
                    }
                    let time = start.elapsed().as_secs_f64();
                    *total.lock().unwrap() += time;
                    report(&format!("boot of {guest}: {time:.0} s"));
                }
            });
        }
    });
    let (total, all) = (total.into_inner().unwrap(), all.elapsed().as_secs_f64());
    report(&format!("all boots: {total:.0} s, {AT_ONCE} at a time in {all:.0} s"));
}

#[test]
fn every_embedded_guest_is_documented() {
    let manual = include_str!("../../../docs/virtual.md");
    for guest in vm::declaration::embedded().unwrap() {
        let row = format!("| `{}` |", guest.name);
        assert!(manual.contains(&row), "docs/virtual.md has no row of '{}'", guest.name);
    }
}
