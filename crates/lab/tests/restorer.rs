//! Ending all descendants waits for restorers, which restore the settings that dead processes changed.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::fs;
use std::path::Path;

use lab::descendants;
use machine::child;
use machine::restorer::Restorer;
use machine::setting::{self, Setting};

#[allow(dead_code, reason = "this test uses a part")]
#[path = "../../machine/src/forked.rs"]
mod forked;

/// Starts a process that changes a setting and waits; returns its ID when the setting is changed.
fn changes(setting: &Path, records: &Path) -> i32 {
    let child = forked::fork(|| {
        let changed = Setting::record_in(records, setting).unwrap();
        changed.set("800000").unwrap();
        // SAFETY: `pause` takes no argument.
        unsafe { libc::pause() };
    });
    forked::wait("the child changes the setting", || {
        fs::read_to_string(setting).unwrap() == "800000"
    });
    let process = child.pid() as i32;
    // `descendants::end` reaps it.
    std::mem::forget(child);
    process
}

/// The only test of this file, because it ends all child processes.
#[test]
fn a_setting_is_restored_before_its_restorer_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let (setting, records) = (folder.path().join("limit"), folder.path().join("records"));
    descendants::adopt().unwrap();
    for attempt in 0..20 {
        fs::write(&setting, "4000000").unwrap();
        changes(&setting, &records);
        descendants::end(&[]);
        assert_eq!(fs::read_to_string(&setting).unwrap(), "4000000", "attempt {attempt}");
        assert_eq!(fs::read_dir(&records).unwrap().count(), 0, "attempt {attempt}");
    }
    // A restorer whose owner has just died is already running.
    let owner = changes(&setting, &records);
    // SAFETY: `kill` takes two integers; the process is a child that is not reaped.
    unsafe { libc::kill(owner, libc::SIGKILL) };
    descendants::end(&[]);
    assert_eq!(fs::read_to_string(&setting).unwrap(), "4000000");
    let left = setting::restore_left_in(&records);
    assert!(left.restored.is_empty() && left.failed.is_empty(), "{left:?}");
    // A slow restorer is waited for.
    let restored = folder.path().join("restored");
    std::mem::forget(forked::fork(|| {
        // SAFETY: the name is a null-terminated string. A process with this name is treated as a restorer.
        unsafe { libc::prctl(libc::PR_SET_NAME, c"tollgate-undo".as_ptr(), 0, 0, 0) };
        std::thread::sleep(std::time::Duration::from_secs(3));
        fs::write(&restored, "").unwrap();
    }));
    forked::wait("the child has its name", || {
        let names = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
            let process: u32 = entry.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
            let parent: u32 = machine::proc::stat_field(&stat, 4)?;
            (parent == std::process::id()).then(|| machine::restorer::is_restorer(process))
        });
        names.into_iter().any(|named| named)
    });
    descendants::end(&[]);
    assert!(restored.exists());
    // A restorer that does not exit is killed eventually.
    let idle = Restorer::start(machine::restorer::Restore::file(&setting, "7").unwrap()).unwrap();
    let start = std::time::Instant::now();
    descendants::end(&[]);
    assert!(start.elapsed().as_secs() < 30);
    drop(idle);
    assert_eq!(fs::read_to_string(&setting).unwrap(), "4000000");
}
