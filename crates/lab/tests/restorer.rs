//! Who ends all processes lets those finish who put back what the others changed.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::fs;
use std::path::Path;

use lab::descendants;
use machine::restorer::Restorer;
use machine::setting::{self, Setting};

#[allow(dead_code, reason = "not all of it is of use here")]
#[path = "../../machine/src/forked.rs"]
mod forked;

/// A process that changes a setting and goes on; gives its number once the setting is changed.
fn changes(setting: &Path, records: &Path) -> i32 {
    let child = forked::fork(|| {
        let changed = Setting::record_in(records, setting).unwrap();
        changed.set("800000").unwrap();
        // SAFETY: waits for a signal; numbers only.
        unsafe { libc::pause() };
    });
    forked::wait("the child changes the setting", || {
        fs::read_to_string(setting).unwrap() == "800000"
    });
    child
}

/// The one test of this file, for it ends all processes that were started here.
#[test]
fn a_setting_is_put_back_before_its_restorer_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let (setting, records) = (folder.path().join("limit"), folder.path().join("records"));
    descendants::adopt().unwrap();
    for time in 0..20 {
        fs::write(&setting, "4000000").unwrap();
        changes(&setting, &records);
        descendants::end(&[]);
        assert_eq!(fs::read_to_string(&setting).unwrap(), "4000000", "time {time}");
        assert_eq!(fs::read_dir(&records).unwrap().count(), 0, "time {time}");
    }
    // One whose owner was ended just before is already at work, and is no one's probe.
    let owner = changes(&setting, &records);
    // SAFETY: our own child; numbers only.
    unsafe { libc::kill(owner, libc::SIGKILL) };
    descendants::end(&[]);
    assert_eq!(fs::read_to_string(&setting).unwrap(), "4000000");
    let left = setting::restore_left_in(&records);
    assert!(left.restored.is_empty() && left.failed.is_empty(), "{left:?}");
    // One that is at work for long is left to its end.
    let put_back = folder.path().join("put-back");
    forked::fork(|| {
        // SAFETY: the name ends in zero, and a process of this name counts as a restorer.
        unsafe { libc::prctl(libc::PR_SET_NAME, c"tollgate-undo".as_ptr(), 0, 0, 0) };
        std::thread::sleep(std::time::Duration::from_secs(3));
        fs::write(&put_back, "").unwrap();
    });
    forked::wait("the child has its name", || {
        let names = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
            let process: u32 = entry.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
            let parent = stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse::<u32>().ok()?;
            (parent == std::process::id()).then(|| machine::restorer::is_restorer(process))
        });
        names.into_iter().any(|named| named)
    });
    descendants::end(&[]);
    assert!(put_back.exists());
    // One that has nothing to wait for does not hold up the end for ever.
    let idle = Restorer::start(machine::restorer::Restore::file(&setting, "7").unwrap()).unwrap();
    let begun = std::time::Instant::now();
    descendants::end(&[]);
    assert!(begun.elapsed().as_secs() < 30);
    drop(idle);
    assert_eq!(fs::read_to_string(&setting).unwrap(), "4000000");
}
