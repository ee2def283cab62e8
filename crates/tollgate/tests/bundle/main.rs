//! Bundles: their content, their check, reading them, and their verification by a program that shares no code.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod code;
mod content;
#[path = "../harness/mod.rs"]
mod harness;
mod hostile;
#[path = "../report/journal.rs"]
#[allow(dead_code, reason = "the tests of the page use the rest")]
mod journal;
mod simulated;
mod verified;

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::path::Path;

use lab::experiment::Profile;
use lab::journal::Run;
use lab::sample::Sample;
use zip::write::SimpleFileOptions;
use zip::{ZipArchive, ZipWriter};

use harness::Bench;

/// Entries of an archive by name.
type Entries = BTreeMap<String, Vec<u8>>;

/// Returns a bench with a run of some experiments of the suites.
fn measured() -> Bench {
    measured_with(|_| {})
}

/// Returns a run that ends with the lab's own sample, of a session of a minute.
fn measured_in_sessions() -> Bench {
    measured_with(|run| {
        let last = run.samples.last().unwrap().clone();
        run.samples.push(Sample {
            experiment: "lab/session".into(),
            point: [("profile", "quick")].into(),
            twin: false,
            at: last.at + last.seconds,
            seconds: 60.0,
            values: [("outside_samples".to_owned(), 0.1)].into(),
            ..last
        });
    })
}

fn measured_with(change: impl FnOnce(&mut Run)) -> Bench {
    let bench = Bench::new();
    let wanted = ["copy/sizes", "bounds/checks", "crossing/round-trips"];
    let mut run = journal::empty(Profile::Quick, |one| wanted.contains(&one.id().as_str()));
    run.record.sessions[0].start = "2026-01-01T00:00:00Z".into();
    journal::measure(&mut run, 8, &journal::metrics_shown);
    change(&mut run);
    journal::write(&run, &bench.path().join("results"));
    bench
}

fn read(path: &Path) -> Entries {
    let mut archive = ZipArchive::new(std::fs::File::open(path).unwrap()).unwrap();
    let mut entries = Entries::new();
    for index in 0..archive.len() {
        let mut file = archive.by_index(index).unwrap();
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).unwrap();
        entries.insert(file.name().to_owned(), bytes);
    }
    entries
}

fn write<'e>(path: &Path, entries: impl IntoIterator<Item = (&'e str, &'e [u8])>) {
    let mut archive = ZipWriter::new(std::fs::File::create(path).unwrap());
    for (name, bytes) in entries {
        archive.start_file(name, SimpleFileOptions::default()).unwrap();
        archive.write_all(bytes).unwrap();
    }
    archive.finish().unwrap();
}

/// Writes entries with a list of digests that fits them.
fn write_bundle(path: &Path, mut entries: Entries) {
    entries.remove(report::bundle::MANIFEST);
    let lines =
        entries.iter().map(|(name, bytes)| format!("{}  {name}\n", report::bundle::digest(bytes)));
    let manifest: String = lines.collect();
    entries.insert(report::bundle::MANIFEST.into(), manifest.into_bytes());
    write(path, entries.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())));
}
