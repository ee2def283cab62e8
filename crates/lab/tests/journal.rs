//! Journals are read as they were written; truncated, damaged and locked journals are repaired or refused.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod record;

use std::fs;
use std::path::Path;

use lab::journal::{
    self, FORMAT, Journal, JournalError, RECORD, RunRecord, SAMPLES, SessionRecord, Settled, open,
};
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

/// Returns the inconsistencies of a journal of three rounds by one ended session, after an edit of its lines.
fn inconsistencies_after(edit: &dyn Fn(Vec<&str>) -> Vec<String>) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let new = || RunRecord { sessions: vec![SessionRecord::starting("boot".into())], ..record() };
    let mut journal = Journal::open(folder.path(), new).unwrap();
    journal.record.sessions[0].written = None;
    (0..3).for_each(|round| journal.append(&sample(round, 1.0)).unwrap());
    // While a session writes, or after it was killed, what it wrote is unknown.
    assert_eq!(open(folder.path()).unwrap().inconsistencies, [""; 0]);
    journal.end_session().unwrap();
    drop(journal);
    let run = open(folder.path()).unwrap();
    assert_eq!(run.record.sessions[0].written.as_ref().map(|wrote| wrote.lines), Some(3));
    assert_eq!(run.inconsistencies, [""; 0]);
    let path = folder.path().join(SAMPLES);
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, edit(text.lines().collect()).join("\n") + "\n").unwrap();
    // A later session does not hide it.
    let mut journal = Journal::open(folder.path(), record).unwrap();
    journal.record.sessions.push(SessionRecord::starting("boot".into()));
    journal.append(&Sample { session: 2, ..sample(9, 1.0) }).unwrap();
    journal.end_session().unwrap();
    drop(journal);
    open(folder.path()).unwrap().inconsistencies
}

#[test]
fn edited_lines_are_inconsistent() {
    let owned = |lines: &[&str]| lines.iter().map(|line| line.to_string()).collect::<Vec<_>>();
    let of = inconsistencies_after;
    assert_eq!(of(&|lines| owned(&lines)), [""; 0]);
    let line = &of(&|lines| owned(&lines[1..]))[0];
    let expected = "session 1 wrote 3 lines of samples.jsonl, and the file has 2 of it; restore";
    assert!(line.contains(expected), "{line}");
    // The same number of lines, one of them with another value, or in another order.
    let with_other_value = |lines: Vec<&str>| {
        let mut lines = owned(&lines);
        lines[1] = lines[1].replace(":1.0", ":2.0");
        lines
    };
    for edited in [of(&with_other_value), of(&|lines| owned(&[lines[1], lines[0], lines[2]]))] {
        let expected = "the lines of session 1 in samples.jsonl are not those that it wrote";
        assert!(edited.len() == 1 && edited[0].contains(expected), "{edited:?}");
    }
}

#[test]
fn a_session_before_the_last_without_its_lines_is_inconsistent() {
    let folder = tempfile::tempdir().unwrap();
    record().write(folder.path()).unwrap();
    let lines = open(folder.path()).unwrap().inconsistencies;
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].contains("run.json does not state what session 1 wrote"), "{lines:?}");
}

/// Repeated rounds would count as further evidence.
#[test]
fn a_sample_counts_once() {
    let folder = tempfile::tempdir().unwrap();
    let text = written(folder.path(), 2);
    fs::write(folder.path().join(SAMPLES), [&text[..], &text[..]].concat()).unwrap();
    let expected = "line 3 is not a sample (it repeats round 0, session 1, attempt 1 of its point)";
    let read = open(folder.path()).unwrap_err().to_string();
    assert!(read.contains(expected), "{read}");
    assert_eq!(Journal::open(folder.path(), record).unwrap_err().to_string(), read);
    fs::write(folder.path().join(SAMPLES), text).unwrap();
    let mut journal = Journal::open(folder.path(), record).unwrap();
    let refused = journal.append(&sample(1, 3.0)).unwrap_err().to_string();
    assert!(refused.contains("a sample is not written: it repeats round 1"), "{refused}");
    for sample in [
        Sample { twin: true, ..sample(1, 3.0) },
        Sample { attempt: 2, ..sample(1, 3.0) },
        Sample { session: 2, ..sample(1, 3.0) },
        Sample { error: Some(Failure::void("busy")), ..sample(1, 3.0) },
    ] {
        journal.append(&sample).unwrap();
    }
}

/// Each of these would count as evidence if it were not refused.
#[test]
fn impossible_samples_are_damaged_lines() {
    let clock = Clock { tsc_hertz: 0.0, core_before: 4e9, core_after: 4e9, ..Clock::default() };
    let slow = Clock { tsc_hertz: 2e9, core_after: 1e-3, ..clock };
    let sample = || sample(1, 1.0);
    for (what, impossible) in [
        ("'session' is 0 of 3", Sample { session: 0, ..sample() }),
        ("'session' is 4 of 3", Sample { session: 4, ..sample() }),
        ("'attempt' is 0", Sample { attempt: 0, ..sample() }),
        ("'attempt' is 4294967295", Sample { attempt: u32::MAX, ..sample() }),
        ("'at' is -1", Sample { at: -1.0, ..sample() }),
        ("'seconds' is 1000", Sample { seconds: 1e300, ..sample() }),
        ("a clock is 0 Hz", Sample { clock: Some(clock), ..sample() }),
        ("a clock is 0.001 Hz", Sample { clock: Some(slow), ..sample() }),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(folder.path(), record).unwrap();
        journal.append(&self::sample(0, 1.0)).unwrap();
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
