//! Files that may harm their reader are refused with one line.

use std::io::Write as _;

use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use crate::harness::Bench;
use crate::{measured, read, write};

/// Asserts that every command that reads bundles refuses a file, with one line.
fn refused(bench: &Bench, reason: &str) {
    let commands: [(&[&str], i32); 4] = [
        (&["bundle", "--check", "bad.zip"], 2),
        (&["claims", "--results", "bad.zip"], 1),
        (&["show", "--results", "bad.zip"], 1),
        (&["report", "bad.zip"], 1),
    ];
    for (arguments, status) in commands {
        let error = bench.refused(arguments, status);
        assert!(error.contains("bad.zip: ") && error.contains(reason), "{arguments:?}: {error}");
    }
}

#[test]
fn names_outside_of_the_bundle_are_refused() {
    let bench = Bench::new();
    for name in ["../run.json", "/etc/passwd", "a/../../b", "a//b", "a\\b", ".hidden", "a\nb"] {
        write(&bench.path().join("bad.zip"), [(name, &b"{}"[..])]);
        refused(&bench, "is not a file within it");
    }
    let mut archive = ZipWriter::new(std::fs::File::create(bench.path().join("bad.zip")).unwrap());
    archive.add_symlink("run.json", "/etc/passwd", SimpleFileOptions::default()).unwrap();
    archive.finish().unwrap();
    refused(&bench, "is not a file within it");
}

#[test]
fn bombs_are_refused_before_they_are_read() {
    let bench = Bench::new();
    let zeros = vec![0u8; 64 << 20];
    write(&bench.path().join("bad.zip"), [("run.json", zeros.as_slice())]);
    refused(&bench, "larger than they may be");
    let many: Vec<String> = (0..10_001).map(|at| format!("{at}")).collect();
    write(&bench.path().join("bad.zip"), many.iter().map(|name| (name.as_str(), &b""[..])));
    refused(&bench, "more than 10000 entries");
    // A size that understates the content.
    let mut archive = ZipWriter::new(std::fs::File::create(bench.path().join("bad.zip")).unwrap());
    archive.start_file("manifest-sha256.txt", SimpleFileOptions::default()).unwrap();
    archive.write_all(&zeros[..1 << 20]).unwrap();
    archive.finish().unwrap();
    let mut bytes = std::fs::read(bench.path().join("bad.zip")).unwrap();
    let stated = (1u32 << 20).to_le_bytes();
    for at in 0..bytes.len() - 4 {
        if bytes[at..at + 4] == stated {
            bytes[at..at + 4].copy_from_slice(&9u32.to_le_bytes());
        }
    }
    std::fs::write(bench.path().join("bad.zip"), bytes).unwrap();
    refused(&bench, "than it states");
}

#[test]
fn no_truncated_bundle_or_other_file_is_read() {
    let bench = measured();
    bench.ok(&["bundle"]);
    let bytes = std::fs::read(bench.path().join("bundle.zip")).unwrap();
    for length in [0, 1, 30, bytes.len() / 2, bytes.len() - 1] {
        std::fs::write(bench.path().join("bad.zip"), &bytes[..length]).unwrap();
        refused(&bench, "is not a bundle");
    }
    let mut entries = read(&bench.path().join("bundle.zip"));
    entries.remove("manifest-sha256.txt");
    let all = entries.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice()));
    write(&bench.path().join("bad.zip"), all);
    refused(&bench, "has no manifest-sha256.txt");
}

#[test]
fn an_archive_without_a_run_is_no_bundle() {
    let bench = Bench::new();
    write(&bench.path().join("bad.zip"), [("manifest-sha256.txt", &b""[..])]);
    refused(&bench, "it has no run.json");
    // A small archive whose list would take gigabytes, and a list that states two digests of one name.
    for lines in ["a  b\n".repeat(1 << 20), "a  b\nc  b\n".into()] {
        write(&bench.path().join("bad.zip"), [("manifest-sha256.txt", lines.as_bytes())]);
        let error = bench.refused(&["bundle", "--check", "bad.zip"], 2);
        assert!(error.contains("manifest-sha256.txt"), "{error}");
    }
}

#[test]
fn results_that_are_missing_everywhere_are_named() {
    let bench = measured();
    bench.ok(&["bundle"]);
    let mut entries = read(&bench.path().join("bundle.zip"));
    let manifest = "manifest-sha256.txt";
    let lines = String::from_utf8(entries[manifest].clone()).unwrap();
    for name in ["claims.json", "ro-crate-metadata.json"] {
        entries.remove(name);
    }
    let kept =
        lines.lines().filter(|line| !line.ends_with("claims.json") && !line.contains("ro-crate"));
    let kept = kept.collect::<Vec<_>>().join("\n") + "\n";
    entries.insert(manifest.into(), kept.into_bytes());
    let all = entries.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice()));
    write(&bench.path().join("b.zip"), all);
    let output = bench.run(&["bundle", "--check", "b.zip"]);
    let lines = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{lines}");
    for name in ["claims.json", "ro-crate-metadata.json"] {
        assert!(lines.contains(&format!("{name}: missing, also in {manifest}\n")), "{lines}");
    }
}
