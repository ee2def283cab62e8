//! Journals are read as they were written; truncated, damaged and locked journals are repaired or refused.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod record;

use std::fs;
use std::path::Path;

use lab::journal::{self, FORMAT, Journal, JournalError, RECORD, SAMPLES, Settled, open};
use lab::point::Point;
use lab::sample::{Clock, Failure, Item, MAX_ATTEMPTS, Sample};
use proptest::prelude::*;
use record::record;

fn sample(round: u32, value: f64) -> Sample {
    Sample {
        experiment: "copy/throughput".into(),
        point: Point::from([("length", "64 KiB"), ("threads", "2")]),
        round,
        session: 1,
        host: "here".into(),
        environment: "e".into(),
        attempt: 1,
        values: [("throughput".to_string(), value)].into(),
        ..Sample::default()
    }
}

fn written(folder: &Path, samples: u32) -> Vec<u8> {
    let mut journal = Journal::open(folder, record).unwrap();
    for round in 0..samples {
        journal.append(&sample(round, f64::from(round) / 3.0)).unwrap();
    }
    fs::read(folder.join(SAMPLES)).unwrap()
}

#[test]
fn a_written_journal_is_read_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    written(folder.path(), 5);
    let run = open(folder.path()).unwrap();
    assert_eq!(run.samples, (0..5).map(|r| sample(r, f64::from(r) / 3.0)).collect::<Vec<_>>());
    let journal = Journal::open(folder.path(), record).unwrap();
    let item = Item { point: sample(0, 0.0).point, twin: false };
    // The record has no experiment, and therefore no metric for this value.
    assert_eq!(journal.settled("copy/throughput", &item, 4, "e"), &[(1, Settled::NoValue)]);
    let stall = Sample { void: Some("a stall".into()), attempt: MAX_ATTEMPTS, ..sample(7, 1.0) };
    let mut journal = journal;
    journal.append(&stall).unwrap();
    assert_eq!(journal.settled("copy/throughput", &item, 7, "e"), &[(1, Settled::Void)]);
    let voids = journal.voids("copy/throughput", &item, "e").unwrap();
    assert_eq!((voids.attempts, voids.cause.as_str(), voids.is_reported), (1, "a stall", false));
    assert_eq!(journal.settled("copy/throughput", &item, 5, "e"), &[]);
    assert_eq!(journal.settled("copy/throughput", &item, 4, "other"), &[]);
}

#[test]
fn samples_are_known_by_session() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = Journal::open(folder.path(), record).unwrap();
    let item = Item { point: sample(0, 0.0).point, twin: false };
    let of = |session, error: Option<Failure>| Sample { session, error, ..sample(4, 1.0) };
    journal.append(&of(1, None)).unwrap();
    journal.append(&of(2, Some(Failure::failed("it broke")))).unwrap();
    journal.append(&of(3, Some(Failure::unavailable("absent", "plug it in")))).unwrap();
    drop(journal);
    let journal = Journal::open(folder.path(), record).unwrap();
    let settled = journal.settled("copy/throughput", &item, 4, "e");
    assert_eq!(settled, &[(1, Settled::NoValue), (2, Settled::Failed)]);
    let unavailable =
        |session| journal.is_unavailable("copy/throughput", &item.point, session, "e");
    assert_eq!([1, 2, 3].map(unavailable), [false, false, true]);
}

#[test]
fn a_truncation_loses_at_most_the_last_sample() {
    let folder = tempfile::tempdir().unwrap();
    let whole = written(folder.path(), 4);
    for length in 0..=whole.len() {
        fs::write(folder.path().join(SAMPLES), &whole[..length]).unwrap();
        let rows = whole[..length].iter().filter(|byte| **byte == b'\n').count();
        assert_eq!(open(folder.path()).unwrap().samples.len(), rows, "cut at {length}");
        let mut journal = Journal::open(folder.path(), record).unwrap();
        journal.append(&sample(99, 1.0)).unwrap();
        drop(journal);
        assert_eq!(open(folder.path()).unwrap().samples.len(), rows + 1, "resumed at {length}");
    }
}

#[test]
fn a_truncated_record_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    written(folder.path(), 1);
    let whole = fs::read(folder.path().join(RECORD)).unwrap();
    for length in 0..whole.len() {
        fs::write(folder.path().join(RECORD), &whole[..length]).unwrap();
        let line = open(folder.path()).unwrap_err().to_string();
        assert!(!line.contains('\n') && line.contains(RECORD), "{line}");
    }
}

#[test]
fn a_second_lab_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let _first = Journal::open(folder.path(), record).unwrap();
    let second = Journal::open(folder.path(), record).unwrap_err();
    assert!(matches!(second, JournalError::Locked(_)), "{second}");
}

#[test]
fn a_journal_of_another_format_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let newer = FORMAT + 1;
    let text = format!(r#"{{"format": {newer}, "anything": []}}"#);
    fs::write(folder.path().join(RECORD), text).unwrap();
    let line = open(folder.path()).unwrap_err().to_string();
    let expected = [format!("format {newer}"), format!("reads {FORMAT}; use a newer")];
    assert!(expected.iter().all(|expected| line.contains(expected)), "{line}");
    fs::write(folder.path().join(RECORD), r#"{"format": 1, "anything": []}"#).unwrap();
    let line = open(folder.path()).unwrap_err().to_string();
    assert!(line.contains("format 1") && line.contains("--fresh"), "{line}");
}

#[test]
fn the_error_names_the_damaged_line() {
    let folder = tempfile::tempdir().unwrap();
    let mut bytes = written(folder.path(), 3);
    bytes[0] = b'!';
    fs::write(folder.path().join(SAMPLES), bytes).unwrap();
    let line = open(folder.path()).unwrap_err().to_string();
    assert!(line.contains("line 1") && !line.contains('\n'), "{line}");
}

#[test]
fn deleted_lines_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = Journal::open(folder.path(), record).unwrap();
    (0..3).for_each(|round| journal.append(&sample(round, 1.0)).unwrap());
    // While a session writes, or after it was killed, its number of lines is unknown.
    assert_eq!(open(folder.path()).unwrap().line_warnings(), [""; 0]);
    journal.record.sessions.iter_mut().for_each(|session| session.lines = None);
    journal.end_session().unwrap();
    drop(journal);
    let run = open(folder.path()).unwrap();
    let counts: Vec<_> = run.record.sessions.iter().map(|session| session.lines).collect();
    assert_eq!(counts, [Some(3), Some(0), Some(0)]);
    assert_eq!(run.line_warnings(), [""; 0]);
    let path = folder.path().join(SAMPLES);
    let text = fs::read_to_string(&path).unwrap();
    let kept: Vec<&str> = text.lines().skip(1).collect();
    fs::write(&path, kept.join("\n") + "\n").unwrap();
    // A later session does not hide it.
    Journal::open(folder.path(), record).unwrap().end_session().unwrap();
    let warnings = open(folder.path()).unwrap().line_warnings();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    let expected = "session 1 wrote 3 lines, and the file has 2 of it";
    assert!(warnings[0].contains(expected), "{warnings:?}");
}

/// Each of these would count as evidence if it were not refused.
#[test]
fn impossible_samples_are_damaged_lines() {
    let clock = Clock { tsc_hertz: 0.0, core_before: 4e9, core_after: 4e9, ..Clock::default() };
    let sample = || sample(1, 1.0);
    for (what, impossible) in [
        ("'session' is 0 of 3", Sample { session: 0, ..sample() }),
        ("'session' is 4 of 3", Sample { session: 4, ..sample() }),
        ("'attempt' is 0", Sample { attempt: 0, ..sample() }),
        ("'attempt' is 4294967295", Sample { attempt: u32::MAX, ..sample() }),
        ("'at' is -1", Sample { at: -1.0, ..sample() }),
        ("'seconds' is 1000", Sample { seconds: 1e300, ..sample() }),
        ("a clock is 0 Hz", Sample { clock: Some(clock), ..sample() }),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(folder.path(), record).unwrap();
        journal.append(&sample()).unwrap();
        journal.append(&impossible).unwrap();
        drop(journal);
        let read = open(folder.path()).unwrap_err().to_string();
        let resumed = Journal::open(folder.path(), record).unwrap_err().to_string();
        let expected = format!("line 2 is not a sample ({what}");
        assert!(read.contains(&expected), "{what}: {read}");
        assert_eq!(read, resumed);
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused_in_one_line(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let folder = tempfile::tempdir().unwrap();
        written(folder.path(), 0);
        fs::write(folder.path().join(SAMPLES), bytes).unwrap();
        if let Err(error) = open(folder.path()) {
            prop_assert!(!error.to_string().contains('\n'));
        }
    }
}

/// Replaces a file in a results folder, as another user could.
fn replace(path: &Path, what: &str) {
    let _ = fs::remove_file(path);
    match what {
        "a link" => std::os::unix::fs::symlink("/etc/passwd", path).unwrap(),
        "endless" => std::os::unix::fs::symlink("/dev/zero", path).unwrap(),
        "a FIFO" => {
            use rustix::fs::{CWD, FileType, Mode, mknodat};
            mknodat(CWD, path, FileType::Fifo, Mode::from(0o600), 0).unwrap();
        }
        _ => fs::create_dir(path).unwrap(),
    }
}

#[test]
fn only_regular_files_are_read_and_written() {
    for what in ["a link", "endless", "a FIFO", "a folder"] {
        let folder = tempfile::tempdir().unwrap();
        written(folder.path(), 1);
        replace(&folder.path().join(SAMPLES), what);
        for line in [
            open(folder.path()).unwrap_err().to_string(),
            Journal::open(folder.path(), record).unwrap_err().to_string(),
        ] {
            assert!(line.contains(SAMPLES) && !line.contains('\n'), "{what}: {line}");
        }

        let folder = tempfile::tempdir().unwrap();
        written(folder.path(), 1);
        replace(&folder.path().join(RECORD), what);
        let line = open(folder.path()).unwrap_err().to_string();
        assert!(line.contains(RECORD) && !line.contains('\n'), "{what}: {line}");
        assert!(journal::runs(folder.path()).unwrap().is_empty(), "{what}");
    }
}

#[test]
fn a_record_replaces_a_symbolic_link_and_not_its_target() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("target");
    fs::write(&target, "kept").unwrap();
    let path = folder.path().join(RECORD);
    std::os::unix::fs::symlink(&target, &path).unwrap();
    record().write(folder.path()).unwrap();
    assert_eq!(fs::read(&target).unwrap(), b"kept");
    assert!(fs::symlink_metadata(&path).unwrap().is_file());
}

#[test]
fn an_endless_line_is_refused_in_bounded_memory() {
    let folder = tempfile::tempdir().unwrap();
    written(folder.path(), 1);
    // A sparse file takes no disk space, but would fill the memory if read without a limit.
    let file = fs::File::options().append(true).open(folder.path().join(SAMPLES)).unwrap();
    file.set_len(1 << 40).unwrap();
    let line = open(folder.path()).unwrap_err().to_string();
    assert!(line.contains("line 2 is longer than"), "{line}");
}
