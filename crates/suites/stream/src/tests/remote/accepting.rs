//! A NIC whose process has no file descriptors left; in a separate process, since the limit is per process.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{FORM, Found, NO_FD, Raw, SOON};
use crate::nic::remote::fds::Timeout;
use crate::nic::remote::message::{Reply, Request, VERSION};

/// The environment variable that makes the process serve the NIC.
const PART: &str = "TOLLGATE_TEST_NO_DESCRIPTORS";
/// The prefix of the line on which the NIC's process prints its path.
const PATH: &str = "the NIC is at ";
/// The limit of file descriptors in the NIC's process.
const DESCRIPTORS: u64 = 256;

#[test]
#[ignore = "what another test starts in a separate process"]
fn the_nic_without_descriptors() {
    if std::env::var_os(PART).is_none() {
        return;
    }
    let found = Found::new();
    let limit = Rlimit { current: Some(DESCRIPTORS), ..getrlimit(Resource::Nofile) };
    setrlimit(Resource::Nofile, limit).unwrap();
    let mut all = Vec::new();
    let full = loop {
        match File::open("/dev/null") {
            Ok(file) => all.push(file),
            Err(why) => break why,
        }
    };
    assert_eq!(full.raw_os_error(), Some(libc::EMFILE));
    println!("{PATH}{}", found.folder.path().join("nic").display());
    let mut lines = std::io::stdin().lines();
    lines.next().unwrap().unwrap();
    drop(all);
    // Until the other process has finished.
    lines.next().unwrap().unwrap();
}

#[test]
fn connections_wait_while_no_file_descriptor_is_free() {
    let mut nic = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "tests::remote::accepting::the_nic_without_descriptors"])
        .args(["--ignored", "--nocapture"])
        .env(PART, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(nic.stdout.take().unwrap()).lines().map(Result::unwrap);
    let path = lines.find_map(|line| Some(line.split_once(PATH)?.1.to_owned()));
    let path = path.expect("the NIC's process exited early");
    let connect = || {
        let raw = Raw(UnixStream::connect(Path::new(&path)).unwrap());
        Request::Hello(VERSION, Some(FORM)).send(&raw.0, None, SOON).unwrap();
        raw
    };
    // The kernel may have reserved a descriptor before it waited for connections, so the first may succeed.
    let (_first, second) = (connect(), connect());
    let mut early = [0; 1];
    second.0.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let why = std::io::Read::read(&mut &second.0, &mut early).unwrap_err();
    assert_eq!(why.kind(), std::io::ErrorKind::WouldBlock, "it was not accepted: {why}");
    let mut orders = nic.stdin.take().unwrap();
    orders.write_all(b"free them\n").unwrap();
    let answer = Reply::receive(&second.0, Timeout::within(SOON)).unwrap();
    assert!(matches!(answer, Some((Reply::Welcome(_), None))), "{answer:?}");
    let attached = second.ask(Request::Attach, NO_FD);
    assert!(matches!(attached, Some((Reply::Attached(..), Some(_)))), "{attached:?}");
    orders.write_all(b"end\n").unwrap();
    let status = nic.wait().unwrap();
    // The child prints the result of its test.
    assert!(status.success(), "{:?}", lines.collect::<Vec<_>>());
}
