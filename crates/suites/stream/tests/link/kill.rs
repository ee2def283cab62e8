//! Nothing remains of a command that is killed.

use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use stream::link::namespace::Namespace;

use crate::packets::{echo, folder};
use crate::processes::Running;
use crate::{Pair, alone, state};

/// Waits until a condition is true. The kernel releases sockets and programs some time after a process has ended.
pub(crate) fn soon(what: &str, mut is_true: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_true() {
        assert!(start.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn no_program_stays_attached_and_no_namespace_exists_after_a_kill() {
    let _alone = alone();
    let Some(pair) = Pair::create("stream: links after SIGKILL") else { return };
    let (folder, _) = folder();
    let words = "generate x.pcap 1kpps --interface veth0 --allow network";
    // Twice, so that the queues are free again.
    for _ in 0..2 {
        let echo = echo(&pair.b, folder.path(), "--interface veth1");
        let mut generator = Running::start(Some(&pair.a), folder.path(), words);
        generator.says(" s  sent");
        let has_xdp =
            || [(&pair.a, "veth0"), (&pair.b, "veth1")].map(|(a, b)| state(a, b).unwrap().has_xdp);
        assert_eq!(has_xdp(), [true, true]);
        generator.killed();
        soon("a program stays attached", || has_xdp() == [false, true]);
        echo.killed();
        soon("a program stays attached", || has_xdp() == [false, false]);
    }
    assert!([&pair.a, &pair.b].iter().all(|one| !is_used(number_of(one))));
}

/// Returns the number by which the kernel identifies a namespace.
pub(crate) fn number_of(namespace: &Namespace) -> u64 {
    rustix::fs::fstat(namespace.as_fd()).unwrap().st_ino
}

/// Returns whether a process is in a namespace.
pub(crate) fn is_used(namespace: u64) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap();
    let is_in = |process: std::fs::DirEntry| {
        std::fs::metadata(process.path().join("ns/net")).is_ok_and(|net| net.ino() == namespace)
    };
    processes.flatten().any(is_in)
}

#[test]
fn a_tap_interface_is_removed_after_a_kill_and_its_user_is_told() {
    let _alone = alone();
    let test = "stream: TAP after SIGKILL";
    let Some(pair) = Pair::create(test) else { return };
    if !std::path::Path::new("/dev/net/tun").exists() {
        machine::untested::note(test, &"requires /dev/net/tun");
        return;
    }
    let (folder, _) = folder();
    let wire = echo(&pair.a, folder.path(), "--interface tap0 --link tap");
    let user = echo(&pair.a, folder.path(), "--interface tap0 --link af-packet");
    assert!(state(&pair.a, "tap0").is_some());
    wire.killed();
    soon("the interface stays", || state(&pair.a, "tap0").is_none());
    let (status, output, errors) = user.ends();
    assert_eq!(status.code(), Some(1));
    assert!(output.contains("\"packets\":"), "what was echoed is printed: {output}");
    assert!(errors.lines().last().unwrap().contains("tap0: No such device"), "{errors}");
}
