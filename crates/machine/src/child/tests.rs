use super::*;
use crate::forked;
use crate::mapping::Mapping;
use crate::memfd::Memfd;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

/// Set in the copy of this test program that acts as the parent to be killed.
const PLAYS_PARENT: &str = "MACHINE_TEST_PLAYS_PARENT";

pub(super) fn gone_within(pid: u32, limit: Duration) -> bool {
    let begin = Instant::now();
    let alive = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // A zombie that is not reaped yet is dead too.
        crate::proc::stat_field(&stat, 3).is_some_and(|state: char| state != 'Z')
    };
    while alive() {
        if begin.elapsed() > limit {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    true
}

/// The parent's part of the next test, not a test by itself.
#[test]
fn acts_as_parent() {
    if std::env::var_os(PLAYS_PARENT).is_none() {
        return;
    }
    let mut command = Command::new("sleep");
    command.arg("60");
    die_with_parent(&mut command);
    let mut child = command.spawn().unwrap();
    println!("\nchild {}", child.id());
    child.wait().unwrap();
}

#[test]
fn a_child_ends_when_its_parent_is_killed() {
    let mut parent = Command::new(std::env::current_exe().unwrap())
        .args(["child::tests::acts_as_parent", "--exact", "--nocapture"])
        .env(PLAYS_PARENT, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(parent.stdout.take().unwrap()).lines();
    let mut numbers =
        lines.map_while(Result::ok).filter_map(|line| line.strip_prefix("child ")?.parse().ok());
    let child: u32 = numbers.next().expect("the parent prints the child's ID");
    assert!(!gone_within(child, Duration::from_millis(20)), "the child runs");
    parent.kill().unwrap();
    assert!(gone_within(child, Duration::from_secs(5)), "the child outlived its parent");
    parent.wait().unwrap();
}

#[test]
fn a_child_of_a_dead_parent_is_not_started() {
    let stranger = Pid::from_raw(i32::MAX).unwrap();
    let refused = std::thread::spawn(move || follow(stranger).unwrap_err().raw_os_error());
    assert_eq!(refused.join().unwrap(), Some(libc::ESRCH));
}

#[test]
fn a_fork_shares_memory_and_returns_its_code() {
    let memfd = Memfd::create("test", 4096).unwrap();
    let mapping = Mapping::shared(&memfd, 4096).unwrap();
    // SAFETY: the mapping is aligned, long enough, and outlives the reference.
    let word = unsafe { &*mapping.as_ptr().cast::<AtomicU32>() };
    // SAFETY: the child only stores to an atomic.
    let mut child = unsafe {
        fork_child(|| {
            word.store(42, Ordering::Release);
            7
        })
    }
    .unwrap();
    let status = child.wait(Duration::from_secs(10)).unwrap().expect("it ends");
    assert_eq!(status.code(), Some(7));
    assert_eq!(word.load(Ordering::Acquire), 42);
    assert_eq!(child.wait(Duration::ZERO).unwrap(), Some(status));
}

#[test]
fn a_relative_home_is_not_passed_on() {
    let left = |home: Option<&str>, given: Option<&str>| {
        let mut command = Command::new("sh");
        command.args(["-c", "echo ${HOME-none}"]);
        given.map(|given| command.env("HOME", given));
        drop_home(&mut command, home.map(OsStr::new));
        let changed = command.get_envs().find(|(name, _)| *name == "HOME");
        changed.map(|(_, value)| value.map(|value| value.to_str().unwrap().to_owned()))
    };
    for relative in ["", "relative", "./relative"] {
        assert_eq!(left(Some(relative), None), Some(None), "it is removed");
        assert_eq!(left(Some(relative), Some("/tmp")), Some(Some("/tmp".into())));
    }
    for fine in [None, Some("/root")] {
        assert_eq!(left(fine, None), None, "it is unchanged");
    }
}

/// The child's part of the next test, not a test by itself.
#[test]
fn acts_as_child_of_a_relative_home() {
    if std::env::var("HOME").as_deref() == Ok("relative") {
        let mut command = Command::new("sh");
        command.args(["-c", "echo home ${HOME-none}"]);
        let output = output_within(&mut command, b"", Duration::from_secs(60)).unwrap();
        println!("\n{}", String::from_utf8(output.stdout).unwrap());
    }
}

#[test]
fn programs_get_no_relative_home() {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["child::tests::acts_as_child_of_a_relative_home", "--exact", "--nocapture"])
        .env("HOME", "relative")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.lines().any(|line| line == "home none"), "{text}");
}

/// Returns what a child of a test writes to standard error when its body panics.
fn stderr_of(body: impl FnOnce()) -> String {
    let (mut read, write) = std::io::pipe().unwrap();
    let mut child = forked::fork(|| {
        // SAFETY: the call takes only numbers; only the child's descriptor 2 changes.
        unsafe { libc::dup2(write.as_raw_fd(), 2) };
        body();
    });
    drop(write);
    let mut text = String::new();
    std::io::Read::read_to_string(&mut read, &mut text).unwrap();
    let status = child.wait(Duration::from_secs(60)).unwrap().unwrap();
    assert_eq!(status.code(), Some(101));
    text
}

#[test]
fn a_panic_in_a_child_is_printed_without_the_hook() {
    assert_eq!(stderr_of(|| panic!("a text")), "in a child of a test: a text\n");
    let number = std::hint::black_box(7);
    assert_eq!(stderr_of(|| panic!("made {number}")), "in a child of a test: made 7\n");
}

#[test]
fn a_fork_is_waited_for_up_to_a_limit_and_killed_when_dropped() {
    // SAFETY: the child only sleeps by a system call.
    let mut child = unsafe {
        fork_child(|| {
            loop {
                libc::pause();
            }
        })
    }
    .unwrap();
    let (pid, begin) = (child.pid(), Instant::now());
    assert_eq!(child.wait(Duration::from_millis(30)).unwrap(), None);
    assert!(begin.elapsed() >= Duration::from_millis(30));
    drop(child);
    assert!(gone_within(pid, Duration::ZERO));
}
