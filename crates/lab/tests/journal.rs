//! What is written is read again, whatever was cut off, damaged or held by another.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod record;

use std::fs;
use std::path::Path;

use lab::journal::{Journal, JournalError, RECORD, SAMPLES, open};
use lab::plan::Item;
use lab::point::Point;
use lab::sample::Sample;
use proptest::prelude::*;
use record::record;

fn sample(round: u32, value: f64) -> Sample {
    Sample {
        experiment: "copy/throughput".into(),
        point: Point::from([("length", "64 KiB"), ("threads", "2")]),
        round,
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
fn what_is_written_is_read() {
    let folder = tempfile::tempdir().unwrap();
    written(folder.path(), 5);
    let run = open(folder.path()).unwrap();
    assert_eq!(run.samples, (0..5).map(|r| sample(r, f64::from(r) / 3.0)).collect::<Vec<_>>());
    let journal = Journal::open(folder.path(), record).unwrap();
    let item = Item { point: sample(0, 0.0).point, twin: false };
    assert_eq!(journal.value("copy/throughput", &item, 4, "e").map(f64::is_nan), Some(true));
    assert_eq!(journal.value("copy/throughput", &item, 5, "e"), None);
    assert_eq!(journal.value("copy/throughput", &item, 4, "other"), None);
}

#[test]
fn every_truncation_loses_the_last_row_at_most() {
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
fn a_truncated_record_is_refused_in_one_line() {
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
    fs::write(folder.path().join(RECORD), r#"{"format": 3, "anything": []}"#).unwrap();
    let line = open(folder.path()).unwrap_err().to_string();
    assert!(line.contains("format 3") && line.contains("reads 2; use a newer"), "{line}");
    fs::write(folder.path().join(RECORD), r#"{"format": 1, "anything": []}"#).unwrap();
    let line = open(folder.path()).unwrap_err().to_string();
    assert!(line.contains("format 1") && line.contains("--fresh"), "{line}");
}

#[test]
fn a_damaged_line_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let mut bytes = written(folder.path(), 3);
    bytes[0] = b'!';
    fs::write(folder.path().join(SAMPLES), bytes).unwrap();
    let line = open(folder.path()).unwrap_err().to_string();
    assert!(line.contains("line 1") && !line.contains('\n'), "{line}");
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
