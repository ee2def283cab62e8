//! A full disk, simulated by a limit that affects the whole process; so this test has its own process.

mod record;

use std::fs;

use lab::journal::{Journal, SAMPLES, open};
use lab::sample::Sample;
use record::record;

fn sample(round: u32, value: f64) -> Sample {
    let values = [("throughput".to_string(), value)].into();
    let (experiment, session) = ("copy/throughput".into(), 1);
    Sample { experiment, round, session, attempt: 1, values, ..Sample::default() }
}

#[test]
fn a_full_disk_loses_no_earlier_sample() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = Journal::open(folder.path(), record).unwrap();
    journal.append(&sample(0, 1.0)).unwrap();
    let path = folder.path().join(SAMPLES);
    let whole = fs::metadata(&path).unwrap().len();
    // A limit on the file size truncates a write, as a full disk does.
    let limit = whole + 40;
    let line = with_file_limit(limit, || journal.append(&sample(1, 2.0)).unwrap_err().to_string());
    assert!(line.contains("the samples before this one are kept"), "{line}");
    assert_eq!(fs::metadata(&path).unwrap().len(), whole, "the incomplete line is removed");
    journal.append(&sample(1, 2.0)).unwrap();
    assert_eq!(open(folder.path()).unwrap().samples.len(), 2);
}

fn with_file_limit<T>(limit: u64, work: impl FnOnce() -> T) -> T {
    // As `main` does.
    machine::file::survive_size_limit();
    // SAFETY: `old` and `new` are valid `rlimit` structs, which outlive the calls.
    unsafe {
        let mut old: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_FSIZE, &mut old);
        let new = libc::rlimit { rlim_cur: limit, rlim_max: old.rlim_max };
        libc::setrlimit(libc::RLIMIT_FSIZE, &new);
        let result = work();
        libc::setrlimit(libc::RLIMIT_FSIZE, &old);
        result
    }
}
